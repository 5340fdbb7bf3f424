//! The facts of an Ironic; each part that cannot be observed has the reason.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use stagger_core::model::Fact;
use stagger_versioned::Version;

use crate::balancer::BalancerStatus;
use crate::in_flight::NodeInFlight;
use crate::records::IronicRecords;
use crate::release_code::ReleaseCode;

/// All facts of one look.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IronicFacts {
    /// When the look began.
    pub at: Timestamp,
    /// What each API service says, by the service's name.
    pub apis: BTreeMap<String, ApiReport>,
    /// The conductors that Ironic knows, by the name under which they are registered.
    pub conductors: Fact<BTreeMap<String, ConductorReport>>,
    /// What its database holds.
    pub database: Fact<DatabaseFacts>,
    /// The servers of the balancer.
    pub balancer: Fact<BalancerStatus>,
    /// The pin that each service's next start reads; empty: none.
    pub pins: BTreeMap<String, Fact<Option<String>>>,
    /// What stagger installed where, and how far it has come.
    pub records: Fact<IronicRecords>,
    /// What the code of the newest release among its services says about itself, where this program does not know that release.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<Fact<ReleaseCode>>,
}

impl IronicFacts {
    /// Why nothing is known of it, if so: no API service answers, and neither does its database.
    pub fn unreachable_reason(&self) -> Option<String> {
        let offered = self
            .apis
            .values()
            .any(|says| matches!(says, ApiReport::Offers(_)));
        match (&self.conductors, &self.database) {
            (Fact::No(api), Fact::No(database)) if !offered => Some(format!("{api}; {database}")),
            _ => None,
        }
    }
}

/// An API service, asked past the balancer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ApiReport {
    /// It answers, and offers versions up to this one. A pinned new one offers what an old one does.
    Offers(Version),
    /// Nobody listens there.
    Away(String),
    /// Unknown.
    Unclear(String),
}

/// A conductor, as the API lists it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConductorReport {
    /// Whether it has been heard of lately.
    pub alive: bool,
    /// Its group; empty for that without a name.
    pub group: String,
}

/// What the database holds.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DatabaseFacts {
    /// The revision of its schema.
    pub revision: String,
    /// Of each table that holds an object: how many rows have which version. `null` is a row without one.
    pub rows: BTreeMap<String, Rows>,
    /// The row of each conductor, by the name under which it is registered.
    pub conductors: BTreeMap<String, ConductorRow>,
    /// How many nodes each conductor has reserved: tasks are under way there.
    pub reserved: BTreeMap<String, u64>,
    /// The drivers (hardware types) that each conductor has enabled, by the name under which it is registered.
    #[serde(default)]
    pub drivers: BTreeMap<String, BTreeSet<String>>,
    /// How many nodes there are of each conductor group and driver.
    #[serde(default)]
    pub nodes: Vec<NodeCount>,
    /// The nodes in flight, those first that have been so for longest.
    #[serde(default)]
    pub in_flight: Vec<NodeInFlight>,
}

/// How many nodes have a conductor group and a driver in common.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeCount {
    /// The group; empty for that without a name.
    pub group: String,
    /// The driver: `ipmi`.
    pub driver: String,
    /// How many.
    pub nodes: u64,
}

/// How many rows of a table have which version.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rows {
    /// By version, as written.
    pub versions: BTreeMap<String, u64>,
    /// Those without one, which no tool of Ironic's can repair.
    pub null: u64,
}

impl Rows {
    /// How many are not in that version.
    pub fn count_outside(&self, version: Version) -> u64 {
        let version = version.to_string();
        let others = self.versions.iter().filter(|(of, _)| **of != version);
        others.map(|(_, rows)| rows).sum::<u64>() + self.null
    }

    /// Those that one who knows `newest` cannot read, with how many there are.
    pub fn unreadable_versions(&self, newest: Version) -> Vec<(String, u64)> {
        let unreadable = |text: &str| {
            let version: Result<Version, _> = text.parse();
            !version.is_ok_and(|version| newest.understands(version))
        };
        self.versions
            .iter()
            .filter(|(version, _)| unreadable(version))
            .map(|(version, rows)| (version.clone(), *rows))
            .collect()
    }
}

/// The row of a conductor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConductorRow {
    /// In which version it was written when the conductor started.
    pub version: Option<String>,
    /// Whether it counts as there.
    pub online: bool,
}

impl DatabaseFacts {
    /// How many rows have no version, by table.
    pub fn without_version(&self) -> Vec<(&str, u64)> {
        self.rows
            .iter()
            .filter(|(_, rows)| rows.null > 0)
            .map(|(table, rows)| (table.as_str(), rows.null))
            .collect()
    }

    /// How many rows are in another version than these.
    pub fn outdated_rows(&self, current: &BTreeMap<&str, Version>) -> BTreeMap<&str, u64> {
        self.rows
            .iter()
            .filter_map(|(table, rows)| {
                let left = rows.count_outside(*current.get(table.as_str())?);
                (left > 0).then_some((table.as_str(), left))
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_compared_by_number_and_what_is_no_version_is_not_readable() {
        let rows = Rows {
            versions: BTreeMap::from([
                ("1.9".to_owned(), 1),
                ("1.40".to_owned(), 2),
                ("1.41".to_owned(), 3),
                ("2.0".to_owned(), 4),
                ("odd".to_owned(), 5),
            ]),
            null: 6,
        };
        let beyond = rows.unreadable_versions(Version::new(1, 40));
        let names: Vec<_> = beyond.iter().map(|(version, _)| version.as_str()).collect();
        assert_eq!(names, ["1.41", "2.0", "odd"]);
        assert_eq!(rows.count_outside(Version::new(1, 41)), 18);
    }
}
