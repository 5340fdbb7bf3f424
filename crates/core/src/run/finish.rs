//! The end of a run: it waits for the remaining units as long as that can help.

use jiff::Timestamp;

use super::decide::Decision;
use super::event::{Ending, Event};
use super::stage_order::skips_differ;
use super::state::State;
use crate::model::{Code, Gate, Interruption, Part, Reason, Snapshot, UnitId};
use crate::plan::{Plan, PlanningInput, plan};

impl State {
    pub(super) fn finish(
        &self,
        now: Timestamp,
        ask: &PlanningInput<'_>,
        current: &Plan,
        way_back: Option<Vec<(String, Reason)>>,
    ) -> Decision {
        if let Some(wait) = self.wait_to_undrain(ask.snapshot) {
            return wait;
        }
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
                .unwrap_or_else(|| Reason::new(Code::AskedToGoBack, ""));
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
            .or_else(|| self.retry_skipped(now, current))
        {
            return wait;
        }
        // What was left by what was not known then is not left for good.
        if !left.is_empty()
            && let Some(anew) = skips_differ(ask, current)
        {
            return anew;
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
        let stages = self.start.target.parts.iter().filter_map(|part| match part {
            Part::Stage(stage) => Some(&stage.gates),
            Part::Step(_) => None,
        });
        let mut gates: Vec<Gate> = stages.flatten().cloned().collect();
        gates.sort_by(|a, b| a.condition.cmp(&b.condition));
        gates.dedup_by(|a, b| a.condition == b.condition);
        let too_long = |reason: &Reason| {
            Reason::new(
                Code::RollbackFailed,
                format!("health has not returned: {}", reason.detail),
            )
        };
        let decision = self.wait_for_gates(now, snapshot, &gates, true)?;
        let failed = self
            .held
            .as_ref()
            .is_some_and(|(held, _)| held.code == Code::RollbackFailed);
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

    /// Units skipped because of what is down now may become possible: while the gates of their stage are
    /// shut, the run waits for them and then plans again.
    pub(super) fn wait_for_health(
        &self,
        now: Timestamp,
        ask: &PlanningInput<'_>,
        current: &Plan,
    ) -> Option<Decision> {
        const PASSING: [Code; 7] = [
            Code::NeverOkToStop,
            // What stands in for it may be back soon.
            Code::InterruptionNotPermitted,
            Code::UnitDown,
            Code::UnitUnknown,
            Code::RevisionUnknown,
            Code::MaxInParallelUsedUp,
            Code::MaxDomainsUsedUp,
        ];
        let waiting = current
            .left_alone
            .iter()
            .find(|left| PASSING.contains(&left.reason.code))?;
        let stage = self.stage(&waiting.stage)?;
        if let Some(wait) = self.wait_for_gates(now, ask.snapshot, &stage.gates, true) {
            return Some(wait);
        }
        if current.generation != ask.snapshot.generation() {
            return Some(Decision::Record(vec![Event::Planned {
                plan: Box::new(plan(ask)),
            }]));
        }
        self.wait_for_interruption_approval(ask.snapshot, current)
    }

    /// Asks for approval of interruptions that arose since the run started, as it would have before the
    /// start. A policy that does only what is possible asks for nothing.
    fn wait_for_interruption_approval(&self, snapshot: &Snapshot, current: &Plan) -> Option<Decision> {
        let left = |unit: &UnitId| {
            let mut left = current.left_alone.iter();
            left.any(|left| left.unit == *unit && left.reason.code == Code::InterruptionNotPermitted)
        };
        let asked_for: Vec<&Interruption> = snapshot
            .interruptions()
            .iter()
            .filter(|found| !found.permitted && found.units.iter().any(left))
            .collect();
        let first = asked_for.first().filter(|_| !self.start.policy.partial)?;
        let run = &self.start.run;
        let words: Vec<String> = asked_for
            .iter()
            .map(|found| format!("`stagger approve {run} {}`", found.name))
            .collect();
        Some(self.hold(Reason::new(
            Code::InterruptionNotPermitted,
            format!(
                "{}; permit it with {}, or restore its stand-in; then `stagger resume {run}` continues",
                first.what,
                words.join(" and ")
            ),
        )))
    }

    /// Those that the oracle has refused, or that could not be prepared or entered, as often as policy says are tried once more
    /// before the run ends without them: it may have been a bad moment, and they are as they were.
    pub(super) fn retry_skipped(&self, now: Timestamp, current: &Plan) -> Option<Decision> {
        const AS_THEY_WERE: [Code; 3] = [
            Code::OracleSaysNo,
            Code::CouldNotBePrepared,
            Code::CouldNotBeEntered,
        ];
        let again = current.left_alone.iter().filter_map(|left| {
            let aside = self.aside.get(&left.unit)?;
            let is_given_up = aside.until.is_none() && AS_THEY_WERE.contains(&aside.reason.code);
            (is_given_up && aside.tries <= self.start.policy.retry.tries).then(|| Event::SetAside {
                unit: left.unit.clone(),
                reason: aside.reason.clone(),
                until: Some(now),
            })
        });
        let again: Vec<Event> = again.collect();
        (!again.is_empty()).then_some(Decision::Record(again))
    }

    /// While units are set aside for a time, neither a step nor the end comes.
    pub(super) fn wait_for_aside(
        &self,
        now: Timestamp,
        ask: &PlanningInput<'_>,
        current: &Plan,
    ) -> Option<Decision> {
        // A unit whose retry time has come, and that the newest plan skips for another reason, is no longer
        // waited for: otherwise the run would plan again without end.
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
            let why = Reason::new(
                Code::UnitsSetAside,
                format!("{} are tried again", units.join(" ")),
            );
            Decision::Wait {
                until: Some(until),
                why,
            }
        })
    }
}
