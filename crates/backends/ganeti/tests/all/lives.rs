//! Worlds, and processes that carry a run out on them, through the engine.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use stagger_core::model::{
    ClusterId, ClusterName, EvacuationPolicy, OnFailure, Policy, Reason, RunId, Snapshot, Target, UnitId,
};
use stagger_core::run::{Action, Answer, Command, Ending, Entry, Event, Seq};
use stagger_engine::clock::Clock as _;
use stagger_engine::cluster::{BackendError, Call, Executor, Fencing, Lock, LockError, LockRecord};
use stagger_engine::drive::{NoSignals, Stopped, drive};
use stagger_engine::driver::Parts;
use stagger_engine::sqlite::SqliteStore;
use stagger_engine::store::{Listed, Mark, Store, StoreError};
use stagger_engine::supervisor::{self, Identity};
use stagger_ganeti::executor::backend::GanetiBackend;
use stagger_ganeti::executor::fence;
use stagger_ganeti::maintenance::selection::Selection;
use stagger_ganeti::maintenance::snapshot::live::{Baseline, EvacuationGoal};
use stagger_ganeti::maintenance::target::{RebootGoal, reboot, with_guards_and_gates};

use crate::common::{Hasty, Setup, Talk, artifacts, policy, rebooted};
use crate::double::World;

/// Five nodes, mirrored instances in a ring, a shared one, one that is down.
pub fn mixed() -> World {
    let mut world = World::with_nodes(5);
    world.now.nodes.get_mut("n5").unwrap().role = "R";
    world.pool = 2;
    for (name, pnode, snode) in [
        ("a", "n1", "n2"),
        ("b", "n2", "n3"),
        ("c", "n3", "n4"),
        ("d", "n4", "n5"),
        ("e", "n5", "n1"),
        ("e2", "n5", "n1"),
    ] {
        world.add(name, "drbd", pnode, Some(snode));
    }
    world.add("s", "sharedfile", "n2", None);
    world.add_down("down", "drbd", "n3", Some("n1"));
    world
}

/// Another master by a command that leaves a word for the double.
pub fn with_failover(setup: &mut Setup) -> PathBuf {
    let file = setup.folder.path().join("new-master");
    setup.settings.cluster.visits.failover = Some(format!(
        "echo {{successor}} > {0}.new && mv {0}.new {0}",
        file.display()
    ));
    setup.world().new_master = Some(file.clone());
    file
}

#[derive(Debug)]
pub enum End {
    Over(Ending),
    Held(Reason),
    Killed,
}

/// One process after another on one journal.
pub struct Lives<'a> {
    pub setup: &'a Setup,
    pub moving: EvacuationPolicy,
    begun: Option<(Baseline, Target)>,
    pub journal: PathBuf,
    /// The next process dies at that touch of its journal; 0: it does not.
    pub dies_at_append: u64,
    /// Touches of its journal, of the last process.
    pub appends: u64,
    /// With the lock in the cluster, which takes its time where another held it.
    pub locks: bool,
    /// What becomes of a wave that fails.
    pub on_failure: OnFailure,
    number: u32,
}

impl<'a> Lives<'a> {
    pub fn new(setup: &'a Setup) -> Self {
        Self {
            moving: EvacuationPolicy::default(),
            begun: None,
            journal: setup.folder.path().join("journal.db"),
            setup,
            dies_at_append: 0,
            appends: 0,
            locks: false,
            on_failure: OnFailure::Stop,
            number: 0,
        }
    }

    fn policy(&self) -> Policy {
        Policy {
            on_failure: self.on_failure,
            ..policy()
        }
    }

    fn parts(&self, fuse: &Arc<Fuse>, memory: &Baseline) -> Parts {
        let clock = Arc::new(Hasty::default());
        let inner = self.setup.backend(Some(memory.clone()));
        Parts {
            backend: Arc::new(InHaste {
                inner,
                clock: Arc::clone(&clock),
                locks: self.locks,
            }),
            store: Box::new(FusedStore {
                store: SqliteStore::open(&self.journal).unwrap(),
                fuse: Arc::clone(fuse),
            }),
            clock,
            artifacts: artifacts(self.setup.folder.path()),
            listener: Box::new(Talk),
        }
    }

