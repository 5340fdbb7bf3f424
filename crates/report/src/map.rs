//! The map: units with their states, on their hosts, and these in the domains above.

use std::collections::{BTreeMap, BTreeSet};

use stagger_core::model::UnitId;

use crate::History;
use crate::history::UnitState;

/// Units with their states.
pub type Cells<'a> = Vec<(&'a UnitId, UnitState)>;

/// What the map draws together: a domain with its hosts, or units of one kind of which nobody said where they are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group<'a> {
    /// The domain's name, or that of the kind; empty: hosts are in no domain.
    pub name: &'a str,
    /// Its hosts with their units; of a kind one without a name.
    pub hosts: Vec<(&'a str, Cells<'a>)>,
}

impl Group<'_> {
    /// The states of all its units.
    pub fn states(&self) -> impl Iterator<Item = UnitState> {
        self.hosts
            .iter()
            .flat_map(|(_, units)| units)
            .map(|(_, state)| *state)
    }
}

/// Domains first, then kinds of units that are on no host, in the order in which their stages are planned. Only units that a
/// plan has named.
pub fn groups(history: &History) -> Vec<Group<'_>> {
    let mut placed: BTreeSet<&UnitId> = BTreeSet::new();
    let mut domains: BTreeMap<&str, Vec<(&str, Cells<'_>)>> = BTreeMap::new();
    for host in &history.topology.hosts {
        let known = host.units.iter().filter_map(|id| history.units.get_key_value(id));
        let units: Cells<'_> = known.map(|(id, unit)| (id, unit.state)).collect();
        if units.is_empty() {
            continue;
        }
        placed.extend(units.iter().map(|(id, _)| *id));
        let within = host.within.as_deref().unwrap_or_default();
        domains.entry(within).or_default().push((&host.name, units));
    }
    let mut groups: Vec<Group<'_>> = domains
        .into_iter()
        .map(|(name, hosts)| Group { name, hosts })
        .collect();
    for (kind, mut units) in history.by_kind() {
        units.retain(|(id, _)| !placed.contains(id));
        if !units.is_empty() {
            groups.push(Group {
                name: kind.as_str(),
                hosts: vec![("", units)],
            });
        }
    }
    groups
}
