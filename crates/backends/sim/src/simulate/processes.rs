//! Several processes that would carry one run out, each with a clock of its own: killed, paused, and cut off.
//!
//! They share the journal and the world, and nothing else.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use jiff::{SignedDuration, Timestamp};
use stagger_core::model::{ClusterId, ClusterName, RunId, Snapshot, Topology, UnitId};
use stagger_core::run::{Action, Answer, Entry, Run};
use stagger_core::view::Waiting;
use stagger_engine::artifacts::Artifacts;
use stagger_engine::clock::{Clock, Moment};
use stagger_engine::cluster::{
    Anchor, Backend, BackendError, Call, Executor, Fencing, Holder, Lock, LockError, LockRecord,
};
use stagger_engine::driver::{DriveError, DriverParts, Listener, Notice};
use stagger_engine::store::{JournalStore as _, StoreError};
use stagger_engine::supervisor::{self, Identity, SuperviseError};

use super::SimError;
use super::driver::{ScenarioDriver, units_in_progress};
use super::ending::SimEnding;
use super::journal::SharedJournal;
use crate::backend::Sim;
use crate::clock::VirtualClock;
use crate::scenario::{ProcessFault, ProcessSpec, Scenario};
use crate::target::target;

/// So long it waits before it tries again to carry the run out.
const PATIENCE: Duration = Duration::from_secs(20);

/// Every so many tries to carry it on go all the way, though another has the lock.
const LOOKS_INTO_IT: u32 = 16;

/// So long a call is waited for that gets no answer.
const NO_ANSWER: Duration = Duration::from_secs(4);

/// After so many tries it never comes to an end.
const MOST_TRIES: u32 = 5_000;

/// No machine counts its processes as far as that.
const NO_PROCESS: u32 = 1 << 30;

/// What all conductors share.
pub(crate) struct ProcessContext<'a> {
    pub(crate) scenario: &'a Scenario,
    pub(crate) sim: &'a Sim,
    pub(crate) run: RunId,
    pub(crate) topology: Topology,
    pub(crate) store: SharedJournal,
    pub(crate) artifacts: Artifacts,
    pub(crate) listener: Arc<Mutex<Box<dyn Listener>>>,
    pub(crate) scenario_driver: ScenarioDriver<'a>,
    /// How often it was tried to carry the run on.
    pub(crate) tries: AtomicU32,
}

