//! The files of known risks: that of the program, and those of a site.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::condition::RiskCondition;
use crate::release::Ranges;

/// The version of the file's form that is read.
pub const VERSION: u32 = 1;

/// The file that comes with the program.
const SHIPPED: &str = include_str!("known.toml");

/// What it is called where it is named.
pub const SHIPPED_NAME: &str = "the risks of this program";

/// A kind of cluster that is upgraded from release to release.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum System {
    /// Ceph, also where Rook has laid it out.
    Ceph,
    /// OpenStack Ironic.
    Ironic,
}

/// What comes of a risk that applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "Effect"))]
#[serde(rename_all = "kebab-case")]
pub enum RiskEffect {
    /// A run is refused, unless you accept the risk by its id.
    Refuse,
    /// Report it.
    Warn,
}

/// A known risk of going from one release to another.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Risk {
    /// By which it is named and accepted: small letters, digits, `.` and `-`.
    pub id: String,
    /// Of which kind of cluster.
    pub system: System,
    /// The releases from which it is met.
    #[serde(default = "Ranges::any")]
    pub from: Ranges,
    /// The releases at which it is met.
    pub to: Ranges,
    /// What comes of it.
    pub effect: RiskEffect,
    /// Of which clusters it is true [default: of all].
    pub when: Option<RiskCondition>,
    /// What happens.
    pub what: String,
    /// What to do about it.
    #[serde(rename = "do")]
    pub remedy: String,
    /// Its sources: addresses of issues and release notes.
    pub source: Vec<String>,
}

/// Why a file of risks is not read.
#[derive(Debug, thiserror::Error)]
pub enum RiskFileError {
    /// It is no TOML, or not of this shape.
    #[error("{0}")]
    Shape(#[from] toml::de::Error),
    /// Another release writes that.
    #[error("it is of version {found}, and this program reads version {VERSION}")]
    Version {
        /// The version that it says.
        found: u32,
    },
    /// A risk makes no sense.
    #[error("risk {id:?}: {why}")]
    Risk {
        /// Which.
        id: String,
        /// What is wrong with it.
        why: String,
    },
    /// Two risks have one id, in one file or in two.
    #[error("two risks are called {id:?}, in {first} and in {second}: each needs an id of its own")]
    Twice {
        /// Which id.
        id: String,
        /// Where it is.
        first: String,
        /// Where it is too.
        second: String,
    },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(rename = "version")]
    _version: u32,
    #[serde(default, rename = "risk")]
    risks: Vec<Risk>,
}

/// Reads a file.
///
/// # Errors
/// It is no such file, of another version, or a risk in it makes no sense.
pub fn read(text: &str) -> Result<Vec<Risk>, RiskFileError> {
    /// Its version first: a later one may have another shape, and that is not an error in it.
    #[derive(Deserialize)]
    struct Head {
        version: u32,
    }
    let Head { version } = toml::from_str(text)?;
    if version != VERSION {
        return Err(RiskFileError::Version { found: version });
    }
    let File { risks, .. } = toml::from_str(text)?;
    for risk in &risks {
        risk.verify().map_err(|why| RiskFileError::Risk {
            id: risk.id.clone(),
            why,
        })?;
    }
    Ok(risks)
}

/// The risks that come with the program.
///
/// # Errors
/// The program was built with a file that is none. A test reads it.
pub fn shipped() -> Result<Vec<Risk>, RiskFileError> {
    read(SHIPPED)
}

/// The risks of several files, each with its name, as one list in the order of their ids.
///
/// # Errors
/// Two risks have one id.
pub fn merge(files: Vec<(String, Vec<Risk>)>) -> Result<Vec<Risk>, RiskFileError> {
    let mut all: BTreeMap<String, (String, Risk)> = BTreeMap::new();
    for (name, risks) in files {
        for risk in risks {
            let id = risk.id.clone();
            if let Some((first, _)) = all.get(&id) {
                return Err(RiskFileError::Twice {
                    id,
                    first: first.clone(),
                    second: name,
                });
            }
            all.insert(id, (name.clone(), risk));
        }
    }
    Ok(all.into_values().map(|(_, risk)| risk).collect())
}

impl Risk {
    fn verify(&self) -> Result<(), String> {
        let odd = |c: char| !(c.is_ascii_lowercase() || c.is_ascii_digit() || ".-".contains(c));
        if self.id.is_empty() || self.id.contains(odd) {
            return Err("an id has small letters, digits, \".\" and \"-\"".to_owned());
        }
        for (key, text) in [("what", &self.what), ("do", &self.remedy)] {
            if text.trim().is_empty() || text.contains(char::is_control) {
                return Err(format!("{key} is a sentence in one line"));
            }
        }
        let is_address = |text: &String| text.starts_with("https://") && !text.contains(char::is_whitespace);
        if self.source.is_empty() || !self.source.iter().all(is_address) {
            return Err("source needs the address of an issue or of release notes: \"https://…\"".to_owned());
        }
        self.when.as_ref().map_or(Ok(()), RiskCondition::verify)
    }
}
