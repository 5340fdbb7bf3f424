//! The backend: a Ganeti cluster as plans and runs see it.

use std::sync::atomic::Ordering;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use stagger_core::model::{ClusterId, ClusterName, Phase, Snapshot, UnitId};
use stagger_core::run::{Action, Answer};
use stagger_engine::cluster::{
    Anchor, BackendError, Call, Executor, Fencing, Holder, Lock, LockError, LockRecord, in_full,
};
use stagger_engine::heartbeats::Heartbeats;

use crate::commands;
use crate::config::{GanetiSettings, RapiConfig, RebootMethod};
use crate::facts::GanetiFacts;
use crate::goal::{EvacuationGoal, Task};
use crate::guards::{self, GanetiHeldGuard, GuardSweep};
use crate::lock::{self, FilterLock};
use crate::memory::GanetiMemory;
use crate::model::GanetiCluster;
use crate::rapi::client::Rapi;
use crate::rapi::fence;
use crate::rapi::local_node::node_or_host;
use crate::translate::live::live_snapshot;
use crate::visit::PlannedMoves;
use crate::visit::limits::MigrationLimits;
use crate::visit::visitor::Visitor;

/// A Ganeti cluster.
#[derive(Debug)]
pub struct GanetiBackend {
    rapi: Rapi,
    settings: GanetiSettings,
    memory: Option<GanetiMemory>,
    lock: FilterLock,
    limits: MigrationLimits,
    seen: Mutex<LastObserved>,
}

/// What was last seen, where no question can be asked.
#[derive(Debug, Default)]
struct LastObserved {
    master: Option<String>,
    host: Option<String>,
}

impl GanetiBackend {
    /// Reaches a cluster. `memory`: how things were before the run that it serves.
    ///
    /// # Errors
    /// What in the configuration cannot be used.
    pub fn new(settings: GanetiSettings, memory: Option<GanetiMemory>) -> Result<Self, BackendError> {
        Ok(Self {
            rapi: Rapi::new(&settings)?,
            memory,
            lock: FilterLock::new(settings.pace.lock),
            limits: MigrationLimits::new(settings.cluster.visits.migrations_per_node),
            seen: Mutex::new(LastObserved::default()),
            settings,
        })
    }

    /// The cluster's RAPI.
    pub fn rapi(&self) -> &Rapi {
        &self.rapi
    }

    pub(crate) fn settings(&self) -> &GanetiSettings {
        &self.settings
    }

    pub(crate) fn limits(&self) -> &MigrationLimits {
        &self.limits
    }

    /// All facts, now, and the cluster as planning takes it.
    ///
    /// # Errors
    /// No answer, or facts that contradict each other.
    pub async fn observe_cluster(&self) -> Result<(GanetiFacts, GanetiCluster), BackendError> {
        let (facts, cluster) = self.rapi.observe().await?;
        self.see().master = Some(facts.master.clone());
        Ok((facts, cluster))
    }

    /// The snapshot of these facts, for what is wished.
    ///
    /// # Errors
    /// Facts that make none.
    pub fn snapshot(
        &self,
        facts: &GanetiFacts,
        cluster: &GanetiCluster,
        goal: &EvacuationGoal,
    ) -> Result<Snapshot, BackendError> {
        let RapiConfig { name, visits, .. } = &self.settings.cluster;
        live_snapshot(name, facts, cluster, self.memory.as_ref(), goal, visits)
            .map_err(|error| BackendError::transient("make sense of the cluster's facts", in_full(&error)))
    }

    /// The guards that are held in the cluster, of whatever run.
    ///
    /// # Errors
    /// The cluster cannot be asked.
    pub async fn guards(&self) -> Result<Vec<GanetiHeldGuard>, BackendError> {
        let filters = self.rapi.filters().await;
        filters
            .map(|filters| guards::held(&filters))
            .map_err(|error| error.of("look for guards", false))
    }

    /// Gives back guards that nobody has renewed for as long as they last, of whatever run. That is what `beats` has watched
    /// by `now`, of this process's own clock.
    ///
    /// # Errors
    /// The cluster cannot be asked.
    pub async fn drop_expired_guards(
        &self,
        beats: &mut Heartbeats,
        now: Instant,
    ) -> Result<GuardSweep, BackendError> {
        guards::drop_expired(&self.rapi, beats, now).await
    }

    fn see(&self) -> std::sync::MutexGuard<'_, LastObserved> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether this part of a visit is or has a command, which no filter refuses.
    fn is_command(&self, unit: &UnitId, phase: Phase) -> bool {
        let visits = &self.settings.cluster.visits;
        match phase {
            Phase::Prepare => false,
            Phase::Enter => {
                let is_it = |master: &String| master == unit.as_str();
                // After a change that was under way when a process ended, another is the master by now.
                let was = self.memory.as_ref().and_then(|memory| memory.master.as_ref());
                let is_master = self.see().master.as_ref().is_none_or(is_it) || was.is_some_and(is_it);
                (is_master && visits.failover.is_some())
                    || visits.hooks.enter.is_some()
                    || visits.relocate.is_some()
            }
            Phase::Change => match self.task() {
                Task::Reboot => visits.reboot_method() != RebootMethod::Powercycle,
                Task::Command(_) => true,
                Task::Hold => false,
            },
            Phase::Leave => visits.hooks.leave.is_some() || visits.relocate.is_some(),
        }
    }

