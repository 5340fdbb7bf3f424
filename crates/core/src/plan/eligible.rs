//! Step 1: which units of a stage are visited, and why the others are not.

use std::collections::BTreeMap;

use crate::model::{Code, Interruption, Ix, Reason, Snapshot, StageSpec, Target, Unit, UnitId, UnitState};

/// The units of a stage, sorted out.
#[derive(Debug, Default)]
pub(super) struct Selected {
    /// To be visited.
    pub(super) todo: Vec<Ix>,
    /// In need of the change, and not to be touched.
    pub(super) left_alone: Vec<(Ix, Reason)>,
    /// How many units of the kind there are.
    pub(super) all: u32,
    /// How many of the kind do not serve now.
    pub(super) down: u32,
}

/// Sorts out the units of a stage. `aside` names those that the run has set aside.
pub(super) fn select(
    snapshot: &Snapshot,
    target: &Target,
    stage: &StageSpec,
    aside: &BTreeMap<UnitId, Reason>,
) -> Selected {
    let mut selected = Selected::default();
    let asked_for = unapproved_interruptions(snapshot);
    for (ix, unit) in snapshot.of_kind(&stage.kind) {
        selected.all += 1;
        selected.down += u32::from(unit.state != UnitState::Serving);
        if !needs_change(unit, target, stage) {
            continue;
        }
        let left = skip_reason(unit, aside)
            .or_else(|| asked_for.get(&unit.id).copied().map(not_permitted))
            .or_else(|| because_of_guests(snapshot, unit, stage));
        match left {
            Some(reason) => selected.left_alone.push((ix, reason)),
            None => selected.todo.push(ix),
        }
    }
    selected
}

/// The units whose visit interrupts a service without approval.
fn unapproved_interruptions(snapshot: &Snapshot) -> BTreeMap<&UnitId, &Interruption> {
    let mut asked_for = BTreeMap::new();
    for interruption in snapshot.interruptions().iter().filter(|found| !found.permitted) {
        for unit in &interruption.units {
            asked_for.entry(unit).or_insert(interruption);
        }
    }
    asked_for
}

/// Why a unit waits for a person's word.
pub(super) fn not_permitted(interruption: &Interruption) -> Reason {
    let Interruption { name, sort, what, .. } = interruption;
    Reason::new(
        Code::InterruptionNotPermitted,
        format!("{what}. `--interrupt {name}` permits it, and `--interrupt {sort}` each of that sort"),
    )
}

/// Whether the stage has nothing more to do for a unit: it serves on the wanted revision, or on that of a later stage.
fn is_done(unit: &Unit, target: &Target, stage: &StageSpec) -> bool {
    let Some(runs) = &unit.revision else { return false };
    let passed = || target.later_revisions(stage).any(|later| later == runs);
    unit.state == UnitState::Serving && (*runs == stage.revision || passed())
}

/// Whether the stage is for that unit, and has something to do for it.
pub(super) fn needs_change(unit: &Unit, target: &Target, stage: &StageSpec) -> bool {
    target.is_for(stage, &unit.id) && !is_done(unit, target, stage)
}

/// Why a host must be left alone because of what it carries.
fn because_of_guests(snapshot: &Snapshot, unit: &Unit, stage: &StageSpec) -> Option<Reason> {
    let capacity = snapshot.capacity()?;
    let moving = &stage.maintenance.as_ref()?.moving;
    moving.forbids(capacity, capacity.find(&unit.id)?)
}

fn skip_reason(unit: &Unit, aside: &BTreeMap<UnitId, Reason>) -> Option<Reason> {
    if let Some(reason) = aside.get(&unit.id).or(unit.untouchable.as_ref()) {
        return Some(reason.clone());
    }
    match unit.state {
        UnitState::Unknown => Some(Reason::new(Code::UnitUnknown, "whether it serves is unknown")),
        UnitState::Down => Some(Reason::new(
            Code::UnitDown,
            "it was already down; start it, or remove it from the cluster, then plan again",
        )),
        UnitState::Serving if unit.revision.is_none() => {
            Some(Reason::new(Code::RevisionUnknown, "what it runs is unknown"))
        }
        UnitState::Serving => None,
    }
}
