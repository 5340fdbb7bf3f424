//! Whether a plan reaches its target, and what prevents it.
//!
//! A later part waits for each unit that an earlier stage skips. The plan says so before the run starts: a
//! run that discovers it half-way has already passed points of no return.

use std::collections::{BTreeMap, BTreeSet};

use super::{Interrupted, LeftAlone, Plan, PlannedPart};
use crate::model::{Code, PartName, Policy, Reason, Snapshot, Target, Terms, UnitId};

/// Notes which part waits for each skipped unit: the next part that has work to do, or that skips units
/// itself. No part waits for a stage of hosts with guests, since each of its visits stands alone.
pub(super) fn note_waits(target: &Target, parts: &[PlannedPart], left_alone: &mut [LeftAlone]) {
    let is_to_do: Vec<bool> = target
        .parts
        .iter()
        .map(|part| {
            let planned = parts.iter().any(|planned| planned.name() == part.name());
            planned || left_alone.iter().any(|left| left.stage == *part.name())
        })
        .collect();
    for left in left_alone {
        let part = target.parts.iter().position(|part| *part.name() == left.stage);
        let Some(at) = part.filter(|_| target.stage(&left.stage).is_some_and(|s| s.maintenance.is_none()))
        else {
            continue;
        };
        let later = (at + 1..target.parts.len()).find(|later| is_to_do[*later]);
        left.needed_by = later.map(|later| target.parts[later].name().clone());
    }
}

/// The services that are interrupted while these units are down, and for how long each time.
pub(super) fn interrupted(
    snapshot: &Snapshot,
    parts: &[PlannedPart],
    left_alone: &[LeftAlone],
) -> Vec<Interrupted> {
    if snapshot.interruptions().is_empty() {
        return Vec::new();
    }
    let waves = parts.iter().flat_map(|part| match part {
        PlannedPart::Stage(stage) => stage.waves.as_slice(),
        PlannedPart::Step(_) => &[],
    });
    let mut concerned: BTreeSet<&UnitId> = waves.flat_map(|wave| &wave.units).collect();
    concerned.extend(left_alone.iter().map(|left| &left.unit));
    let told = snapshot.interruptions().iter().filter_map(|interruption| {
        let units: Vec<_> = interruption
            .units
            .iter()
            .filter(|unit| concerned.contains(unit))
            .collect();
        let seconds = units.iter().filter_map(|unit| {
            let kind = &snapshot.unit(snapshot.find(unit)?).kind;
            Some(snapshot.duration(kind).unwrap_or(super::USUAL_VISIT).as_secs())
        });
        let seconds = u32::try_from(seconds.max()?).unwrap_or(u32::MAX);
        Some(Interrupted {
            name: interruption.name.clone(),
            sort: interruption.sort.clone(),
            units: units.len() as u32,
            seconds,
            what: interruption.what.clone(),
            permitted: interruption.permitted,
        })
    });
    told.collect()
}

/// Units named one by one.
const NAMED: usize = 8;

/// Why nothing is begun: what keeps the plan from its target, and what would help. Empty where it gets there, and
/// where the policy asks for what can be done.
pub fn blocking_reasons(plan: &Plan, policy: &Policy, terms: &Terms) -> Vec<Reason> {
    if policy.partial {
        return Vec::new();
    }
    let mut groups: BTreeMap<(&PartName, &PartName, &Reason), Vec<&LeftAlone>> = BTreeMap::new();
    // A unit that waits for an approval is described by the interruption itself.
    for left in plan
        .obstacles()
        .filter(|left| left.reason.code != Code::InterruptionNotPermitted)
    {
        if let Some(needed_by) = &left.needed_by {
            groups
                .entry((&left.stage, needed_by, &left.reason))
                .or_default()
                .push(left);
        }
    }
    let told = groups.into_iter().map(|((_, needed_by, reason), left)| {
        let names: Vec<&str> = left.iter().take(NAMED).map(|left| left.unit.as_str()).collect();
        let more = match left.len() {
            few @ 0..=NAMED => String::from(if few == 1 { " is" } else { " are" }),
            many => format!(" and {} more are", many - NAMED),
        };
        let detail = format!(
            "{}{more} skipped, and {needed_by} waits for that. {reason}. What would help: {}",
            names.join(" "),
            reason.code.remedy(terms)
        );
        Reason::new(Code::TargetOutOfReach, detail)
    });
    let unasked = plan
        .interruptions
        .iter()
        .filter(|interrupted| !interrupted.permitted);
    unasked.map(not_permitted).chain(told).collect()
}

fn not_permitted(interrupted: &Interrupted) -> Reason {
    let Interrupted {
        name,
        sort,
        units,
        seconds,
        what,
        ..
    } = interrupted;
    let each = if *units > 1 {
        format!(", each of {units} times")
    } else {
        String::new()
    };
    let detail = format!(
        "{what}, for about {seconds} s{each}. `--interrupt {name}` permits it, and `--interrupt {sort}` each of that sort"
    );
    Reason::new(Code::InterruptionNotPermitted, detail)
}