    /// What is done to nodes while they are empty.
    fn task(&self) -> &Task {
        const REBOOT: &Task = &Task::Reboot;
        self.memory.as_ref().map_or(REBOOT, |memory| &memory.goal.task)
    }

    /// The settings with which nodes are visited for it.
    fn settings_of_the_task(&self) -> GanetiSettings {
        let mut settings = self.settings.clone();
        settings.cluster.visits = self.task().visits(&self.settings.cluster.visits);
        settings
    }

    fn bound_of_commands(&self) -> Fencing {
        Fencing::Bounded(Duration::from_secs(self.settings.hosts.timeout + 10))
    }

    fn recorded_boot_id(&self, unit: &UnitId) -> Result<&str, BackendError> {
        let memory = self.memory.as_ref();
        let boot = memory.and_then(|memory| memory.boots.get(unit.as_str()));
        boot.map(String::as_str).ok_or_else(|| {
            let why = "its boot id from before the run is unknown, so its reboot cannot be detected";
            BackendError::permanent(format!("reboot {unit}"), why)
        })
    }
}

#[async_trait]
impl Executor for GanetiBackend {
    async fn observe(&self) -> Result<Snapshot, BackendError> {
        let (facts, cluster) = self.observe_cluster().await?;
        let goal = self.memory.as_ref().map(|memory| &memory.goal);
        self.snapshot(&facts, &cluster, goal.unwrap_or(&EvacuationGoal::default()))
    }

    /// Ganeti has no oracle; a hook may be one.
    async fn check_stop(&self, units: &[UnitId]) -> Result<Answer, BackendError> {
        let Some(hook) = &self.settings.cluster.visits.hooks.may_stop else {
            return Ok(Answer::NoOracle);
        };
        for unit in units {
            let names = [("node", unit.as_str())];
            match commands::ask(&self.rapi, &self.settings, hook, &names).await? {
                Answer::Yes => {}
                other => return Ok(other),
            }
        }
        Ok(Answer::Yes)
    }

    fn fencing(&self, action: &Action) -> Fencing {
        match action {
            Action::Visit { unit, phase, .. } if self.is_command(unit, *phase) => self.bound_of_commands(),
            Action::Restart { unit }
                if self.is_command(unit, Phase::Change) || self.is_command(unit, Phase::Leave) =>
            {
                self.bound_of_commands()
            }
            Action::Visit { .. } | Action::Restart { .. } | Action::GoBack { .. } => Fencing::Fenced,
            Action::TakeGuard { .. }
            | Action::DropGuard { .. }
            | Action::Step { .. }
            | Action::Collect { .. } => {
                // A request ends with its sender or at its own limit; a guard makes a handful, each at most
                // three times, and the watcher's is a command.
                let command = match &self.settings.cluster.visits.watcher {
                    Some(_) => Duration::from_secs(self.settings.hosts.timeout),
                    None => Duration::ZERO,
                };
                Fencing::Bounded(self.settings.pace.call + command + Duration::from_secs(10))
            }
        }
    }

    async fn perform(&self, call: &Call, action: &Action) -> Result<String, BackendError> {
        let host = self.see().host.clone();
        let moves = if let Action::Visit { moves, .. } = action {
            moves.clone()
        } else {
            Vec::new()
        };
        let goal = self.memory.as_ref().map(|memory| &memory.goal);
        let planned = PlannedMoves {
            as_if_down: goal.is_some_and(|goal| goal.moving.as_if_down),
            moves,
            run: Some(call.run.clone()),
            boots: self
                .memory
                .as_ref()
                .map(|memory| memory.boots.clone())
                .unwrap_or_default(),
        };
        let settings = self.settings_of_the_task();
        let visitor = Visitor {
            rapi: &self.rapi,
            settings: &settings,
            call,
            planned: &planned,
            limits: &self.limits,
            host: host.as_deref(),
        };
        match action {
            Action::TakeGuard {
                guard,
                units,
                expires,
            } => guards::take(&self.rapi, &self.settings, call, guard, units, *expires).await,
            Action::DropGuard { guard, .. } => guards::drop(&self.rapi, &self.settings, call, guard).await,
            Action::Visit { unit, phase, .. } => match phase {
                // The node serves on with what it has: nothing is laid out for a reboot.
                Phase::Prepare => Ok(String::new()),
                Phase::Enter => visitor.enter(unit.as_str()).await,
                Phase::Change => match self.task() {
                    Task::Reboot => visitor.change(unit.as_str(), self.recorded_boot_id(unit)?).await,
                    Task::Command(command) => visitor.maintain(unit.as_str(), command).await,
                    Task::Hold => visitor.hold(unit.as_str()).await,
                },
                Phase::Leave => visitor.leave(unit.as_str()).await,
            },
            // A node that was not rebooted is, one that is on its way is waited for, and then it is given back.
            Action::Restart { unit } => match self.task() {
                Task::Reboot => visitor.restart(unit.as_str(), self.recorded_boot_id(unit)?).await,
                task @ (Task::Command(_) | Task::Hold) => {
                    let before = self
                        .memory
                        .as_ref()
                        .and_then(|memory| memory.done.get(unit.as_str()));
                    visitor.maintain_again(unit.as_str(), task, before).await
                }
            },
            Action::GoBack { unit, .. } => Err(BackendError::permanent(
                format!("bring {unit} back"),
                "what was done to it cannot be undone",
            )),
            Action::Step { step } => Err(BackendError::permanent(
                format!("take the step {step}"),
                "this backend has no such step",
            )),
            Action::Collect { .. } => Ok(String::new()),
        }
    }