impl ProcessContext<'_> {
    /// One conductor, from its start until the run has ended.
    pub(crate) async fn conduct(
        &self,
        number: usize,
        conductor: &ProcessSpec,
    ) -> Result<SimEnding, SimError> {
        let world = self.sim.clock();
        world.pause(Duration::from_secs(u64::from(conductor.at))).await;
        let health = Arc::new(ProcessState::new(conductor));
        let mut kills = conductor.ills.iter().filter_map(|ill| match ill {
            ProcessFault::Killed { at, again } => Some((*at, *again)),
            ProcessFault::Paused { .. }
            | ProcessFault::Frozen { .. }
            | ProcessFault::ClockSet { .. }
            | ProcessFault::CutOff { .. } => None,
        });
        loop {
            let kill = kills.next();
            let at = kill.map_or(u32::MAX, |(at, _)| at);
            let passed = Duration::from_millis(self.sim.world().elapsed());
            let left = Duration::from_secs(u64::from(at)).saturating_sub(passed);
            tokio::select! {
                biased;
                () = world.pause(left), if kill.is_some() => {}
                ended = self.live(number, conductor, &health) => return ended,
            }
            let again = kill.map_or(0, |(_, again)| again);
            world.pause(Duration::from_secs(u64::from(again))).await;
        }
    }

    /// One life of it: tries again and again to carry the run on.
    async fn live(
        &self,
        number: usize,
        conductor: &ProcessSpec,
        health: &Arc<ProcessState>,
    ) -> Result<SimEnding, SimError> {
        let clock = ProcessClock {
            world: self.sim.clock(),
            ahead: SignedDuration::from_secs(i64::from(conductor.ahead)),
            health: Arc::clone(health),
        };
        loop {
            let tries = self.tries.fetch_add(1, Ordering::Relaxed) + 1;
            // Who sees that another has the lock mostly waits: to read the whole journal each time tells them nothing.
            if !tries.is_multiple_of(LOOKS_INTO_IT) && self.is_locked() && !self.scenario.is_calm() {
                if tries > MOST_TRIES {
                    return Err(SimError::NoEnd);
                }
                clock.pause(PATIENCE).await;
                continue;
            }
            let who = Identity {
                incarnation: format!("simulated-{tries}"),
                host: if number == 0 {
                    "localhost".to_owned()
                } else {
                    format!("conductor-{number}")
                },
                // None that is one of this machine: whether that lives would be looked up.
                process: NO_PROCESS + tries,
            };
            if self.scenario_driver.is_to_heal(self.sim) {
                let in_hand = self.units_in_progress().await;
                self.sim.world().heal(&in_hand);
            }
            match self.try_once(&who, &clock, health).await {
                Ok(ending) => return Ok(ending),
                Err(ProcessEnd::Over) => return Ok(SimEnding::Over(self.ended().await?)),
                Err(ProcessEnd::Broken(error)) => return Err(error),
                // Who is alone, and nothing befalls, has nobody to wait for.
                Err(ProcessEnd::Later(error)) if self.scenario.is_calm() => {
                    return Err(SimError::Supervise(error));
                }
                Err(ProcessEnd::Later(_)) if tries > MOST_TRIES => return Err(SimError::NoEnd),
                Err(ProcessEnd::Later(error)) => {
                    if matches!(error, SuperviseError::Drive(DriveError::StrayCall { .. })) {
                        self.scenario_driver
                            .record_reported_strays(self.sim, &self.run)
                            .await;
                    }
                    clock.pause(PATIENCE).await;
                }
            }
        }
    }

    async fn units_in_progress(&self) -> BTreeSet<UnitId> {
        let run = supervisor::replay(&self.store, &self.run).await.ok();
        run.as_ref().map(units_in_progress).unwrap_or_default()
    }

    fn is_locked(&self) -> bool {
        let world = self.sim.world();
        let now = world.elapsed();
        world.lock.as_ref().is_some_and(|(_, until)| now < *until)
    }

    async fn ended(&self) -> Result<stagger_core::run::Ending, SimError> {
        let run = supervisor::replay(&self.store, &self.run).await?;
        run.ended().cloned().ok_or(SimError::NoEnd)
    }

    async fn try_once(
        &self,
        who: &Identity,
        clock: &ProcessClock,
        health: &Arc<ProcessState>,
    ) -> Result<SimEnding, ProcessEnd> {
        let backend: Arc<dyn Backend> = Arc::new(ClusterLink {
            sim: self.sim.clone(),
            clock: clock.clone(),
            health: Arc::clone(health),
        });
        let parts = DriverParts {
            backend: Arc::clone(&backend),
            store: Box::new(self.store.clone()),
            clock: Arc::new(clock.clone()),
            artifacts: self.artifacts.clone(),
            listener: Box::new(SharedListener(Arc::clone(&self.listener), self.sim.clone())),
        };
        let begun = match self.store.journal(&self.run).await {
            Ok(entries) => !entries.is_empty(),
            Err(error) => !matches!(error, StoreError::NoRun(_)),
        };
        let started = if begun {
            let resumed = supervisor::resume(parts, who, &self.run).await;
            if resumed.is_ok() {
                self.sim.world().resume();
            }
            resumed
        } else {
            let Scenario {
                cluster,
                target: wish,
                policy,
                ..
            } = self.scenario;
            let wanted = target(cluster, wish, policy).map_err(SimError::from)?;
            let run = self.run.clone();
            let baseline = serde_json::Value::Null;
            let topology = self.topology.clone();
            supervisor::start(parts, who, run, wanted, policy.clone(), baseline, topology).await
        };
        let (mut driver, lease) = started.map_err(ProcessEnd::of)?;
        let ended = self.scenario_driver.drive(&mut driver, self.sim).await;
        let ending = ended.map_err(|error| ProcessEnd::of(SuperviseError::from(error)))?;
        // If it cannot be given back, it goes at its expiry.
        lease.release(&backend).await.ok();
        Ok(ending)
    }
}

/// Why a conductor does not carry the run out.
enum ProcessEnd {
    /// It is over.
    Over,
    /// It tries again later.
    Later(SuperviseError),
    /// It should never be.
    Broken(SimError),
}

impl From<SimError> for ProcessEnd {
    fn from(error: SimError) -> Self {
        Self::Broken(error)
    }
}

impl ProcessEnd {
    fn of(error: SuperviseError) -> Self {
        match error {
            SuperviseError::Over(_) => Self::Over,
            SuperviseError::Drive(DriveError::Illegal(_))
            | SuperviseError::NameOfAnother { .. }
            | SuperviseError::OfAnotherCluster { .. } => Self::Broken(SimError::Supervise(error)),
            SuperviseError::Lock(_)
            | SuperviseError::Unidentified(_)
            | SuperviseError::Store(_)
            | SuperviseError::Unfinished(_)
            | SuperviseError::Empty(_)
            | SuperviseError::Drive(_) => Self::Later(error),
        }
    }
}

