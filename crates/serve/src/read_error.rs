//! Why a run cannot be read or commanded.

use stagger_core::model::RunId;
use stagger_engine::store::StoreError;
use stagger_engine::supervisor::SuperviseError;

/// Why a run cannot be read or asked for something.
#[derive(Debug, Clone, thiserror::Error)]
pub(crate) enum ReadError {
    #[error("there is no run {0}")]
    NoRun(RunId),
    #[error("the journal of {run} cannot be read: {why}")]
    Unreadable { run: RunId, why: String },
    #[error("several stores have a run {0}")]
    InSeveral(RunId),
    #[error("run {0} is over")]
    Over(RunId),
    #[error("{0}")]
    Store(String),
}

impl ReadError {
    pub(crate) fn of(run: &RunId, error: &(dyn std::error::Error + 'static)) -> Self {
        match error.downcast_ref::<StoreError>() {
            Some(StoreError::NoRun(run)) => Self::NoRun(run.clone()),
            Some(StoreError::Failed { .. } | StoreError::OtherSchema { .. }) => Self::Store(in_full(error)),
            Some(_) | None => Self::Unreadable {
                run: run.clone(),
                why: in_full(error),
            },
        }
    }

    pub(crate) fn of_supervisor(run: &RunId, error: &SuperviseError) -> Self {
        match error {
            SuperviseError::Over(run) => Self::Over(run.clone()),
            SuperviseError::Store(source) => Self::of(run, source),
            other => Self::of(run, other),
        }
    }
}

/// An error with its causes.
pub(crate) fn in_full(error: &(dyn std::error::Error + 'static)) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}
