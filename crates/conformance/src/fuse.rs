//! A process that dies at its n-th touch of the world or of its journal.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use stagger_core::model::{ClusterId, ClusterName, RunId, Snapshot, UnitId};
use stagger_core::run::{Action, Answer, Command, Entry, Event, Seq};
use stagger_engine::cluster::{Backend, BackendError, Call, Executor, Fencing, Lock, LockError, LockRecord};
use stagger_engine::store::{JournalStore, Listed, StoreError};

/// Counts every point at which a process can die, and lets it die at one of them.
#[derive(Debug, Default)]
pub struct Fuse {
    passed: AtomicU64,
    blows_at: u64,
    dead: AtomicBool,
    /// The call under way when it blew before an effect: it may land later.
    pub stray: Mutex<Option<(Call, Action)>>,
}

impl Fuse {
    /// One that blows at that point, counted from 1; 0: at none.
    pub fn at(point: u64) -> Arc<Self> {
        Arc::new(Self {
            blows_at: point,
            ..Self::default()
        })
    }

    /// How many points were passed.
    pub fn passed(&self) -> u64 {
        self.passed.load(Ordering::SeqCst)
    }

    /// Passes a point; false: the process is dead.
    fn alive(&self) -> bool {
        let point = self.passed.fetch_add(1, Ordering::SeqCst) + 1;
        if point == self.blows_at {
            self.dead.store(true, Ordering::SeqCst);
        }
        !self.is_dead()
    }

    /// Whether it has blown.
    pub fn is_dead(&self) -> bool {
        self.dead.load(Ordering::SeqCst)
    }

    fn store(&self) -> Result<(), StoreError> {
        if self.alive() { Ok(()) } else { Err(killed()) }
    }

    fn backend(&self) -> Result<(), BackendError> {
        if self.alive() {
            Ok(())
        } else {
            Err(BackendError::permanent("live", "killed"))
        }
    }

    fn lock(&self) -> Result<(), LockError> {
        self.backend().map_err(LockError::Backend)
    }
}

fn killed() -> StoreError {
    StoreError::Failed {
        tried: "live".to_owned(),
        why: "killed".to_owned(),
    }
}

/// A cluster as a process with a fuse touches it.
pub struct FusedBackend<B> {
    /// The backend.
    pub inner: B,
    /// What it passes at each touch.
    pub fuse: Arc<Fuse>,
    /// Switched off to show that the test would find it.
    pub raises_fences: bool,
}

#[async_trait]
impl<B: Backend> Executor for FusedBackend<B> {
    async fn observe(&self) -> Result<Snapshot, BackendError> {
        self.fuse.backend()?;
        self.inner.observe().await
    }

    async fn check_stop(&self, units: &[UnitId]) -> Result<Answer, BackendError> {
        self.fuse.backend()?;
        let answer = self.inner.check_stop(units).await;
        self.fuse.backend()?;
        answer
    }

    fn host_of(&self, unit: &UnitId) -> Option<String> {
        self.inner.host_of(unit)
    }

    fn fencing(&self, action: &Action) -> Fencing {
        self.inner.fencing(action)
    }

    async fn perform(&self, call: &Call, action: &Action) -> Result<String, BackendError> {
        if self.fuse.is_dead() {
            return Err(BackendError::permanent("live", "killed"));
        }
        if let Err(error) = self.fuse.backend() {
            *self.fuse.stray.lock().unwrap() = Some((call.clone(), action.clone()));
            return Err(error);
        }
        let done = self.inner.perform(call, action).await;
        self.fuse.backend()?;
        done
    }

    async fn raise_fence(&self, fence: u64, units: &[UnitId]) -> Result<(), BackendError> {
        self.fuse.backend()?;
        if self.raises_fences {
            self.inner.raise_fence(fence, units).await?;
        }
        self.fuse.backend()
    }

    async fn diagnostics(
        &self,
        call: &Call,
        units: &[UnitId],
    ) -> Result<Vec<(String, Vec<u8>)>, BackendError> {
        self.fuse.backend()?;
        self.inner.diagnostics(call, units).await
    }

    fn poll(&self) -> Duration {
        self.inner.poll()
    }
}

#[async_trait]
impl<B: Backend> Lock for FusedBackend<B> {
    fn cluster(&self) -> &ClusterName {
        self.inner.cluster()
    }

    async fn identity(&self) -> Result<ClusterId, BackendError> {
        self.inner.identity().await
    }

    async fn lock(&self, claim: &LockRecord, at_least: u64) -> Result<u64, LockError> {
        self.fuse.lock()?;
        let fence = self.inner.lock(claim, at_least).await;
        self.fuse.lock()?;
        fence
    }

    async fn renew(&self, claim: &LockRecord, fence: u64) -> Result<(), LockError> {
        self.inner.renew(claim, fence).await
    }

    async fn unlock(&self, claim: &LockRecord, fence: u64) -> Result<(), LockError> {
        self.fuse.lock()?;
        self.inner.unlock(claim, fence).await
    }

    fn lock_expires(&self) -> Duration {
        self.inner.lock_expires()
    }

    fn may_have_been_held(&self) -> bool {
        self.inner.may_have_been_held()
    }
}

/// The journal as a process with a fuse touches it.
pub struct FusedStore<S> {
    /// The store.
    pub store: S,
    /// What it passes at each touch.
    pub fuse: Arc<Fuse>,
}

#[async_trait]
impl<S: JournalStore> JournalStore for FusedStore<S> {
    async fn fence(&self, cluster: &ClusterName) -> Result<u64, StoreError> {
        self.fuse.store()?;
        self.store.fence(cluster).await
    }
    async fn can_be_written(&mut self, cluster: &ClusterName) -> Result<(), StoreError> {
        self.store.can_be_written(cluster).await
    }
    async fn raise(&mut self, cluster: &ClusterName, fence: u64, holder: &str) -> Result<(), StoreError> {
        self.fuse.store()?;
        self.store.raise(cluster, fence, holder).await?;
        self.fuse.store()
    }
    async fn begin(
        &mut self,
        cluster: &ClusterName,
        fence: u64,
        at: Timestamp,
        start: Event,
    ) -> Result<Entry, StoreError> {
        self.fuse.store()?;
        let entry = self.store.begin(cluster, fence, at, start).await?;
        self.fuse.store()?;
        Ok(entry)
    }
    async fn append(
        &mut self,
        run: &RunId,
        fence: u64,
        after: Seq,
        at: Timestamp,
        events: Vec<Event>,
    ) -> Result<Vec<Entry>, StoreError> {
        self.fuse.store()?;
        let entries = self.store.append(run, fence, after, at, events).await?;
        self.fuse.store()?;
        Ok(entries)
    }
    async fn journal(&self, run: &RunId) -> Result<Vec<Entry>, StoreError> {
        self.store.journal(run).await
    }
    async fn runs(&self) -> Result<Vec<Listed>, StoreError> {
        self.store.runs().await
    }
    async fn ask(
        &mut self,
        run: &RunId,
        at: Timestamp,
        command: &Command,
        by: &str,
    ) -> Result<(), StoreError> {
        self.store.ask(run, at, command, by).await
    }
    async fn pending_commands(&self, run: &RunId) -> Result<Vec<(i64, Command, String)>, StoreError> {
        if self.fuse.is_dead() {
            return Err(killed());
        }
        self.store.pending_commands(run).await
    }
    async fn acknowledge_commands(&mut self, run: &RunId, up_to: i64) -> Result<(), StoreError> {
        self.fuse.store()?;
        self.store.acknowledge_commands(run, up_to).await
    }
}
