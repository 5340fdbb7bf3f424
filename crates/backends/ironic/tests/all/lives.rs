//! Processes that carry a run out on a lab, one after another, through the engine.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use stagger_core::model::{ClusterId, ClusterName, Policy, Reason, RunId, Snapshot, Target, UnitId};
use stagger_core::run::{Action, Answer, Command, Ending, Entry, Event, Seq};
use stagger_engine::artifacts::Artifacts;
use stagger_engine::clock::Clock as _;
use stagger_engine::cluster::{BackendError, Call, Executor, Fencing, Lock, LockError, LockRecord};
use stagger_engine::drive::{NoSignals, Stopped, drive};
use stagger_engine::driver::Parts;
use stagger_engine::sqlite::SqliteStore;
use stagger_engine::store::{Listed, Mark, Store, StoreError};
use stagger_engine::supervisor::{self, Identity, SuperviseError};
use stagger_ironic::backend::IronicBackend;
use stagger_ironic::goal::UpgradeGoal;

use crate::common::{Hasty, Setup, Talk, policy};
use crate::double::Inner;

#[derive(Debug)]
pub enum End {
    Over(Ending),
    Held(Reason),
    Killed,
}

/// One process after another on one journal.
pub struct Lives<'a> {
    pub setup: &'a Setup,
    pub to: &'static str,
    pub policy: Policy,
    begun: Option<(UpgradeGoal, Target)>,
    pub journal: PathBuf,
    /// The next process dies at that touch of its journal; 0: it does not.
    pub dies_at_append: u64,
    /// Touches of its journal, of the last process.
    pub appends: u64,
    /// The newest token that was given out.
    token: Arc<AtomicU64>,
    number: u32,
}

impl<'a> Lives<'a> {
    pub fn new(setup: &'a Setup) -> Self {
        Self {
            to: "29.0.6",
            policy: policy(),
            begun: None,
            journal: setup.folder.path().join("journal.db"),
            setup,
            dies_at_append: 0,
            appends: 0,
            token: Arc::default(),
            number: 0,
        }
    }

    fn parts(&self, fuse: &Arc<Fuse>, goal: &UpgradeGoal) -> Parts {
        let clock = Arc::new(Hasty::default());
        Parts {
            backend: Arc::new(InHaste {
                inner: self.setup.backend(Some(goal.clone())),
                clock: Arc::clone(&clock),
                token: Arc::clone(&self.token),
            }),
            store: Box::new(FusedStore {
                store: SqliteStore::open(&self.journal).unwrap(),
                fuse: Arc::clone(fuse),
            }),
            clock,
            artifacts: Artifacts::in_folder(self.setup.folder.path().join("artifacts")),
            listener: Box::new(Talk),
        }
    }

    /// One process: it starts the run, or carries it on.
    pub async fn live(&mut self) -> End {
        self.number += 1;
        if self.begun.is_none() {
            let backend = self.setup.backend(None);
            let facts = backend.look().await;
            let upgrade = self.setup.upgrade(&facts, self.to, &self.policy).unwrap();
            self.begun = Some((upgrade.goal, upgrade.target));
        }
        let fuse = Arc::new(Fuse {
            at: self.dies_at_append,
            ..Fuse::default()
        });
        self.dies_at_append = 0;
        let killed = Arc::clone(&self.setup.lab.killed);
        let end = tokio::select! {
            () = killed.notified() => End::Killed,
            end = self.one(&fuse) => end,
        };
        self.appends = fuse.passed.load(Ordering::SeqCst);
        end
    }

