//! The simulated cluster as the engine sees it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use stagger_core::model::{ClusterName, IdError, Phase, Snapshot, UnitId};
use stagger_core::run::{Action, Answer};
use stagger_engine::clock::Clock as _;
use stagger_engine::cluster::{BackendError, Call, Executor, Fencing};
use stagger_engine::driver::units_of;

use crate::clock::{ClockError, ClockSpeed, VirtualClock, carry_out};
use crate::copy::ClusterCopy;
use crate::scenario::{InjectedFault, SimSpec};
use crate::world::{CallResult, SimulatedCluster};

/// A simulated cluster. Clones share it.
#[derive(Debug, Clone)]
pub struct Sim {
    world: Arc<Mutex<SimulatedCluster>>,
    pub(crate) cluster: ClusterName,
    pub(crate) lock: Duration,
    poll: Duration,
}

impl Sim {
    /// A cluster with its faults.
    ///
    /// # Errors
    /// A name is not valid.
    pub fn new(spec: SimSpec, faults: Vec<InjectedFault>) -> Result<Self, IdError> {
        Ok(Self {
            cluster: spec.name.clone(),
            lock: Duration::from_secs(u64::from(spec.seconds.lock)),
            poll: Duration::from_secs(u64::from(spec.seconds.poll.max(1))),
            world: Arc::new(Mutex::new(SimulatedCluster::new(spec, faults)?)),
        })
    }

    /// A cluster like that one, with its faults.
    ///
    /// # Errors
    /// A name is not valid.
    pub fn copied(copy: &Arc<ClusterCopy>, seed: u64, faults: Vec<InjectedFault>) -> Result<Self, IdError> {
        let world = SimulatedCluster::copied(copy, seed, faults)?;
        Ok(Self {
            cluster: world.spec.name.clone(),
            lock: Duration::from_secs(u64::from(world.spec.seconds.lock)),
            // Who drives it knows when something happens, and looks again then: see [`SimulatedCluster::next_look`].
            poll: Duration::from_secs(u64::from(world.spec.seconds.lock)),
            world: Arc::new(Mutex::new(world)),
        })
    }

    /// Its clock.
    pub fn clock(&self) -> VirtualClock {
        VirtualClock::new(Arc::clone(&self.world))
    }

    /// Carries out what goes on in it, on this thread: time passes when everybody waits.
    ///
    /// # Errors
    /// There is no runtime, or nothing ever happens again.
    pub fn carry_out<T>(
        &self,
        pace: ClockSpeed,
        simulation: impl Future<Output = T>,
    ) -> Result<T, ClockError> {
        carry_out(&self.world, pace, simulation)
    }

    /// A question is on its way to whoever answers it; how long the answer takes back.
    async fn on_the_way(&self) -> Duration {
        let (there, back) = self.world().ways();
        self.clock().pause(there).await;
        back
    }

    /// Observes it, by a clock that need not show what its own does.
    pub(crate) async fn observe_at(
        &self,
        clock: impl Fn() -> Timestamp + Send,
    ) -> Result<Snapshot, BackendError> {
        let back = self.on_the_way().await;
        let seen = self.look(clock());
        self.clock().pause(back).await;
        seen
    }

    fn look(&self, at: Timestamp) -> Result<Snapshot, BackendError> {
        let tried = "observe the cluster";
        let mut world = self.world();
        if world.is_blind() {
            return Err(BackendError::transient(tried, "no monitor answers"));
        }
        let seen = world.snapshot(at);
        seen.map_err(|error| BackendError::permanent(tried, error.to_string()))
    }

