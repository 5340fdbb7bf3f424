//! From facts to a snapshot: units, what may be down together, and the state.
//!
//! Pure: the same facts give the same snapshot. Its parts are [`units`](fn@units), [`budgets`](fn@budgets)
//! and [`conditions`](fn@conditions).

mod absent;
pub mod baseline;
mod blockers;
mod budgets;
mod bystanders;
mod codes;
mod conditions;
pub mod hosts;
mod interruptions;
mod sites;
mod units;

use std::collections::{BTreeMap, BTreeSet};

use jiff::SignedDuration;
use serde::{Deserialize, Serialize};
use stagger_core::model::{ClusterName, Code, IdError, Kind, Snapshot, SnapshotError, Terms};

pub use absent::absent;
pub(crate) use absent::is_absent;
pub use baseline::{Baseline, BaselineDaemon, BaselineError};
pub use budgets::{budgets, with_recovered};
pub use bystanders::bystanders;
pub use codes::{CAUSED, Cause};
pub(crate) use conditions::{NO_OTHER_UPGRADE, OLDEST, SITES_WHOLE};
pub use conditions::{conditions, unaccepted};
pub(crate) use interruptions::pool_name;
pub use interruptions::{Permitted, interruptions};
pub(crate) use sites::of_monitors;
pub use units::units;

use crate::facts::CephFacts;

/// What would free a daemon or a host without which placement groups would not serve.
const NEVER_OK_TO_STOP: (Code, &str) = (
    Code::NeverOkToStop,
    "more members of that budget serving, or a lower min_size where that is safe for your data",
);

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
pub enum CephTranslateError {
    /// A name that the snapshot cannot hold.
    #[error("a name in the cluster cannot be used")]
    Name(#[from] IdError),
    /// Two units of one name, or budgets beyond the units.
    #[error("the facts make no snapshot")]
    Snapshot(#[from] SnapshotError),
}

/// The snapshot that these facts make. `baseline` is what was before the run; without it everything that
/// is known should be up, and every complaint counts. `durations` is how long a visit to a daemon of each
/// kind usually takes. `permitted`: the interruptions that a person has permitted.
///
/// # Errors
/// Names that cannot be used; none that the parsers let through are known.
pub fn translate(
    cluster: &ClusterName,
    facts: &CephFacts,
    policy: &HealthPolicy,
    baseline: Option<&Baseline>,
    durations: BTreeMap<Kind, SignedDuration>,
    permitted: &Permitted,
) -> Result<Snapshot, CephTranslateError> {
    let units = units(facts, baseline)?;
    let places: BTreeMap<&str, u32> = units
        .iter()
        .enumerate()
        .map(|(at, unit)| (unit.id.as_str(), at as u32))
        .collect();
    // A million placement groups are gone through for either.
    let (budgets, conditions) = std::thread::scope(|scope| {
        let conditions = scope.spawn(|| conditions(facts, &units, policy, baseline));
        let budgets = budgets(facts, &places, permitted);
        (
            budgets,
            conditions
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
        )
    });
    let interruptions = interruptions(facts, &places, permitted)?;
    let conditions = conditions?;
    let snapshot = Snapshot::new(
        cluster.clone(),
        facts.collected_at,
        format!("osdmap {}", facts.osds.epoch),
        units,
        budgets,
        conditions,
        durations,
    )?
    .with_absent(absent(facts, baseline)?)
    .with_interruptions(interruptions)
    .with_bystanders(bystanders(facts)?)
    .with_terms(Terms::default().with_remedies([NEVER_OK_TO_STOP]));
    Ok(with_recovered(snapshot, facts, permitted)?)
}
