//! `osd prepare`

use stagger_rook::provision::Stage;
use stagger_rook::provision::prepare::{PrepareOptions, prepare};

use super::operator::connect;
use crate::args::PrepareArgs;
use crate::error::CliError;
use crate::exit::Exit;
use crate::print;

/// Makes OSDs on devices of this node and reports them. Exit 0 if a report could be written: what went wrong
/// with a device is in it.
pub(crate) async fn prepare_devices(args: &PrepareArgs) -> Result<Exit, CliError> {
    let key = std::env::var("ROOK_CEPH_SECRET").map_err(|_| {
        CliError::usage("ROOK_CEPH_SECRET is not set").hint("it is the key of the user that makes OSDs")
    })?;
    let args = PrepareOptions {
        namespace: args.namespace.clone(),
        node: args.node.clone(),
        claim: args.pvc.clone(),
        location: args.location.clone(),
        devices: args.device.clone(),
        endpoints: args.endpoints.clone(),
        user: args.user.clone(),
        key,
        fsid: args.fsid.clone(),
    };
    let client = connect().await?;
    let status = prepare(&client, &args)
        .await
        .map_err(|error| CliError::new(Exit::Unreachable, error.to_string()))?;
    for osd in &status.osds {
        print::data_line(&format!("osd.{} on {}", osd.id, osd.device));
    }
    if status.stage() == Stage::Failed {
        print::data_line(&format!("not prepared: {}", status.message));
    }
    Ok(Exit::Done)
}