/// How a conductor is.
struct ProcessState {
    /// It stands still until then, in milliseconds of the world.
    paused_until: AtomicU64,
    /// So many milliseconds its machine was frozen, or will have been when it goes on.
    frozen: AtomicU64,
    calls: AtomicU32,
    /// Before which call, for how many seconds, and whether its machine is frozen.
    pauses: Vec<(u32, u32, bool)>,
    cuts: Vec<(u64, u64)>,
    /// When its clock is set, and by how many seconds.
    settings: Vec<(u64, i64)>,
}

impl ProcessState {
    fn new(conductor: &ProcessSpec) -> Self {
        let mut health = Self {
            paused_until: AtomicU64::new(0),
            frozen: AtomicU64::new(0),
            calls: AtomicU32::new(0),
            pauses: Vec::new(),
            cuts: Vec::new(),
            settings: Vec::new(),
        };
        for ill in &conductor.ills {
            match *ill {
                ProcessFault::Killed { .. } => {}
                ProcessFault::Paused { call, lasts } => health.pauses.push((call, lasts, false)),
                ProcessFault::Frozen { call, lasts } => health.pauses.push((call, lasts, true)),
                ProcessFault::ClockSet { at, by } => {
                    health.settings.push((u64::from(at) * 1000, i64::from(by)));
                }
                ProcessFault::CutOff { at, lasts } => {
                    let from = u64::from(at) * 1000;
                    health.cuts.push((from, from + u64::from(lasts) * 1000));
                }
            }
        }
        health
    }

    fn is_cut_off(&self, now: u64) -> bool {
        self.cuts
            .iter()
            .any(|(from, until)| (*from..*until).contains(&now))
    }

    /// One more call is about to be made.
    fn before_call(&self, now: u64) {
        let call = self.calls.fetch_add(1, Ordering::Relaxed) + 1;
        for (at, lasts, frozen) in &self.pauses {
            if *at == call {
                let lasts = u64::from(*lasts) * 1000;
                self.paused_until.fetch_max(now + lasts, Ordering::Relaxed);
                if *frozen {
                    self.frozen.fetch_add(lasts, Ordering::Relaxed);
                }
            }
        }
    }

    /// By so many seconds its clock was set until then.
    fn was_set_by(&self, now: u64) -> i64 {
        let set = self.settings.iter().filter(|(at, _)| *at <= now);
        set.map(|(_, by)| by).sum()
    }
}

/// The clock of a conductor: it does not show what that of the cluster shows, and nobody looks at it while the
/// process stands still.
#[derive(Clone)]
struct ProcessClock {
    world: VirtualClock,
    ahead: SignedDuration,
    health: Arc<ProcessState>,
}

impl ProcessClock {
    fn passed(&self) -> u64 {
        u64::try_from(self.world.moment().up.as_millis()).unwrap_or(u64::MAX)
    }

    /// Nothing goes on before the process does.
    async fn wait_until_resumed(&self) {
        loop {
            let until = self.health.paused_until.load(Ordering::Relaxed);
            let left = until.saturating_sub(self.passed());
            if left == 0 {
                return;
            }
            self.world.pause(Duration::from_millis(left)).await;
        }
    }

    /// What it is ahead of the cluster's, by now.
    fn clock_skew(&self) -> SignedDuration {
        let set = SignedDuration::from_secs(self.health.was_set_by(self.passed()));
        self.ahead.saturating_add(set)
    }
}

#[async_trait]
impl Clock for ProcessClock {
    fn now(&self) -> Timestamp {
        let now = self.world.now();
        now.saturating_add(self.clock_skew()).unwrap_or(now)
    }

    async fn sleep_until(&self, until: Timestamp) {
        let left = until.duration_since(self.now()).max(SignedDuration::ZERO);
        self.pause(left.unsigned_abs()).await;
    }

    fn moment(&self) -> Moment {
        let Moment { up, wall } = self.world.moment();
        let frozen = Duration::from_millis(self.health.frozen.load(Ordering::Relaxed));
        // Long after 1970, so that a clock that is set back shows a time.
        let wall = wall + LONG_AFTER;
        let wall = match self.clock_skew() {
            forward if forward.is_positive() => wall + forward.unsigned_abs(),
            back => wall.saturating_sub(back.unsigned_abs()),
        };
        Moment {
            up: up.saturating_sub(frozen),
            wall,
        }
    }

    fn uptime(&self) -> Duration {
        self.moment().up
    }

    async fn pause(&self, time: Duration) {
        self.world.pause(time).await;
        self.wait_until_resumed().await;
    }
}

const LONG_AFTER: Duration = Duration::from_secs(1 << 30);

