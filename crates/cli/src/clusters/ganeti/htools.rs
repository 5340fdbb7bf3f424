//! A Ganeti cluster as `hroller` reads it: its text format, a request to an allocator, a folder of RAPI
//! bodies; over luxi, or over RAPI.

use std::path::Path;

use stagger_ganeti::backend::GanetiBackend;
use stagger_ganeti::config::GanetiSettings;
use stagger_ganeti::loaders::iallocator;
use stagger_ganeti::loaders::luxi;
use stagger_ganeti::loaders::rapi::Bodies;
use stagger_ganeti::loaders::text;
use stagger_ganeti::model::GanetiCluster;
use stagger_ganeti::rapi::fingerprint::presented_fingerprint;

use crate::args::Cli;
use crate::config;
use crate::error::CliError;
use crate::exit::Exit;
use crate::print;

/// Reads a cluster in the text format.
pub(crate) fn text_at(path: &Path) -> Result<GanetiCluster, CliError> {
    text::read(&text_of(path)?).map_err(|error| no_text(path, error.to_string()))
}

/// The text of such a file.
pub(super) fn text_of(path: &Path) -> Result<String, CliError> {
    let bytes =
        std::fs::read(path).map_err(|error| CliError::usage(format!("read {}: {error}", path.display())))?;
    String::from_utf8(bytes).map_err(|error| {
        let valid = error.utf8_error().valid_up_to();
        let good = String::from_utf8_lossy(&error.as_bytes()[..valid]);
        let line = good.matches('\n').count() + 1;
        no_text(path, format!("line {line}: it is not UTF-8"))
    })
}

pub(super) fn no_text(path: &Path, why: String) -> CliError {
    let mut refused = CliError::usage(format!(
        "{} is no cluster in Ganeti's text format",
        path.display()
    ));
    refused.causes.push(why);
    refused
}

/// Reads a request to an allocator. A node of a KVM cluster needs so much memory for itself, as everywhere below.
pub(crate) fn request_at(path: &Path, kvm_node_memory: u64) -> Result<GanetiCluster, CliError> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| CliError::usage(format!("read {}: {error}", path.display())))?;
    iallocator::read(&text, kvm_node_memory).map_err(|error| CliError::caused(Exit::Usage, &error))
}

/// Reads a folder of RAPI bodies.
pub(crate) fn bodies_at(folder: &Path, kvm_node_memory: u64) -> Result<GanetiCluster, CliError> {
    let bodies = Bodies::in_folder(folder).and_then(|bodies| bodies.cluster_with(kvm_node_memory));
    bodies.map_err(|error| CliError::caused(Exit::Usage, &error))
}

/// Asks the daemon of the master that this machine is.
pub(crate) fn luxi_at(socket: &str, kvm_node_memory: u64) -> Result<GanetiCluster, CliError> {
    let bodies = luxi::bodies_at(Path::new(socket)).map_err(|error| {
        CliError::caused(Exit::Unreachable, &error).hint(
            "ganeti-luxid listens on the master only; from elsewhere give -m with the cluster's address",
        )
    })?;
    bodies
        .cluster_with(kvm_node_memory)
        .map_err(|error| CliError::caused(Exit::Usage, &error))
}

/// The cluster whose RAPI is there, as the configuration reaches it if there is one: its user, and whom it trusts. Where any
/// certificate is accepted, no password is sent.
pub(crate) async fn cluster_at(
    cli: Option<&Cli>,
    address: &str,
    kvm_node_memory: u64,
    any_certificate: bool,
) -> Result<GanetiCluster, CliError> {
    let configured = match cli {
        Some(cli) if !any_certificate => config::ganeti(cli)?,
        _ => None,
    };
    let settings = if let Some(mut settings) = configured {
        settings.cluster.addresses = vec![address.to_owned()];
        settings
    } else {
        let mut settings =
            GanetiSettings::read_only(address).map_err(|error| CliError::usage(error.to_string()))?;
        if any_certificate && !address.starts_with("http://") {
            let fingerprint = presented_fingerprint(address).await?;
            print::status_line(&format!(
                "stagger: unsafe: any certificate of {address} is accepted; this one's fingerprint is {fingerprint}"
            ));
            settings.cluster.fingerprint = Some(fingerprint);
        }
        settings
    };
    let backend = GanetiBackend::new(settings, None)?;
    let body = async |path: &str| {
        match backend.rapi().get(path).await {
        Ok(answer) => Ok(answer.to_string()),
        Err(error) => Err(CliError::from(error.of("look at the cluster", false)).hint(
            "a configuration (--config) says what to trust: `ca` or `fingerprint`, and `user` if RAPI needs one; for \
             hroller also --accept-any-certificate",
        )),
    }
    };
    let bodies = Bodies {
        info: body("/2/info").await?,
        groups: body("/2/groups?bulk=1").await?,
        nodes: body("/2/nodes?bulk=1").await?,
        instances: body("/2/instances?bulk=1").await?,
    };
    bodies
        .cluster_with(kvm_node_memory)
        .map_err(|error| CliError::caused(Exit::Unreachable, &error))
}
