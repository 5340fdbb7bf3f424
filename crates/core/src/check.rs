//! The independent checker of plans.
//!
//! It shares only the constraint predicate with the planner, and finds each fault by the simplest means. A
//! plan of the planner has no findings; a fault planted in a plan is found.

mod evacuation;

use std::collections::BTreeSet;

use serde::Serialize;

use crate::model::{
    Growth, Ix, Part, PartName, Policy, Revision, Snapshot, StageSpec, UnitId, UnitState, Width,
};
use crate::plan::{Plan, PlannedPart, PlannedStage, PlanningInput};
pub use evacuation::may_empty;

/// What is wrong with a plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Finding {
    /// Which rule is broken.
    pub fault: Fault,
    /// In which stage or step.
    pub part: PartName,
    /// With what.
    pub detail: String,
}

/// The rules that a plan can break.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Fault {
    /// A unit is in two waves of a stage, or in a wave and among those skipped.
    UnitTwice,
    /// A unit needs the change, and is neither in a wave nor skipped.
    UnitMissing,
    /// A wave holds a unit that is not in the snapshot, or has nothing to do, or must not be touched.
    UnitUncalledFor,
    /// A wave breaks a budget.
    OverBudget,
    /// A wave holds more units than may be down at once.
    OverParallel,
    /// A wave touches more failure domains than it may.
    OverDomains,
    /// A wave leaves more of the data without one of its copies than may be.
    OverReducedRedundancy,
    /// Stages or steps are not in the target's order, or one that is needed is missing.
    StageOrder,
    /// A unit is skipped that a later part waits for, and the plan does not say so; or it names another part.
    WaitHidden,
    /// Two units of a stage whose units go one at a time.
    TwoAtOnce,
    /// A wave is larger than growth has earned.
    GrowthSkipped,
    /// A point of no return is not marked where it is.
    DoorUnmarked,
    /// A point of no return has no gate before it.
    DoorWithoutGate,
    /// A unit is visited before one that comes before it (the active one before a standby).
    PrecedenceBroken,
    /// The unit whose wave should be the last is visited before.
    LastNotLast,
    /// A guest is moved that should stay, or twice, or that there is not.
    MoveUncalledFor,
    /// A guest that should be moved away stays on a host that goes down.
    MoveMissing,
    /// A guest is moved to where it cannot go.
    MoveAstray,
    /// What is moved does not fit where it goes, or leaves an N+1 failure that was not there before.
    OverRoom,
    /// Two hosts of a wave have a standby in common, and that is excluded.
    StandbyShared,
    /// A schedule leaves out a unit, or has units down together that may not be.
    ScheduleBroken,
}

/// The same word as in documents.
impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.serialize(f)
    }
}

/// All that is wrong with a plan for what was asked.
pub fn check(ask: &PlanningInput<'_>, plan: &Plan) -> Vec<Finding> {
    let mut findings = Vec::new();
    parts_in_order(ask, plan, &mut findings);
    reported_waits(ask, plan, &mut findings);
    for part in &ask.target.parts {
        match part {
            Part::Stage(stage) => {
                let judge = IndependentCheck {
                    ask,
                    plan,
                    stage,
                    planned: plan.stage(&stage.name),
                };
                judge.units(&mut findings);
                judge.waves(&mut findings);
                judge.doors(&mut findings);
                judge.maintenance(&mut findings);
            }
            Part::Step(step) => {
                let planned = plan.parts.iter().find_map(|part| match part {
                    PlannedPart::Step(planned) if planned.name == step.name => Some(planned),
                    PlannedPart::Step(_) | PlannedPart::Stage(_) => None,
                });
                if planned.is_some_and(|planned| planned.door != step.door) {
                    findings.push(Finding {
                        fault: Fault::DoorUnmarked,
                        part: step.name.clone(),
                        detail: "the step is a point of no return and is not marked as one".to_owned(),
                    });
                }
                if step.door.is_some() && step.before.is_empty() {
                    findings.push(Finding {
                        fault: Fault::DoorWithoutGate,
                        part: step.name.clone(),
                        detail: "nothing is verified before it".to_owned(),
                    });
                }
            }
        }
    }
    findings
}

/// Whether a set may go down now, by our own judgement: the first judge of law 4.
///
/// # Errors
/// In words, what it would break.
pub fn may_stop(snapshot: &Snapshot, set: &[Ix]) -> Result<(), String> {
    for unit in set {
        let unit = snapshot.unit(*unit);
        if unit.state == UnitState::Unknown {
            return Err(format!("whether {} serves is unknown", unit.id));
        }
    }
    let down = snapshot.down();
    snapshot
        .budgets()
        .permit(&down, set)
        .map_err(|found| snapshot.describe_violation(snapshot.budgets(), &found))
}

