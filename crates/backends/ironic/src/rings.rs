//! Hash rings: which conductors stand in for each other.
//!
//! Ironic assigns a node to a conductor by a ring for each conductor group and driver
//! (`ironic.common.hash_ring`): while a conductor is away, the others of its rings serve its nodes. A ring
//! without nodes is irrelevant.

use std::collections::{BTreeMap, BTreeSet};

use stagger_core::model::{IdError, Interruption};

use crate::config::{IronicConfig, ServiceRole};
use crate::facts::{DatabaseFacts, IronicFacts};
use crate::services::{groups, unit_id};

/// The conductors of a group that have a driver in common.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ring<'a> {
    group: String,
    /// `None`: of no driver in particular, since nobody could tell who has which, or the group has no nodes.
    driver: Option<String>,
    /// Their names in the configuration. A conductor that has stopped has taken its drivers out of the database: it
    /// counts in every ring of its group.
    pub(crate) conductors: BTreeSet<&'a str>,
    nodes: u64,
}

impl std::fmt::Display for Ring<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.group.is_empty(), &self.driver) {
            (true, None) => f.write_str("no group"),
            (true, Some(driver)) => write!(f, "no group, driver {driver}"),
            (false, None) => write!(f, "group {}", self.group),
            (false, Some(driver)) => write!(f, "group {}, driver {driver}", self.group),
        }
    }
}

/// All rings that matter.
pub(crate) fn rings<'a>(facts: &IronicFacts, config: &'a IronicConfig) -> Vec<Ring<'a>> {
    let nothing = DatabaseFacts::default();
    let database = facts.database.get().unwrap_or(&nothing);
    let groups = groups(facts, config);
    let mut by_group: BTreeMap<&str, BTreeSet<&'a str>> = BTreeMap::new();
    for conductor in &config.conductors {
        let group = groups.get(&conductor.name).map_or("", String::as_str);
        by_group.entry(group).or_default().insert(&conductor.name);
    }
    let mut all = Vec::new();
    for (group, conductors) in by_group {
        let has = |name: &str, driver: &str| {
            drivers_of(name, database, config).is_none_or(|all| all.contains(driver))
        };
        let with_nodes = database.nodes.iter().filter(|one| one.group == group);
        let before = all.len();
        for one in with_nodes {
            let of_driver = |name: &&str| has(name, &one.driver);
            let conductors: BTreeSet<&str> = conductors.iter().copied().filter(of_driver).collect();
            // Nobody has its driver any more: its nodes are served by nobody, whoever is away.
            if !conductors.is_empty() {
                all.push(Ring {
                    group: group.to_owned(),
                    driver: Some(one.driver.clone()),
                    conductors,
                    nodes: one.nodes,
                });
            }
        }
        if all.len() == before {
            all.push(Ring {
                group: group.to_owned(),
                driver: None,
                conductors,
                nodes: 0,
            });
        }
    }
    all
}

/// The drivers that a conductor has; `None`: none are written down for it.
fn drivers_of<'a>(
    name: &str,
    database: &'a DatabaseFacts,
    config: &IronicConfig,
) -> Option<&'a BTreeSet<String>> {
    let mut registered = database.drivers.iter();
    registered
        .find(|(registered, _)| {
            config
                .conductor_registered(registered)
                .is_some_and(|one| one.name == name)
        })
        .map(|(_, drivers)| drivers)
}

/// The conductors that serve every node of that one while it is away.
pub(crate) fn stand_ins<'a>(rings: &[Ring<'a>], conductor: &str) -> BTreeSet<&'a str> {
    let mut own = rings.iter().filter(|ring| ring.conductors.contains(conductor));
    let Some(first) = own.next() else {
        return BTreeSet::new();
    };
    let all = own.fold(first.conductors.clone(), |all, ring| &all & &ring.conductors);
    all.into_iter().filter(|name| *name != conductor).collect()
}

/// Whether a person permits that a service is away with nobody in its stead.
pub(crate) fn is_permitted(permitted: &BTreeSet<String>, role: ServiceRole, name: &str) -> bool {
    let sort = role.as_str();
    permitted.contains(sort) || permitted.contains(&format!("{sort}.{name}"))
}

/// Whether a service has no stand-in, and a person permits that it is away all the same. Of one that has a word permits
/// nothing.
pub(crate) fn absence_permitted(
    facts: &IronicFacts,
    config: &IronicConfig,
    permitted: &BTreeSet<String>,
    (role, name): (ServiceRole, &str),
) -> bool {
    let is_alone = match role {
        ServiceRole::Api => config.apis.len() == 1,
        ServiceRole::Conductor => stand_ins(&rings(facts, config), name).is_empty(),
    };
    is_alone && is_permitted(permitted, role, name)
}

/// What is gone while a service without a stand-in has its turn.
///
/// # Errors
/// A service whose name is no word.
pub(crate) fn interruptions(
    rings: &[Ring<'_>],
    config: &IronicConfig,
    permitted: &BTreeSet<String>,
) -> Result<Vec<Interruption>, IdError> {
    let mut all = Vec::new();
    let mut add = |role: ServiceRole, name: &str, what: String| -> Result<(), IdError> {
        all.push(Interruption {
            name: format!("{}.{name}", role.as_str()),
            sort: role.as_str().to_owned(),
            units: vec![unit_id(role, name)?],
            what,
            permitted: is_permitted(permitted, role, name),
        });
        Ok(())
    };
    for conductor in &config.conductors {
        let name = conductor.name.as_str();
        let alone = |ring: &&Ring<'_>| ring.conductors.len() == 1 && ring.conductors.contains(name);
        let of: Vec<String> = rings
            .iter()
            .filter(alone)
            .map(|ring| match ring.nodes {
                0 => ring.to_string(),
                nodes => format!("{ring}: {nodes} nodes"),
            })
            .collect();
        if !of.is_empty() {
            let what = format!(
                "while {name} restarts no conductor serves its nodes: it is the only one of {}",
                of.join("; ")
            );
            add(ServiceRole::Conductor, name, what)?;
        }
    }
    if let [only] = &config.apis[..] {
        let what = format!("while {} restarts no API answers: it is the only one", only.name);
        add(ServiceRole::Api, &only.name, what)?;
    }
    Ok(all)
}