    /// What is true of it.
    pub fn world(&self) -> MutexGuard<'_, SimulatedCluster> {
        self.world.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Executor for Sim {
    async fn observe(&self) -> Result<Snapshot, BackendError> {
        let clock = self.clock();
        self.observe_at(|| clock.now()).await
    }

    async fn check_stop(&self, units: &[UnitId]) -> Result<Answer, BackendError> {
        let back = self.on_the_way().await;
        let answer = self.world().oracle(units);
        self.clock().pause(back).await;
        answer
    }

    fn host_of(&self, unit: &UnitId) -> Option<String> {
        let world = self.world();
        let at = world.by_id.get(unit)?;
        Some(world.host_name(world.daemons[*at].host))
    }

    fn fencing(&self, action: &Action) -> Fencing {
        match action {
            Action::Visit { .. } | Action::Restart { .. } | Action::GoBack { .. } => Fencing::Fenced,
            Action::TakeGuard { .. } | Action::DropGuard { .. } | Action::Step { .. } => Fencing::Conditional,
            Action::Collect { .. } => Fencing::Bounded(Duration::ZERO),
        }
    }

    async fn perform(&self, call: &Call, action: &Action) -> Result<String, BackendError> {
        let answered = self.world().send(call, action);
        answered.await.unwrap_or_else(|_| {
            let tried = format!("call {}", call.key());
            Err(BackendError::transient(tried, "no answer came").outcome_unknown())
        })
    }

    async fn raise_fence(&self, fence: u64, units: &[UnitId]) -> Result<(), BackendError> {
        let mut world = self.world();
        let mut off = None;
        for unit in units {
            let Some(at) = world.by_id.get(unit).copied() else {
                continue;
            };
            let host = world.daemons[at].host;
            if world.is_off(host) {
                off = Some(host);
                continue;
            }
            let seen = world.host_fence.entry(host).or_insert(0);
            *seen = (*seen).max(fence);
        }
        match off {
            None => Ok(()),
            Some(host) => {
                let tried = format!("raise the fence on {}", world.host_name(host));
                Err(BackendError::transient(tried, "no route to the host"))
            }
        }
    }

    async fn diagnostics(
        &self,
        _call: &Call,
        units: &[UnitId],
    ) -> Result<Vec<(String, Vec<u8>)>, BackendError> {
        let world = self.world();
        let tell = |unit: &UnitId| {
            let daemon = &world.daemons[*world.by_id.get(unit)?];
            let text = format!(
                "up {}\nruns {}\ninstalled {}\nstarts and stops {}\n",
                daemon.up, daemon.runs, daemon.installed, daemon.turn
            );
            Some((format!("{unit}.txt"), text.into_bytes()))
        };
        Ok(units.iter().filter_map(tell).collect())
    }

    fn poll(&self) -> Duration {
        self.poll
    }
}

impl SimulatedCluster {
    /// Whether the hosts that an action runs on still take calls of that sender.
    pub(crate) fn fenced_in(&mut self, call: &Call, action: &Action) -> Result<(), BackendError> {
        let hosts: Vec<u32> = match action {
            Action::Visit { .. } | Action::Restart { .. } | Action::GoBack { .. } => units_of(action)
                .iter()
                .filter_map(|unit| self.by_id.get(unit))
                .map(|at| self.daemons[*at].host)
                .collect(),
            // The monitors check the token of the lock.
            Action::TakeGuard { .. } | Action::DropGuard { .. } | Action::Step { .. } => {
                return if call.fence < self.fence {
                    self.truth.refused += 1;
                    Err(BackendError::permanent(
                        format!("call {}", call.key()),
                        "fenced out",
                    ))
                } else {
                    Ok(())
                };
            }
            Action::Collect { .. } => return Ok(()),
        };
        for host in hosts {
            let seen = self.host_fence.entry(host).or_insert(0);
            if call.fence < *seen {
                self.truth.refused += 1;
                let tried = format!("call {} on {}", call.key(), self.host_name(host));
                return Err(BackendError::permanent(tried, "fenced out"));
            }
            *seen = call.fence;
        }
        Ok(())
    }

    /// Whether it would be carried out on a host that is off.
    pub(crate) fn targets_host_that_is_off(&self, action: &Action) -> bool {
        let unit = match action {
            Action::Visit { unit, .. } | Action::Restart { unit } | Action::GoBack { unit, .. } => unit,
            Action::TakeGuard { .. }
            | Action::DropGuard { .. }
            | Action::Step { .. }
            | Action::Collect { .. } => return false,
        };
        let at = self.by_id.get(unit);
        at.is_some_and(|at| self.is_off(self.daemons[*at].host))
    }

