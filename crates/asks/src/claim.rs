//! Claims: what somebody takes down, until when.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use stagger_core::model::{RunId, UnitId};

use crate::ask::AskId;

/// Who takes something down.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum ClaimHolder {
    /// Whoever was granted that ask.
    Grant(AskId),
    /// A run.
    Run(RunId),
}

impl std::fmt::Display for ClaimHolder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Grant(id) => write!(f, "grant {id}"),
            Self::Run(run) => write!(f, "run {run}"),
        }
    }
}

impl ClaimHolder {
    /// Of the text that [`Display`](std::fmt::Display) writes.
    pub(crate) fn of(text: &str) -> Option<Self> {
        let (kind, name) = text.split_once(' ')?;
        match kind {
            "grant" => name.parse().ok().map(Self::Grant),
            "run" => name.parse().ok().map(Self::Run),
            _ => None,
        }
    }
}

/// What is taken down together.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Claim {
    /// Whole hosts: all that they carry is down, also what nobody knows of yet.
    pub hosts: BTreeSet<String>,
    /// Units by themselves.
    pub units: BTreeSet<UnitId>,
    /// The hosts of those units: where hosts are the units, these count as down as a whole.
    pub touched: BTreeSet<String>,
}

impl Claim {
    /// Whether it is of nothing.
    pub fn is_empty(&self) -> bool {
        self.hosts.is_empty() && self.units.is_empty()
    }
}

/// A claim as it stands in the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimRecord {
    /// Its place among all claims of the cluster: it only grows.
    pub fence: u64,
    /// Whose.
    pub holder: ClaimHolder,
    /// What.
    pub claim: Claim,
    /// Until then, by the store's clock.
    pub expires: Timestamp,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_holder_is_read_as_it_is_written() {
        for holder in [
            ClaimHolder::Grant("a-0123456789abcdef".parse().unwrap()),
            ClaimHolder::Run(RunId::new("20260101-0000-abcd").unwrap()),
        ] {
            assert_eq!(ClaimHolder::of(&holder.to_string()), Some(holder));
        }
        assert_eq!(ClaimHolder::of("grant ../.."), None);
        assert_eq!(ClaimHolder::of("somebody"), None);
    }
}
