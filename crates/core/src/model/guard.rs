//! Guards: settings of the cluster taken for a time and cleared afterwards.

use jiff::SignedDuration;
use serde::{Deserialize, Serialize};

use super::GuardName;

/// How long a guard is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum GuardScope {
    /// From the first wave of the stage until its last gate.
    Stage,
    /// From before each wave until its gate; the backend gets the wave's units.
    Wave,
    /// As [`Wave`](Self::Wave), and cleared while the run is held for an operator in the midst of it: how long that takes is
    /// unknown, and others need not wait with it.
    WorkingWave,
}

/// A guard that a stage wants.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct GuardSpec {
    /// Its name, known to the backend.
    pub name: GuardName,
    /// How long it is kept.
    pub scope: GuardScope,
    /// It expires this long after it was taken or renewed, even if no process clears it.
    #[serde(with = "super::policy::seconds")]
    #[cfg_attr(feature = "schema", schemars(with = "i64"))]
    pub expiry: SignedDuration,
    /// What it is for, in the user's words.
    pub why: String,
}
