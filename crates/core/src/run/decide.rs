//! The next decision. Pure: the same journal, time and observation give the same decision.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

use super::Run;
use super::event::{Action, Effect, Ending, Event, Seq};
use super::state::State;
use super::visit::OpenWave;
use crate::check;
use crate::model::{
    Code, ConditionName, Ix, Reason, Snapshot, StageSpec, StepSpec, UnitId, UnitState, Verdict,
};
use crate::plan::{Plan, PlannedPart, PlannedStage, PlanningInput, plan};

/// An observation, and where the journal stood when it began.
#[derive(Debug, Clone, Copy)]
pub struct TimedObservation<'a> {
    /// What was observed.
    pub snapshot: &'a Snapshot,
    /// The place of the last event when the observation began: what happened later, it may not show.
    pub as_of: Seq,
}

/// What comes next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// Observe afresh, then ask again.
    Observe,
    /// Ask the system's own oracle about these sets and record both judges' answers.
    Judge(Vec<Vec<UnitId>>),
    /// Write these events, in one piece.
    Record(Vec<Event>),
    /// Announce `fresh` in one piece and carry them out together; carry out again those of `again`
    /// that are not under way in this process.
    Act {
        /// New effects.
        fresh: Vec<Effect>,
        /// Intents that were never settled.
        again: Vec<Seq>,
    },
    /// Observe and ask again, at that time at the latest.
    Wait {
        /// When waiting may end although nothing changes; `None`: unknown.
        until: Option<Timestamp>,
        /// The reason for waiting.
        why: Reason,
    },
    /// The operator must act before the run can continue.
    Hold(Reason),
    /// It is over.
    Over(Ending),
}

impl Decision {
    /// These effects are begun, whenever.
    pub(super) fn act(fresh: impl IntoIterator<Item = Action>) -> Self {
        Self::Act {
            fresh: fresh.into_iter().map(Effect::from).collect(),
            again: Vec::new(),
        }
    }
}

impl Run {
    /// What comes next, at `now`, given what was last observed.
    pub fn next(&self, now: Timestamp, seen: Option<TimedObservation<'_>>) -> Decision {
        let state = &self.state;
        if let Some(ending) = &state.ended {
            return Decision::Over(ending.clone());
        }
        let phases = state.next_phases(now);
        // A wave that has started continues without observations: that brings up what is down.
        let goes_on = state.wave.as_ref().is_some_and(OpenWave::is_begun) && !phases.is_empty();
        if !state.open.is_empty() || goes_on {
            let renewals = state.renewals(now).into_iter().map(Effect::from);
            let fresh: Vec<Effect> = renewals.chain(phases).collect();
            if fresh.is_empty()
                && !self.closing
                && let Some(decision) = state.approve_rest(now, seen).or_else(|| state.join(now, seen))
            {
                return decision;
            }
            let again = state.open.keys().copied().collect();
            return Decision::Act { fresh, again };
        }
        let Some(TimedObservation { snapshot, as_of }) = seen else {
            return Decision::Observe;
        };
        if as_of < state.facts_since() {
            return Decision::Observe;
        }
        match &state.wave {
            Some(wave) => {
                let decision = state
                    .stops_before(wave, self.closing)
                    .unwrap_or_else(|| state.in_wave(now, snapshot, wave, self.closing));
                if matches!(decision, Decision::Hold(_) | Decision::Wait { .. }) {
                    state.clear_guards_while_held().unwrap_or(decision)
                } else {
                    decision
                }
            }
            None => state.between_waves(now, snapshot),
        }
    }
}

