//! How many daemons run which version.

use std::collections::BTreeMap;

use serde::Serialize;

use super::release::Version;
use super::{ParseError, from_json};

/// How many daemons of each kind run which version, as `versions` tells. Only those that run count.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct DaemonVersions {
    /// By kind, then by version in short.
    pub by_kind: BTreeMap<String, BTreeMap<String, u32>>,
}

impl DaemonVersions {
    /// Reads `versions`.
    ///
    /// # Errors
    /// No JSON, or not that shape.
    pub fn read(bytes: &[u8], origin: &str) -> Result<Self, ParseError> {
        let raw: BTreeMap<String, BTreeMap<String, u32>> = from_json(bytes, origin)?;
        let mut by_kind: BTreeMap<String, BTreeMap<String, u32>> = BTreeMap::new();
        for (kind, versions) in raw.into_iter().filter(|(kind, _)| kind != "overall") {
            let counts = by_kind.entry(kind).or_default();
            for (version, count) in versions {
                let short = Version::parse_long(&version).map_or(version, |short| short.to_string());
                *counts.entry(short).or_default() += count;
            }
        }
        Ok(Self { by_kind })
    }

    /// The newest major release that any daemon runs; 0, if none tells.
    pub fn newest(&self) -> u32 {
        let versions = self.by_kind.values().flat_map(BTreeMap::keys);
        let majors = versions.filter_map(|version| version.split('.').next()?.parse().ok());
        majors.max().unwrap_or(0)
    }
}
