//! The journal as all processes reach it, and what befalls it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use stagger_core::model::{ClusterName, RunId};
use stagger_core::run::{Command, Entry, Event, Seq};
use stagger_engine::cluster::LockRecord;
use stagger_engine::store::{Listed, Mark, Presence, Store, StoreError};

use crate::backend::Sim;
use crate::memory::MemoryStore;
use crate::scenario::JournalFault;

/// One journal that all of them reach.
#[derive(Clone)]
pub(crate) struct SharedJournal {
    sim: Sim,
    ills: Arc<Vec<JournalFault>>,
    kept: Arc<Mutex<JournalContents>>,
}

struct JournalContents {
    store: Which,
    appends: u32,
    /// How many of the ills are over that come once.
    put_back: Vec<usize>,
}

enum Which {
    Any(Box<dyn Store>),
    /// One of which a backup can be put back.
    Memory(MemoryStore),
}

impl Which {
    fn get(&mut self) -> &mut dyn Store {
        match self {
            Self::Any(store) => &mut **store,
            Self::Memory(store) => store,
        }
    }
}

impl SharedJournal {
    /// Of a journal of which a backup is put back, only one in memory can be played.
    pub(crate) fn new(sim: &Sim, store: Box<dyn Store>, ills: &[JournalFault]) -> Self {
        let is_put_back = ills.iter().any(|ill| matches!(ill, JournalFault::PutBack { .. }));
        let store = if is_put_back {
            Which::Memory(MemoryStore::default())
        } else {
            Which::Any(store)
        };
        Self {
            sim: sim.clone(),
            ills: Arc::new(ills.to_vec()),
            kept: Arc::new(Mutex::new(JournalContents {
                store,
                appends: 0,
                put_back: Vec::new(),
            })),
        }
    }

    fn lock(&self) -> MutexGuard<'_, JournalContents> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn passed(&self) -> u64 {
        self.sim.world().elapsed()
    }

    /// The journal as it is now.
    fn with<T>(&self, ask: impl FnOnce(&mut dyn Store) -> T) -> T {
        let mut kept = self.lock();
        if let Which::Memory(_) = kept.store {
            self.put_back(&mut kept);
        }
        ask(kept.store.get())
    }

    fn put_back(&self, kept: &mut JournalContents) {
        let now = self.passed();
        let Which::Memory(store) = &mut kept.store else {
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
            if let Some(left) = store.put_back(at.saturating_sub(u64::from(lost) * 1000)) {
                self.sim.world().journal_lost(left);
            }
        }
        store.it_is(now);
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

    /// Writes, if it can be written now.
    fn write<T>(&self, what: impl FnOnce(&mut dyn Store) -> Result<T, StoreError>) -> Result<T, StoreError> {
        if self.is_full() {
            return Err(full());
        }
        let append = {
            let mut kept = self.lock();
            kept.appends += 1;
            kept.appends
        };
        if self.ills.contains(&JournalFault::Torn { append }) {
            return Err(failed("the write was torn"));
        }
        let written = self.with(what);
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

impl Store for SharedJournal {
    fn fence(&self, cluster: &ClusterName) -> Result<u64, StoreError> {
        self.with(|store| store.fence(cluster))
    }
    fn can_be_written(&mut self, cluster: &ClusterName) -> Result<(), StoreError> {
        if self.is_full() {
            return Err(full());
        }
        self.with(|store| store.can_be_written(cluster))
    }
    fn raise(&mut self, cluster: &ClusterName, fence: u64, holder: &str) -> Result<(), StoreError> {
        self.write(|store| store.raise(cluster, fence, holder))
    }
    fn begin(
        &mut self,
        cluster: &ClusterName,
        fence: u64,
        at: Timestamp,
        start: Event,
    ) -> Result<Entry, StoreError> {
        self.write(|store| store.begin(cluster, fence, at, start))
    }
    fn append(
        &mut self,
        run: &RunId,
        fence: u64,
        after: Seq,
        at: Timestamp,
        events: Vec<Event>,
    ) -> Result<Vec<Entry>, StoreError> {
        self.write(|store| store.append(run, fence, after, at, events))
    }
    fn journal(&self, run: &RunId) -> Result<Vec<Entry>, StoreError> {
        self.with(|store| store.journal(run))
    }
    fn runs(&self) -> Result<Vec<Listed>, StoreError> {
        self.with(|store| store.runs())
    }
    fn ask(&mut self, run: &RunId, at: Timestamp, command: &Command, by: &str) -> Result<(), StoreError> {
        self.write(|store| store.ask(run, at, command, by))
    }
    fn asked(&self, run: &RunId) -> Result<Vec<(i64, Command, String)>, StoreError> {
        self.with(|store| store.asked(run))
    }
    fn taken(&mut self, run: &RunId, up_to: i64) -> Result<(), StoreError> {
        self.with(|store| store.taken(run, up_to))
    }
    fn mark(&self, run: &RunId, at: Option<Seq>) -> Result<Option<Mark>, StoreError> {
        self.with(|store| store.mark(run, at))
    }
    fn beside(&self) -> Result<Option<Box<dyn Store>>, StoreError> {
        Ok(Some(Box::new(self.clone())))
    }
    fn beat(
        &mut self,
        run: &RunId,
        fence: u64,
        claim: &LockRecord,
        expires: Duration,
    ) -> Result<(), StoreError> {
        self.with(|store| store.beat(run, fence, claim, expires))
    }
    fn left(&mut self, run: &RunId, fence: u64) -> Result<(), StoreError> {
        self.with(|store| store.left(run, fence))
    }
    fn presence(&self, run: &RunId) -> Result<Option<Presence>, StoreError> {
        self.with(|store| store.presence(run))
    }
}