/// A run stops before the part that waits for skipped units, so the plan must name that wait. No part waits
/// for a maintenance of hosts with guests.
fn reported_waits(ask: &PlanningInput<'_>, plan: &Plan, findings: &mut Vec<Finding>) {
    let wanted = &ask.target.parts;
    let has_something = |name: &PartName| {
        plan.left_alone.iter().any(|left| left.stage == *name)
            || plan.parts.iter().any(|part| match part {
                PlannedPart::Stage(stage) => stage.name == *name,
                PlannedPart::Step(step) => step.name == *name,
            })
    };
    for left in &plan.left_alone {
        let mut from = wanted.iter().skip_while(|part| *part.name() != left.stage);
        let waits = match from.next() {
            Some(Part::Stage(stage)) if stage.maintenance.is_none() => {
                from.map(Part::name).find(|name| has_something(name))
            }
            Some(_) | None => None,
        };
        if left.needed_by.as_ref() != waits {
            let said = |part: Option<&PartName>| part.map_or("nothing".to_owned(), ToString::to_string);
            findings.push(Finding {
                fault: Fault::WaitHidden,
                part: left.stage.clone(),
                detail: format!(
                    "{} is skipped and blocks {}; the plan names {}",
                    left.unit,
                    said(waits),
                    said(left.needed_by.as_ref())
                ),
            });
        }
    }
}

fn parts_in_order(ask: &PlanningInput<'_>, plan: &Plan, findings: &mut Vec<Finding>) {
    let wanted: Vec<&PartName> = ask.target.parts.iter().map(Part::name).collect();
    let mut last = None;
    for part in &plan.parts {
        let name = match part {
            PlannedPart::Stage(stage) => &stage.name,
            PlannedPart::Step(step) => &step.name,
        };
        let place = wanted.iter().position(|w| *w == name);
        if place.is_none() || place <= last {
            findings.push(Finding {
                fault: Fault::StageOrder,
                part: name.clone(),
                detail: "it is not where the target has it".to_owned(),
            });
        }
        last = last.max(place);
    }
}

struct IndependentCheck<'a> {
    ask: &'a PlanningInput<'a>,
    plan: &'a Plan,
    stage: &'a StageSpec,
    planned: Option<&'a PlannedStage>,
}

