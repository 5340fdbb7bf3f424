//! The one small trait through which a plan and a run see the world.

use std::collections::BTreeSet;
use std::time::Duration;

use async_trait::async_trait;
use stagger_core::model::{ClusterId, ClusterName, RunId, Snapshot, UnitId};
use stagger_core::run::{Action, Answer, Seq};

use crate::deadline::Deadline;
use crate::life::Life;
use crate::redact::redact;

/// Whether trying again may help; decided where the call is made, and obeyed by the engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retryability {
    /// It may pass: a lost connection, a monitor election.
    Transient,
    /// It will be the same next time.
    Permanent,
    /// Nothing was begun, since what the judges had said of it was too old: they have to be asked again.
    Expired,
}

/// A call to the world that went wrong. Its words go into journals and onto screens: what is a secret in them is
/// redacted when it is made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{tried}: {why}")]
pub struct BackendError {
    /// Whether trying again may help.
    pub persistence: Retryability,
    /// What was tried, on what.
    pub tried: String,
    /// Why it failed.
    pub why: String,
    /// What to do about it.
    pub hint: Option<String>,
    /// Nobody knows whether the call was carried out, or it may be under way: it may still have its
    /// effect.
    pub outcome_unknown: bool,
}

impl BackendError {
    /// One that may pass.
    pub fn transient(tried: impl Into<String>, why: impl Into<String>) -> Self {
        Self {
            persistence: Retryability::Transient,
            tried: redact(&tried.into()),
            why: redact(&why.into()),
            hint: None,
            outcome_unknown: false,
        }
    }

    /// One that stays.
    pub fn permanent(tried: impl Into<String>, why: impl Into<String>) -> Self {
        Self {
            persistence: Retryability::Permanent,
            tried: redact(&tried.into()),
            why: redact(&why.into()),
            hint: None,
            outcome_unknown: false,
        }
    }

    /// One of which nothing was begun, since it has to be judged again.
    pub fn expired(tried: impl Into<String>, why: impl Into<String>) -> Self {
        Self {
            persistence: Retryability::Expired,
            tried: redact(&tried.into()),
            why: redact(&why.into()),
            hint: None,
            outcome_unknown: false,
        }
    }

    /// The same of a call that may still have its effect: its answer was lost, or it is under way.
    #[must_use]
    pub fn outcome_unknown(mut self) -> Self {
        self.outcome_unknown = true;
        self
    }

    /// The same with what to do about it.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(redact(&hint.into()));
        self
    }
}

/// What keeps a late call of a holder that lost its lease from doing harm (law 9).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fencing {
    /// The world checks the fencing token.
    Fenced,
    /// The world checks a generation, as a resource version. It must be one that was read before
    /// [`Backend::perform`] was called, as in the last observation: the driver looks at the lock right
    /// before the call, and what a process reads when it wakes up after that is new, and so fits.
    Conditional,
    /// The call dies with its sender within this time, and a successor waits that time out.
    Bounded(Duration),
}

impl std::fmt::Display for Fencing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Fenced => f.write_str("fenced"),
            Self::Conditional => f.write_str("conditional"),
            Self::Bounded(time) => write!(f, "bounded ({} s)", time.as_secs()),
        }
    }
}

/// What an effect carries, so that a restarted driver finds the work that it had started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// Of which run.
    pub run: RunId,
    /// The place of its intent.
    pub seq: Seq,
    /// The fencing token under which it was announced. Whoever carries it on has another; in a journal that was put back
    /// from a backup the same places come again, and never under the same token.
    pub announced: u64,
    /// The fencing token of its sender.
    pub fence: u64,
    /// Until when it may begin; `None`: whenever.
    pub deadline: Option<Deadline>,
}

impl Call {
    /// Looked at right before the first thing that takes something out of service, after all that may take time.
    ///
    /// # Errors
    /// What the judges had said is too old: nothing was begun.
    pub fn may_begin(&self, tried: &str) -> Result<(), BackendError> {
        self.holds().map_err(|why| BackendError::expired(tried, why))
    }

    /// The same for a host that is ready to begin.
    ///
    /// # Errors
    /// Why it is too late.
    pub fn holds(&self) -> Result<(), String> {
        self.deadline.as_ref().map_or(Ok(()), Deadline::holds)
    }

    /// The run's key for this effect, for lock files, reason trails and annotations.
    pub fn key(&self) -> String {
        format!("{}-{}-{}", self.run, self.seq, self.announced)
    }
}

/// One incarnation of one process: what the lock in the cluster says of its holder.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LockRecord {
    /// Unique for this process: a random id, never a host name or a configured one.
    pub incarnation: String,
    /// Which run it carries out.
    pub run: RunId,
    /// On which host.
    pub host: String,
    /// Which process.
    pub process: u32,
    /// Since when.
    pub since: jiff::Timestamp,
    /// By what that process is known on its host; `None`: nobody could tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub life: Option<Life>,
}

/// Who has the lock, and how long it may be theirs without another renewal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    /// Who.
    pub claim: LockRecord,
    /// How long a renewal lasts.
    pub expires: Duration,
}

