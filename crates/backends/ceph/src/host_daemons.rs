//! The daemons of each host, as last observed.

use std::collections::{BTreeMap, BTreeSet};

use stagger_core::model::{Unit, UnitId, UnitState};

use crate::translate::hosts::host_name;

/// The daemons of a cluster, where they are and whether they serve.
#[derive(Debug, Clone, Default)]
pub(crate) struct CarriedDaemons(BTreeMap<UnitId, (String, UnitState)>);

impl CarriedDaemons {
    /// Of these daemons. `places`: where each is.
    pub(crate) fn of(daemons: &[Unit], places: &BTreeMap<UnitId, String>) -> Self {
        let placed = daemons.iter().filter_map(|unit| {
            let host = places.get(&unit.id)?;
            Some((unit.id.clone(), (host.clone(), unit.state)))
        });
        Self(placed.collect())
    }

    /// Whether nothing was observed yet.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The daemons that go down with these units: a daemon itself, and all that a host carries.
    pub(crate) fn affected_by(&self, units: &[UnitId]) -> Vec<UnitId> {
        let (hosts, daemons): (Vec<&UnitId>, Vec<&UnitId>) =
            units.iter().partition(|unit| host_name(unit).is_some());
        let hosts: BTreeSet<&str> = hosts.into_iter().filter_map(host_name).collect();
        let of_hosts = self
            .0
            .iter()
            .filter(|(_, (host, _))| hosts.contains(host.as_str()));
        let mut all: Vec<UnitId> = daemons
            .into_iter()
            .chain(of_hosts.map(|(unit, _)| unit))
            .cloned()
            .collect();
        all.sort_by(|a, b| a.natural_key().cmp(&b.natural_key()));
        all.dedup();
        all
    }

    /// Whether that daemon was down: missing in all of the cluster's lists, or without an answer.
    pub(crate) fn is_down(&self, unit: &UnitId) -> bool {
        self.0
            .get(unit)
            .is_some_and(|(_, state)| *state == UnitState::Down)
    }

    /// The hosts of which each daemon serves.
    pub(crate) fn serving_hosts(&self) -> BTreeSet<String> {
        let mut hosts: BTreeMap<&str, bool> = BTreeMap::new();
        for (host, state) in self.0.values() {
            let all = hosts.entry(host).or_insert(true);
            *all &= *state == UnitState::Serving;
        }
        let serving = hosts.into_iter().filter(|(_, serves)| *serves);
        serving.map(|(host, _)| host.to_owned()).collect()
    }
}
