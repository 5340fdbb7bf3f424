//! The locations of units.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::{Snapshot, Unit, UnitId};

/// The level of failure domains on which units are, in every system that names one.
const HOST: &str = "host";

/// Where units are: on hosts, and these in domains above them. Units that are on no host are not in it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Topology {
    /// The level above hosts, where there is one that distinguishes them: `rack`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub above: Option<String>,
    /// The hosts, by the domain above and by name.
    pub hosts: Vec<HostUnits>,
}

/// A host and its units.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct HostUnits {
    /// Its name, which is the cluster's own and may hold any character.
    pub name: String,
    /// The domain above it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub within: Option<String>,
    /// Its units, as people count.
    pub units: Vec<UnitId>,
}

impl Topology {
    /// Where the units of that snapshot are.
    pub fn of(snapshot: &Snapshot) -> Self {
        let placed = || {
            let units = snapshot.units().iter();
            units.filter_map(|unit| Some((unit, unit.domains.get(HOST)?)))
        };
        let mut levels: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for (level, domain) in placed().flat_map(|(unit, _)| &unit.domains) {
            if level != HOST {
                levels.entry(level).or_default().insert(domain);
            }
        }
        // Racks rather than capacity, and no level at all of which there is one.
        let above = levels.into_iter().filter(|(_, domains)| domains.len() > 1);
        let above = above.max_by_key(|(_, domains)| domains.len());
        let above = above.map(|(level, _)| level.to_owned());
        let mut hosts: BTreeMap<(Option<&String>, &String), Vec<&Unit>> = BTreeMap::new();
        for (unit, host) in placed() {
            let within = above.as_ref().and_then(|level| unit.domains.get(level));
            hosts.entry((within, host)).or_default().push(unit);
        }
        let hosts = hosts.into_iter().map(|((within, name), units)| HostUnits {
            name: name.clone(),
            within: within.cloned(),
            units: units.into_iter().map(|unit| unit.id.clone()).collect(),
        });
        Self {
            hosts: hosts.collect(),
            above,
        }
    }

    /// Whether no location is known.
    pub fn is_empty(&self) -> bool {
        self.hosts.is_empty()
    }
}