    async fn one(&self, fuse: &Arc<Fuse>) -> End {
        let run = RunId::new("run-1").unwrap();
        let who = Identity {
            incarnation: format!("life-{}", self.number),
            host: "ops1".to_owned(),
            process: self.number,
        };
        let begun = !matches!(
            SqliteStore::open(&self.journal).unwrap().journal(&run),
            Err(StoreError::NoRun(_))
        );
        let (goal, target) = self.begun.clone().unwrap();
        let parts = self.parts(fuse, &goal);
        let started = if begun {
            supervisor::resume(parts, &who, &run).await
        } else {
            let memory = serde_json::to_value(&goal).unwrap();
            supervisor::start(
                parts,
                &who,
                run.clone(),
                target,
                self.policy.clone(),
                memory,
                stagger_core::model::Topology::default(),
            )
            .await
        };
        let (mut driver, _lease) = match started {
            Ok(both) => both,
            Err(_) if fuse.is_dead() => return End::Killed,
            Err(SuperviseError::Over(_)) => {
                let store = SqliteStore::open(&self.journal).unwrap();
                let replayed = supervisor::replay(&store, &run).unwrap();
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

    /// Processes until one comes to an end; how many it took.
    pub async fn until_done(&mut self, what: &str) -> u32 {
        for number in 1..10 {
            match self.live().await {
                End::Killed => {}
                End::Over(Ending::Done) => return number,
                other => panic!("{what}: {other:?}\n{:#?}", self.setup.lab.log()),
            }
        }
        panic!("{what}: it never comes to an end");
    }

    pub fn ask(&self, command: &Command) {
        let mut store = SqliteStore::open(&self.journal).unwrap();
        let run = RunId::new("run-1").unwrap();
        supervisor::ask(&mut store, &run, Timestamp::now(), command, "test").unwrap();
    }

    /// The notes of all effects that were done, in their order.
    pub fn notes(&self) -> Vec<String> {
        let store = SqliteStore::open(&self.journal).unwrap();
        let entries = store.journal(&RunId::new("run-1").unwrap()).unwrap();
        let notes = entries.into_iter().filter_map(|entry| match entry.event {
            Event::Settled {
                outcome: stagger_core::run::Outcome::Done { note },
                ..
            } => Some(note),
            _ => None,
        });
        notes.collect()
    }
}

/// The backend with the time of a clock that jumps. A dead process's lock need not be waited out.
struct InHaste {
    inner: IronicBackend,
    clock: Arc<Hasty>,
    token: Arc<AtomicU64>,
}

#[async_trait]
impl Executor for InHaste {
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
impl Lock for InHaste {
    fn cluster(&self) -> &ClusterName {
        self.inner.cluster()
    }

    async fn identity(&self) -> Result<ClusterId, BackendError> {
        self.inner.identity().await
    }

    async fn lock(&self, claim: &LockRecord, at_least: u64) -> Result<u64, LockError> {
        let dead = self.token.load(Ordering::SeqCst);
        self.inner.unlock(claim, dead).await?;
        let token = self.inner.lock(claim, at_least).await?;
        self.token.store(token, Ordering::SeqCst);
        Ok(token)
    }

    async fn renew(&self, claim: &LockRecord, fence: u64) -> Result<(), LockError> {
        self.inner.renew(claim, fence).await
    }

    async fn unlock(&self, _: &LockRecord, _: u64) -> Result<(), LockError> {
        Ok(())
    }

    fn lock_expires(&self) -> Duration {
        Duration::from_hours(24 * 365)
    }
}

#[derive(Debug, Default)]
pub struct Fuse {
    at: u64,
    passed: AtomicU64,
    dead: AtomicBool,
}

impl Fuse {
    fn is_dead(&self) -> bool {
        self.dead.load(Ordering::SeqCst)
    }

    fn pass(&self) -> Result<(), StoreError> {
        let point = self.passed.fetch_add(1, Ordering::SeqCst) + 1;
        if point == self.at {
            self.dead.store(true, Ordering::SeqCst);
        }
        if self.is_dead() {
            return Err(StoreError::Failed {
                tried: "live".to_owned(),
                why: "killed".to_owned(),
            });
        }
        Ok(())
    }
}

struct FusedStore {
    store: SqliteStore,
    fuse: Arc<Fuse>,
}

impl Store for FusedStore {
    fn fence(&self, cluster: &ClusterName) -> Result<u64, StoreError> {
        self.store.fence(cluster)
    }
    fn raise(&mut self, cluster: &ClusterName, fence: u64, holder: &str) -> Result<(), StoreError> {
        self.fuse.pass()?;
        self.store.raise(cluster, fence, holder)
    }
    fn begin(
        &mut self,
        cluster: &ClusterName,
        fence: u64,
        at: Timestamp,
        start: Event,
    ) -> Result<Entry, StoreError> {
        self.fuse.pass()?;
        let entry = self.store.begin(cluster, fence, at, start)?;
        self.fuse.pass()?;
        Ok(entry)
    }
    fn append(
        &mut self,
        run: &RunId,
        fence: u64,
        after: Seq,
        at: Timestamp,
        events: Vec<Event>,
    ) -> Result<Vec<Entry>, StoreError> {
        self.fuse.pass()?;
        let entries = self.store.append(run, fence, after, at, events)?;
        self.fuse.pass()?;
        Ok(entries)
    }
    fn journal(&self, run: &RunId) -> Result<Vec<Entry>, StoreError> {
        self.store.journal(run)
    }
    fn runs(&self) -> Result<Vec<Listed>, StoreError> {
        self.store.runs()
    }
    fn ask(&mut self, run: &RunId, at: Timestamp, command: &Command, by: &str) -> Result<(), StoreError> {
        self.store.ask(run, at, command, by)
    }
    fn asked(&self, run: &RunId) -> Result<Vec<(i64, Command, String)>, StoreError> {
        self.store.asked(run)
    }
    fn taken(&mut self, run: &RunId, up_to: i64) -> Result<(), StoreError> {
        self.store.taken(run, up_to)
    }
    fn mark(&self, run: &RunId, at: Option<Seq>) -> Result<Option<Mark>, StoreError> {
        self.store.mark(run, at)
    }
}

/// Everything runs the release without a pin, was stopped as often as it had to be, and no request has failed.
pub fn all_is_well(inner: &Inner, release: &str, stops: u32) {
    assert_eq!(inner.violations, [""; 0]);
    for (name, service) in &inner.services {
        assert_eq!(service.runs, Some((release.to_owned(), None)), "{name}");
        assert_eq!(service.installed, release, "{name}");
        assert_eq!(service.pin_file, None, "{name}");
        assert_eq!(service.stops, stops, "{name}");
    }
    let drained: Vec<_> = inner.servers.iter().filter(|(_, drained)| **drained).collect();
    assert!(drained.is_empty(), "{drained:?}");
}
