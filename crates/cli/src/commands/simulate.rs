//! `simulate` and `demo`.

use std::path::Path;

use crate::args::Cli;
use crate::error::CliError;
use crate::exit::Exit;

/// Carries a scenario out on a simulated cluster.
pub(crate) async fn simulate(_cli: &Cli, scenario: &Path, _fast: bool) -> Result<Exit, CliError> {
    Err(CliError::usage(format!("{} cannot be simulated yet", scenario.display())))
}
