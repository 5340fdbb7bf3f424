//! Why not: stable words with the facts beside them.

use serde::{Deserialize, Serialize};

/// A refusal, a hold or the cause why a unit is left alone. `slug` is stable and has a paragraph in
/// `docs/reference/reasons.md`; `detail` carries the facts of this case.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Reason {
    /// Stable kebab-case word.
    pub slug: String,
    /// What is so in this case: names, numbers, and what would help.
    pub detail: String,
}

impl Reason {
    /// A reason with its facts.
    pub fn new(slug: &str, detail: impl Into<String>) -> Self {
        Self {
            slug: slug.to_owned(),
            detail: detail.into(),
        }
    }
}

impl std::fmt::Display for Reason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { slug, detail } = self;
        write!(f, "{slug}: {detail}")
    }
}
