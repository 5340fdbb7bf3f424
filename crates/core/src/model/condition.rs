//! Named health conditions, and the gates that wait for them.

use jiff::SignedDuration;
use serde::{Deserialize, Serialize};

use super::{ConditionName, UnitId};

/// Yes, no, or unknown. Unknown never counts as yes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The condition holds.
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
    /// The name: `quorum`.
    pub name: ConditionName,
    /// The answer.
    pub verdict: Verdict,
    /// The facts behind it: `m0, m1 of 3 in quorum`.
    pub why: String,
    /// It is not so for these units alone, which are down: were they up, it would be. Empty: something else keeps it from being
    /// so, or that is unknown.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub but_for: Vec<UnitId>,
}

impl Condition {
    /// A condition without the units that alone keep it from holding.
    pub fn new(name: ConditionName, verdict: Verdict, why: impl Into<String>) -> Self {
        Self {
            name,
            verdict,
            why: why.into(),
            but_for: Vec::new(),
        }
    }

    /// Whether it holds, or would hold if these units were up.
    pub fn holds_but_for(&self, down: &[&UnitId]) -> bool {
        let excused = || !self.but_for.is_empty() && self.but_for.iter().all(|unit| down.contains(&unit));
        self.verdict == Verdict::Yes || excused()
    }
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
    /// How long to wait before the gate has failed. Waiting continues past it while recovery makes progress, see
    /// [`Run::next`](crate::run::Run::next).
    #[serde(with = "super::policy::seconds")]
    #[cfg_attr(feature = "schema", schemars(with = "i64"))]
    pub timeout: SignedDuration,
}
