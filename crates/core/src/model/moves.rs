//! Moves of guests before their host goes down.

use jiff::SignedDuration;
use serde::{Deserialize, Serialize};

use super::UnitId;

/// The kind of a move.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "How"))]
#[serde(rename_all = "kebab-case")]
pub enum MoveKind {
    /// It keeps running while it is moved.
    Migrate,
    /// It is stopped, its disks are copied, and it is started there.
    Relocate,
    /// Its second copy is rebuilt on another host; until then there is only one copy.
    ReplaceStandby,
}

impl MoveKind {
    /// The name under which a snapshot has its duration.
    pub fn name(self) -> &'static str {
        match self {
            Self::Migrate => "migrate",
            Self::Relocate => "relocate",
            Self::ReplaceStandby => "replace-standby",
        }
    }

    /// How long it takes where nothing was measured or given. A migration with its resync took 11 s on a Ganeti of virtual
    /// nodes; copies of disks depend on their size, and these are only a place to begin.
    pub fn default_duration(self) -> SignedDuration {
        SignedDuration::from_secs(match self {
            Self::Migrate => 11,
            Self::Relocate | Self::ReplaceStandby => 120,
        })
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
    pub how: MoveKind,
    /// From which unit: that where it runs, or that of its second copy.
    pub from: UnitId,
    /// To which.
    pub to: UnitId,
}
