//! Services that are interrupted while a unit is down.

use serde::{Deserialize, Serialize};

use super::{Kind, UnitId};

/// A service without a stand-in while one of these units is visited. It needs permission: you permit it by its name or kind,
/// before a run starts.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Interruption {
    /// By which it is permitted: `mds.a`, `pool.rbd`.
    pub name: String,
    /// By which all of its sort are permitted: `mds`, `pool`.
    pub sort: String,
    /// The units whose turn brings it about, sorted as people count.
    pub units: Vec<UnitId>,
    /// Who loses what service for that time: `clients of the file system home wait`.
    pub what: String,
    /// Whether it is permitted.
    pub permitted: bool,
}

/// Daemons of the same system that no stage is for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Bystander {
    /// What they are: `rbd-mirror`.
    pub kind: Kind,
    /// What they run; `None` where the system does not report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub release: Option<String>,
    /// How many.
    pub count: u32,
}
