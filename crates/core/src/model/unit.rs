//! Units: the smallest things that are stopped and started.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Kind, Revision, UnitId};

/// The place of a unit in its snapshot. Dense, so that constraints are flat arrays.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(transparent)]
pub struct Ix(pub u32);

impl Ix {
    /// As an index into the snapshot's units.
    pub fn at(self) -> usize {
        self.0 as usize
    }
}

/// Whether a unit serves. Unknown counts as down: it is never assumed to serve.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum UnitState {
    /// It serves.
    Serving,
    /// It does not, whatever took it down.
    Down,
    /// Unknown.
    Unknown,
}

/// One unit as observed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Unit {
    /// Its name, unique in the cluster.
    pub id: UnitId,
    /// What kind of thing it is.
    pub kind: Kind,
    /// Whether it serves.
    pub state: UnitState,
    /// What it runs; `None` when that is unknown.
    pub revision: Option<Revision>,
    /// Its failure domains by level, `host` to `h3`. Values are the cluster's own names and may hold
    /// any character.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub domains: BTreeMap<String, String>,
    /// Lower is visited first within its stage: standbys are 0, the active one is 1.
    #[serde(default)]
    pub precedence: u32,
    /// Why it must be skipped, if it must (its host is unreachable, it is being replaced).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub untouchable: Option<super::Reason>,
}
