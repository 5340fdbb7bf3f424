//! The words: why a unit is where it is, what holds it, and what would free it.

use crate::model::{Ix, Snapshot, UnitId, Violation};
use crate::plan::{Plan, PlannedStage};

/// A budget in words: `placement group of pool rbd 2.1f (osd.0 osd.7 osd.9): 1 may be down`.
pub fn budget(snapshot: &Snapshot, budget: usize) -> String {
    let budgets = snapshot.budgets();
    let mut members: Vec<_> = budgets.members(budget).map(|(unit, _)| unit).collect();
    members.sort_unstable();
    let (shown, rest) = members.split_at(members.len().min(12));
    let names: Vec<_> = shown
        .iter()
        .map(|unit| snapshot.unit(*unit).id.as_str())
        .collect();
    let more = if rest.is_empty() {
        String::new()
    } else {
        format!(" and {} more", rest.len())
    };
    let may = match budgets.limit(budget) {
        0 => "none may be down".to_owned(),
        limit => format!("{limit} may be down"),
    };
    let group = budgets.group(budget);
    let name = budgets.name(budget);
    let label = if name.is_empty() {
        group.to_owned()
    } else {
        format!("{group} {name}")
    };
    format!("{label} ({}{more}): {may}", names.join(" "))
}

/// A violation in words.
pub fn violation(snapshot: &Snapshot, violation: &Violation) -> String {
    let Violation {
        budget: at,
        down,
        adds,
        limit: _,
    } = violation;
    let already = if *down > 0 {
        format!(", {down} down already")
    } else {
        String::new()
    };
    format!("{}{already}, and this takes {adds} more", budget(snapshot, *at))
}

/// Where a unit stands in a plan and what holds it there.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Explanation {
    /// Which unit.
    pub unit: UnitId,
    /// One sentence: in which wave it is, or that it is left alone.
    pub place: String,
    /// What holds it: the constraint, with its members.
    pub held_by: Vec<String>,
    /// What would free it.
    pub freed_by: Vec<String>,
}

/// Why a unit is where it is. `None`: there is no such unit in the snapshot.
pub fn explain(snapshot: &Snapshot, plan: &Plan, unit: &UnitId) -> Option<Explanation> {
    let ix = snapshot.find(unit)?;
    if let Some(left) = plan.left_alone.iter().find(|left| left.unit == *unit) {
        return Some(Explanation {
            unit: unit.clone(),
            place: format!("{unit} is left alone ({})", left.reason.slug),
            held_by: vec![left.reason.detail.clone()],
            freed_by: vec![freed_by_reason(&left.reason.slug)],
        });
    }
    let found = plan.stages().find_map(|stage| {
        let wave = stage.waves.iter().position(|wave| wave.units.contains(unit))?;
        Some((stage, wave))
    });
    let Some((stage, wave)) = found else {
        let revision = snapshot
            .unit(ix)
            .revision
            .as_ref()
            .map_or("an unknown revision", |r| r.as_str());
        return Some(Explanation {
            unit: unit.clone(),
            place: format!("{unit} has nothing to do: it serves on {revision}"),
            held_by: Vec::new(),
            freed_by: Vec::new(),
        });
    };
    let mut held_by = Vec::new();
    let mut freed_by = Vec::new();
    for (earlier, other) in stage.waves[..wave].iter().enumerate() {
        match why_not(snapshot, stage, ix, &other.units) {
            WhyNot::Broken(text, mates) => {
                held_by.push(format!("not in wave {}: {text}", earlier + 1));
                freed_by.push(format!(
                    "wave {} passing its gates: then {mates} serve again",
                    earlier + 1
                ));
            }
            WhyNot::Full => held_by.push(format!(
                "not in wave {}: it is full ({} of at most {})",
                earlier + 1,
                other.units.len(),
                stage.parallel
            )),
            WhyNot::Free => held_by.push(format!(
                "not in wave {}: growth, order, or no gain by it",
                earlier + 1
            )),
        }
        if held_by.len() == 5 {
            break;
        }
    }
    Some(Explanation {
        unit: unit.clone(),
        place: format!(
            "{unit} is in wave {} of {} of stage {}",
            wave + 1,
            stage.waves.len(),
            stage.name
        ),
        held_by,
        freed_by,
    })
}

enum WhyNot {
    Broken(String, String),
    Full,
    Free,
}

fn why_not(snapshot: &Snapshot, stage: &PlannedStage, unit: Ix, wave: &[UnitId]) -> WhyNot {
    let mut set: Vec<Ix> = wave.iter().filter_map(|id| snapshot.find(id)).collect();
    set.push(unit);
    match snapshot.budgets().permit(&snapshot.down(), &set) {
        Err(found) => {
            let mates: Vec<_> = snapshot
                .budgets()
                .members(found.budget)
                .filter(|(member, _)| *member != unit && set.contains(member))
                .map(|(member, _)| snapshot.unit(member).id.to_string())
                .collect();
            WhyNot::Broken(violation(snapshot, &found), mates.join(" and "))
        }
        Ok(()) if wave.len() as u32 >= stage.parallel => WhyNot::Full,
        Ok(()) => WhyNot::Free,
    }
}

fn freed_by_reason(slug: &str) -> String {
    match slug {
        "never-ok-to-stop" => {
            "more members of that budget serving, or a lower min_size where that is safe for your data"
        }
        "unit-down" => "starting it, or removing it from the cluster",
        "unit-unknown" | "revision-unknown" => {
            "an observation that tells: see the conditions in `stagger observe`"
        }
        "max-in-parallel-used-up" => "what is down coming back, or a larger max_in_parallel",
        _ => "what its reason names; see docs/reference/reasons.md",
    }
    .to_owned()
}