    /// The job queue refuses what is submitted with an older token; what is at work already is waited for.
    async fn raise_fence(&self, fence: u64, _units: &[UnitId]) -> Result<(), BackendError> {
        fence::raise(&self.rapi, fence).await?;
        fence::wait_for_older(&self.rapi, fence).await
    }

    async fn diagnostics(
        &self,
        call: &Call,
        units: &[UnitId],
    ) -> Result<Vec<(String, Vec<u8>)>, BackendError> {
        let mut files = Vec::new();
        let mut questions = vec![
            ("info".to_owned(), "/2/info".to_owned()),
            ("nodes".to_owned(), "/2/nodes?bulk=1".to_owned()),
            ("instances".to_owned(), "/2/instances?bulk=1".to_owned()),
            ("filters".to_owned(), "/2/filters?bulk=1".to_owned()),
            ("jobs".to_owned(), "/2/jobs?bulk=1".to_owned()),
        ];
        let jobs = self.rapi.jobs().await.unwrap_or_default();
        let of_the_run = jobs.iter().filter(|job| {
            job.reason
                .as_ref()
                .is_some_and(|reason| reason.key.starts_with(call.run.as_str()))
        });
        // The newest tell most: what each of them logged and returned.
        for job in of_the_run.rev().take(20) {
            questions.push((format!("job-{}", job.id), format!("/2/jobs/{}", job.id)));
        }
        for unit in units {
            questions.push((format!("node-{unit}"), format!("/2/nodes/{unit}")));
        }
        for (name, path) in questions {
            // What cannot be had now is noted in its place: a bundle says what is missing.
            let content = match self.rapi.get(&path).await {
                Ok(value) => value.to_string(),
                Err(error) => error.to_string(),
            };
            files.push((format!("{name}.json"), content.into_bytes()));
        }
        Ok(files)
    }

    fn poll(&self) -> Duration {
        self.settings.pace.poll
    }
}

#[async_trait]
impl Lock for GanetiBackend {
    fn cluster(&self) -> &ClusterName {
        &self.settings.cluster.name
    }

    /// Its UUID, made when it was.
    async fn identity(&self) -> Result<ClusterId, BackendError> {
        const TRIED: &str = "ask the cluster which it is";
        let info = self.rapi.get("/2/info").await;
        let info = info.map_err(|error| error.of(TRIED, false))?;
        let uuid = info["uuid"].as_str().unwrap_or_default();
        ClusterId::new(uuid).map_err(|error| BackendError::transient(TRIED, error.to_string()))
    }

    async fn lock(&self, claim: &LockRecord, at_least: u64) -> Result<u64, LockError> {
        let here = node_or_host(&self.rapi, &claim.host).await.map_err(|error| {
            LockError::Backend(error.of("see whether this machine is a node of the cluster", false))
        })?;
        self.lock.set_node(&here);
        let token = self.lock.take(&self.rapi, claim, at_least).await?;
        // Who is master says which visits may have had a command, and so what of a holder before is waited out.
        let info = self.rapi.get("/2/info").await.ok();
        let master = info.and_then(|info| info["master"].as_str().map(str::to_owned));
        let mut seen = self.see();
        seen.host = Some(here);
        seen.master = master;
        Ok(token)
    }

    async fn renew(&self, claim: &LockRecord, fence: u64) -> Result<(), LockError> {
        // If the master does not change the run goes on here: our own hand-over is no reason to give the lock away meanwhile.
        if self.limits.hands_over.load(Ordering::Relaxed) {
            return self.lock.renew_during_handover(&self.rapi, claim, fence).await;
        }
        self.lock.renew(&self.rapi, claim, fence).await
    }

    async fn holder(&self) -> Result<Option<Holder>, LockError> {
        lock::holder(&self.rapi).await
    }

    async fn anchor(&self, anchor: &Anchor) -> Result<(), LockError> {
        lock::anchor(&self.rapi, anchor).await
    }

    async fn anchored(&self) -> Result<Option<Anchor>, LockError> {
        lock::anchored(&self.rapi).await
    }

    async fn unlock(&self, claim: &LockRecord, _fence: u64) -> Result<(), LockError> {
        self.lock.release(&self.rapi, claim).await
    }

    fn lock_expires(&self) -> Duration {
        self.lock.expires()
    }

    fn may_have_been_held(&self) -> bool {
        self.lock.may_have_been_held()
    }
}
