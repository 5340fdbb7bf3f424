//! Processes that carry one run out, one after another, through the engine.

use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use jiff::Timestamp;
use stagger_core::model::{Policy, Reason, RunId, Target, Topology};
use stagger_core::run::{Command, Ending, Entry, Event, Outcome};
use stagger_engine::artifacts::Artifacts;
use stagger_engine::cluster::Backend;
use stagger_engine::drive::{NoSignals, Stopped, drive};
use stagger_engine::driver::DriverParts;
use stagger_engine::sqlite::SqliteStore;
use stagger_engine::store::{JournalStore as _, StoreError};
use stagger_engine::supervisor::{self, Identity, SuperviseError};

use crate::clock::HastyClock;
use crate::fuse::{Fuse, FusedStore};
use crate::listener::JournalPrinter;

/// What a run begins with.
#[derive(Debug, Clone)]
pub struct RunStart {
    /// What is wanted.
    pub target: Target,
    /// How bold to be.
    pub policy: Policy,
    /// The backend's memory of how things were before.
    pub memory: serde_json::Value,
}

/// How a process ended.
#[derive(Debug)]
pub enum End {
    /// The run is over.
    Over(Ending),
    /// The run waits for a person.
    Held(Reason),
    /// It was killed.
    Killed,
}

/// One process after another on one journal. The first begins the run, and those after it resume it.
#[derive(Debug)]
pub struct Processes {
    folder: PathBuf,
    /// The journal, of SQLite.
    pub journal: PathBuf,
    /// The next process dies at that touch of its journal; 0: it does not.
    pub dies_at: u64,
    /// Touches of its journal, of the last process.
    pub touches: u64,
    number: u32,
}

impl Processes {
    /// With the journal in that folder.
    pub fn in_folder(folder: &Path) -> Self {
        Self {
            folder: folder.to_owned(),
            journal: folder.join("journal.db"),
            dies_at: 0,
            touches: 0,
            number: 0,
        }
    }

    /// One process. It is killed when its fuse blows, or as soon as `killed` is ready.
    ///
    /// # Panics
    /// The run cannot be begun or resumed, or ends in an error, while nobody killed the process.
    pub async fn live(
        &mut self,
        start: &RunStart,
        backend: impl FnOnce(&Arc<HastyClock>) -> Arc<dyn Backend>,
        killed: impl Future<Output = ()>,
    ) -> End {
        self.number += 1;
        let fuse = Fuse::at(self.dies_at);
        self.dies_at = 0;
        let clock = Arc::new(HastyClock::default());
        let parts = DriverParts {
            backend: backend(&clock),
            store: Box::new(FusedStore {
                store: self.store(),
                fuse: Arc::clone(&fuse),
            }),
            clock,
            artifacts: Artifacts::in_folder(self.folder.join("artifacts")),
            listener: Box::new(JournalPrinter),
        };
        let end = tokio::select! {
            () = killed => End::Killed,
            end = self.carry_out(start, parts, &fuse) => end,
        };
        self.touches = fuse.passed();
        end
    }

    async fn carry_out(&self, start: &RunStart, parts: DriverParts, fuse: &Fuse) -> End {
        let who = Identity {
            incarnation: format!("life-{}", self.number),
            host: "ops1".to_owned(),
            process: self.number,
        };
        let is_new = matches!(self.store().journal(&run()).await, Err(StoreError::NoRun(_)));
        let started = if is_new {
            let RunStart {
                target,
                policy,
                memory,
            } = start.clone();
            supervisor::start(parts, &who, run(), target, policy, memory, Topology::default()).await
        } else {
            supervisor::resume(parts, &who, &run()).await
        };
        let (mut driver, _lease) = match started {
            Ok(both) => both,
            Err(_) if fuse.is_dead() => return End::Killed,
            Err(SuperviseError::Over(_)) => {
                let replayed = supervisor::replay(&self.store(), &run()).await.unwrap();
                return End::Over(replayed.ended().unwrap().clone());
            }
            Err(error) => panic!("{error:?}"),
        };
        match drive(&mut driver, &mut NoSignals).await {
            Ok(_) | Err(_) if fuse.is_dead() => End::Killed,
            Ok(Stopped::Over(ending)) => End::Over(ending),
            Ok(Stopped::Held(reason)) => End::Held(reason),
            Ok(other) => panic!("{other:?}"),
            Err(error) => panic!("{error:?}"),
        }
    }

    /// Leaves a command for the run.
    pub async fn ask(&self, command: &Command) {
        supervisor::ask(&mut self.store(), &run(), Timestamp::now(), command, "test")
            .await
            .unwrap();
    }

    /// What the journal holds.
    pub async fn entries(&self) -> Vec<Entry> {
        self.store().journal(&run()).await.unwrap()
    }

    /// The same without places and times.
    pub async fn events(&self) -> Vec<Event> {
        let entries = self.entries().await;
        entries.into_iter().map(|entry| entry.event).collect()
    }

    /// The notes of all effects that were done, in their order.
    pub async fn notes(&self) -> Vec<String> {
        let notes = self.events().await.into_iter().filter_map(|event| match event {
            Event::Settled {
                outcome: Outcome::Done { note },
                ..
            } => Some(note),
            _ => None,
        });
        notes.collect()
    }

    fn store(&self) -> SqliteStore {
        SqliteStore::open(&self.journal).unwrap()
    }
}

/// The one run of a journal.
fn run() -> RunId {
    RunId::new("run-1").unwrap()
}
