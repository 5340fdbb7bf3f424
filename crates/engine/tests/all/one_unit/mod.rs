//! A cluster of one unit, and a driver that has begun to change it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use stagger_core::model::{
    BudgetsBuilder, ClusterName, GoingBack, Kind, Part, PartName, Phase, Policy, Revision, RunId, Snapshot,
    StageSpec, Target, Unit, UnitId, UnitState, Width,
};
use stagger_core::run::{Action, Answer};
use stagger_engine::artifacts::Artifacts;
use stagger_engine::clock::Clock;
use stagger_engine::cluster::{Backend, BackendError, Call, Executor, Fencing, Lock, LockError, LockRecord};
use stagger_engine::driver::{Driver, DriverParts, Listener};
use stagger_engine::lease::Lease;
use stagger_engine::sqlite::SqliteStore;
use stagger_engine::store::JournalStore;
use stagger_engine::supervisor::{self, Identity};

/// One unit, as one process reaches it. The answer to the first enters is lost, and they land just before the next call.
pub(crate) struct OneUnit {
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) cluster: ClusterName,
    /// How many answers are lost.
    pub(crate) lost: usize,
    /// How many tokens the cluster has given to others.
    pub(crate) others: u64,
    /// There is another unit, and the first takes no fence.
    pub(crate) deaf: bool,
    /// The first is not reached at all now.
    pub(crate) away: AtomicBool,
    /// Up, what it runs, and the calls made to it.
    pub(crate) unit: Arc<Mutex<(bool, &'static str, Vec<String>)>>,
    /// What keeps late calls from doing harm, as the process believes.
    pub(crate) fencing: Fencing,
    /// What the unit does to that end.
    pub(crate) rail: Arc<Rail>,
    /// The generation of the unit in the last observation of this process.
    pub(crate) seen: AtomicU64,
    /// The process is stopped in its first enter, which lands so much later.
    pub(crate) late: Option<Duration>,
    pub(crate) stopped: tokio::sync::watch::Sender<bool>,
}

/// How the unit takes calls.
#[derive(Debug, Default)]
pub(crate) struct Rail {
    /// It refuses what it should.
    pub(crate) checks: bool,
    /// A call carries the generation that there is when it lands, and not the one that its process had observed.
    pub(crate) reads_late: bool,
    /// How long each call is on its way.
    pub(crate) takes: Duration,
    /// The newest token of the lock.
    pub(crate) given: AtomicU64,
    /// The newest token that the unit has seen.
    pub(crate) token: AtomicU64,
    /// It grows with each change of the unit, and with each fence.
    pub(crate) generation: AtomicU64,
    /// Whose calls have landed, in their order.
    pub(crate) landed: Mutex<Vec<u64>>,
}

impl Rail {
    /// A call with that token comes to the unit.
    fn lands(&self, fencing: Fencing, token: u64, generation: u64) -> Result<(), BackendError> {
        let refuses = self.checks
            && match fencing {
                Fencing::Fenced => token < self.token.load(Ordering::Relaxed),
                Fencing::Conditional => {
                    !self.reads_late && generation != self.generation.load(Ordering::Relaxed)
                }
                Fencing::Bounded(_) => false,
            };
        if refuses {
            return Err(BackendError::permanent("call u.1", "it was overtaken"));
        }
        self.token.fetch_max(token, Ordering::Relaxed);
        self.generation.fetch_add(1, Ordering::Relaxed);
        self.landed.lock().unwrap().push(token);
        Ok(())
    }
}

impl OneUnit {
    /// It serves on `1`.
    pub(crate) fn new(clock: Arc<dyn Clock>, fencing: Fencing, rail: Rail) -> Self {
        Self {
            clock,
            cluster: ClusterName::new("c").unwrap(),
            lost: 0,
            others: 0,
            deaf: false,
            away: AtomicBool::new(false),
            unit: Arc::new(Mutex::new((true, "1", Vec::new()))),
            fencing,
            rail: Arc::new(rail),
            seen: AtomicU64::new(0),
            late: None,
            stopped: tokio::sync::watch::channel(false).0,
        }
    }

    /// The same unit, as another process reaches it.
    pub(crate) fn of_another_process(&self) -> Self {
        Self {
            unit: Arc::clone(&self.unit),
            rail: Arc::clone(&self.rail),
            ..Self::new(Arc::clone(&self.clock), self.fencing, Rail::default())
        }
    }
}

/// Time that passes when somebody waits.
#[derive(Debug)]
pub(crate) struct Waiting(pub(crate) Mutex<Timestamp>);

