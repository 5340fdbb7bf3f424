//! The state of each service, and its release.

use std::collections::BTreeMap;

use stagger_core::model::{IdError, Reason, UnitId, UnitState};

use crate::config::{Conductor, IronicConfig, ServiceRole};
use crate::facts::IronicFacts;
use crate::releases::Releases;
use crate::running_releases::{Runs, registered, runs, serves};

/// A service: whether it serves, and what it runs.
#[derive(Debug, Clone)]
pub struct ServiceStatus<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its kind.
    pub role: ServiceRole,
    /// Whether it serves, and why not.
    pub state: (UnitState, String),
    /// What it runs, or why nobody could tell.
    pub runs: Result<Runs, Reason>,
}

/// The status of all services, conductors first.
pub fn statuses<'a>(
    facts: &IronicFacts,
    config: &'a IronicConfig,
    table: &Releases,
) -> Vec<ServiceStatus<'a>> {
    let services = config.services().map(|service| ServiceStatus {
        name: service.name,
        role: service.role,
        state: serves(&service, facts, config),
        runs: runs(&service, facts, config, table),
    });
    services.collect()
}

/// The group of each conductor that Ironic lists.
pub fn groups(facts: &IronicFacts, config: &IronicConfig) -> BTreeMap<String, String> {
    let listed = facts.conductors.get();
    let group = |conductor: &Conductor| {
        let (name, _) = registered(conductor, facts)?;
        listed?.get(name).map(|says| says.group.clone())
    };
    config
        .conductors
        .iter()
        .map(|conductor| (conductor.name.clone(), group(conductor).unwrap_or_default()))
        .collect()
}

/// The name of a unit.
///
/// # Errors
/// The service's name is no word.
pub fn unit_id(role: ServiceRole, service: &str) -> Result<UnitId, IdError> {
    UnitId::new(format!("{}.{service}", role.as_str()))
}