/// The cluster as a conductor reaches it.
struct ClusterLink {
    sim: Sim,
    clock: ProcessClock,
    health: Arc<ProcessState>,
}

impl ClusterLink {
    fn cut(&self) -> bool {
        self.health.is_cut_off(self.clock.passed())
    }

    /// What was asked for, if both the question and the answer get through.
    async fn through<T>(
        &self,
        tried: &str,
        asked: impl Future<Output = Result<T, BackendError>>,
    ) -> Result<T, BackendError> {
        if self.cut() {
            self.clock.pause(NO_ANSWER).await;
            return Err(BackendError::transient(tried, "no route to the cluster"));
        }
        let answered = asked.await;
        self.clock.wait_until_resumed().await;
        if self.cut() {
            self.clock.pause(NO_ANSWER).await;
            return Err(BackendError::transient(tried, "no answer came").outcome_unknown());
        }
        answered
    }

    async fn lock_through<T>(
        &self,
        asked: impl Future<Output = Result<T, LockError>>,
    ) -> Result<T, LockError> {
        let mut came = None;
        let noted = async {
            came = Some(asked.await);
            Ok(())
        };
        self.through("reach the lock", noted)
            .await
            .map_err(LockError::Backend)?;
        came.unwrap_or_else(|| Err(LockError::Lost("nothing was asked".to_owned())))
    }
}

#[async_trait]
impl Executor for ClusterLink {
    fn host_of(&self, unit: &UnitId) -> Option<String> {
        self.sim.host_of(unit)
    }

    async fn observe(&self) -> Result<Snapshot, BackendError> {
        let seen = self.sim.observe_at(|| self.clock.now());
        self.through("observe the cluster", seen).await
    }

    async fn check_stop(&self, units: &[UnitId]) -> Result<Answer, BackendError> {
        self.through("ask the oracle", self.sim.check_stop(units)).await
    }

    fn fencing(&self, action: &Action) -> Fencing {
        self.sim.fencing(action)
    }

    async fn perform(&self, call: &Call, action: &Action) -> Result<String, BackendError> {
        self.health.before_call(self.clock.passed());
        self.clock.wait_until_resumed().await;
        self.through(&format!("call {}", call.key()), self.sim.perform(call, action))
            .await
    }

    async fn raise_fence(&self, fence: u64, units: &[UnitId]) -> Result<(), BackendError> {
        self.through("raise the fence", self.sim.raise_fence(fence, units))
            .await
    }

    async fn diagnostics(
        &self,
        call: &Call,
        units: &[UnitId],
    ) -> Result<Vec<(String, Vec<u8>)>, BackendError> {
        self.through("collect", self.sim.diagnostics(call, units)).await
    }

    fn poll(&self) -> Duration {
        self.sim.poll()
    }
}

#[async_trait]
impl Lock for ClusterLink {
    fn cluster(&self) -> &ClusterName {
        self.sim.cluster()
    }

    async fn identity(&self) -> Result<ClusterId, BackendError> {
        self.through("ask which cluster it is", self.sim.identity()).await
    }

    async fn lock(&self, claim: &LockRecord, at_least: u64) -> Result<u64, LockError> {
        self.lock_through(self.sim.lock(claim, at_least)).await
    }

    async fn renew(&self, claim: &LockRecord, fence: u64) -> Result<(), LockError> {
        self.lock_through(self.sim.renew(claim, fence)).await
    }

    async fn holder(&self) -> Result<Option<Holder>, LockError> {
        self.lock_through(self.sim.holder()).await
    }

    async fn anchor(&self, anchor: &Anchor) -> Result<(), LockError> {
        self.lock_through(self.sim.anchor(anchor)).await
    }

    async fn anchored(&self) -> Result<Option<Anchor>, LockError> {
        self.lock_through(self.sim.anchored()).await
    }

    async fn unlock(&self, claim: &LockRecord, fence: u64) -> Result<(), LockError> {
        self.lock_through(self.sim.unlock(claim, fence)).await
    }

    fn lock_expires(&self) -> Duration {
        self.sim.lock_expires()
    }
}

/// One listener for all of them.
struct SharedListener(Arc<Mutex<Box<dyn Listener>>>, Sim);

impl Listener for SharedListener {
    fn notice(&mut self, notice: &Notice) {
        if matches!(notice, Notice::Behind(_)) {
            self.1.world().record_behind();
        }
    }

    fn event(&mut self, entry: &Entry, run: &Run) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .event(entry, run);
    }

    fn waiting(&mut self, again: Timestamp, waiting: Waiting<'_>, run: &Run) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .waiting(again, waiting, run);
    }
}
