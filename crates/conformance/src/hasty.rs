//! A backend in the time of a clock that jumps.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use stagger_core::model::{ClusterId, ClusterName, Snapshot, UnitId};
use stagger_core::run::{Action, Answer};
use stagger_engine::clock::Clock as _;
use stagger_engine::cluster::{Backend, BackendError, Call, Executor, Fencing, Lock, LockError, LockRecord};

use crate::clock::HastyClock;

/// How a process takes the lock from one that died, without waiting it out: a token that is larger than the number.
pub type Retake<B> = Box<
    dyn for<'a> Fn(
            &'a B,
            &'a LockRecord,
            u64,
        ) -> Pin<Box<dyn Future<Output = Result<u64, LockError>> + Send + 'a>>
        + Send
        + Sync,
>;

/// The backend, whose observations have the time of the clock. Nobody returns its lock: whoever comes next takes over from
/// one that died.
pub struct Hasty<B> {
    /// The backend.
    pub inner: B,
    /// Its time.
    pub clock: Arc<HastyClock>,
    /// `None`: the lock is taken as it is, which takes its time where another held it.
    pub retake: Option<Retake<B>>,
}

#[async_trait]
impl<B: Backend> Executor for Hasty<B> {
    async fn observe(&self) -> Result<Snapshot, BackendError> {
        let at = self.clock.now();
        let mut document = serde_json::to_value(self.inner.observe().await?).unwrap();
        document["observed_at"] = serde_json::to_value(at).unwrap();
        Ok(serde_json::from_value(document).unwrap())
    }

    async fn check_stop(&self, units: &[UnitId]) -> Result<Answer, BackendError> {
        self.inner.check_stop(units).await
    }

    fn host_of(&self, unit: &UnitId) -> Option<String> {
        self.inner.host_of(unit)
    }

    fn fencing(&self, action: &Action) -> Fencing {
        self.inner.fencing(action)
    }

    async fn perform(&self, call: &Call, action: &Action) -> Result<String, BackendError> {
        self.inner.perform(call, action).await
    }

    async fn raise_fence(&self, fence: u64, units: &[UnitId]) -> Result<(), BackendError> {
        self.inner.raise_fence(fence, units).await
    }

    async fn diagnostics(
        &self,
        call: &Call,
        units: &[UnitId],
    ) -> Result<Vec<(String, Vec<u8>)>, BackendError> {
        self.inner.diagnostics(call, units).await
    }

    fn poll(&self) -> Duration {
        self.inner.poll()
    }
}

#[async_trait]
impl<B: Backend> Lock for Hasty<B> {
    fn cluster(&self) -> &ClusterName {
        self.inner.cluster()
    }

    async fn identity(&self) -> Result<ClusterId, BackendError> {
        self.inner.identity().await
    }

    async fn lock(&self, claim: &LockRecord, at_least: u64) -> Result<u64, LockError> {
        match &self.retake {
            Some(retake) => retake(&self.inner, claim, at_least).await,
            None => self.inner.lock(claim, at_least).await,
        }
    }

    async fn renew(&self, claim: &LockRecord, fence: u64) -> Result<(), LockError> {
        match self.retake {
            Some(_) => Ok(()),
            None => self.inner.renew(claim, fence).await,
        }
    }

    async fn unlock(&self, _: &LockRecord, _: u64) -> Result<(), LockError> {
        Ok(())
    }

    fn lock_expires(&self) -> Duration {
        match self.retake {
            Some(_) => Duration::from_hours(24 * 365),
            None => self.inner.lock_expires(),
        }
    }

    fn may_have_been_held(&self) -> bool {
        self.inner.may_have_been_held()
    }
}
