//! The names in a policy: what they bind has to be there.

use std::collections::BTreeSet;

use stagger_core::model::{Order, Policy, Snapshot};

use crate::error::CliError;

/// A bound on what there is not would bind nothing, and nobody would notice. What this cluster lacks and
/// another may have is no mistake: such levels of failure domains are given, and so are all kinds of units.
pub(super) fn names_are_known<'a>(
    snapshot: &'a Snapshot,
    policy: &Policy,
    mut levels: BTreeSet<&'a str>,
    kinds: &BTreeSet<&str>,
) -> Result<(), CliError> {
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
        known("level of failure domains", level, &levels)?;
    }
    if let Order::List(listed) = &policy.order {
        let units = units.iter().map(|unit| unit.id.as_str()).collect();
        for unit in listed {
            known("unit in this cluster", unit.as_str(), &units)?;
        }
    }
    for kind in policy.max_in_parallel_of.keys() {
        known("kind of daemon", kind.as_str(), kinds)?;
    }
    Ok(())
}

/// As many names are listed to choose from.
const FEW: usize = 12;

/// Whether a name of the policy is one of those that there can be.
pub(super) fn known(what: &str, name: &str, known: &BTreeSet<&str>) -> Result<(), CliError> {
    if known.contains(name) {
        return Ok(());
    }
    let all: Vec<&str> = known.iter().copied().collect();
    let error = CliError::usage(format!(
        "the configuration names {name:?}, and there is no such {what}"
    ));
    let nearest = all
        .iter()
        .max_by(|a, b| strsim::jaro_winkler(name, a).total_cmp(&strsim::jaro_winkler(name, b)));
    Err(match nearest {
        Some(nearest) if all.len() > FEW => error.hint(format!("the nearest is {nearest}")),
        Some(nearest) => error.hint(format!("the nearest is {nearest}; there are: {}", all.join(", "))),
        None => error,
    })
}
