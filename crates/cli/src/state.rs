//! The location of journals and artifacts.

use std::path::{Path, PathBuf};

use stagger_asks::{AskLedger, LedgerLocation};
use stagger_core::model::RunId;
use stagger_engine::artifacts::Artifacts;
use stagger_engine::database::StoreLocation;
use stagger_engine::store::JournalStore;

use crate::args::Cli;
use crate::config;
use crate::error::CliError;

/// How names of simulated runs begin.
pub(crate) const SIMULATED: &str = "sim-";

/// The file of asks and grants.
const ASKS: &str = "asks.db";

/// The folder of journals and artifacts.
pub(crate) fn state_folder(cli: &Cli) -> Result<PathBuf, CliError> {
    if let Some(folder) = &cli.state {
        return Ok(folder.clone());
    }
    let home = std::env::var_os("XDG_STATE_HOME")
        .map(PathBuf::from)
        .or_else(|| std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".local/state")));
    home.map(|home| home.join("stagger"))
        .ok_or_else(|| CliError::usage("there is no home folder for journals").hint("--state names a folder"))
}

/// Where journals are: the database of the configuration, or a file in the folder.
pub(crate) fn store_location(cli: &Cli) -> Result<StoreLocation, CliError> {
    Ok(match config::store(cli)? {
        Some(address) => StoreLocation::Server(address),
        None => StoreLocation::File(state_folder(cli)?.join("journal.db")),
    })
}

/// The same of that configuration, with a folder of its own.
pub(crate) fn place_of(config: &Path, folder: &Path) -> Result<StoreLocation, CliError> {
    Ok(match config::store_of(config)? {
        Some(address) => StoreLocation::Server(address),
        None => StoreLocation::File(folder.join("journal.db")),
    })
}

/// The store.
pub(crate) async fn store(cli: &Cli) -> Result<Box<dyn JournalStore>, CliError> {
    Ok(store_location(cli)?.open().await?)
}

/// Where asks and grants are: beside the journals.
pub(crate) fn ledger_location(cli: &Cli) -> Result<LedgerLocation, CliError> {
    Ok(match config::path(cli) {
        Ok(path) => ledger_of(&path, &state_folder(cli)?)?,
        Err(_) => LedgerLocation::File(state_folder(cli)?.join(ASKS)),
    })
}

/// The same of that configuration, with a folder of its own.
pub(crate) fn ledger_of(config: &Path, folder: &Path) -> Result<LedgerLocation, CliError> {
    Ok(match config::database_of(config)? {
        Some((url, password)) => LedgerLocation::Server { url, password },
        None => LedgerLocation::File(folder.join(ASKS)),
    })
}

/// Asks and grants.
pub(crate) async fn ledger(cli: &Cli) -> Result<AskLedger, CliError> {
    Ok(ledger_location(cli)?.open().await?)
}

/// Where artifacts go.
pub(crate) fn artifacts(cli: &Cli) -> Result<Artifacts, CliError> {
    Ok(Artifacts::in_folder(state_folder(cli)?.join("artifacts")))
}

/// That run, or the newest.
pub(crate) async fn run_or_newest(store: &dyn JournalStore, run: Option<&RunId>) -> Result<RunId, CliError> {
    if let Some(run) = run {
        return Ok(run.clone());
    }
    let newest = store.runs().await?.into_iter().next();
    newest.map(|listed| listed.run).ok_or_else(|| {
        CliError::usage("there is no run in this store")
            .hint("`stagger run upgrade --to RELEASE` starts one; --state names another store")
    })
}
