//! From facts to a snapshot: units, budgets, conditions.

use std::collections::{BTreeMap, BTreeSet};

use jiff::SignedDuration;
use sha2::{Digest as _, Sha256};
use stagger_core::model::{BudgetsBuilder, Condition, IdError, Ix, Kind, Snapshot, SnapshotError, Unit};

use crate::conditions::{NODES_STABLE, conditions};
use crate::config::{IronicConfig, ServiceRole};
use crate::facts::IronicFacts;
use crate::goal::UpgradeGoal;
use crate::releases::Releases;
use crate::rings::{Ring, interruptions, is_permitted, rings};
use crate::services::{ServiceStatus, groups, statuses, unit_id};

/// Facts that make no snapshot.
#[derive(Debug, thiserror::Error)]
pub enum IronicTranslateError {
    /// A name that is none of ours.
    #[error("a name cannot be used")]
    Name(#[from] IdError),
    /// Facts that contradict each other.
    #[error("the facts make no snapshot")]
    Snapshot(#[from] SnapshotError),
}

/// Seconds that one visit usually takes where the configuration says nothing: 20 and 6 were measured, on conductors with
/// nothing to do.
const USUAL: [(ServiceRole, u32); 2] = [(ServiceRole::Conductor, 30), (ServiceRole::Api, 10)];

/// The snapshot of these facts, for what is wanted; `permitted` are interruptions, by name or by sort.
///
/// # Errors
/// Names that are none.
pub fn translate(
    facts: &IronicFacts,
    config: &IronicConfig,
    table: &Releases,
    goal: Option<&UpgradeGoal>,
    permitted: &BTreeSet<String>,
) -> Result<Snapshot, IronicTranslateError> {
    let statuses = statuses(facts, config, table);
    let groups = groups(facts, config);
    let mut units = Vec::with_capacity(statuses.len());
    for (service, status) in config.services().zip(&statuses) {
        let mut domains = BTreeMap::from([("host".to_owned(), service.host.to_owned())]);
        if let Some(group) = groups.get(service.name).filter(|group| !group.is_empty()) {
            domains.insert("group".to_owned(), group.clone());
        }
        let revision = match &status.runs {
            Ok(runs) => Some(runs.revision(table)?),
            Err(_) => None,
        };
        units.push(Unit {
            id: unit_id(status.role, status.name)?,
            kind: Kind::new(status.role.as_str())?,
            state: status.state.0,
            revision,
            domains,
            precedence: 0,
            untouchable: None,
        });
    }
    let conditions: Vec<Condition> = conditions(facts, config, table, goal, &statuses)?;
    let mut durations = BTreeMap::new();
    for (kind, seconds) in USUAL {
        durations.insert(Kind::new(kind.as_str())?, seconds);
    }
    durations.extend(config.durations.clone());
    let durations = durations
        .into_iter()
        .map(|(kind, seconds)| (kind, SignedDuration::from_secs(i64::from(seconds))))
        .collect();
    let rings = rings(facts, config);
    Ok(Snapshot::new(
        config.name.clone(),
        facts.at,
        generation(facts, &units, &conditions),
        units,
        budgets(&statuses, &rings, permitted),
        conditions,
        durations,
    )?
    .with_interruptions(interruptions(&rings, config, permitted)?))
}

/// One conductor of each ring is away at a time, and one API stays. Whoever has no stand-in goes by a person's word.
fn budgets(
    statuses: &[ServiceStatus<'_>],
    rings: &[Ring<'_>],
    permitted: &BTreeSet<String>,
) -> stagger_core::model::Budgets {
    let mut builder = BudgetsBuilder::default();
    let members = |wanted: &dyn Fn(&ServiceStatus<'_>) -> bool| -> Vec<(Ix, u32)> {
        let places = (0_u32..).zip(statuses);
        places
            .filter(|(_, status)| wanted(status))
            .map(|(at, _)| (Ix(at), 1))
            .collect()
    };
    let alone = |of_it: &[(Ix, u32)]| match of_it {
        [(only, _)] => {
            let ServiceStatus { name, role, .. } = statuses[only.at()];
            Some(u32::from(is_permitted(permitted, role, name)))
        }
        _ => None,
    };
    for ring in rings {
        let of_it =
            members(&|status| status.role == ServiceRole::Conductor && ring.conductors.contains(status.name));
        let limit = alone(&of_it).unwrap_or(1);
        builder.add("conductors of a hash ring", &ring.to_string(), limit, &of_it);
    }
    let apis = members(&|status| status.role == ServiceRole::Api);
    if !apis.is_empty() {
        let limit = alone(&apis).unwrap_or((apis.len() as u32).saturating_sub(1));
        builder.add("API services", "api", limit, &apis);
    }
    builder.build()
}

/// A name for what matters in these facts: another one when something has moved.
fn generation(facts: &IronicFacts, units: &[Unit], conditions: &[Condition]) -> String {
    use std::fmt::Write as _;
    let revision = facts
        .database
        .get()
        .map_or("unknown", |database| database.revision.as_str());
    let mut text = revision.to_owned();
    for unit in units {
        let _ = write!(text, "\n{} {:?} {:?}", unit.id, unit.state, unit.revision);
    }
    // Nodes come and go all day, and no plan is another one for it.
    let lasting = conditions.iter().filter(|one| one.name.as_str() != NODES_STABLE);
    for condition in lasting {
        let _ = write!(text, "\n{} {}", condition.name, condition.verdict);
    }
    let digest = Sha256::digest(text);
    let short: Vec<_> = digest.iter().take(6).map(|byte| format!("{byte:02x}")).collect();
    format!("schema {revision}, state {}", short.concat())
}
