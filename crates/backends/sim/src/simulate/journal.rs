//! The journal as all processes reach it, and what befalls it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use stagger_core::model::{ClusterName, RunId};
use stagger_core::run::{Command, Entry, Event, Seq};
use stagger_engine::cluster::LockRecord;
use stagger_engine::store::{JournalStore, Listed, Mark, Presence, StoreError};
use tokio::sync::{Mutex, MutexGuard};

use crate::backend::Sim;
use crate::memory::MemoryStore;
use crate::scenario::JournalFault;

/// One journal that all of them reach.
#[derive(Clone)]
pub(crate) struct SharedJournal {
    sim: Sim,
    ills: Arc<Vec<JournalFault>>,
    kept: Arc<Mutex<JournalContents>>,
    writes: Arc<AtomicU32>,
}

struct JournalContents {
    store: JournalKind,
    /// How many of the ills are over that come once.
    put_back: Vec<usize>,
}

enum JournalKind {
    Any(Box<dyn JournalStore>),
    /// One of which a backup can be put back.
    Memory(MemoryStore),
}

impl JournalContents {
    fn store(&mut self) -> &mut dyn JournalStore {
        match &mut self.store {
            JournalKind::Any(store) => &mut **store,
            JournalKind::Memory(store) => store,
        }
    }
}

impl SharedJournal {
    /// Of a journal of which a backup is put back, only one in memory can be played.
    pub(crate) fn new(sim: &Sim, store: Box<dyn JournalStore>, ills: &[JournalFault]) -> Self {
        let is_put_back = ills.iter().any(|ill| matches!(ill, JournalFault::PutBack { .. }));
        let store = if is_put_back {
            JournalKind::Memory(MemoryStore::default())
        } else {
            JournalKind::Any(store)
        };
        Self {
            sim: sim.clone(),
            ills: Arc::new(ills.to_vec()),
            kept: Arc::new(Mutex::new(JournalContents {
                store,
                put_back: Vec::new(),
            })),
            writes: Arc::default(),
        }
    }

    fn passed(&self) -> u64 {
        self.sim.world().elapsed()
    }

    /// The journal as it is now.
    async fn now(&self) -> MutexGuard<'_, JournalContents> {
        let mut kept = self.kept.lock().await;
        self.put_back(&mut kept);
        kept
    }

    fn put_back(&self, kept: &mut JournalContents) {
        let now = self.passed();
        let JournalKind::Memory(store) = &mut kept.store else {
            return;
        };
        for (number, ill) in self.ills.iter().enumerate() {
            let JournalFault::PutBack { at, lost } = *ill else {
                continue;
            };
            let at = u64::from(at) * 1000;
            if at > now || kept.put_back.contains(&number) {
                continue;
            }
            kept.put_back.push(number);
            if let Some(left) = store.restore(at.saturating_sub(u64::from(lost) * 1000)) {
                self.sim.world().journal_lost(left);
            }
        }
        store.set_time(now);
    }

    fn is_full(&self) -> bool {
        let now = self.passed();
        self.ills.iter().any(|ill| match *ill {
            JournalFault::Full { at, lasts } => {
                let at = u64::from(at) * 1000;
                (at..at + u64::from(lasts) * 1000).contains(&now)
            }
            JournalFault::Torn { .. } | JournalFault::Unsure { .. } | JournalFault::PutBack { .. } => false,
        })
    }

    /// Before each write, if there can be one now; the number of this one.
    fn before_write(&self) -> Result<u32, StoreError> {
        if self.is_full() {
            return Err(full());
        }
        let append = self.writes.fetch_add(1, Ordering::Relaxed) + 1;
        if self.ills.contains(&JournalFault::Torn { append }) {
            return Err(failed("the write was torn"));
        }
        Ok(append)
    }

    /// What whoever wrote hears of it.
    fn after_a_write<T>(&self, append: u32, written: Result<T, StoreError>) -> Result<T, StoreError> {
        if self.ills.contains(&JournalFault::Unsure { append }) {
            return Err(failed("the connection was lost"));
        }
        written
    }
}

fn full() -> StoreError {
    failed("no space left on the device")
}

fn failed(why: &str) -> StoreError {
    StoreError::Failed {
        tried: "write to the journal".to_owned(),
        why: why.to_owned(),
    }
}

#[async_trait]
impl JournalStore for SharedJournal {
    async fn fence(&self, cluster: &ClusterName) -> Result<u64, StoreError> {
        self.now().await.store().fence(cluster).await
    }
    async fn can_be_written(&mut self, cluster: &ClusterName) -> Result<(), StoreError> {
        if self.is_full() {
            return Err(full());
        }
        self.now().await.store().can_be_written(cluster).await
    }
    async fn raise(&mut self, cluster: &ClusterName, fence: u64, holder: &str) -> Result<(), StoreError> {
        let write = self.before_write()?;
        let written = self.now().await.store().raise(cluster, fence, holder).await;
        self.after_a_write(write, written)
    }
    async fn begin(
        &mut self,
        cluster: &ClusterName,
        fence: u64,
        at: Timestamp,
        start: Event,
    ) -> Result<Entry, StoreError> {
        let write = self.before_write()?;
        let written = self.now().await.store().begin(cluster, fence, at, start).await;
        self.after_a_write(write, written)
    }
    async fn append(
        &mut self,
        run: &RunId,
        fence: u64,
        after: Seq,
        at: Timestamp,
        events: Vec<Event>,
    ) -> Result<Vec<Entry>, StoreError> {
        let write = self.before_write()?;
        let written = self
            .now()
            .await
            .store()
            .append(run, fence, after, at, events)
            .await;
        self.after_a_write(write, written)
    }
    async fn journal(&self, run: &RunId) -> Result<Vec<Entry>, StoreError> {
        self.now().await.store().journal(run).await
    }
    async fn runs(&self) -> Result<Vec<Listed>, StoreError> {
        self.now().await.store().runs().await
    }
    async fn ask(
        &mut self,
        run: &RunId,
        at: Timestamp,
        command: &Command,
        by: &str,
    ) -> Result<(), StoreError> {
        let write = self.before_write()?;
        let written = self.now().await.store().ask(run, at, command, by).await;
        self.after_a_write(write, written)
    }
    async fn pending_commands(&self, run: &RunId) -> Result<Vec<(i64, Command, String)>, StoreError> {
        self.now().await.store().pending_commands(run).await
    }
    async fn acknowledge_commands(&mut self, run: &RunId, up_to: i64) -> Result<(), StoreError> {
        self.now().await.store().acknowledge_commands(run, up_to).await
    }
    async fn mark(&self, run: &RunId, at: Option<Seq>) -> Result<Option<Mark>, StoreError> {
        self.now().await.store().mark(run, at).await
    }
    async fn beside(&self) -> Result<Option<Box<dyn JournalStore>>, StoreError> {
        Ok(Some(Box::new(self.clone())))
    }
    async fn beat(
        &mut self,
        run: &RunId,
        fence: u64,
        claim: &LockRecord,
        expires: Duration,
    ) -> Result<(), StoreError> {
        self.now().await.store().beat(run, fence, claim, expires).await
    }
    async fn clear_presence(&mut self, run: &RunId, fence: u64) -> Result<(), StoreError> {
        self.now().await.store().clear_presence(run, fence).await
    }
    async fn presence(&self, run: &RunId) -> Result<Option<Presence>, StoreError> {
        self.now().await.store().presence(run).await
    }
}