    /// How things are before the run, and what is wanted of them.
    pub async fn begin(&mut self) {
        let (facts, cluster) = self.setup.rapi().observe().await.unwrap();
        let goal = EvacuationGoal {
            moving: self.moving,
            ..EvacuationGoal::default()
        };
        let memory = Baseline::of(&facts, rebooted(), goal);
        let wish = RebootGoal {
            selection: Selection::default(),
            moving: self.moving,
            local_storage: Vec::new(),
        };
        let visits = &self.setup.settings.cluster.visits;
        let target = with_guards_and_gates(reboot(&cluster, &wish).unwrap(), visits, &self.policy()).unwrap();
        self.begun = Some((memory, target));
    }

    /// One process: it starts the run, or carries it on.
    pub async fn live(&mut self) -> End {
        self.number += 1;
        if self.begun.is_none() {
            self.begin().await;
        }
        let fuse = Arc::new(Fuse {
            at: self.dies_at_append,
            ..Fuse::default()
        });
        self.dies_at_append = 0;
        let killed = Arc::clone(&self.setup.world().killed);
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
        let (memory, target) = self.begun.clone().unwrap();
        let parts = self.parts(fuse, &memory);
        let started = if begun {
            supervisor::resume(parts, &who, &run).await
        } else {
            let memory = serde_json::to_value(&memory).unwrap();
            supervisor::start(
                parts,
                &who,
                run.clone(),
                target,
                self.policy(),
                memory,
                stagger_core::model::Topology::default(),
            )
            .await
        };
        let (mut driver, _lease) = match started {
            Ok(both) => both,
            Err(_) if fuse.is_dead() => return End::Killed,
            Err(supervisor::SuperviseError::Over(_)) => {
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

    /// What the journal holds.
    pub fn events(&self) -> Vec<Event> {
        let store = SqliteStore::open(&self.journal).unwrap();
        let entries = store.journal(&RunId::new("run-1").unwrap()).unwrap();
        entries.into_iter().map(|entry| entry.event).collect()
    }

    pub fn ask(&self, command: &Command) {
        let mut store = SqliteStore::open(&self.journal).unwrap();
        let run = RunId::new("run-1").unwrap();
        supervisor::ask(&mut store, &run, Timestamp::now(), command, "test").unwrap();
    }
}

/// The backend with the time of a clock that jumps. Unless it locks, the lock is only a token, which each
/// process raises: a dead one's need not be waited out.
struct InHaste {
    inner: GanetiBackend,
    clock: Arc<Hasty>,
    locks: bool,
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
        if self.locks {
            return self.inner.lock(claim, at_least).await;
        }
        let rapi = self.inner.rapi();
        let filters = rapi
            .filters()
            .await
            .map_err(|error| LockError::Backend(error.of("lock", true)))?;
        let token = at_least.max(fence::newest(&filters)) + 1;
        fence::raise(rapi, token).await.map_err(LockError::Backend)?;
        Ok(token)
    }

    async fn renew(&self, claim: &LockRecord, fence: u64) -> Result<(), LockError> {
        if self.locks {
            return self.inner.renew(claim, fence).await;
        }
        Ok(())
    }

    async fn unlock(&self, _: &LockRecord, _: u64) -> Result<(), LockError> {
        Ok(())
    }

    fn lock_expires(&self) -> Duration {
        if self.locks {
            return self.inner.lock_expires();
        }
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

/// Every node was rebooted once, everything is where it was and runs, and nothing is left behind.
pub fn all_is_well(world: &World, before: &World, which: &[&str]) {
    assert_eq!(world.violations, [""; 0]);
    let once = which.iter().map(|name| ((*name).to_owned(), 1)).collect();
    assert_eq!(world.powercycles, once);
    assert_eq!(world.layout(), before.layout());
    assert_eq!(world.left_behind(), [""; 0]);
    for (name, of) in &world.now.instances {
        assert!(
            !of.running || (!of.degraded && of.resync == 0),
            "{name} is degraded"
        );
    }
    let drained: Vec<_> = world
        .now
        .nodes
        .iter()
        .filter(|(_, node)| node.role == "D")
        .collect();
    assert!(drained.is_empty(), "{drained:?}");
}
