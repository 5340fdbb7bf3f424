//! What a plan is made of, the plan, and why it is not begun.

use std::collections::BTreeMap;

use stagger_core::check::check;
use stagger_core::model::{Policy, Snapshot, Target};
use stagger_core::plan::{Ask, Plan, out_of_reach, plan};

use crate::args;
use crate::error::CliError;
use crate::exit::Exit;
use crate::improve;

/// All that a plan is a function of.
pub(crate) struct PlanningInput {
    /// What was observed.
    pub(crate) snapshot: Snapshot,
    /// What is wanted.
    pub(crate) target: Target,
    /// How bold to be.
    pub(crate) policy: Policy,
}

/// Why a plan is not begun: it does not get to its target.
pub(crate) fn refusal(input: &PlanningInput, made: &Plan) -> Option<CliError> {
    let reasons = out_of_reach(made, &input.policy, input.snapshot.nouns());
    (!reasons.is_empty()).then(|| {
        let mut error = CliError::refused("a run of this plan", &reasons);
        error.hints.insert(
            0,
            "--partial does what can be done, and ends before what waits".to_owned(),
        );
        error
    })
}

/// The plan for it. If it is searched for a time, the policy gets the steps that were made.
pub(crate) fn made_for(upgrade: &args::Upgrade, input: &mut PlanningInput) -> Result<Plan, CliError> {
    let none = BTreeMap::new();
    let earned = BTreeMap::new();
    let ask = Ask {
        snapshot: &input.snapshot,
        target: &input.target,
        policy: &input.policy,
        aside: &none,
        earned: &earned,
        parent: None,
    };
    let made = match improve::time(upgrade.improve.as_deref())? {
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
