//! What an effect carries with it.

use stagger_core::model::RunId;
use stagger_core::run::Seq;

use super::BackendError;
use crate::deadline::Deadline;

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
