//! Calls: sends announced effects, repeats those without a known outcome, and settles them.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use stagger_core::model::{Code, Phase, Reason, UnitId, UnitState};
use stagger_core::run::{Action, Effect, Event, Seq};
use stagger_core::view::Waiting;

use super::{DriveError, Driver, DriverStep};
use crate::artifacts::Artifacts;
use crate::clock::{Clock as _, timeout};
use crate::cluster::{Backend, BackendError, Call, Fencing};
use crate::deadline::Deadline;
use crate::protocol::{self, Earlier, units_of};

/// What came of a call.
pub(super) type Answered = Result<Result<String, BackendError>, NotSent>;

/// The lock was lost before the call was made.
pub(super) struct NotSent(String);

impl Driver {
    /// Calls that may not have started, and whose approval has expired: both checks are repeated for their
    /// units. Calls whose units are refused wait.
    async fn recheck_approvals(&mut self, late: Vec<Seq>, now: Timestamp) -> Result<DriverStep, DriveError> {
        if let DriverStep::Wait { until, why } = self.observe(now).await? {
            return Ok(DriverStep::Wait { until, why });
        }
        let of = |seq: &Seq| self.run.intent(*seq).and_then(Action::unit).cloned();
        let is_down = |unit: &UnitId| {
            let seen = self.seen.as_ref().map(|seen| &seen.snapshot);
            let found = seen.and_then(|snapshot| Some(snapshot.unit(snapshot.find(unit)?)));
            found.is_some_and(|unit| unit.state == UnitState::Down)
        };
        // Units that are already down lose nothing by the announced call, and may need it to come up.
        let (down, late): (Vec<Seq>, Vec<Seq>) = late
            .into_iter()
            .partition(|seq| of(seq).is_none_or(|unit| is_down(&unit)));
        let units: BTreeSet<UnitId> = late.iter().filter_map(of).collect();
        // That it is down counts as long as the word of a judge: it may come up by itself.
        let age = SignedDuration::from_secs(i64::from(self.run.start().policy.approval_age));
        let until = self.clock.now().saturating_add(age).unwrap_or(Timestamp::MAX);
        for seq in down {
            self.start(seq, Some(until));
        }
        if units.is_empty() {
            return Ok(DriverStep::Again);
        }
        self.check_sets(vec![units.into_iter().collect()]).await?;
        let now = self.clock.now();
        for seq in late {
            if self.run.begins_before(seq).is_some_and(|before| before <= now) {
                let why = "it must not be stopped now, and whether it was stopped is unknown";
                let error = BackendError::transient(format!("carry out effect {seq}"), why);
                self.try_later(seq, &error.outcome_unknown());
            }
        }
        Ok(DriverStep::Again)
    }

    pub(super) async fn act(
        &mut self,
        fresh: Vec<Effect>,
        again: Vec<Seq>,
    ) -> Result<DriverStep, DriveError> {
        let events: Vec<Event> = fresh.into_iter().map(Event::from).collect();
        let announced = if events.is_empty() {
            Vec::new()
        } else {
            self.append(events).await?
        };
        self.announced.extend(&announced);
        let now = self.clock.now();
        let due = protocol::to_start(again, announced, &self.started);
        let due = due
            .into_iter()
            .filter(|seq| self.strays.is_due(*seq, &self.clock));
        let (late, due): (Vec<Seq>, Vec<Seq>) = due.partition(|seq| {
            let is_late = self.run.begins_before(*seq).is_some_and(|before| before <= now);
            is_late && self.earlier(*seq) != Earlier::None
        });
        for seq in due {
            self.start(seq, self.run.begins_before(seq));
        }
        if !late.is_empty() {
            let step = self.recheck_approvals(late, now).await?;
            // While the checks are unavailable, effects that need no approval proceed.
            if self.under_way.is_empty() || !matches!(step, DriverStep::Wait { .. }) {
                return Ok(step);
            }
        }
        if self.under_way.is_empty()
            && let Some(until) = self.strays.next(&self.clock)
        {
            if let Some(reason) = self.strays.exhausted_reason() {
                self.strays.begin_anew();
                self.append(vec![Event::Held {
                    reason: reason.clone(),
                }])
                .await?;
                return Ok(DriverStep::Held(reason));
            }
            let why = Reason::new(
                Code::OutcomeUnknown,
                format!(
                    "a call may still be under way; it is repeated until its outcome is known: {}",
                    self.strays.last(&self.clock).unwrap_or_default()
                ),
            );
            let waiting = Waiting {
                why: &why,
                until: Some(until),
            };
            self.listener.waiting(until, waiting, &self.run);
            return Ok(DriverStep::Wait { until, why });
        }
        // Commands are looked for while long effects are under way.
        let clock = Arc::clone(&self.clock);
        let first = timeout(&*clock, Duration::from_secs(1), self.under_way.join_next()).await;
        let Some(first) = first else {
            return Ok(DriverStep::Again);
        };
        let mut settled = Vec::new();
        let mut next = first;
        while let Some(ended) = next {
            match ended {
                Ok((seq, answered)) => {
                    self.started.remove(&seq);
                    let answer = answered.map_err(|NotSent(why)| DriveError::LeaseLost(why))?;
                    if self.run.intent(seq).is_none() {
                        // An operator has settled it in the meantime.
                        next = self.under_way.try_join_next();
                        continue;
                    }
                    match protocol::outcome_of(answer, self.earlier(seq)) {
                        Ok(outcome) => {
                            self.announced.remove(&seq);
                            self.strays.remove(seq);
                            settled.push(Event::Settled { intent: seq, outcome });
                        }
                        Err(error) => self.try_later(seq, &error),
                    }
                }
                // A task is only aborted with its driver.
                Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
                Err(_) => {}
            }
            next = self.under_way.try_join_next();
        }
        if settled.is_empty() {
            return Ok(DriverStep::Again);
        }
        self.append(settled).await.map(|_| DriverStep::Again)
    }

