//! The context of an effect.

use stagger_core::model::RunId;
use stagger_core::run::Seq;

use super::BackendError;
use crate::deadline::Deadline;

/// The context of an effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// Of which run.
    pub run: RunId,
    /// The place of its intent.
    pub seq: Seq,
    /// The fencing token under which it was announced. A successor has another token. In a journal restored
    /// from a backup the same sequence numbers recur, but never under the same token.
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
