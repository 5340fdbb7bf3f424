//! The lock: a row of stagger's own database, beside the records of services.

use std::time::Duration;

use async_trait::async_trait;
use stagger_core::model::{ClusterId, ClusterName};
use stagger_engine::cluster::{Anchor, BackendError, Holder, Lock, LockError, LockRecord};

use crate::backend::IronicBackend;

#[async_trait]
impl Lock for IronicBackend {
    fn cluster(&self) -> &ClusterName {
        &self.settings().cluster.name
    }

    async fn identity(&self) -> Result<ClusterId, BackendError> {
        self.book().identity().await
    }

    async fn lock(&self, claim: &LockRecord, at_least: u64) -> Result<u64, LockError> {
        self.book().take(claim, at_least).await
    }

    async fn renew(&self, _claim: &LockRecord, fence: u64) -> Result<(), LockError> {
        self.book().renew(fence).await
    }

    async fn holder(&self) -> Result<Option<Holder>, LockError> {
        self.book().holder().await
    }

    async fn anchor(&self, anchor: &Anchor) -> Result<(), LockError> {
        self.book().anchor(anchor).await
    }

    async fn anchored(&self) -> Result<Option<Anchor>, LockError> {
        self.book().anchored().await
    }

    async fn unlock(&self, _claim: &LockRecord, fence: u64) -> Result<(), LockError> {
        self.book().release(fence).await
    }

    fn lock_expires(&self) -> Duration {
        self.book().expires()
    }
}
