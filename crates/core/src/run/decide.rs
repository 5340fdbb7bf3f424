//! What comes next. Pure: the same journal, time and observation give the same decision.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

use super::Run;
use super::event::{Action, Ending, Event, Seq};
use super::gate;
use super::state::State;
use crate::model::{
    Door, Doors, Gate, GuardName, GuardScope, GuardSpec, Part, PartName, Reason, Snapshot, StageSpec,
    StepSpec, UnitId, Verdict,
};
use crate::plan::{Ask, Plan, PlannedPart, PlannedStage, plan};

/// An observation, and where the journal stood when it began.
#[derive(Debug, Clone, Copy)]
pub struct Seen<'a> {
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
        fresh: Vec<Action>,
        /// Intents that were never settled.
        again: Vec<Seq>,
    },
    /// Observe and ask again, at that time at the latest.
    Wait {
        /// When something can come of it without anything changing; `None`: nobody knows.
        until: Option<Timestamp>,
        /// What is waited for.
        why: Reason,
    },
    /// A person must act before it can go on.
    Hold(Reason),
    /// It is over.
    Over(Ending),
}

/// How often giving a guard back is tried before it is left to its expiry.
const DROPS: u32 = 3;

impl Run {
    /// What comes next, at `now`, given what was last observed.
    pub fn next(&self, now: Timestamp, seen: Option<Seen<'_>>) -> Decision {
        let state = &self.state;
        if let Some(ending) = &state.ended {
            return Decision::Over(ending.clone());
        }
        if !state.open.is_empty() {
            let again = state.open.keys().copied().collect();
            return Decision::Act {
                fresh: state.next_phases(),
                again,
            };
        }
        let Some(Seen { snapshot, as_of }) = seen else {
            return Decision::Observe;
        };
        if as_of < state.changed {
            return Decision::Observe;
        }
        match &state.wave {
            Some(wave) => state.in_wave(now, snapshot, wave),
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
        if let Some(decision) = self.give_back_guards(next_stage) {
            return decision;
        }
        if self.aborting {
            return Decision::Record(vec![Event::Ended {
                outcome: Ending::Aborted,
            }]);
        }
        if let Some(reason) = self.rolled_back.clone().filter(|_| self.going_back.is_none()) {
            return Decision::Record(vec![Event::Ended {
                outcome: Ending::RolledBack { reason },
            }]);
        }
        if self.paused {
            return self.hold(Reason::new(
                "paused",
                "a person paused it; `stagger resume` goes on",
            ));
        }
        // A guard that could not be taken is not tried without an end: a person looks first.
        if let Some((held, _)) = self.held.as_ref().filter(|(held, _)| held.slug == "guard-failed") {
            return Decision::Hold(held.clone());
        }
        let plan_for = |ask: &Ask<'_>| {
            Decision::Record(vec![Event::Planned {
                plan: Box::new(plan(ask)),
            }])
        };
        let aside = self.aside_now(now, snapshot);
        let way_back = self.going_back.as_ref().map(|_| self.way_back(snapshot));
        let (target, aside) = match &way_back {
            Some(way) => (&way.target, aside.into_iter().chain(way.aside.clone()).collect()),
            None => (&self.start.target, aside),
        };
        // A plan on the way back does not carry on one on the way there.
        let parent = self.plan.as_deref().filter(|plan| plan.title == target.title);
        let ask = Ask {
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
                Some(spec) => match self.before_wave(now, snapshot, &spec, planned) {
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
            Some((held, _)) if held.slug == reason.slug => Decision::Hold(reason),
            Some(_) | None => Decision::Record(vec![Event::Held { reason }]),
        }
    }

    /// Units that are not to be tried now.
    fn aside_now(&self, now: Timestamp, snapshot: &Snapshot) -> BTreeMap<UnitId, Reason> {
        let waits = |until: Option<Timestamp>| until.is_none_or(|until| now < until);
        self.aside
            .iter()
            .filter(|(unit, aside)| waits(aside.until) && snapshot.find(unit).is_some())
            .map(|(unit, aside)| (unit.clone(), aside.reason.clone()))
            .collect()
    }

    fn finish(
        &self,
        now: Timestamp,
        ask: &Ask<'_>,
        current: &Plan,
        way_back: Option<Vec<(String, Reason)>>,
    ) -> Decision {
        let mut left: Vec<_> = current
            .left_alone
            .iter()
            .map(|left| (left.unit.to_string(), left.reason.clone()))
            .collect();
        if let Some(impossible) = way_back {
            if let Some(wait) = self.wait_for_health_after_going_back(now, ask.snapshot) {
                return wait;
            }
            let mut reason = self
                .going_back
                .clone()
                .unwrap_or_else(|| Reason::new("asked-to-go-back", ""));
            for (what, why) in impossible {
                reason.detail = format!("{}; {what} stay as they are: {why}", reason.detail);
            }
            return Decision::Record(vec![Event::Ended {
                outcome: Ending::RolledBack { reason },
            }]);
        }
        if let Some(wait) = self
            .wait_for_aside(now, ask, current)
            .or_else(|| self.wait_for_health(now, ask, current))
        {
            return wait;
        }
        left.sort();
        let outcome = if left.is_empty() {
            Ending::Done
        } else {
            Ending::Incomplete { left }
        };
        Decision::Record(vec![Event::Ended { outcome }])
    }

    /// Going back is over when health has returned; where it does not, a person has to look.
    fn wait_for_health_after_going_back(&self, now: Timestamp, snapshot: &Snapshot) -> Option<Decision> {
        const SLUG: &str = "rollback-failed";
        let stages = self.start.target.parts.iter().filter_map(|part| match part {
            Part::Stage(stage) => Some(&stage.gates),
            Part::Step(_) => None,
        });
        let mut gates: Vec<Gate> = stages.flatten().cloned().collect();
        gates.sort_by(|a, b| a.condition.cmp(&b.condition));
        gates.dedup_by(|a, b| a.condition == b.condition);
        let too_long =
            |reason: &Reason| Reason::new(SLUG, format!("health has not returned: {}", reason.detail));
        let decision = self.wait_for_gates(now, snapshot, &gates, true)?;
        let failed = self.held.as_ref().is_some_and(|(held, _)| held.slug == SLUG);
        if let Decision::Wait { why, .. } = &decision
            && failed
        {
            return Some(Decision::Hold(too_long(why)));
        }
        if let Decision::Record(events) = &decision
            && let [Event::Held { reason }] = events.as_slice()
        {
            return Some(self.hold(too_long(reason)));
        }
        Some(decision)
    }

    /// What was left alone because of what is down now is not left for good: while the gates of its
    /// stage are shut the run waits for them, and then plans again.
    fn wait_for_health(&self, now: Timestamp, ask: &Ask<'_>, current: &Plan) -> Option<Decision> {
        const PASSING: [&str; 6] = [
            "never-ok-to-stop",
            "unit-down",
            "unit-unknown",
            "revision-unknown",
            "max-in-parallel-used-up",
            "max-domains-used-up",
        ];
        let waiting = current
            .left_alone
            .iter()
            .find(|left| PASSING.contains(&left.reason.slug.as_str()))?;
        let gates = self.stage(&waiting.stage)?.gates;
        if let Some(wait) = self.wait_for_gates(now, ask.snapshot, &gates, true) {
            return Some(wait);
        }
        (current.generation != ask.snapshot.generation()).then(|| {
            Decision::Record(vec![Event::Planned {
                plan: Box::new(plan(ask)),
            }])
        })
    }

    /// While units are set aside for a time, neither a step nor the end comes.
    fn wait_for_aside(&self, now: Timestamp, ask: &Ask<'_>, current: &Plan) -> Option<Decision> {
        // One whose time has come and that the newest plan leaves alone for another reason is not
        // waited for any more: it would be planned again without an end.
        let until = current
            .left_alone
            .iter()
            .filter_map(|left| {
                let aside = self.aside.get(&left.unit)?;
                aside
                    .until
                    .filter(|until| now < *until || left.reason == aside.reason)
            })
            .min()?;
        Some(if until <= now {
            Decision::Record(vec![Event::Planned {
                plan: Box::new(plan(ask)),
            }])
        } else {
            let units: Vec<_> = self.aside.keys().map(UnitId::as_str).collect();
            let why = Reason::new("units-set-aside", format!("{} are tried again", units.join(" ")));
            Decision::Wait {
                until: Some(until),
                why,
            }
        })
    }

    fn step(&self, now: Timestamp, snapshot: &Snapshot, spec: &StepSpec, current: &Plan) -> Decision {
        if snapshot.condition(&spec.done_when).verdict == Verdict::Yes {
            return Decision::Record(vec![Event::StepPassed {
                step: spec.name.clone(),
            }]);
        }
        let aside = self.aside_now(now, snapshot);
        let target = &self.start.target;
        let ask = Ask {
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
        {
            return wait;
        }
        let before: Vec<&PartName> = target
            .parts
            .iter()
            .map(Part::name)
            .take_while(|name| **name != spec.name)
            .collect();
        let mut left: Vec<_> = current
            .left_alone
            .iter()
            .filter(|left| before.contains(&&left.stage))
            .map(|left| (left.unit.to_string(), left.reason.clone()))
            .collect();
        if !left.is_empty() {
            let names: Vec<_> = left.iter().map(|(unit, _)| unit.clone()).collect();
            let reason = Reason::new("units-left-behind", format!("{} are not done", names.join(" ")));
            left.push((spec.name.to_string(), reason));
            return Decision::Record(vec![Event::Ended {
                outcome: Ending::Incomplete { left },
            }]);
        }
        if let Some(settled) = self.step.as_ref().filter(|settled| settled.step == spec.name) {
            if let Some(why) = &settled.failed {
                return self.hold(Reason::new("step-failed", format!("{}: {why}", spec.name)));
            }
            let timeout = SignedDuration::from_secs(i64::from(self.start.policy.gate_timeout));
            let until = settled.at.saturating_add(timeout).unwrap_or(Timestamp::MAX);
            let why = snapshot.condition(&spec.done_when).why;
            let reason = Reason::new(
                "step-without-effect",
                format!("{} is not yet so: {why}", spec.done_when),
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
            .or_else(|| self.wait_for_door(now, spec.door.as_ref()))
            .unwrap_or_else(|| Decision::Act {
                fresh: vec![Action::Step {
                    step: spec.name.clone(),
                }],
                again: Vec::new(),
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
        // What is not healthy is no reason not to go back.
        if self.going_back.is_none()
            && let Some(wait) = self.wait_for_gates(now, snapshot, &spec.gates, true)
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
                    "the first unit of its kind"
                } else {
                    "the last wave"
                };
                return Some(Decision::Wait {
                    until: Some(until),
                    why: Reason::new("soaking", format!("{what} proves itself")),
                });
            }
        }
        let end = now
            .saturating_add(SignedDuration::from_secs(i64::from(wave.seconds)))
            .unwrap_or(Timestamp::MAX);
        if !policy.windows.is_empty() && !policy.windows.iter().any(|window| window.holds(now, end)) {
            let next = policy
                .windows
                .iter()
                .filter_map(|window| window.next(now, end))
                .min();
            let names: Vec<_> = policy.windows.iter().map(ToString::to_string).collect();
            let why = Reason::new(
                "outside-window",
                format!(
                    "a wave of about {} s must end inside {}",
                    wave.seconds,
                    names.join(" or ")
                ),
            );
            return Some(match next {
                Some(_) => Decision::Wait { until: next, why },
                None => self.hold(why),
            });
        }
        self.wait_for_door(now, wave.door.as_ref())
    }

    fn wait_for_door(&self, now: Timestamp, door: Option<&Door>) -> Option<Decision> {
        let door = door.filter(|door| !self.doors.contains(&door.name))?;
        match self.start.policy.doors {
            Doors::Ask => {
                let run = &self.start.run;
                let detail = format!("{}; `stagger approve {run} {}` passes it", door.why, door.name);
                Some(self.hold(Reason::new("one-way-door", detail)))
            }
            Doors::AutoAfter(seconds) => {
                let since = self.last_wave.as_ref().map_or(self.started_at, |last| last.at);
                let soak = SignedDuration::from_secs(i64::from(seconds));
                let until = since.saturating_add(soak).unwrap_or(Timestamp::MAX);
                let why = Reason::new("door-soaking", format!("{} opens by itself", door.name));
                (now < until).then_some(Decision::Wait {
                    until: Some(until),
                    why,
                })
            }
        }
    }

    /// Waits until the gates are open; past their time the run is held, and goes on by itself when
    /// they open.
    fn wait_for_gates(
        &self,
        now: Timestamp,
        snapshot: &Snapshot,
        gates: &[Gate],
        at_once: bool,
    ) -> Option<Decision> {
        let shut = gate::shut(gates, snapshot);
        let turned = || Decision::Record(vec![Event::GatesTurned { shut: shut.clone() }]);
        let Some(before) = &self.gates else {
            return (!shut.is_empty() || !at_once).then(turned);
        };
        let names = |gates: &[(crate::model::ConditionName, String)]| -> Vec<_> {
            gates.iter().map(|(name, _)| name.clone()).collect()
        };
        if names(&before.shut) != names(&shut) {
            return Some(turned());
        }
        let holds = gates.iter().map(|gate| gate.hold).max().unwrap_or_default();
        if shut.is_empty() {
            let until = before.since.saturating_add(holds).unwrap_or(Timestamp::MAX);
            // What was seen counts: an answer that took long tells of the time when it was asked for.
            if snapshot.observed_at() < until && !at_once {
                let why = Reason::new(
                    "gates-holding",
                    "all gates are open; they must stay so for a while",
                );
                return Some(Decision::Wait {
                    until: Some(until),
                    why,
                });
            }
            // What it is held by for another reason, as a door, the gates do not release.
            return self
                .held
                .as_ref()
                .filter(|(held, _)| held.slug == "gates-shut")
                .map(|_| Decision::Record(vec![Event::Released]));
        }
        let text: Vec<_> = shut
            .iter()
            .map(|(name, why)| format!("{name} is {why}"))
            .collect();
        let reason = Reason::new("gates-shut", text.join("; "));
        let timeout = gates.iter().map(|gate| gate.timeout).max().unwrap_or_default();
        let until = before.since.saturating_add(timeout).unwrap_or(Timestamp::MAX);
        Some(match &self.held {
            None if until <= now => Decision::Record(vec![Event::Held { reason }]),
            None => Decision::Wait {
                until: Some(until),
                why: reason,
            },
            Some(_) => Decision::Wait {
                until: None,
                why: reason,
            },
        })
    }

    /// Guards that nothing needs any more. `next_stage`: the stage that comes, if that is known.
    /// Whether guards of a wave that is over are still to be given back.
    pub(super) fn owes_guards(&self) -> bool {
        let owed = |units: &[UnitId], drops: u32| !units.is_empty() && drops < DROPS;
        self.wave.is_none()
            && self
                .guards
                .iter()
                .any(|((_, units), taken)| owed(units, taken.drops))
    }

    fn give_back_guards(&self, next_stage: Option<&PartName>) -> Option<Decision> {
        let over = self.aborting || self.going_back.is_some();
        let undecided = next_stage.is_none() && !self.plan_is_fresh && !over;
        let wanted = |guard: &GuardName| {
            let mut scopes = self.start.target.parts.iter().filter_map(|part| match part {
                Part::Stage(stage) => stage
                    .guards
                    .iter()
                    .find(|spec| spec.name == *guard)
                    .map(|spec| (stage, spec)),
                Part::Step(_) => None,
            });
            scopes.any(|(stage, spec)| {
                spec.scope == GuardScope::Stage && (undecided || (!over && next_stage == Some(&stage.name)))
            })
        };
        let fresh: Vec<_> = self
            .guards
            .iter()
            .filter(|((guard, _), taken)| !wanted(guard) && taken.drops < DROPS)
            .map(|((guard, units), _)| Action::DropGuard {
                guard: guard.clone(),
                units: units.clone(),
            })
            .collect();
        (!fresh.is_empty()).then_some(Decision::Act {
            fresh,
            again: Vec::new(),
        })
    }

    /// Guards that a stage wants for these units and that are not there or soon go by themselves.
    pub(super) fn missing_guards(
        &self,
        now: Timestamp,
        specs: &[GuardSpec],
        units: &[UnitId],
    ) -> Vec<Action> {
        specs
            .iter()
            .filter_map(|spec| {
                let units = match spec.scope {
                    GuardScope::Stage => Vec::new(),
                    GuardScope::Wave => units.to_vec(),
                };
                let half = spec.expiry / 2;
                let fine = self
                    .guards
                    .get(&(spec.name.clone(), units.clone()))
                    .is_some_and(|taken| now.saturating_add(half).unwrap_or(Timestamp::MAX) < taken.until);
                let expires = u32::try_from(spec.expiry.as_secs()).unwrap_or(u32::MAX);
                (!fine).then(|| Action::TakeGuard {
                    guard: spec.name.clone(),
                    units,
                    expires,
                })
            })
            .collect()
    }
}

fn open_wave(snapshot: &Snapshot, spec: &StageSpec, planned: &PlannedStage) -> Decision {
    let units = planned.waves.first().into_iter().flat_map(|wave| &wave.units);
    let units = units
        .filter_map(|id| {
            let unit = snapshot.unit(snapshot.find(id)?);
            Some((id.clone(), unit.revision.clone()?))
        })
        .collect();
    Decision::Record(vec![Event::WaveOpened {
        stage: spec.name.clone(),
        units,
    }])
}
