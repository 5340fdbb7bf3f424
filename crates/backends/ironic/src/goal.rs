//! The goal of an upgrade.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

/// The release to which a cluster is upgraded, as a run's journal keeps it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UpgradeGoal {
    /// The release to go to: `29.0.6`.
    pub to: String,
    /// Where services come from, with the patch: going back goes there.
    pub from: String,
    /// The pin while both run.
    pub pin: String,
    /// The interruptions that a person permitted when the run began.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub interruptions: BTreeSet<String>,
}
