//! Step 2: the order of a stage's units, as groups one after another. Within a group the fewest waves are
//! sought.

use std::collections::BTreeMap;

use crate::model::{Growth, Ix, Order, Policy, Snapshot, StageSpec, Width};

/// Groups of units; a group is finished before the next begins.
pub(super) fn groups(snapshot: &Snapshot, stage: &StageSpec, policy: &Policy, todo: &[Ix]) -> Vec<Vec<Ix>> {
    let all = grouped(snapshot, stage, policy, todo);
    let Some(last) = last(snapshot, stage).filter(|last| todo.contains(last)) else {
        return all;
    };
    if all.len() == 1 && policy.growth == Growth::None {
        // Its wave comes last, with all units in it.
        return all;
    }
    let mut groups: Vec<Vec<Ix>> = all
        .into_iter()
        .map(|units| units.into_iter().filter(|unit| *unit != last).collect())
        .filter(|units: &Vec<Ix>| !units.is_empty())
        .collect();
    groups.push(vec![last]);
    groups
}

/// The unit whose wave is the last, if there is one.
pub(super) fn last(snapshot: &Snapshot, stage: &StageSpec) -> Option<Ix> {
    snapshot.find(stage.maintenance.as_ref()?.last.as_ref()?)
}

fn grouped(snapshot: &Snapshot, stage: &StageSpec, policy: &Policy, todo: &[Ix]) -> Vec<Vec<Ix>> {
    // Standbys before the active one, whatever the order.
    let mut by_precedence: BTreeMap<u32, Vec<Ix>> = BTreeMap::new();
    for unit in todo {
        by_precedence
            .entry(snapshot.unit(*unit).precedence)
            .or_default()
            .push(*unit);
    }
    let ordered = by_precedence.into_values().flat_map(|units| match &policy.order {
        Order::FewestWaves => vec![units],
        Order::ByDomain(level) => by_domain(snapshot, level, units),
        Order::List(list) => {
            let place = |unit: &Ix| {
                let id = &snapshot.unit(*unit).id;
                list.iter().position(|l| l == id).unwrap_or(list.len())
            };
            let mut units = units;
            units.sort_by_key(|unit| (place(unit), *unit));
            units.into_iter().map(|unit| vec![unit]).collect()
        }
    });
    match stage.width {
        Width::Single => ordered.flatten().map(|unit| vec![unit]).collect(),
        Width::Policy => ordered.collect(),
    }
}

fn by_domain(snapshot: &Snapshot, level: &str, units: Vec<Ix>) -> Vec<Vec<Ix>> {
    let mut domains: BTreeMap<Option<&str>, Vec<Ix>> = BTreeMap::new();
    for unit in units {
        let domain = snapshot.unit(unit).domains.get(level).map(String::as_str);
        domains.entry(domain).or_default().push(unit);
    }
    domains.into_values().collect()
}
