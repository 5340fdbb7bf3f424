//! The processes that carry a run out, and what befalls each.

use serde::{Deserialize, Serialize};

/// A process that carries the run out, if nobody else does.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ProcessSpec {
    /// It is started so many seconds after the beginning.
    pub at: u32,
    /// Its clock is so many seconds ahead of the cluster's; behind, if this is negative.
    pub ahead: i32,
    /// What befalls it.
    #[serde(rename = "ill", skip_serializing_if = "Vec::is_empty")]
    pub ills: Vec<ProcessFault>,
}

/// What befalls a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "ill", rename_all = "kebab-case", deny_unknown_fields)]
pub enum ProcessFault {
    /// It is killed, and another is started in its place.
    Killed {
        /// Seconds after the beginning.
        at: u32,
        /// So many seconds later.
        again: u32,
    },
    /// It stands still right before it makes a call, and makes it when it wakes up.
    Paused {
        /// Before which of its calls, from 1.
        call: u32,
        /// Seconds.
        lasts: u32,
    },
    /// Its machine is frozen from outside right before it makes a call, as a virtual one is: as if it stood still, and the clock
    /// that counts since boot stands still too. The time of day goes on.
    #[serde(alias = "sleeps")]
    Frozen {
        /// Before which of its calls, from 1.
        call: u32,
        /// Seconds.
        lasts: u32,
    },
    /// Somebody sets its clock.
    ClockSet {
        /// Seconds after the beginning.
        at: u32,
        /// So many seconds forward; back, if this is negative.
        by: i32,
    },
    /// Nothing of the cluster answers it; it reaches its journal all the same.
    CutOff {
        /// Seconds after the beginning.
        at: u32,
        /// Seconds.
        lasts: u32,
    },
}

impl ProcessFault {
    /// What kind, as scenario files name it.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Killed { .. } => "killed",
            Self::Paused { .. } => "paused",
            Self::Frozen { .. } => "frozen",
            Self::ClockSet { .. } => "clock-set",
            Self::CutOff { .. } => "cut-off",
        }
    }
}
