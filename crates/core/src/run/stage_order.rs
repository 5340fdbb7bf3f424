//! Dependencies between stages: a stage starts only when the ones before have skipped no unit.

use jiff::Timestamp;

use super::decide::Decision;
use super::event::{Ending, Event};
use super::state::State;
use crate::model::{Code, Part, PartName, Reason, UnitId};
use crate::plan::{LeftAlone, Plan, PlanningInput, plan};

/// A plan made now, if it leaves others alone than the current one, or for another reason. What that reason counts may change at
/// each look, and no plan is written for that alone.
pub(super) fn skips_differ(ask: &PlanningInput<'_>, current: &Plan) -> Option<Decision> {
    let plan = plan(ask);
    let left = |plan: &Plan| -> Vec<(UnitId, PartName, Code)> {
        let left = plan.left_alone.iter();
        left.map(|left| (left.unit.clone(), left.stage.clone(), left.reason.code.clone()))
            .collect()
    };
    (left(&plan) != left(current)).then(|| Decision::Record(vec![Event::Planned { plan: Box::new(plan) }]))
}

impl State {
    /// Holds before that part while units of the stages before it were left, or ends there where it was to do what can
    /// be done. `None`: none was left, or a person has accepted it where the procedure permits that.
    ///
    /// On the way back there is nothing to wait for: it leads away from what could not be done.
    pub(super) fn hold_for_skipped(
        &self,
        now: Timestamp,
        ask: &PlanningInput<'_>,
        current: &Plan,
        part: &PartName,
    ) -> Option<Decision> {
        if self.going_back.is_some() {
            return None;
        }
        let parts = &self.start.target.parts;
        let is_step = parts
            .iter()
            .any(|at| at.name() == part && matches!(at, Part::Step(_)));
        let before: Vec<&PartName> = parts
            .iter()
            .map(Part::name)
            .take_while(|name| *name != part)
            .collect();
        let accepted = |left: &&LeftAlone| {
            let word = self.skip_approval_for(is_step, left);
            word.is_some_and(|word| self.doors.contains(&word))
        };
        let left: Vec<&LeftAlone> = current
            .left_alone
            .iter()
            .filter(|left| before.contains(&&left.stage))
            .filter(|left| !accepted(left))
            .collect();
        if left.is_empty() {
            return None;
        }
        if let Some(wait) = self
            .wait_for_aside(now, ask, current)
            .or_else(|| self.wait_for_health(now, ask, current))
            .or_else(|| self.retry_skipped(now, current))
        {
            return Some(wait);
        }
        // The run continues by itself once the skipped units can be visited. Not every unit changes the
        // cluster's state number, and the same state may be known in more detail now.
        if let Some(anew) = skips_differ(ask, current) {
            return Some(anew);
        }
        let reason = self.skip_reason(part, is_step, &left);
        if self.start.policy.partial {
            // That it does not get there was known and wished.
            let mut all: Vec<_> = left
                .iter()
                .map(|left| (left.unit.to_string(), left.reason.clone()))
                .collect();
            all.push((part.to_string(), reason));
            let outcome = Ending::Incomplete { left: all };
            return Some(Decision::Record(vec![Event::Ended { outcome }]));
        }
        Some(self.hold(reason))
    }

    /// By which word a person accepts that this unit was left; `None`: the procedure does not permit it, and a step never.
    fn skip_approval_for(&self, is_step: bool, left: &LeftAlone) -> Option<PartName> {
        let stage = self.start.target.stage(&left.stage).filter(|_| !is_step)?;
        stage.skip_approval()
    }

    fn skip_reason(&self, part: &PartName, is_step: bool, left: &[&LeftAlone]) -> Reason {
        let names: Vec<_> = left.iter().take(8).map(|left| left.unit.as_str()).collect();
        let more = match left.len() {
            0..=8 => String::new(),
            many => format!(" and {} more", many - 8),
        };
        let why = left
            .first()
            .map(|left| left.reason.to_string())
            .unwrap_or_default();
        let run = &self.start.run;
        let mut words: Vec<_> = left
            .iter()
            .map(|left| self.skip_approval_for(is_step, left))
            .collect();
        words.dedup();
        let words: Option<Vec<PartName>> = words.into_iter().collect();
        let exits = words.map_or_else(String::new, |words| {
            let approve: Vec<_> = words
                .iter()
                .map(|word| format!("`stagger approve {run} {word}`"))
                .collect();
            format!("; {} continues without", approve.join(" and "))
        });
        Reason::new(
            Code::UnitsLeftBehind,
            format!(
                "{part} comes after {}{more}, not done ({why}): fix that and `stagger resume {run}`{exits}, or `stagger \
                 abort {run}`",
                names.join(" ")
            ),
        )
    }
}