#[async_trait]
impl Clock for Waiting {
    fn now(&self) -> Timestamp {
        *self.0.lock().unwrap()
    }
    fn uptime(&self) -> Duration {
        self.now().duration_since(Timestamp::UNIX_EPOCH).unsigned_abs()
    }
    async fn sleep_until(&self, until: Timestamp) {
        *self.0.lock().unwrap() = until;
    }
}

pub(crate) struct Nobody;

impl Listener for Nobody {
    fn event(&mut self, _: &stagger_core::run::Entry, _: &stagger_core::run::Run) {}
}

#[async_trait]
impl Executor for OneUnit {
    async fn observe(&self) -> Result<Snapshot, BackendError> {
        let generation = self.rail.generation.load(Ordering::Relaxed);
        self.seen.store(generation, Ordering::Relaxed);
        let (up, runs, _) = &*self.unit.lock().unwrap();
        let unit = Unit {
            id: UnitId::new("u.1").unwrap(),
            kind: Kind::new("u").unwrap(),
            state: if *up { UnitState::Serving } else { UnitState::Down },
            revision: Some(Revision::new(*runs).unwrap()),
            domains: BTreeMap::new(),
            precedence: 0,
            untouchable: None,
        };
        let mut units = vec![unit];
        if self.deaf {
            let mut other = units[0].clone();
            other.id = UnitId::new("v.1").unwrap();
            other.kind = Kind::new("v").unwrap();
            units.push(other);
        }
        let (cluster, none) = (self.cluster.clone(), BudgetsBuilder::default().build());
        let at = self.clock.now();
        let snapshot = Snapshot::new(
            cluster,
            at,
            String::new(),
            units,
            none,
            Vec::new(),
            BTreeMap::new(),
        );
        snapshot.map_err(|error| BackendError::permanent("observe", error.to_string()))
    }

    async fn check_stop(&self, _: &[UnitId]) -> Result<Answer, BackendError> {
        Ok(Answer::NoOracle)
    }

    fn fencing(&self, _: &Action) -> Fencing {
        self.fencing
    }

    async fn perform(&self, call: &Call, action: &Action) -> Result<String, BackendError> {
        let Action::Visit { phase, .. } = action else {
            return Err(BackendError::permanent(
                format!("{action:?}"),
                "nothing here needs it",
            ));
        };
        let generation = self.seen.load(Ordering::Relaxed);
        let is_late = *phase == Phase::Enter && !*self.stopped.borrow();
        let late = self.late.filter(|_| is_late);
        if late.is_some() {
            self.stopped.send_replace(true);
        }
        let way = late.unwrap_or(self.rail.takes);
        if !way.is_zero() {
            tokio::time::sleep(way).await;
        }
        self.rail.lands(self.fencing, call.fence, generation)?;
        // What it has done itself it knows.
        self.seen
            .store(self.rail.generation.load(Ordering::Relaxed), Ordering::Relaxed);
        let mut unit = self.unit.lock().unwrap();
        unit.2.push(format!("{phase:?} {}", call.seq));
        match phase {
            Phase::Prepare => {}
            Phase::Enter if unit.2.len() <= self.lost => {
                return Err(BackendError::transient("enter", "no answer").outcome_unknown());
            }
            Phase::Enter => unit.0 = false,
            Phase::Change => unit.1 = "2",
            Phase::Leave => unit.0 = true,
        }
        Ok(String::new())
    }

    async fn raise_fence(&self, fence: u64, units: &[UnitId]) -> Result<(), BackendError> {
        let names: Vec<_> = units.iter().map(UnitId::as_str).collect();
        let is_away = self.deaf || self.away.load(Ordering::Relaxed);
        if is_away && names.contains(&"u.1") {
            return Err(BackendError::transient("raise the fence", "u.1 is away"));
        }
        self.rail.token.fetch_max(fence, Ordering::Relaxed);
        let generation = self.rail.generation.fetch_add(1, Ordering::Relaxed) + 1;
        self.seen.store(generation, Ordering::Relaxed);
        let raised = format!("fence {fence} on {}", names.join(" "));
        self.unit.lock().unwrap().2.push(raised);
        Ok(())
    }

    async fn diagnostics(&self, _: &Call, _: &[UnitId]) -> Result<Vec<(String, Vec<u8>)>, BackendError> {
        Ok(Vec::new())
    }

    fn poll(&self) -> Duration {
        Duration::from_secs(1)
    }
}

