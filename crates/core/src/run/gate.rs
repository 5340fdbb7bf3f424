//! Gates that are shut.

use crate::model::{ConditionName, Gate, Revision, Snapshot, UnitId, UnitState, Verdict};

/// The name of the gate that every wave has: its units serve on the revision they should have.
pub(super) const UNITS_SERVING: &str = "units-serving";

/// What a unit of a wave must be for its wave to pass.
#[derive(Debug, Clone, Copy)]
pub(super) enum ExpectedUnit<'a> {
    /// It serves on that revision.
    On(&'a Revision),
    /// It serves, on whatever it runs.
    Serving,
    /// Anything will do.
    Nothing,
}

/// The gates that are shut, each with its why.
pub(super) fn closed_gates(gates: &[Gate], snapshot: &Snapshot) -> Vec<(ConditionName, String)> {
    closed_gates_without(gates, snapshot, &[])
}

/// The gates that would be shut if these units were up.
pub(super) fn closed_gates_without(
    gates: &[Gate],
    snapshot: &Snapshot,
    down: &[&UnitId],
) -> Vec<(ConditionName, String)> {
    gates
        .iter()
        .map(|gate| snapshot.condition(&gate.condition))
        .filter(|condition| !condition.holds_but_for(down))
        .map(|condition| {
            // That it does not hold is obvious; that it is unknown is not.
            let why = match condition.verdict {
                Verdict::Unknown => format!("unknown: {}", condition.why),
                Verdict::Yes | Verdict::No => condition.why,
            };
            (condition.name, why)
        })
        .collect()
}

/// The units that are not what they should be, each with its why.
pub(super) fn not_serving<'a>(
    units: impl IntoIterator<Item = (&'a UnitId, ExpectedUnit<'a>)>,
    snapshot: &Snapshot,
) -> Vec<(UnitId, String)> {
    let mut found = Vec::new();
    for (id, wanted) in units {
        if matches!(wanted, ExpectedUnit::Nothing) {
            continue;
        }
        let why = match snapshot.find(id).map(|ix| snapshot.unit(ix)) {
            None => "it is gone".to_owned(),
            Some(unit) => match (unit.state, wanted) {
                (UnitState::Down, _) => "it is down".to_owned(),
                (UnitState::Unknown, _) => "whether it serves is unknown".to_owned(),
                (UnitState::Serving, ExpectedUnit::Serving | ExpectedUnit::Nothing) => continue,
                (UnitState::Serving, ExpectedUnit::On(revision))
                    if unit.revision.as_ref() == Some(revision) =>
                {
                    continue;
                }
                (UnitState::Serving, ExpectedUnit::On(revision)) => {
                    let runs = unit.revision.as_ref().map_or("something unknown", |r| r.as_str());
                    format!("it runs {runs}, not {revision}")
                }
            },
        };
        found.push((id.clone(), why));
    }
    found
}

/// The gate for units in words: `osd.3: it is down; osd.7: it is down`.
pub(super) fn as_gate(units: &[(UnitId, String)]) -> Option<(ConditionName, String)> {
    let name = ConditionName::new(UNITS_SERVING).ok()?;
    let text: Vec<_> = units
        .iter()
        .take(8)
        .map(|(unit, why)| format!("{unit}: {why}"))
        .collect();
    let more = if units.len() > 8 {
        format!(" and {} more", units.len() - 8)
    } else {
        String::new()
    };
    (!units.is_empty()).then(|| (name, format!("{}{more}", text.join("; "))))
}