/// What the journal of a run had come to, as the cluster itself was told beside the lock. A journal that does not hold it is
/// older than the world: it was restored, or its database lost its last writes.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Anchor {
    /// Of which run.
    pub run: RunId,
    /// The place of its last event then.
    pub seq: Seq,
    /// The checksum over all up to there.
    pub sum: String,
}

impl LockRecord {
    /// As a lock keeps it.
    pub(crate) fn to_json(&self) -> String {
        let Self {
            incarnation,
            run,
            host,
            process,
            since,
            life,
        } = self;
        serde_json::json!({
            "incarnation": incarnation, "run": run, "host": host, "process": process, "since": since, "life": life,
        })
        .to_string()
    }
}

impl std::fmt::Display for LockRecord {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            incarnation: _,
            run,
            host,
            process,
            since,
            life: _,
        } = self;
        write!(f, "run {run} on host {host}, process {process}, since {since:.0}")
    }
}

/// Why the lock in the cluster is not ours.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LockError {
    /// Another holds it.
    #[error("the cluster is locked by {0}")]
    Held(Box<LockRecord>),
    /// It was ours, and is no more.
    #[error("the lock in the cluster is not ours any more: {0}")]
    Lost(String),
    /// The cluster could not be asked.
    #[error("the lock in the cluster could not be asked for")]
    Backend(#[source] BackendError),
}

impl LockError {
    /// Of the claim that stands in the lock, if it can be read.
    pub(crate) fn of_holder(claim: Option<&str>) -> Self {
        match claim.map(serde_json::from_str) {
            Some(Ok(claim)) => Self::Held(Box::new(claim)),
            // It was given back between two questions, or is of a release with other words.
            Some(Err(_)) | None => Self::Lost("another had it a moment ago: try again".to_owned()),
        }
    }
}

/// A world: one cluster of one kind.
#[async_trait]
pub trait Backend: Send + Sync {
    /// Which cluster, as the configuration calls it.
    fn cluster(&self) -> &ClusterName;

    /// Which cluster, as it knows itself: the same under whatever name it is reached. A world that has nothing of the
    /// kind is known by its name.
    async fn identity(&self) -> Result<ClusterId, BackendError> {
        let name = self.cluster();
        ClusterId::new(name.as_str())
            .map_err(|error| BackendError::permanent(format!("identify {name}"), error.to_string()))
    }

    /// Observes afresh. What it returns began to be observed after this call began.
    async fn observe(&self) -> Result<Snapshot, BackendError>;

    /// Asks the system's own oracle whether a set may go down now.
    async fn may_stop(&self, units: &[UnitId]) -> Result<Answer, BackendError>;

    /// A person permits these interruptions, by their names or by their sorts: what is observed and asked from now on goes
    /// by that. A world in which nothing has to be permitted heeds none.
    fn permit(&self, _interruptions: BTreeSet<String>) {}

    /// On which host the effects of a unit run, as far as that is known; by default the unit is the host.
    fn host_of(&self, unit: &UnitId) -> Option<String> {
        Some(unit.to_string())
    }

    /// Which rail an action runs on.
    fn rail(&self, action: &Action) -> Fencing;

    /// Ensures the state that an action names: reads before it writes, and may be called again with
    /// the same call after its process died. Returns what is worth telling.
    async fn perform(&self, call: &Call, action: &Action) -> Result<String, BackendError>;

    /// Makes these units refuse calls of older fencing tokens. Where actions are conditional, it changes
    /// the units' generation, as by an annotation with the token: what was prepared for the generation
    /// before is refused from then on. Units whose actions are bounded are skipped.
    async fn raise_fence(&self, fence: u64, units: &[UnitId]) -> Result<(), BackendError>;

    /// Gathers what tells later what happened to these units: names and contents, without secrets.
    async fn collect(&self, call: &Call, units: &[UnitId]) -> Result<Vec<(String, Vec<u8>)>, BackendError>;

    /// Takes the lock in the cluster. Returns the fencing token: larger than `at_least` and than any
    /// that the cluster has seen.
    async fn lock(&self, claim: &LockRecord, at_least: u64) -> Result<u64, LockError>;

    /// Says that the holder lives. Called every third of [`Backend::lock_expires`].
    async fn renew(&self, claim: &LockRecord, fence: u64) -> Result<(), LockError>;

    /// Who has the lock now, if somebody has and that can be read. [`Backend::lock`] may take its time to find out whether
    /// they live; this answers at once.
    async fn holder(&self) -> Result<Option<Holder>, LockError> {
        Ok(None)
    }

    /// Keeps in the cluster what the holder's journal has come to. It stays there when the lock is given back. A world
    /// without a place for it keeps nothing.
    async fn anchor(&self, _anchor: &Anchor) -> Result<(), LockError> {
        Ok(())
    }

    /// What was last kept by [`Backend::anchor`].
    async fn anchored(&self) -> Result<Option<Anchor>, LockError> {
        Ok(None)
    }

    /// Gives the lock back.
    async fn unlock(&self, claim: &LockRecord, fence: u64) -> Result<(), LockError>;

    /// A lock not renewed for so long may be taken over.
    fn lock_expires(&self) -> Duration;

    /// How long to wait between two observations while something is waited for.
    fn poll(&self) -> Duration;
}
