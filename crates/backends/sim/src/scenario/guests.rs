//! Hosts with guests that move, as a scenario file describes them.

use serde::{Deserialize, Serialize};
use stagger_core::model::{EvacuationPolicy, IdError, Storage, UnitId};

/// The kind of every host of guests.
pub(crate) const NODE: &str = "node";

/// Hosts and guests, as a scenario file describes them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GuestsSpec {
    /// MiB of memory of each node; they are called `node-0` and so on.
    pub memory: Vec<u32>,
    /// How many seconds it takes to move a guest.
    pub migrate: u32,
    /// What becomes of guests while their nodes are away.
    #[serde(default)]
    pub moving: EvacuationPolicy,
    /// The node whose turn is the last, as the master's is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<u32>,
    /// The guests, called `guest-0` and so on.
    #[serde(default, rename = "guest")]
    pub guests: Vec<GuestSpec>,
}

/// A guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GuestSpec {
    /// The node that it is on.
    pub node: u32,
    /// The node of its second copy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub standby: Option<u32>,
    /// Where its disks are.
    pub storage: Storage,
    /// Whether it runs.
    pub runs: bool,
    /// MiB of memory that it takes.
    pub memory: u32,
    /// It cannot be moved, and that is known.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stuck: bool,
}

/// The name of a node.
pub(crate) fn node_name(number: u32) -> Result<UnitId, IdError> {
    UnitId::new(format!("node-{number}"))
}

/// The name of a guest.
pub(crate) fn guest_name(number: usize) -> String {
    format!("guest-{number}")
}
