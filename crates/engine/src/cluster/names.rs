//! Checks that the names in a policy exist.

use std::collections::BTreeSet;

use stagger_core::model::{Order, Policy, Snapshot};

/// A policy names what the cluster does not have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the configuration names {name:?}, and there is no such {what}")]
pub struct UnknownName {
    /// What it would be: `kind of daemon`.
    pub what: String,
    /// As the policy has it.
    pub name: String,
    /// The name of such a thing that is most like it; `None`: there is none at all.
    pub nearest: Option<String>,
    /// All names of such things, if they are few enough to choose from.
    pub known: Vec<String>,
}

impl UnknownName {
    /// What to write instead.
    pub fn hint(&self) -> Option<String> {
        let nearest = self.nearest.as_ref()?;
        Some(if self.known.is_empty() {
            format!("the nearest is {nearest}")
        } else {
            format!("the nearest is {nearest}; there are: {}", self.known.join(", "))
        })
    }
}

/// Checks every name in a policy. A limit on a name that does not exist would limit nothing, unnoticed. Names
/// that another cluster of this kind may have are valid: such `levels` of failure domains are given, and all
/// `kinds` of units.
///
/// # Errors
/// The first name that does not exist.
pub fn check_policy_names<'a>(
    snapshot: &'a Snapshot,
    policy: &Policy,
    mut levels: BTreeSet<&'a str>,
    kinds: &BTreeSet<&str>,
) -> Result<(), UnknownName> {
    let units = snapshot.units();
    levels.extend(
        units
            .iter()
            .flat_map(|unit| unit.domains.keys())
            .map(String::as_str),
    );
    let by = match &policy.order {
        Order::ByDomain(level) => Some(level),
        Order::FewestWaves | Order::List(_) => None,
    };
    for level in by.into_iter().chain(policy.max_domains.keys()) {
        check_name("level of failure domains", level, &levels)?;
    }
    if let Order::List(listed) = &policy.order {
        let units = units.iter().map(|unit| unit.id.as_str()).collect();
        for unit in listed {
            check_name("unit in this cluster", unit.as_str(), &units)?;
        }
    }
    for kind in policy.max_in_parallel_of.keys() {
        check_name("kind of daemon", kind.as_str(), kinds)?;
    }
    Ok(())
}

/// As many names are listed to choose from.
const FEW: usize = 12;

/// Checks that a name is one of those that there can be.
///
/// # Errors
/// It is not.
pub fn check_name(what: &str, name: &str, known: &BTreeSet<&str>) -> Result<(), UnknownName> {
    if known.contains(name) {
        return Ok(());
    }
    let nearest = known
        .iter()
        .max_by(|a, b| strsim::jaro_winkler(name, a).total_cmp(&strsim::jaro_winkler(name, b)));
    let few = known.len() <= FEW;
    Err(UnknownName {
        what: what.to_owned(),
        name: name.to_owned(),
        nearest: nearest.map(|name| (*name).to_owned()),
        known: known
            .iter()
            .filter(|_| few)
            .map(|name| (*name).to_owned())
            .collect(),
    })
}
