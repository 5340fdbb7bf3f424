//! Changes to a cluster.

use std::collections::BTreeSet;
use std::time::Duration;

use async_trait::async_trait;
use stagger_core::model::{Snapshot, UnitId};
use stagger_core::run::{Action, Answer};

use super::{BackendError, Call, Fencing};

/// Observes a cluster, asks its oracle, and carries out what the core decides.
#[async_trait]
pub trait Executor: Send + Sync {
    /// Observes afresh. What it returns began to be observed after this call began.
    async fn observe(&self) -> Result<Snapshot, BackendError>;

    /// Asks the system's own oracle whether a set may go down now.
    async fn check_stop(&self, units: &[UnitId]) -> Result<Answer, BackendError>;

    /// The interruptions that are approved, by name or kind: later observations and oracle requests take them
    /// into account. A backend without interruptions ignores them.
    fn permit(&self, _interruptions: BTreeSet<String>) {}

    /// On which host the effects of a unit run, as far as that is known; by default the unit is the host.
    fn host_of(&self, unit: &UnitId) -> Option<String> {
        Some(unit.to_string())
    }

    /// By which means a late call of this action is kept from doing harm.
    fn fencing(&self, action: &Action) -> Fencing;

    /// Ensures the state that an action names: reads before it writes, and may be called again with the same
    /// call after its process died. Returns a note for the operator.
    async fn perform(&self, call: &Call, action: &Action) -> Result<String, BackendError>;

    /// Makes these units refuse calls of older fencing tokens. Where actions are conditional, it changes
    /// the units' generation, as by an annotation with the token: what was prepared for the generation
    /// before is refused from then on. Units whose actions are bounded are skipped.
    async fn raise_fence(&self, fence: u64, units: &[UnitId]) -> Result<(), BackendError>;

    /// Gathers what tells later what happened to these units: names and contents, without secrets.
    async fn diagnostics(
        &self,
        call: &Call,
        units: &[UnitId],
    ) -> Result<Vec<(String, Vec<u8>)>, BackendError>;

    /// How long to wait between two observations while something is waited for.
    fn poll(&self) -> Duration;
}
