//! What the code of a release says about itself: the releases it lists, their RPC and object versions, and
//! the head of its schema.
//!
//! Ironic keeps that in `ironic/common/release_mappings.py` and in the revisions of alembic, and offers it by
//! no API and no tool. So a few lines of Python run where its tools are, with the Python that has that
//! release: this makes releases known that are newer than this program.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use stagger_versioned::Version;
use stagger_versioned::manifest::{Number, Versions};

/// Python that prints one line of JSON: a [`ReleaseCode`].
pub(crate) const QUESTION: &str = include_str!("code.py");

/// What is not released yet, in Ironic's list.
const UNRELEASED: &str = "master";

/// What the code of a release says about itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReleaseCode {
    /// Its version: `39.0.0`.
    pub version: String,
    /// The releases that it lists, its own among them.
    pub releases: Vec<ListedRelease>,
    /// The newest revisions of its schema; one, but for a mistake of its makers.
    pub heads: Vec<String>,
    /// The table of each of its models, by the model's name. Of an object that is stored that is the object's name, nearly always.
    pub tables: BTreeMap<String, String>,
}

/// A release as a code lists it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListedRelease {
    /// Its number and its names, each a pin: `39.0`, `2026.2`.
    pub names: Vec<String>,
    /// The highest version of the API that it offers.
    pub api: Version,
    /// The highest version of the RPC that it speaks.
    pub rpc: Version,
    /// The versions in which each object may be in it.
    pub objects: BTreeMap<String, Versions>,
}

impl ListedRelease {
    /// Its number: `39.0`.
    pub(crate) fn number(&self) -> Option<Number> {
        // 2025.1 reads like one too, and stands beside the number.
        let numbers = self.names.iter().filter_map(|name| name.parse().ok());
        numbers.min()
    }

    /// Whether it is what comes after all releases.
    pub(crate) fn is_unreleased(&self) -> bool {
        self.names.iter().any(|name| name == UNRELEASED)
    }
}

impl ReleaseCode {
    /// Its number: `39.0`.
    pub fn number(&self) -> Option<Number> {
        let mut parts = self.version.splitn(3, '.');
        let (major, minor) = (parts.next()?, parts.next()?);
        format!("{major}.{minor}").parse().ok()
    }

    /// The number under which that one, its own, is listed: a stable branch grows in its second number, and its list stays what it
    /// was when the branch was made.
    pub(crate) fn listed_as(&self, own: Number) -> Number {
        let major = |number: Number| number.to_string().split('.').next().map(str::to_owned);
        let content = |listed: &ListedRelease| (listed.api, listed.rpc, listed.objects.clone());
        let newest = self
            .releases
            .iter()
            .find(|listed| listed.is_unreleased())
            .map(content);
        let same = self
            .releases
            .iter()
            .filter(|listed| Some(content(listed)) == newest);
        let of_branch = same
            .filter_map(ListedRelease::number)
            .filter(|number| *number <= own && major(*number) == major(own));
        of_branch.max().unwrap_or(own)
    }

    /// The pins that it lists.
    pub fn pins(&self) -> impl Iterator<Item = &str> {
        let names = self.releases.iter().flat_map(|listed| &listed.names);
        names.map(String::as_str).filter(|name| *name != UNRELEASED)
    }

    /// The same with nothing about releases before that one: what a run remembers of it.
    #[must_use]
    pub fn without_older(mut self, oldest: Number) -> Self {
        self.releases.retain(|listed| {
            listed.is_unreleased() || listed.number().is_some_and(|number| number >= oldest)
        });
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_code_of_39_was_asked_and_is_understood() {
        let code: ReleaseCode = serde_json::from_str(include_str!("code/39.0.0.json")).unwrap();
        assert_eq!(code.number().unwrap().to_string(), "39.0");
        assert_eq!(code.heads, ["9fb44677ef15"]);
        assert!(code.pins().any(|pin| pin == "2026.2"));
        assert!(!code.pins().any(|pin| pin == "master"));
        assert_eq!(code.tables["RunbookTrait"], "runbook_traits");
        let later = code.without_older("35.0".parse().unwrap());
        let first = later.releases.first().unwrap();
        assert_eq!(first.names, ["35.0", "2026.1"]);
        assert!(later.releases.last().unwrap().is_unreleased());
    }
}
