//! The managers.

use serde::{Deserialize, Serialize};

use super::{ParseError, from_json, parse};

/// The managers, as `mgr dump` lists them. A stopped one is in no list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MgrMap {
    /// Grows with every change of the map.
    pub epoch: u32,
    /// The active one.
    pub active: Option<String>,
    /// Whether the active one answers.
    pub available: bool,
    /// Those that stand by, sorted.
    pub standbys: Vec<String>,
    /// The enabled modules.
    pub modules: Vec<String>,
}

#[derive(Deserialize)]
struct Raw {
    epoch: u32,
    #[serde(default)]
    active_name: String,
    #[serde(default)]
    available: bool,
    #[serde(default)]
    standbys: Vec<RawStandby>,
    #[serde(default)]
    modules: Vec<String>,
}

#[derive(Deserialize)]
struct RawStandby {
    name: String,
}

impl MgrMap {
    /// Reads `mgr dump`.
    ///
    /// # Errors
    /// No JSON, not that shape, or a name that cannot be one.
    pub fn read(bytes: &[u8], origin: &str) -> Result<Self, ParseError> {
        let raw: Raw = from_json(bytes, origin)?;
        let active = Some(raw.active_name).filter(|name| !name.is_empty());
        let mut standbys: Vec<String> = raw.standbys.into_iter().map(|mgr| mgr.name).collect();
        standbys.retain(|name| Some(name) != active.as_ref());
        standbys.sort();
        standbys.dedup();
        for name in standbys.iter().chain(&active) {
            parse::name(name, origin)?;
        }
        Ok(Self {
            epoch: raw.epoch,
            active,
            available: raw.available,
            standbys,
            modules: raw.modules,
        })
    }
}
