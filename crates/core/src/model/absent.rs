//! Members that the cluster's records name and that do not exist.

use serde::{Deserialize, Serialize};

use super::{Kind, Reason, UnitId};

/// A unit that is registered in the cluster and out of service: nothing counts on it. It is named, and is part of no limit, no
/// budget and no target. A unit that merely does not serve is down, which is something else.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Absent {
    /// Its name.
    pub unit: UnitId,
    /// What kind of thing it would be.
    pub kind: Kind,
    /// Why nothing counts on it.
    pub reason: Reason,
}
