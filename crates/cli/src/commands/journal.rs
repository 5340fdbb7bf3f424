//! Reads journals: of a run in the store, or from a file.

use std::io::BufRead as _;
use std::path::Path;

use jiff::Timestamp;
use serde_json::{Map, Value};
use stagger_core::model::RunId;
use stagger_core::run::Entry;
use stagger_core::view::RunView;
use stagger_engine::driver::DriveError;
use stagger_engine::store::JournalStore;
use stagger_report::{History, Reading};

use super::kube;
use crate::args::{Cli, JournalOf, OperatorCluster};
use crate::error::CliError;
use crate::state::{SIMULATED, run_or_newest, store};

/// A journal, and where it is from, for messages.
pub(crate) struct NamedJournal {
    /// Its events.
    pub(crate) entries: Vec<Entry>,
    /// `the journal of lab-20260101-000000`, or a file.
    pub(crate) from: String,
}

/// Where the journals are: of this machine's runs, or of an operator's.
pub(crate) async fn store_of(cli: &Cli, kube: &OperatorCluster) -> Result<Box<dyn JournalStore>, CliError> {
    if kube.is_given() {
        return Ok(Box::new(kube::journals(kube).await?));
    }
    store(cli).await
}

/// The journal that somebody asks for.
pub(crate) async fn journal(cli: &Cli, of: &JournalOf) -> Result<NamedJournal, CliError> {
    if let Some(file) = &of.from {
        return Ok(NamedJournal {
            entries: journal_file(file)?,
            from: file.display().to_string(),
        });
    }
    let store = store_of(cli, &of.kube).await?;
    let run = run_or_newest(&*store, of.run.as_ref()).await?;
    Ok(NamedJournal {
        entries: store.journal(&run).await?,
        from: format!("the journal of {run}"),
    })
}

/// A run as its journal in the store tells of it.
pub(crate) async fn reading(store: &dyn JournalStore, run: &RunId) -> Result<Reading, CliError> {
    let read = Reading::of(&store.journal(run).await?).map_err(DriveError::Illegal)?;
    read.ok_or_else(|| no_start(&format!("the journal of {run}")))
}

/// The time by which a run is told: a simulated one has a clock of its own, which stands still between its events.
pub(crate) fn now(view: &RunView, history: &History) -> Timestamp {
    if view.run.as_str().starts_with(SIMULATED) {
        history.last
    } else {
        Timestamp::now()
    }
}

/// What is said of a journal that does not begin as one does.
pub(crate) fn no_start(from: &str) -> CliError {
    CliError::usage(format!("the first event of {from} is not the start of a run"))
}

/// Events, one a line: `journal.jsonl` of `artifacts --bundle`, or what `history RUN --json` prints.
fn journal_file(file: &Path) -> Result<Vec<Entry>, CliError> {
    let shown = file.display();
    let opened = std::fs::File::open(file);
    let opened = opened.map_err(|error| CliError::usage(format!("{shown} cannot be read: {error}")))?;
    let mut entries = Vec::new();
    for (number, line) in (1..).zip(std::io::BufReader::new(opened).lines()) {
        let line = line.map_err(|error| CliError::usage(format!("{shown} cannot be read: {error}")))?;
        if line.trim().is_empty() {
            continue;
        }
        let wrong = |error: serde_json::Error| {
            CliError::usage(format!(
                "line {number} of {shown} is no event of a journal: {error}"
            ))
            .hint("`stagger history RUN --json` prints a journal")
        };
        entries.push(entry(&line).map_err(wrong)?);
    }
    Ok(entries)
}

/// An event in its place, with or without the name of the document before it.
pub(crate) fn entry(line: &str) -> Result<Entry, serde_json::Error> {
    let mut fields: Map<String, Value> = serde_json::from_str(line)?;
    fields.remove("schema");
    let seq = serde_json::from_value(fields.remove("seq").unwrap_or_default())?;
    let at = serde_json::from_value(fields.remove("at").unwrap_or_default())?;
    let event = serde_json::from_value(fields.into())?;
    Ok(Entry { seq, at, event })
}
