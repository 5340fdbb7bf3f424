//! The input of a plan.

use std::collections::BTreeMap;

use jiff::SignedDuration;

use super::{PartName, Plan, Policy, Reason, Snapshot, Target, UnitId};

/// All that a plan is a function of.
#[derive(Debug, Clone, Copy)]
pub struct PlanningInput<'a> {
    /// What was observed.
    pub snapshot: &'a Snapshot,
    /// The wanted state.
    pub target: &'a Target,
    /// How bold to be.
    pub policy: &'a Policy,
    /// Units that a run has set aside for now, with the reason.
    pub aside: &'a BTreeMap<UnitId, Reason>,
    /// How many waves of each stage have passed their gates; growth continues from there.
    pub earned: &'a BTreeMap<PartName, u32>,
    /// The plan that is carried on. The new one never has more waves than it had left, as long as
    /// nothing unexpected happened.
    pub parent: Option<&'a Plan>,
}

/// A visit is expected to take this long where nothing was measured.
pub const USUAL_VISIT: SignedDuration = SignedDuration::from_secs(60);
