//! Errors of calls to a cluster.

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

/// A failed call to the cluster. Its text goes into journals and onto screens, so secrets in it are redacted
/// when it is made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{tried}: {why}")]
pub struct BackendError {
    /// Whether trying again may help.
    pub retryability: Retryability,
    /// What was tried, on what.
    pub tried: String,
    /// Why it failed.
    pub why: String,
    /// What to do about it.
    pub hint: Option<String>,
    /// The outcome is unknown: the call may have been carried out, or may still take effect.
    pub outcome_unknown: bool,
}

impl BackendError {
    /// One that may pass.
    pub fn transient(tried: impl Into<String>, why: impl Into<String>) -> Self {
        Self {
            retryability: Retryability::Transient,
            tried: redact(&tried.into()),
            why: redact(&why.into()),
            hint: None,
            outcome_unknown: false,
        }
    }

    /// One that stays.
    pub fn permanent(tried: impl Into<String>, why: impl Into<String>) -> Self {
        Self {
            retryability: Retryability::Permanent,
            tried: redact(&tried.into()),
            why: redact(&why.into()),
            hint: None,
            outcome_unknown: false,
        }
    }

    /// One of which nothing was begun, since it has to be judged again.
    pub fn expired(tried: impl Into<String>, why: impl Into<String>) -> Self {
        Self {
            retryability: Retryability::Expired,
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

/// An error with all that is behind it, in one line.
pub fn in_full(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        text = format!("{text}: {inner}");
        source = inner.source();
    }
    text
}
