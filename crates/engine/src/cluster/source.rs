//! The source of a cluster's answers.

use async_trait::async_trait;

use super::BackendError;
use crate::inventory::Inventory;

/// What answers for a cluster: the cluster itself, or an [`Inventory`] of it.
#[async_trait]
pub trait Source: Send + Sync {
    /// All that one look at such a cluster tells. A [`Planner`](super::Planner) makes a snapshot of it.
    type Facts: Send + Sync;

    /// Looks once.
    ///
    /// # Errors
    /// No answer, or one that cannot be read. Of an inventory the error is permanent: it answers the same again.
    async fn facts(&self) -> Result<Self::Facts, BackendError>;

    /// Looks once, and keeps every answer behind the facts. The inventory holds no secrets, and a source that is made of
    /// it gives the same facts.
    ///
    /// # Errors
    /// As [`Source::facts`].
    async fn inventory(&self) -> Result<(Inventory, Self::Facts), BackendError>;
}
