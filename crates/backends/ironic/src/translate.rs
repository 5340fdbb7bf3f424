//! From facts to a snapshot: units, budgets, conditions.

use std::collections::{BTreeMap, BTreeSet};

use jiff::SignedDuration;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use stagger_core::model::{
    BudgetsBuilder, Condition, IdError, Ix, Kind, Reason, Snapshot, SnapshotError, Unit, UnitId, UnitState,
};

use crate::conditions::conditions;
use crate::config::{IronicConfig, Role};
use crate::facts::Facts;
use crate::releases::Releases;
use crate::runs::{Runs, registered, runs, serves};

/// What is wanted, as a run keeps it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Wished {
    /// The release to go to: `29.0.6`.
    pub to: String,
    /// Where services come from, with the patch: going back goes there.
    pub from: String,
    /// The pin while both run.
    pub pin: String,
}

/// Facts that make no snapshot.
#[derive(Debug, thiserror::Error)]
pub enum TranslateError {
    /// A name that is none of ours.
    #[error("a name cannot be used")]
    Name(#[from] IdError),
    /// Facts that contradict each other.
    #[error("the facts make no snapshot")]
    Snapshot(#[from] SnapshotError),
}

/// A service as seen.
#[derive(Debug, Clone)]
pub struct Seen<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its kind.
    pub role: Role,
    /// Whether it serves, and why not.
    pub state: (UnitState, String),
    /// What it runs, or why nobody could tell.
    pub runs: Result<Runs, Reason>,
}

/// Seconds that one visit usually takes where the configuration says nothing: 20 and 6 were measured, on conductors with
/// nothing to do.
const USUAL: [(Role, u32); 2] = [(Role::Conductor, 30), (Role::Api, 10)];

/// All services as seen, conductors first.
pub fn seen<'a>(facts: &Facts, config: &'a IronicConfig, table: &Releases) -> Vec<Seen<'a>> {
    let services = config.services().map(|service| Seen {
        name: service.name,
        role: service.role,
        state: serves(&service, facts, config),
        runs: runs(&service, facts, config, table),
    });
    services.collect()
}

/// The group of each conductor that Ironic lists.
pub fn groups(facts: &Facts, config: &IronicConfig) -> BTreeMap<String, String> {
    let listed = facts.conductors.yes();
    let group = |conductor: &crate::config::Conductor| {
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
pub fn unit_id(role: Role, service: &str) -> Result<UnitId, IdError> {
    UnitId::new(format!("{}.{service}", role.as_str()))
}

/// The snapshot of these facts, for what is wished.
///
/// # Errors
/// Names that are none.
pub fn translate(
    facts: &Facts,
    config: &IronicConfig,
    table: &Releases,
    wished: Option<&Wished>,
) -> Result<Snapshot, TranslateError> {
    let seen = seen(facts, config, table);
    let groups = groups(facts, config);
    let mut units = Vec::with_capacity(seen.len());
    for (service, seen) in config.services().zip(&seen) {
        let mut domains = BTreeMap::from([("host".to_owned(), service.host.to_owned())]);
        if let Some(group) = groups.get(service.name).filter(|group| !group.is_empty()) {
            domains.insert("group".to_owned(), group.clone());
        }
        let revision = match &seen.runs {
            Ok(runs) => Some(runs.revision(table)?),
            Err(_) => None,
        };
        units.push(Unit {
            id: unit_id(seen.role, seen.name)?,
            kind: Kind::new(seen.role.as_str())?,
            state: seen.state.0,
            revision,
            domains,
            precedence: 0,
            untouchable: None,
        });
    }
    let conditions: Vec<Condition> = conditions(facts, config, table, wished, &seen)?;
    let mut durations = BTreeMap::new();
    for (kind, seconds) in USUAL {
        durations.insert(Kind::new(kind.as_str())?, seconds);
    }
    durations.extend(config.durations.clone());
    let durations = durations
        .into_iter()
        .map(|(kind, seconds)| (kind, SignedDuration::from_secs(i64::from(seconds))))
        .collect();
    Ok(Snapshot::new(
        config.name.clone(),
        facts.at,
        generation(facts, &units, &conditions),
        units,
        budgets(&seen, &groups),
        conditions,
        durations,
    )?)
}

/// One conductor of each group and one API stay.
fn budgets(seen: &[Seen<'_>], groups: &BTreeMap<String, String>) -> stagger_core::model::Budgets {
    let mut builder = BudgetsBuilder::default();
    let members = |wanted: &dyn Fn(&Seen<'_>) -> bool| -> Vec<(Ix, u32)> {
        let places = (0_u32..).zip(seen);
        places
            .filter(|(_, seen)| wanted(seen))
            .map(|(at, _)| (Ix(at), 1))
            .collect()
    };
    let all: BTreeSet<&str> = groups.values().map(String::as_str).collect();
    for group in all {
        let of_it = members(&|seen| {
            let own = groups.get(seen.name).map_or("", String::as_str);
            seen.role == Role::Conductor && own == group
        });
        let limit = (of_it.len() as u32).saturating_sub(1);
        let name = if group.is_empty() { "without a name" } else { group };
        builder.add("conductors of a group", name, limit, &of_it);
    }
    let apis = members(&|seen| seen.role == Role::Api);
    if !apis.is_empty() {
        let limit = (apis.len() as u32).saturating_sub(1);
        builder.add("API services", "api", limit, &apis);
    }
    builder.build()
}

/// A name for what matters in these facts: another one when something has moved.
fn generation(facts: &Facts, units: &[Unit], conditions: &[Condition]) -> String {
    use std::fmt::Write as _;
    let revision = facts
        .database
        .yes()
        .map_or("unknown", |database| database.revision.as_str());
    let mut text = revision.to_owned();
    for unit in units {
        let _ = write!(text, "\n{} {:?} {:?}", unit.id, unit.state, unit.revision);
    }
    for condition in conditions {
        let _ = write!(text, "\n{} {}", condition.name, condition.verdict);
    }
    let digest = Sha256::digest(text);
    let short: Vec<_> = digest.iter().take(6).map(|byte| format!("{byte:02x}")).collect();
    format!("schema {revision}, state {}", short.concat())
}