impl State {
    fn between_waves(&self, now: Timestamp, snapshot: &Snapshot) -> Decision {
        let next_stage = self
            .plan
            .as_ref()
            .filter(|_| self.plan_is_fresh)
            .and_then(|plan| match plan.parts.first() {
                Some(PlannedPart::Stage(stage)) => Some(&stage.name),
                Some(PlannedPart::Step(_)) | None => None,
            });
        if let Some(decision) = self.clear_guards(next_stage) {
            return decision;
        }
        if let Some(decision) = self.undrain_units(now, snapshot) {
            return decision;
        }
        if self.aborting {
            let ended = Decision::Record(vec![Event::Ended {
                outcome: Ending::Aborted,
            }]);
            return self.wait_to_undrain(snapshot).unwrap_or(ended);
        }
        if let Some(reason) = self.rolled_back.clone().filter(|_| self.going_back.is_none()) {
            let ended = Decision::Record(vec![Event::Ended {
                outcome: Ending::RolledBack { reason },
            }]);
            return self.wait_to_undrain(snapshot).unwrap_or(ended);
        }
        if self.paused {
            return self.hold(Reason::new(
                Code::Paused,
                "paused by an operator; `stagger resume` continues it",
            ));
        }
        // A guard that could not be taken is not tried without an end: a person looks first.
        if let Some((held, _)) = self
            .held
            .as_ref()
            .filter(|(held, _)| held.code == Code::GuardFailed)
        {
            return Decision::Hold(held.clone());
        }
        let plan_for = |ask: &PlanningInput<'_>| {
            Decision::Record(vec![Event::Planned {
                plan: Box::new(plan(ask)),
            }])
        };
        let aside = self.currently_set_aside(now, snapshot);
        let way_back = self.going_back.as_ref().map(|_| self.rollback_target(snapshot));
        let (target, aside) = match &way_back {
            Some(way) => (&way.target, aside.into_iter().chain(way.aside.clone()).collect()),
            None => (&self.start.target, aside),
        };
        // A plan on the way back does not carry on one on the way there.
        let parent = self.plan.as_deref().filter(|plan| plan.title == target.title);
        let ask = PlanningInput {
            snapshot,
            target,
            policy: &self.start.policy,
            aside: &aside,
            earned: &self.earned,
            parent,
        };
        let Some(current) = parent.filter(|_| self.plan_is_fresh) else {
            return plan_for(&ask);
        };
        let moved_on = current.generation != snapshot.generation();
        match current.parts.first() {
            None => self.finish(
                now,
                &ask,
                current,
                way_back.as_ref().map(|way| way.impossible.clone()),
            ),
            Some(PlannedPart::Step(step)) => match self.start.target.step(&step.name) {
                Some(spec) => self.step(now, snapshot, spec, current),
                None => plan_for(&ask),
            },
            Some(PlannedPart::Stage(planned)) => match self.stage(&planned.name) {
                Some(spec) => match self
                    .hold_for_skipped(now, &ask, current, &spec.name)
                    .or_else(|| self.before_wave(now, snapshot, &spec, planned))
                {
                    Some(wait) => wait,
                    None if moved_on => plan_for(&ask),
                    None => open_wave(snapshot, &spec, planned),
                },
                None => plan_for(&ask),
            },
        }
    }

    /// Holds for a person; the journal says so once.
    pub(super) fn hold(&self, reason: Reason) -> Decision {
        match &self.held {
            Some((held, _)) if held.code == reason.code => Decision::Hold(reason),
            Some(_) | None => Decision::Record(vec![Event::Held { reason }]),
        }
    }

    /// Units that are not to be tried now.
    pub(super) fn currently_set_aside(
        &self,
        now: Timestamp,
        snapshot: &Snapshot,
    ) -> BTreeMap<UnitId, Reason> {
        let waits = |until: Option<Timestamp>| until.is_none_or(|until| now < until);
        self.aside
            .iter()
            .filter(|(unit, aside)| waits(aside.until) && snapshot.find(unit).is_some())
            .map(|(unit, aside)| (unit.clone(), aside.reason.clone()))
            .collect()
    }

    fn step(&self, now: Timestamp, snapshot: &Snapshot, spec: &StepSpec, current: &Plan) -> Decision {
        if snapshot.condition(&spec.done_when).verdict == Verdict::Yes {
            return Decision::Record(vec![Event::StepPassed {
                step: spec.name.clone(),
            }]);
        }
        let aside = self.currently_set_aside(now, snapshot);
        let target = &self.start.target;
        let ask = PlanningInput {
            snapshot,
            target,
            policy: &self.start.policy,
            aside: &aside,
            earned: &self.earned,
            parent: Some(current),
        };
        if let Some(wait) = self
            .wait_for_aside(now, &ask, current)
            .or_else(|| self.wait_for_health(now, &ask, current))
            .or_else(|| self.hold_for_skipped(now, &ask, current, &spec.name))
        {
            return wait;
        }
        if let Some(settled) = self.step.as_ref().filter(|settled| settled.step == spec.name) {
            if let Some(why) = &settled.failed {
                return self.hold(Reason::new(Code::StepFailed, format!("{}: {why}", spec.name)));
            }
            let timeout = SignedDuration::from_secs(i64::from(self.start.policy.gate_timeout));
            let until = settled.at.saturating_add(timeout).unwrap_or(Timestamp::MAX);
            let why = snapshot.condition(&spec.done_when).why;
            let reason = Reason::new(
                Code::StepWithoutEffect,
                format!("{} is not met yet: {why}", spec.done_when),
            );
            if now < until {
                return Decision::Wait {
                    until: Some(until),
                    why: reason,
                };
            }
            return self.hold(reason);
        }
        self.wait_for_gates(now, snapshot, &spec.before, false)
            .or_else(|| self.wait_to_begin(now, &spec.name))
            .or_else(|| self.wait_for_door(now, spec.door.as_ref()))
            .unwrap_or_else(|| {
                let step = spec.name.clone();
                Decision::act([Action::Step { step }])
            })
    }

    /// What must be so before a wave is opened; `None`: it all is.
    fn before_wave(
        &self,
        now: Timestamp,
        snapshot: &Snapshot,
        spec: &StageSpec,
        planned: &PlannedStage,
    ) -> Option<Decision> {
        let wave = planned.waves.first()?;
        let policy = &self.start.policy;
        // An unhealthy cluster is no reason against a rollback.
        let gates = if self.going_back.is_none() {
            spec.gates.as_slice()
        } else {
            &[]
        };
        if let Some(wait) =
            self.wait_for_gates_and(now, snapshot, gates, unrecovered_violation(snapshot, &wave.units))
        {
            return Some(wait);
        }
        if let Some(last) = &self.last_wave {
            let until = last
                .at
                .saturating_add(policy.soak_after(last.canary))
                .unwrap_or(Timestamp::MAX);
            if now < until && self.going_back.is_none() {
                let what = if last.canary {
                    "the canary"
                } else {
                    "the last wave"
                };
                return Some(Decision::Wait {
                    until: Some(until),
                    why: Reason::new(Code::Soaking, format!("{what} soaks")),
                });
            }
        }
        self.wait_to_open(now, wave.seconds)
            .or_else(|| self.wait_for_door(now, wave.door.as_ref()))
    }
}

/// What a plan for the cluster once recovered permits, and the cluster as it is now does not: the wave would be dropped as
/// soon as it was opened, and planned again.
fn unrecovered_violation(snapshot: &Snapshot, units: &[UnitId]) -> Option<(ConditionName, String)> {
    if !snapshot.recovers() {
        return None;
    }
    let set: Vec<Ix> = units.iter().filter_map(|unit| snapshot.find(unit)).collect();
    let why = check::may_stop(snapshot, &set).err()?;
    Some((ConditionName::new("recovered").ok()?, why))
}

fn open_wave(snapshot: &Snapshot, spec: &StageSpec, planned: &PlannedStage) -> Decision {
    let units = planned.waves.first().into_iter().flat_map(|wave| &wave.units);
    let units = units
        .filter_map(|id| {
            let unit = snapshot.unit(snapshot.find(id)?);
            Some((id.clone(), unit.revision.clone()?))
        })
        .collect();
    let not_serving = snapshot
        .units()
        .iter()
        .filter(|unit| unit.state != UnitState::Serving);
    Decision::Record(vec![Event::WaveOpened {
        stage: spec.name.clone(),
        units,
        not_serving: not_serving.map(|unit| unit.id.clone()).collect(),
    }])
}