    /// A call that has come to where it is carried out.
    pub(crate) fn perform(&mut self, call: &Call, action: &Action) -> CallResult {
        if self.targets_host_that_is_off(action) {
            // Who sent it cannot tell a host that is off from one that does not answer.
            let tried = format!("call {}", call.key());
            return Err(BackendError::transient(tried, "no answer came").outcome_unknown());
        }
        self.fenced_in(call, action)?;
        self.may_begin(call)?;
        if let Some(why) = self.failed.get(&call.key()) {
            return Err(BackendError::transient(
                format!("call {}", call.key()),
                why.clone(),
            ));
        }
        self.obstacle(call, action)?;
        self.caller = Some(call.run.clone());
        self.stops_half_way(call, action)?;
        Ok(self.take_effect(call, action))
    }

    /// A host begins nothing after its deadline; of what it has done before it tells at any time.
    pub(crate) fn may_begin(&self, call: &Call) -> Result<(), BackendError> {
        if self.effects.contains(&call.key()) || self.failed.contains_key(&call.key()) {
            return Ok(());
        }
        call.may_begin(&format!("call {}", call.key()))
    }

    /// A fault that keeps a call from its effect, or its answer from its sender.
    fn obstacle(&mut self, call: &Call, action: &Action) -> Result<(), BackendError> {
        let tried = format!("call {}", call.key());
        let key = call.key();
        let about = match action {
            Action::Visit { unit, phase, .. } => Some((unit, Some(*phase))),
            Action::Restart { unit } | Action::GoBack { unit, .. } => Some((unit, None)),
            Action::TakeGuard { .. } => None,
            Action::DropGuard { .. } | Action::Step { .. } | Action::Collect { .. } => return Ok(()),
        };
        for at in 0..self.faults.len() {
            let used = self.faults[at].used;
            let fault = self.faults[at].fault.clone();
            match (&fault, about) {
                (InjectedFault::PerformFails { unit, phase, times }, Some((of, now)))
                    if unit == of && (phase.is_none() || *phase == now) && (*times == 0 || used < *times) =>
                {
                    self.faults[at].used += 1;
                    if now == Some(Phase::Change) {
                        let unit = self.by_id[unit];
                        self.daemons[unit].change_failed = true;
                    }
                    // However often it comes, and however late.
                    self.failed.insert(key, "the host answers no".to_owned());
                    return Err(BackendError::transient(tried, "the host answers no"));
                }
                (InjectedFault::CallLate { unit, phase, seconds }, Some((of, now)))
                    if unit == of && Some(*phase) == now && used == 0 =>
                {
                    self.faults[at].used += 1;
                    self.land_later(*seconds, call, action);
                    return Err(BackendError::transient(tried, "no answer came").outcome_unknown());
                }
                (InjectedFault::AnswerLost { unit, phase }, Some((of, now)))
                    if unit == of && Some(*phase) == now && used == 0 =>
                {
                    self.faults[at].used += 1;
                    if self.stops_half_way(call, action).is_ok() {
                        self.take_effect(call, action);
                    }
                    return Err(BackendError::transient(tried, "the answer was lost").outcome_unknown());
                }
                (InjectedFault::Doubled { unit, phase, seconds }, Some((of, now)))
                    if unit == of && Some(*phase) == now && used == 0 =>
                {
                    self.faults[at].used += 1;
                    self.land_later(*seconds, call, action);
                }
                (InjectedFault::GuardFails { times }, None) if *times == 0 || used < *times => {
                    self.faults[at].used += 1;
                    return Err(BackendError::transient(tried, format!("{key} was refused")));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Ensures what an action names. Of what a unit comes to the journal knows, unless it has lost the call.
    pub(crate) fn take_effect(&mut self, call: &Call, action: &Action) -> String {
        let is_laid_out = matches!(
            action,
            Action::Visit {
                phase: Phase::Prepare,
                ..
            }
        );
        let note = self.ensure(call, action);
        let begun = action.unit().filter(|_| !is_laid_out);
        if let Some(at) = begun.and_then(|unit| self.by_id.get(unit)).copied() {
            if self.is_lost(call) {
                self.record_lost_call(at, call);
            } else {
                self.daemons[at].begun_by = call.seq;
            }
        }
        note
    }

    fn ensure(&mut self, call: &Call, action: &Action) -> String {
        match action {
            Action::TakeGuard {
                guard,
                units,
                expires,
            } => {
                let until = self.elapsed() + u64::from(*expires) * 1000;
                let which = (guard.clone(), units.clone());
                if self.is_lost(call) {
                    self.orphans.insert(which.clone());
                } else {
                    self.orphans.remove(&which);
                }
                self.taken_by.insert(which.clone(), call.seq);
                self.guards.insert(which, until);
                format!("{guard} set")
            }
            Action::DropGuard { guard, units } => {
                self.guards.remove(&(guard.clone(), units.clone()));
                format!("{guard} cleared")
            }
            Action::Step { step } if self.drains() => {
                self.steps.insert(step.clone());
                self.generation += 1;
                "done".to_owned()
            }
            Action::Step { .. } => {
                // No OSD that is up may be older than what is required.
                let up = self.daemons.iter().filter(|d| d.osd.is_some() && d.up);
                self.require = up.map(|d| d.runs.clone()).min();
                self.generation += 1;
                "required".to_owned()
            }
            Action::Collect { .. } => String::new(),
            Action::Visit {
                unit,
                phase,
                revision,
                moves,
            } => {
                let Some(at) = self.by_id.get(unit).copied() else {
                    return format!("{unit} is gone");
                };
                // A host carries out one call once, however often and however late it comes.
                if (self.copy.is_none() || self.drains()) && !self.effects.insert(call.key()) {
                    return "done before".to_owned();
                }
                match phase {
                    Phase::Prepare => format!("{revision} installed"),
                    Phase::Enter if self.drains() => {
                        self.enter(at, moves);
                        "drained".to_owned()
                    }
                    Phase::Change if self.drains() => {
                        self.change(at, revision);
                        "restarted".to_owned()
                    }
                    Phase::Leave if self.drains() => {
                        self.leave(at);
                        "returned to service".to_owned()
                    }
                    Phase::Enter => {
                        if self.daemons[at].up {
                            self.judge_stop(at, "stop");
                        }
                        self.fall(at);
                        self.daemons[at].wanted = false;
                        "stopped".to_owned()
                    }
                    // A daemon of a real cluster goes down and comes up in its one phase.
                    Phase::Change if self.copy.is_some() => {
                        self.restart_once(call, unit, "restart", Some(revision), false)
                    }
                    Phase::Change => {
                        self.daemons[at].installed = revision.clone();
                        format!("{revision} installed")
                    }
                    Phase::Leave => {
                        self.start(at);
                        "started".to_owned()
                    }
                }
            }
            Action::Restart { unit } => self.restart_once(call, unit, "restart", None, false),
            Action::GoBack {
                unit,
                revision,
                rebuild,
            } => self.restart_once(call, unit, "bring back", Some(revision), *rebuild),
        }
    }

    /// Stops and starts a unit, once for each call however often it comes.
    fn restart_once(
        &mut self,
        call: &Call,
        unit: &UnitId,
        what: &str,
        revision: Option<&stagger_core::model::Revision>,
        rebuild: bool,
    ) -> String {
        let Some(at) = self.by_id.get(unit).copied() else {
            return format!("{unit} is gone");
        };
        if !self.effects.insert(call.key()) {
            return "done before".to_owned();
        }
        if let (Some(wanted), true) = (self.wanted.clone(), self.carried.is_some()) {
            return self.restart_and_leave(at, &wanted);
        }
        // Nothing of what is restarted stays drained.
        let served = self.daemons[at].serves();
        if std::mem::take(&mut self.daemons[at].drained) {
            self.generation += 1;
            self.watched.touched = true;
        }
        if what == "bring back" {
            self.record_rollback(at);
        }
        let there = revision.is_some_and(|r| self.daemons[at].up && self.daemons[at].runs == *r);
        if there {
            return "it is there".to_owned();
        }
        if what == "bring back" {
            self.judge_going_back(at);
        }
        if served {
            self.judge_stop(at, what);
        }
        self.fall(at);
        if let Some(revision) = revision {
            self.daemons[at].installed = revision.clone();
        }
        if rebuild {
            self.wipe(at);
        }
        self.start(at);
        format!("{what}: started")
    }
}
