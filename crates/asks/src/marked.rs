//! Facts in which what others claim counts as down.

use stagger_core::model::{Ix, Snapshot, SnapshotError, Unit, UnitState};

/// The same snapshot with these units down. One whose state is unknown stays unknown: both count as down, and nobody
/// says yes to it.
///
/// # Errors
/// None of a snapshot that was one before.
pub fn with_down(snapshot: Snapshot, down: &[Ix]) -> Result<Snapshot, SnapshotError> {
    let serves = |at: &&Ix| snapshot.unit(**at).state == UnitState::Serving;
    if !down.iter().any(|at| serves(&at)) {
        return Ok(snapshot);
    }
    let mut units: Vec<Unit> = snapshot.units().to_vec();
    for at in down {
        if units[at.at()].state == UnitState::Serving {
            units[at.at()].state = UnitState::Down;
        }
    }
    let kinds: std::collections::BTreeSet<_> = units.iter().map(|unit| unit.kind.clone()).collect();
    let durations = kinds
        .into_iter()
        .filter_map(|kind| Some((kind.clone(), snapshot.duration(&kind)?)))
        .collect();
    let mut marked = Snapshot::new(
        snapshot.cluster().clone(),
        snapshot.observed_at(),
        snapshot.generation().to_owned(),
        units,
        snapshot.budgets().clone(),
        snapshot.conditions().cloned().collect(),
        durations,
    )?;
    if let Some(capacity) = snapshot.capacity() {
        marked = marked.with_capacity(capacity.clone())?;
    }
    if snapshot.recovers() {
        marked = marked.with_recovered(snapshot.budgets_once_recovered().clone())?;
    }
    Ok(marked
        .with_terms(snapshot.terms().clone())
        .with_absent(snapshot.absent().iter().cloned())
        .with_interruptions(snapshot.interruptions().iter().cloned())
        .with_bystanders(snapshot.bystanders().iter().cloned())
        .with_drained(snapshot.drained().iter().cloned()))
}
