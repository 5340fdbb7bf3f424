//! The lock of the simulated cluster. It expires by the cluster's own clock.

use std::time::Duration;

use async_trait::async_trait;
use stagger_core::model::{ClusterId, ClusterName};
use stagger_engine::cluster::{Anchor, BackendError, Holder, Lock, LockError, LockRecord};

use crate::backend::Sim;

#[async_trait]
impl Lock for Sim {
    fn cluster(&self) -> &ClusterName {
        &self.cluster
    }

    /// Its name and its seed: of each, there is one.
    async fn identity(&self) -> Result<ClusterId, BackendError> {
        let text = format!("{}-{}", self.cluster, self.world().spec.seed);
        ClusterId::new(text).map_err(|error| BackendError::permanent("identify the world", error.to_string()))
    }

    async fn lock(&self, claim: &LockRecord, at_least: u64) -> Result<u64, LockError> {
        let mut world = self.world();
        let now = world.elapsed();
        if let Some((holder, until)) = &world.lock
            && holder.incarnation != claim.incarnation
            && now < *until
        {
            return Err(LockError::Held(Box::new(holder.clone())));
        }
        world.fence = world.fence.max(at_least) + 1;
        world.lock = Some((claim.clone(), now + self.lock.as_millis() as u64));
        Ok(world.fence)
    }

    async fn renew(&self, claim: &LockRecord, fence: u64) -> Result<(), LockError> {
        let mut world = self.world();
        let now = world.elapsed();
        match &world.lock {
            // Expiry permits others to take it; until they do it can be renewed.
            Some((holder, _)) if holder.incarnation == claim.incarnation && world.fence == fence => {
                world.lock = Some((claim.clone(), now + self.lock.as_millis() as u64));
                Ok(())
            }
            Some((holder, _)) => Err(LockError::Lost(format!("{holder} has it"))),
            None => Err(LockError::Lost("no process has it".to_owned())),
        }
    }

    async fn holder(&self) -> Result<Option<Holder>, LockError> {
        let world = self.world();
        let now = world.elapsed();
        let held = world.lock.as_ref().filter(|(_, until)| now < *until);
        Ok(held.map(|(claim, _)| Holder {
            claim: claim.clone(),
            expires: self.lock,
        }))
    }

    async fn anchor(&self, anchor: &Anchor) -> Result<(), LockError> {
        self.world().anchor = Some(anchor.clone());
        Ok(())
    }

    async fn anchored(&self) -> Result<Option<Anchor>, LockError> {
        Ok(self.world().anchor.clone())
    }

    async fn unlock(&self, claim: &LockRecord, fence: u64) -> Result<(), LockError> {
        let mut world = self.world();
        if let Some((holder, _)) = &world.lock
            && holder.incarnation == claim.incarnation
            && world.fence == fence
        {
            world.lock = None;
        }
        Ok(())
    }

    fn lock_expires(&self) -> Duration {
        self.lock
    }
}
