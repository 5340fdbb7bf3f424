//! A backend whose observations hold what others measure.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use stagger_core::model::{ClusterId, ClusterName, Snapshot, UnitId};
use stagger_core::run::{Action, Answer};
use stagger_engine::cluster::{
    Anchor, Backend, BackendError, Call, Executor, Fencing, Holder, Lock, LockError, LockRecord,
};

use crate::measures::Measures;

/// A backend with measures from other services. Everything else is the backend's.
pub struct MeasuredBackend {
    backend: Arc<dyn Backend>,
    measures: Arc<Measures>,
}

impl MeasuredBackend {
    /// Of both.
    pub fn new(backend: Arc<dyn Backend>, measures: Arc<Measures>) -> Self {
        Self { backend, measures }
    }
}

#[async_trait]
impl Executor for MeasuredBackend {
    async fn observe(&self) -> Result<Snapshot, BackendError> {
        // Side by side: neither makes the other older.
        let (snapshot, measured) = tokio::join!(self.backend.observe(), self.measures.conditions());
        Ok(snapshot?.with_conditions(measured))
    }

    async fn check_stop(&self, units: &[UnitId]) -> Result<Answer, BackendError> {
        self.backend.check_stop(units).await
    }

    fn permit(&self, interruptions: BTreeSet<String>) {
        self.backend.permit(interruptions);
    }

    fn host_of(&self, unit: &UnitId) -> Option<String> {
        self.backend.host_of(unit)
    }

    fn fencing(&self, action: &Action) -> Fencing {
        self.backend.fencing(action)
    }

    async fn perform(&self, call: &Call, action: &Action) -> Result<String, BackendError> {
        self.backend.perform(call, action).await
    }

    async fn raise_fence(&self, fence: u64, units: &[UnitId]) -> Result<(), BackendError> {
        self.backend.raise_fence(fence, units).await
    }

    async fn diagnostics(
        &self,
        call: &Call,
        units: &[UnitId],
    ) -> Result<Vec<(String, Vec<u8>)>, BackendError> {
        self.backend.diagnostics(call, units).await
    }

    fn poll(&self) -> Duration {
        self.backend.poll()
    }
}

#[async_trait]
impl Lock for MeasuredBackend {
    fn cluster(&self) -> &ClusterName {
        self.backend.cluster()
    }

    async fn identity(&self) -> Result<ClusterId, BackendError> {
        self.backend.identity().await
    }

    async fn lock(&self, claim: &LockRecord, at_least: u64) -> Result<u64, LockError> {
        self.backend.lock(claim, at_least).await
    }

    async fn renew(&self, claim: &LockRecord, fence: u64) -> Result<(), LockError> {
        self.backend.renew(claim, fence).await
    }

    async fn holder(&self) -> Result<Option<Holder>, LockError> {
        self.backend.holder().await
    }

    async fn anchor(&self, anchor: &Anchor) -> Result<(), LockError> {
        self.backend.anchor(anchor).await
    }

    async fn anchored(&self) -> Result<Option<Anchor>, LockError> {
        self.backend.anchored().await
    }

    async fn unlock(&self, claim: &LockRecord, fence: u64) -> Result<(), LockError> {
        self.backend.unlock(claim, fence).await
    }

    fn lock_expires(&self) -> Duration {
        self.backend.lock_expires()
    }

    fn may_have_been_held(&self) -> bool {
        self.backend.may_have_been_held()
    }
}
