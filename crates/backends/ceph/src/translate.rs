//! From facts to a snapshot: what is there, what may be down together, and how it is.
//!
//! Pure: the same facts give the same snapshot. Its parts are [`units`], [`budgets`] and [`conditions`].

pub mod baseline;
mod budgets;
mod codes;
mod conditions;
mod pg_conditions;
mod units;

use std::collections::{BTreeMap, BTreeSet};

use jiff::SignedDuration;
use serde::{Deserialize, Serialize};
use stagger_core::model::{ClusterName, IdError, Kind, Snapshot, SnapshotError};

pub use baseline::{Baseline, BaselineError};
pub use budgets::budgets;
pub use codes::{CAUSED, Cause};
pub use conditions::{conditions, unaccepted};
pub use units::units;

use crate::facts::Facts;

/// What is thought of Ceph's complaints.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HealthPolicy {
    /// Codes that are taken for healthy: `POOL_NO_REDUNDANCY`.
    pub accept: BTreeSet<String>,
    /// Codes that always count, also those that stood before the run or that a stage causes itself.
    pub block: BTreeSet<String>,
}

/// Facts that make no snapshot.
#[derive(Debug, thiserror::Error)]
pub enum TranslateError {
    /// A name that the snapshot cannot hold.
    #[error("a name in the cluster cannot be used")]
    Name(#[from] IdError),
    /// Two units of one name, or budgets beyond the units.
    #[error("the facts make no snapshot")]
    Snapshot(#[from] SnapshotError),
}

/// The snapshot that these facts make. `baseline` is what was before the run; without it everything that
/// is known should be up, and every complaint counts. `durations` is how long a visit to a daemon of each
/// kind usually takes.
///
/// # Errors
/// Names that cannot be used; none that the parsers let through are known.
pub fn translate(
    cluster: &ClusterName,
    facts: &Facts,
    policy: &HealthPolicy,
    baseline: Option<&Baseline>,
    durations: BTreeMap<Kind, SignedDuration>,
) -> Result<Snapshot, TranslateError> {
    let units = units(facts, baseline)?;
    let places: BTreeMap<&str, u32> = units
        .iter()
        .enumerate()
        .map(|(at, unit)| (unit.id.as_str(), at as u32))
        .collect();
    let budgets = budgets(facts, &places);
    let conditions = conditions(facts, &units, policy, baseline)?;
    Ok(Snapshot::new(
        cluster.clone(),
        facts.collected_at,
        format!("osdmap {}", facts.osds.epoch),
        units,
        budgets,
        conditions,
        durations,
    )?)
}
