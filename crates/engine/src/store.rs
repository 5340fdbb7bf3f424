//! Where journals are kept.

use jiff::Timestamp;
use stagger_core::model::{ClusterName, RunId};
use stagger_core::run::{Command, Entry, Event, Seq};

/// A store that could not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Another holder's fencing token is larger: stop at once.
    #[error("fenced out: this process has token {ours}, and the journal of {cluster} has seen {newest}")]
    FencedOut {
        /// Of which cluster.
        cluster: ClusterName,
        /// Ours.
        ours: u64,
        /// The newest.
        newest: u64,
    },
    /// The journal has moved on since it was read.
    #[error("the journal of run {run} stands at event {found}, not at {expected}")]
    MovedOn {
        /// Which run.
        run: RunId,
        /// Where it was thought to stand.
        expected: Seq,
        /// Where it stands.
        found: Seq,
    },
    /// What was read is not what was written.
    #[error("the journal of run {run} is damaged after event {last_good}: {why}")]
    Damaged {
        /// Which run.
        run: RunId,
        /// The last event that is as it was written; 0: none.
        last_good: Seq,
        /// What is wrong with the next one.
        why: String,
    },
    /// No such run.
    #[error("there is no run {0} in this store")]
    NoRun(RunId),
    /// The store itself failed.
    #[error("{tried}: {why}")]
    Failed {
        /// What was tried, on what.
        tried: String,
        /// Why it failed.
        why: String,
    },
}

/// A run as listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// Its name.
    pub run: RunId,
    /// Its cluster.
    pub cluster: ClusterName,
    /// When it was started.
    pub started: Timestamp,
}

/// Journals, the fencing tokens that guard them, and what people ask of runs.
///
/// When a call returns, what it wrote is durable: it survives the end of the process and of the
/// machine.
pub trait Store: Send {
    /// The newest fencing token seen of a cluster; 0 if none.
    fn fence(&self, cluster: &ClusterName) -> Result<u64, StoreError>;

    /// Makes this the newest fencing token of a cluster: appends with older ones are refused from
    /// now on.
    fn raise(&mut self, cluster: &ClusterName, fence: u64, holder: &str) -> Result<(), StoreError>;

    /// Begins a journal. Until it has returned, the run has not begun.
    fn begin(
        &mut self,
        cluster: &ClusterName,
        fence: u64,
        at: Timestamp,
        start: Event,
    ) -> Result<Entry, StoreError>;

    /// Appends events in one piece: all of them or none.
    fn append(
        &mut self,
        run: &RunId,
        fence: u64,
        after: Seq,
        at: Timestamp,
        events: Vec<Event>,
    ) -> Result<Vec<Entry>, StoreError>;

    /// The whole journal of a run, verified.
    fn journal(&self, run: &RunId) -> Result<Vec<Entry>, StoreError>;

    /// All runs, the newest first.
    fn runs(&self) -> Result<Vec<Listed>, StoreError>;

    /// Leaves a command for whoever carries the run out.
    fn ask(&mut self, run: &RunId, at: Timestamp, command: &Command, by: &str) -> Result<(), StoreError>;

    /// The commands that nobody has taken yet, oldest first, with their ids.
    fn asked(&self, run: &RunId) -> Result<Vec<(i64, Command, String)>, StoreError>;

    /// Says that commands up to that id are in the journal.
    fn taken(&mut self, run: &RunId, up_to: i64) -> Result<(), StoreError>;
}
