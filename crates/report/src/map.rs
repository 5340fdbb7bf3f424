//! The map: units with a value each, on their hosts, in their failure domains.

use std::collections::{BTreeMap, BTreeSet};

use stagger_core::model::{Kind, Topology, UnitId};

use crate::names::natural_key;

/// Units with a value each: the state, or the number of the wave.
pub type Cells<'a, C> = Vec<(&'a UnitId, C)>;

/// A block of the map: a domain with its hosts, or units of one kind without a known location.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MapGroup<'a, C> {
    /// The domain's name, or that of the kind; empty: hosts are in no domain.
    pub name: &'a str,
    /// Its hosts with their units; of a kind one without a name.
    pub hosts: Vec<(&'a str, Cells<'a, C>)>,
}

impl<C: Copy> MapGroup<'_, C> {
    /// The values of all its units.
    pub fn cells(&self) -> impl Iterator<Item = C> {
        self.hosts
            .iter()
            .flat_map(|(_, units)| units)
            .map(|(_, cell)| *cell)
    }
}

/// Domains first, each with its hosts, by their names and the numbers in them; then kinds of units that are on no host, in the order
/// given.
pub fn groups<'a, C: Copy>(
    topology: &'a Topology,
    by_kind: Vec<(&'a Kind, Cells<'a, C>)>,
) -> Vec<MapGroup<'a, C>> {
    let cells: BTreeMap<&UnitId, C> = by_kind.iter().flat_map(|(_, units)| units).copied().collect();
    let mut placed: BTreeSet<&UnitId> = BTreeSet::new();
    let mut domains: BTreeMap<&str, Vec<(&str, Cells<'_, C>)>> = BTreeMap::new();
    for host in &topology.hosts {
        let known = host.units.iter().filter_map(|id| cells.get_key_value(id));
        let units: Cells<'_, C> = known.map(|(id, cell)| (*id, *cell)).collect();
        if units.is_empty() {
            continue;
        }
        placed.extend(units.iter().map(|(id, _)| *id));
        let within = host.within.as_deref().unwrap_or_default();
        domains.entry(within).or_default().push((&host.name, units));
    }
    let mut groups: Vec<MapGroup<'_, C>> = domains
        .into_iter()
        .map(|(name, mut hosts)| {
            hosts.sort_by_cached_key(|host| natural_key(host.0));
            MapGroup { name, hosts }
        })
        .collect();
    groups.sort_by_cached_key(|group| natural_key(group.name));
    for (kind, mut units) in by_kind {
        units.retain(|(id, _)| !placed.contains(id));
        if !units.is_empty() {
            groups.push(MapGroup {
                name: kind.as_str(),
                hosts: vec![("", units)],
            });
        }
    }
    groups
}
