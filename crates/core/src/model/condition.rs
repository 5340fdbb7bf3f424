//! Named health facts, and the gates that wait for them.

use jiff::SignedDuration;
use serde::{Deserialize, Serialize};

use super::ConditionName;

/// Yes, no, or nobody could tell. Unknown never counts as yes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// It is so.
    Yes,
    /// It is not.
    No,
    /// The fact is missing, stale or contradicted.
    Unknown,
}

impl std::fmt::Display for Verdict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Yes => "yes",
            Self::No => "no",
            Self::Unknown => "unknown",
        })
    }
}

/// A named health fact with its why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Condition {
    /// What is asked: `quorum`.
    pub name: ConditionName,
    /// The answer.
    pub verdict: Verdict,
    /// The facts behind it: `m0, m1 of 3 in quorum`.
    pub why: String,
}

/// A condition, how long it must have held, and how long to wait for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Gate {
    /// What must hold.
    pub condition: ConditionName,
    /// For how long without a break, in seconds in documents.
    #[serde(with = "super::policy::seconds")]
    #[cfg_attr(feature = "schema", schemars(with = "i64"))]
    pub hold: SignedDuration,
    /// How long to wait before the gate has failed. Waiting goes on past it while recovery makes
    /// progress, see [`crate::run::decide`].
    #[serde(with = "super::policy::seconds")]
    #[cfg_attr(feature = "schema", schemars(with = "i64"))]
    pub timeout: SignedDuration,
}
