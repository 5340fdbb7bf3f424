//! Where a scenario leads.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use stagger_core::model::{Kind, Revision};

/// Where a scenario leads.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TargetSpec {
    /// The release wanted.
    pub to: Revision,
    /// What a unit of a kind takes to go back; `restart` where nothing is said.
    #[serde(default)]
    pub going_back: BTreeMap<Kind, RollbackSupport>,
}

/// What going back takes, in a scenario.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RollbackSupport {
    /// A restart.
    Restart,
    /// The unit's data made anew.
    Rebuild,
    /// It is not possible.
    Impossible,
}
