//! `ironic record`: the release of a service, where it cannot be determined.

use stagger_engine::supervisor::{Identity, SuperviseError};
use stagger_ironic::backend::IronicBackend;

use super::versions;
use crate::args::Cli;
use crate::error::CliError;
use crate::exit::Exit;
use crate::{clusters, config};

/// `ironic record`
pub(crate) async fn record(
    cli: &Cli,
    service: &str,
    release: &str,
    pin: Option<&str>,
) -> Result<Exit, CliError> {
    let config = config::read(cli)?;
    let settings = config.ironic().ok_or_else(|| {
        CliError::usage("the configuration is not for an Ironic cluster")
            .hint("--config names the one that is")
    })?;
    let by = Identity::current_process();
    let backend = IronicBackend::new(settings, None)?;
    let written = backend.record_release(&by, service, release, pin).await;
    written.map_err(SuperviseError::Lock)?;
    versions::show(cli, &*clusters::of_config(cli)?, false).await
}