impl IndependentCheck<'_> {
    fn found(&self, fault: Fault, detail: impl Into<String>) -> Finding {
        Finding {
            fault,
            part: self.stage.name.clone(),
            detail: detail.into(),
        }
    }

    fn in_waves(&self) -> impl Iterator<Item = (usize, &UnitId)> {
        let waves = self
            .planned
            .iter()
            .flat_map(|planned| planned.waves.iter().enumerate());
        waves.flat_map(|(at, wave)| wave.units.iter().map(move |unit| (at, unit)))
    }

    fn skipped_units(&self) -> impl Iterator<Item = &UnitId> {
        self.plan
            .left_alone
            .iter()
            .filter(|left| left.stage == self.stage.name)
            .map(|left| &left.unit)
    }

    /// Whether a unit that runs that needs nothing of this stage: it is what the stage gives, or what one after
    /// it gives.
    fn satisfies_stage(&self, runs: &Revision) -> bool {
        let stages: Vec<&StageSpec> = self.ask.target.stages().collect();
        let here = stages.iter().position(|stage| stage.name == self.stage.name);
        stages
            .iter()
            .enumerate()
            .any(|(at, stage)| Some(at) >= here && stage.kind == self.stage.kind && stage.revision == *runs)
    }

    fn units(&self, findings: &mut Vec<Finding>) {
        let snapshot = self.ask.snapshot;
        let mut seen = BTreeSet::new();
        for unit in self.in_waves().map(|(_, unit)| unit).chain(self.skipped_units()) {
            if !seen.insert(unit) {
                findings.push(self.found(Fault::UnitTwice, unit.as_str()));
            }
        }
        for (_, unit) in snapshot.of_kind(&self.stage.kind) {
            let done = unit.state == UnitState::Serving
                && unit
                    .revision
                    .as_ref()
                    .is_some_and(|runs| self.satisfies_stage(runs));
            if !done && !seen.contains(&unit.id) && self.ask.target.is_for(self.stage, &unit.id) {
                findings.push(self.found(Fault::UnitMissing, unit.id.as_str()));
            }
        }
        for (_, id) in self.in_waves() {
            let why = match snapshot.find(id).map(|ix| snapshot.unit(ix)) {
                None => "it is not in the snapshot",
                Some(unit) if unit.kind != self.stage.kind => "it is of another kind",
                Some(unit) if unit.untouchable.is_some() || self.ask.aside.contains_key(id) => {
                    "it must be skipped"
                }
                Some(_) if !self.ask.target.is_for(self.stage, id) => "it was not selected",
                Some(unit) if unit.state != UnitState::Serving => "it does not serve",
                Some(unit)
                    if unit
                        .revision
                        .as_ref()
                        .is_some_and(|runs| self.satisfies_stage(runs)) =>
                {
                    "it is already on the target"
                }
                Some(_) => continue,
            };
            findings.push(self.found(Fault::UnitUncalledFor, format!("{id}: {why}")));
        }
    }

    fn waves(&self, findings: &mut Vec<Finding>) {
        let PlanningInput { snapshot, policy, .. } = *self.ask;
        let Some(planned) = self.planned else { return };
        let before = self.ask.earned.get(&self.stage.name).copied().unwrap_or(0);
        let mut highest = 0;
        let waves = planned.waves.iter();
        let sets: Vec<Vec<Ix>> = waves
            .map(|wave| wave.units.iter().filter_map(|id| snapshot.find(id)).collect())
            .collect();
        let budgets = snapshot.budgets_once_recovered();
        let permitted = budgets.permit_each(&snapshot.down(), &sets);
        for (at, ((earned, set), permitted)) in (before..).zip(sets).zip(permitted).enumerate() {
            let name = format!("wave {}", at + 1);
            if let Err(violation) = permitted {
                let text = snapshot.describe_violation(budgets, &violation);
                findings.push(self.found(Fault::OverBudget, format!("{name}: {text}")));
            }
            if self.stage.width == Width::Single && set.len() > 1 {
                findings.push(self.found(Fault::TwoAtOnce, format!("{name}: {} units", set.len())));
            }
            for (fault, detail) in self.against_policy(policy, &set, earned) {
                findings.push(self.found(fault, format!("{name}: {detail}")));
            }
            let precedence = set.iter().map(|ix| snapshot.unit(*ix).precedence);
            let (low, high) = (
                precedence.clone().min().unwrap_or(0),
                precedence.max().unwrap_or(0),
            );
            if low < highest || low != high {
                findings.push(self.found(Fault::PrecedenceBroken, name));
            }
            highest = highest.max(high);
        }
    }

    /// What a policy has against units that are down together after so many waves.
    fn against_policy(&self, policy: &Policy, set: &[Ix], earned: u32) -> Vec<(Fault, String)> {
        let mut said = Vec::new();
        let snapshot = self.ask.snapshot;
        let of_kind = || snapshot.of_kind(&self.stage.kind).map(|(_, unit)| unit);
        let down = of_kind().filter(|unit| unit.state != UnitState::Serving).count();
        let parallel = policy.parallel(&self.stage.kind, of_kind().count() as u32);
        if down + set.len() > parallel as usize {
            let detail = format!("{} units and {down} down already, at most {parallel}", set.len());
            said.push((Fault::OverParallel, detail));
        }
        let cap = match policy.growth {
            Growth::None => u32::MAX,
            Growth::Double => 2_u32.saturating_pow(earned),
        };
        if set.len() > cap as usize {
            let detail = format!("{} units where {cap} are earned", set.len());
            said.push((Fault::GrowthSkipped, detail));
        }
        for (level, limit) in &policy.max_domains {
            let domain = |ix: Ix| {
                let unit = snapshot.unit(ix);
                unit.domains
                    .get(level)
                    .cloned()
                    .unwrap_or_else(|| unit.id.to_string())
            };
            let already: BTreeSet<_> = snapshot.down().iter().map(domain).collect();
            let fresh: BTreeSet<_> = set
                .iter()
                .map(|ix| domain(*ix))
                .filter(|d| !already.contains(d))
                .collect();
            if !fresh.is_empty() && already.len() + fresh.len() > *limit as usize {
                let detail = format!(
                    "{} of level {level}, at most {limit}",
                    already.len() + fresh.len()
                );
                said.push((Fault::OverDomains, detail));
            }
        }
        if let Some(percent) = policy.max_reduced_redundancy
            && set.len() > 1
        {
            let budgets = snapshot.budgets_once_recovered();
            let touched = |b: &usize| budgets.members(*b).any(|(unit, _)| set.contains(&unit));
            let count: u64 = (0..budgets.len())
                .filter(touched)
                .map(|b| u64::from(budgets.share(b)))
                .sum();
            let share = budgets.shares() * u64::from(percent) / 100;
            if count > share && count > self.largest_share() {
                said.push((
                    Fault::OverReducedRedundancy,
                    format!("{count} of at most {share}"),
                ));
            }
        }
        said
    }

    /// The most placement groups that one unit of the stage touches: so many are always let through.
    fn largest_share(&self) -> u64 {
        let budgets = self.ask.snapshot.budgets_once_recovered();
        let mut touches = vec![0_u64; self.ask.snapshot.units().len()];
        for budget in 0..budgets.len() {
            for (unit, _) in budgets.members(budget) {
                touches[unit.at()] += u64::from(budgets.share(budget));
            }
        }
        self.ask
            .snapshot
            .of_kind(&self.stage.kind)
            .map(|(ix, _)| touches[ix.at()])
            .max()
            .unwrap_or(0)
    }

    fn doors(&self, findings: &mut Vec<Finding>) {
        let Some(door) = &self.stage.door_before_last else {
            return;
        };
        if self.stage.gates.is_empty() {
            findings.push(self.found(Fault::DoorWithoutGate, door.name.as_str()));
        }
        let Some(planned) = self.planned else { return };
        if self.skipped_units().next().is_none()
            && planned
                .waves
                .last()
                .is_some_and(|wave| wave.door.as_ref() != Some(door))
        {
            findings.push(self.found(Fault::DoorUnmarked, format!("{} before the last unit", door.name)));
        }
    }
}
