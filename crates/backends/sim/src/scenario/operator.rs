//! Who looks after a run.

use serde::{Deserialize, Serialize};

/// A person, and how they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Operator {
    /// They look so many seconds after the run was held.
    pub after: u32,
    /// They accept what may be left, and give up, before all faults are over.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub hasty: bool,
}
