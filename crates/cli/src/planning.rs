//! The input of a plan, the plan, and why it is refused.

use std::collections::BTreeMap;

use stagger_core::check::check;
use stagger_core::model::{PartName, Policy, Reason, Snapshot, Target, UnitId};
use stagger_core::plan::{Plan, PlanningInput, SelectionError, blocking_reasons, plan};
use stagger_risks::RiskFinding;

use crate::args;
use crate::error::CliError;
use crate::exit::Exit;
use crate::improve;
use crate::risks;

/// All that a plan is a function of.
pub(crate) struct PlanRequest {
    /// What was observed.
    pub(crate) snapshot: Snapshot,
    /// What is wanted.
    pub(crate) target: Target,
    /// How bold to be.
    pub(crate) policy: Policy,
    /// Known risks of the way there. No plan changes by them.
    pub(crate) risks: Vec<RiskFinding>,
}

impl PlanRequest {
    /// For the units that were selected only.
    ///
    /// # Errors
    /// There are no such units, or others come first.
    pub(crate) fn selected(mut self, select: &args::Select) -> Result<Self, CliError> {
        let none = BTreeMap::new();
        let earned = BTreeMap::new();
        let selected = select.selection().of(&self.ask(&none, &earned));
        self.target = selected.map_err(|error| {
            let (exit, hint) = match error {
                SelectionError::OthersFirst { .. } => (
                    Exit::No,
                    "select those too, or run for them first: the order of an upgrade is fixed",
                ),
                SelectionError::NoUnit(_)
                | SelectionError::NoKind { .. }
                | SelectionError::NoLevel { .. }
                | SelectionError::NoDomain { .. }
                | SelectionError::Nothing => (
                    Exit::Usage,
                    "`stagger observe --json` shows units with their kinds and failure domains",
                ),
            };
            CliError::new(exit, error.to_string()).hint(hint)
        })?;
        Ok(self)
    }

    /// What the core is asked.
    pub(crate) fn ask<'a>(
        &'a self,
        aside: &'a BTreeMap<UnitId, Reason>,
        earned: &'a BTreeMap<PartName, u32>,
    ) -> PlanningInput<'a> {
        PlanningInput {
            snapshot: &self.snapshot,
            target: &self.target,
            policy: &self.policy,
            aside,
            earned,
            parent: None,
        }
    }
}

/// Why a plan is not begun: it does not get to its target, or the way there is known to do harm.
pub(crate) fn refusal(input: &PlanRequest, made: &Plan) -> Option<CliError> {
    let beyond = blocking_reasons(made, &input.policy, input.snapshot.terms());
    let harm = if made.is_empty() {
        Vec::new()
    } else {
        risks::refusals(&input.risks)
    };
    let reasons = [beyond.as_slice(), harm.as_slice()].concat();
    (!reasons.is_empty()).then(|| {
        let mut error = CliError::refused("a run of this plan", &reasons);
        if !harm.is_empty() {
            let hint = "--accept-risk ID runs it all the same";
            error.hints.insert(0, hint.to_owned());
        }
        if !beyond.is_empty() {
            let hint = "--partial does what can be done, and ends before what waits";
            error.hints.insert(0, hint.to_owned());
        }
        error
    })
}

/// The plan for it. If it is searched for a time, the policy gets the steps that were made.
pub(crate) fn make_plan(flags: &args::PolicyFlags, input: &mut PlanRequest) -> Result<Plan, CliError> {
    let none = BTreeMap::new();
    let earned = BTreeMap::new();
    let ask = input.ask(&none, &earned);
    let made = match improve::time(flags.improve.as_deref())? {
        Some(time) => improve::plan_within(&ask, time),
        None => plan(&ask),
    };
    // The judge never sees a plan of ours that it would not pass; if it does, that is a bug of ours.
    let findings = check(&ask, &made);
    match findings.first() {
        None => {
            input.policy.search.steps = made.search.steps;
            Ok(made)
        }
        Some(finding) => Err(CliError::new(
            Exit::Internal,
            format!("the plan is not sound: {finding:?}"),
        )),
    }
}