    /// Makes the call for an intent. It begins before `until`; `None`: whenever.
    fn start(&mut self, seq: Seq, until: Option<Timestamp>) {
        let Some(action) = self.run.intent(seq).cloned() else {
            return;
        };
        let call = Call {
            run: self.run.start().run.clone(),
            seq,
            announced: self.run.announced_under(seq).unwrap_or(self.fence),
            fence: self.fence,
            deadline: until.map(|until| Deadline::new(until, Arc::clone(&self.clock))),
        };
        self.started.insert(seq);
        let backend = Arc::clone(&self.backend);
        let artifacts = self.artifacts.clone();
        let lease = self.lease.clone();
        let unguarded = Arc::clone(&self.unguarded);
        let raised_first = self.units_to_fence(&action);
        self.under_way.spawn(async move {
            if let Err(error) = guard(&*backend, call.fence, &unguarded, raised_first).await {
                return (seq, Ok(Err(error)));
            }
            if changes_units(&action)
                && let Some(lease) = &lease
                && let Err(why) = lease.anchored(&*backend, seq).await
            {
                return (seq, Err(NotSent(why)));
            }
            // Here, not where it was announced: a process can be paused in between.
            if let Some(why) = lease.and_then(|lease| lease.lost_reason()) {
                return (seq, Err(NotSent(why)));
            }
            if let Err(error) = call.may_begin(&format!("send call {}", call.key())) {
                return (seq, Ok(Err(error)));
            }
            (seq, Ok(perform(&*backend, &artifacts, &call, &action).await))
        });
    }

    /// The units whose fence must be raised before this action. Bounded calls are not affected by the fence,
    /// and a host that is confirmed as off has nothing to fence.
    fn units_to_fence(&self, action: &Action) -> Vec<UnitId> {
        let unguarded = self.unguarded.lock().unwrap_or_else(PoisonError::into_inner);
        let mut units = match self.backend.fencing(action) {
            Fencing::Fenced | Fencing::Conditional => units_of(action),
            Fencing::Bounded(_) => Vec::new(),
        };
        units.retain(|unit| unguarded.contains(unit) && !self.is_host_off(unit));
        units
    }

    /// What is known of earlier calls for that intent.
    fn earlier(&self, seq: Seq) -> Earlier {
        if self.strays.has(seq) {
            Earlier::Stray
        } else if self.announced.contains(&seq) {
            Earlier::None
        } else {
            Earlier::Adopted
        }
    }

    fn try_later(&mut self, seq: Seq, error: &BackendError) {
        tracing::warn!(seq, %error, "the outcome of a call is unknown");
        let bound = match self.run.intent(seq).map(|action| self.backend.fencing(action)) {
            Some(Fencing::Bounded(bound)) => bound,
            Some(Fencing::Fenced | Fencing::Conditional) | None => Duration::ZERO,
        };
        self.strays.add(seq, error, &self.clock, bound);
    }
}

/// Whether a journal that has forgotten it would not know what a unit is. A guard that is forgotten goes by itself.
fn changes_units(action: &Action) -> bool {
    match action {
        Action::Visit { phase, .. } => *phase > Phase::Prepare,
        Action::Restart { .. } | Action::GoBack { .. } | Action::Step { .. } => true,
        Action::TakeGuard { .. } | Action::DropGuard { .. } | Action::Collect { .. } => false,
    }
}

/// Raises the fence where it is not yet raised.
async fn guard(
    backend: &dyn Backend,
    fence: u64,
    unguarded: &Mutex<BTreeSet<UnitId>>,
    units: Vec<UnitId>,
) -> Result<(), BackendError> {
    if units.is_empty() {
        return Ok(());
    }
    let raised = backend.raise_fence(fence, &units).await;
    raised.map_err(BackendError::outcome_unknown)?;
    let mut unguarded = unguarded.lock().unwrap_or_else(PoisonError::into_inner);
    unguarded.retain(|unit| !units.contains(unit));
    Ok(())
}

async fn perform(
    backend: &dyn Backend,
    artifacts: &Artifacts,
    call: &Call,
    action: &Action,
) -> Result<String, BackendError> {
    match action {
        Action::Collect { units } => {
            let files = backend.diagnostics(call, units).await?;
            artifacts
                .save(&call.run, call.seq, files)
                .map_err(|error| BackendError::permanent("keep the artifacts", error.to_string()))
        }
        Action::TakeGuard { .. }
        | Action::DropGuard { .. }
        | Action::Visit { .. }
        | Action::Restart { .. }
        | Action::GoBack { .. }
        | Action::Step { .. } => backend.perform(call, action).await,
    }
}
