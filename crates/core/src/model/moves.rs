//! What is done to the guests of a host before it goes down.

use serde::{Deserialize, Serialize};

use super::UnitId;

/// What is done with a guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum How {
    /// It goes on running while it is moved.
    Migrate,
    /// It is stopped, its disks are copied, and it is started there.
    Relocate,
    /// Its second copy is made anew elsewhere; until that is done there is only one.
    ReplaceStandby,
}

impl How {
    /// The name under which a snapshot has its duration.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Migrate => "migrate",
            Self::Relocate => "relocate",
            Self::ReplaceStandby => "replace-standby",
        }
    }
}

/// One step of one guest.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Move {
    /// Which guest.
    pub guest: String,
    /// What is done.
    pub how: How,
    /// From which unit: that where it runs, or that of its second copy.
    pub from: UnitId,
    /// To which.
    pub to: UnitId,
}
