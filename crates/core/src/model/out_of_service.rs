//! Units that answer and are kept out of service.

use serde::{Deserialize, Serialize};

use super::{RunId, UnitId};

/// A unit that answers and is drained: guests or requests go elsewhere. It counts as down. A run that drained it for a visit
/// that is not over has to undrain it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Drained {
    /// Its name.
    pub unit: UnitId,
    /// The run whose visit drained it, where that is noted on the unit itself; `None`: it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<RunId>,
}
