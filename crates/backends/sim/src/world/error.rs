//! Why a world cannot be observed.

use stagger_core::model::{CapacityError, IdError, SnapshotError};

/// A snapshot that could not be made.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ObserveError {
    #[error("a name is not valid")]
    Id(#[from] IdError),
    #[error("the facts do not fit together")]
    Snapshot(#[from] SnapshotError),
    #[error("hosts and guests do not fit together")]
    Capacity(#[from] CapacityError),
}