#[async_trait]
impl Lock for OneUnit {
    fn cluster(&self) -> &ClusterName {
        &self.cluster
    }

    async fn lock(&self, _: &LockRecord, at_least: u64) -> Result<u64, LockError> {
        let token = at_least + 1 + self.others;
        self.rail.given.fetch_max(token, Ordering::Relaxed);
        Ok(token)
    }

    async fn renew(&self, _: &LockRecord, fence: u64) -> Result<(), LockError> {
        if *self.stopped.borrow() {
            std::future::pending::<()>().await;
        }
        if fence < self.rail.given.load(Ordering::Relaxed) {
            return Err(LockError::Lost("another has it".to_owned()));
        }
        Ok(())
    }

    async fn unlock(&self, _: &LockRecord, _: u64) -> Result<(), LockError> {
        Ok(())
    }

    fn lock_expires(&self) -> Duration {
        Duration::from_mins(1)
    }
}

pub(crate) fn target() -> Target {
    Target {
        title: "1 to 2".to_owned(),
        parts: vec![Part::Stage(StageSpec {
            name: PartName::new("units").unwrap(),
            kind: Kind::new("u").unwrap(),
            revision: Revision::new("2").unwrap(),
            width: Width::Policy,
            phases: Phase::all(),
            guards: Vec::new(),
            gates: Vec::new(),
            door_before_last: None,
            may_be_left: false,
            going_back: GoingBack::Restart,
            maintenance: None,
        })],
        only: None,
    }
}

/// The world, a driver that has begun, and the folder with its journal.
pub(crate) struct Begun {
    pub(crate) world: Arc<OneUnit>,
    pub(crate) driver: Driver,
    pub(crate) _lease: Lease,
    pub(crate) folder: tempfile::TempDir,
}

impl Begun {
    pub(crate) async fn with(lost: usize, others: u64) -> Self {
        Self::new(lost, others, false).await
    }

    pub(crate) async fn new(lost: usize, others: u64, deaf: bool) -> Self {
        Self::in_store(lost, others, deaf, |file| Box::new(file)).await
    }

    /// With the journal in a store that is made of the file.
    pub(crate) async fn in_store(
        lost: usize,
        others: u64,
        deaf: bool,
        store: impl FnOnce(SqliteStore) -> Box<dyn JournalStore>,
    ) -> Self {
        let clock = Arc::new(Waiting(Mutex::new(Timestamp::UNIX_EPOCH)));
        let world = OneUnit {
            lost,
            others,
            deaf,
            ..OneUnit::new(clock, Fencing::Fenced, Rail::default())
        };
        Self::on(Arc::new(world), Policy::default(), store).await
    }

    /// A run begins on that.
    pub(crate) async fn on(
        world: Arc<OneUnit>,
        policy: Policy,
        store: impl FnOnce(SqliteStore) -> Box<dyn JournalStore>,
    ) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let parts = parts(&world, &folder, store);
        let run = RunId::new("r1").unwrap();
        let who = Identity::current_process();
        let (driver, lease) = supervisor::start(
            parts,
            &who,
            run,
            target(),
            policy,
            serde_json::Value::Null,
            stagger_core::model::Topology::default(),
        )
        .await
        .unwrap();
        Self {
            world,
            driver,
            _lease: lease,
            folder,
        }
    }

    /// Another process takes it over.
    pub(crate) async fn taken_over(self) -> Self {
        let Self {
            world,
            driver,
            _lease: lease,
            folder,
        } = self;
        let run = driver.run().start().run.clone();
        drop((driver, lease));
        world.unit.lock().unwrap().2.clear();
        let who = Identity::current_process();
        let (driver, lease) = supervisor::resume(parts(&world, &folder, |file| Box::new(file)), &who, &run)
            .await
            .unwrap();
        Self {
            world,
            driver,
            _lease: lease,
            folder,
        }
    }

    pub(crate) fn calls(&self) -> Vec<String> {
        self.world.unit.lock().unwrap().2.clone()
    }
}

pub(crate) fn parts(
    world: &Arc<OneUnit>,
    folder: &tempfile::TempDir,
    store: impl FnOnce(SqliteStore) -> Box<dyn JournalStore>,
) -> DriverParts {
    DriverParts {
        backend: Arc::clone(world) as Arc<dyn Backend>,
        store: store(SqliteStore::open(&folder.path().join("journal.db")).unwrap()),
        clock: Arc::clone(&world.clock),
        artifacts: Artifacts::in_folder(folder.path().join("artifacts")),
        listener: Box::new(Nobody),
    }
}
