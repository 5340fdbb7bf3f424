//! The inventory of a cluster: all answers of one observation, in one file. A plan can be made from the file,
//! anywhere and later, and the file can be attached to a bug report. It holds no keys and no passwords.

use std::path::Path;

use jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use stagger_core::model::ClusterName;
use stagger_core::view::Schema;

use crate::secrets;

/// What one look at a cluster has answered.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Inventory {
    /// `{"name": "inventory", "version": 1}`.
    pub schema: Schema,
    /// What kind of system answers: `ceph`, `ganeti`, `ironic`.
    #[serde(default = "first")]
    pub system: String,
    /// What the cluster is called.
    pub cluster: ClusterName,
    /// When it was asked.
    pub taken: Timestamp,
    /// Its answers, in the form that its backend gives them.
    #[cfg_attr(feature = "schema", schemars(with = "serde_json::Value"))]
    answers: Box<RawValue>,
}

/// The name of this document while only Ceph had one: such a file has no `system`.
const FORMER: &str = "ceph-answers";

fn first() -> String {
    "ceph".to_owned()
}

/// Why a file is not taken for an inventory.
#[derive(Debug, thiserror::Error)]
pub enum InventoryError {
    /// It breaks off.
    #[error("the inventory breaks off at line {line}, column {column}: it was not copied whole")]
    Truncated {
        /// Where.
        line: usize,
        /// Where in the line.
        column: usize,
    },
    /// It is no JSON, or not of this shape.
    #[error("it is not an inventory")]
    Shape(#[source] serde_json::Error),
    /// It is another document.
    #[error("it is a document {0:?}, and not an inventory, which is called {name:?}", name = Inventory::SCHEMA)]
    Other(String),
    /// A newer release wrote it.
    #[error(
        "it is an inventory of version {0}, and this program reads up to version {newest}",
        newest = Inventory::VERSION
    )]
    Newer(u32),
    /// Its answers are not those of such a system.
    #[error("its contents are not answers of {system}")]
    Answers {
        /// Of which.
        system: String,
        /// What is wrong with them.
        #[source]
        source: serde_json::Error,
    },
}

impl InventoryError {
    /// What to do about it.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Truncated { .. } => "copy it again, or make a new one: stagger observe --save FILE",
            Self::Shape(_) | Self::Other(_) | Self::Answers { .. } => {
                "`stagger observe --save FILE` makes one; what `observe --json` prints is for reading and scripts"
            }
            Self::Newer(_) => "read it with the release that wrote it, or a later one",
        }
    }
}

impl From<serde_json::Error> for InventoryError {
    fn from(error: serde_json::Error) -> Self {
        if error.is_eof() {
            Self::Truncated {
                line: error.line(),
                column: error.column(),
            }
        } else {
            Self::Shape(error)
        }
    }
}

impl Inventory {
    /// The document's name.
    pub const SCHEMA: &str = "inventory";
    /// The newest version of the document.
    pub const VERSION: u32 = 1;

    /// What a cluster of such a system has answered.
    ///
    /// # Errors
    /// Answers that are no JSON, as a map whose keys are no text.
    pub fn new(
        system: &str,
        cluster: ClusterName,
        taken: Timestamp,
        answers: &impl Serialize,
    ) -> Result<Self, serde_json::Error> {
        Ok(Self {
            schema: Schema {
                name: Self::SCHEMA.to_owned(),
                version: Self::VERSION,
            },
            system: system.to_owned(),
            cluster,
            taken,
            // A line for each, as people compare them.
            answers: RawValue::from_string(serde_json::to_string_pretty(answers)?)?,
        })
    }

    /// Reads the document.
    ///
    /// # Errors
    /// It breaks off, is another document, or is newer than this program.
    pub fn read(bytes: &[u8]) -> Result<Self, InventoryError> {
        // Its name and version first: a later version may have another shape, and that is not damage.
        #[derive(Deserialize)]
        struct Head {
            schema: Option<Schema>,
            kind: Option<String>,
        }
        let head: Head = serde_json::from_slice(bytes)?;
        match head.schema {
            Some(schema) if ![Self::SCHEMA, FORMER].contains(&schema.name.as_str()) => {
                return Err(InventoryError::Other(schema.name));
            }
            Some(schema) if schema.version > Self::VERSION => {
                return Err(InventoryError::Newer(schema.version));
            }
            None if head.kind.is_some() => {
                return Err(InventoryError::Other(head.kind.unwrap_or_default()));
            }
            Some(_) | None => {}
        }
        let mut read: Self = serde_json::from_slice(bytes)?;
        Self::SCHEMA.clone_into(&mut read.schema.name);
        Ok(read)
    }

    /// The answers, as the backend of its system reads them.
    ///
    /// # Errors
    /// They are of another shape.
    pub fn answers<T: DeserializeOwned>(&self) -> Result<T, InventoryError> {
        serde_json::from_str(self.answers.get()).map_err(|source| InventoryError::Answers {
            system: self.system.clone(),
            source,
        })
    }

    /// The document as it is written.
    ///
    /// # Errors
    /// None that could be met: all of it is plain data.
    pub fn to_json(&self) -> Result<Vec<u8>, serde_json::Error> {
        let mut bytes = serde_json::to_vec_pretty(self)?;
        bytes.push(b'\n');
        Ok(bytes)
    }
}

/// Writes a file atomically, under a temporary name in the same folder first. Only its owner may read it,
/// since it describes the layout of a cluster.
///
/// # Errors
/// The folder cannot be written to.
pub fn write_whole(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    use std::io::Write as _;
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.part", std::process::id()));
    let part = path.with_file_name(name);
    let written = secrets::create(&part).and_then(|mut file| {
        file.write_all(bytes)?;
        file.sync_all()?;
        std::fs::rename(&part, path)
    });
    if written.is_err() {
        std::fs::remove_file(&part).ok();
    }
    written
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn read(text: &str) -> Result<Inventory, InventoryError> {
        Inventory::read(text.as_bytes())
    }

    #[test]
    fn what_was_written_is_read_again() {
        let answers = BTreeMap::from([("nodes", 3)]);
        let cluster = ClusterName::new("lab").unwrap();
        let inventory = Inventory::new("ganeti", cluster, Timestamp::UNIX_EPOCH, &answers).unwrap();
        let written = inventory.to_json().unwrap();
        let again = Inventory::read(&written).unwrap();
        assert_eq!(again.system, "ganeti");
        assert_eq!(again.to_json().unwrap(), written);
        let answers: BTreeMap<String, u32> = again.answers().unwrap();
        assert_eq!(answers["nodes"], 3);
        let other = again.answers::<Vec<u32>>().unwrap_err();
        assert_eq!(other.to_string(), "its contents are not answers of ganeti");
    }

    #[test]
    fn a_file_of_the_first_releases_is_of_a_ceph() {
        let text = r#"{"schema": {"name": "ceph-answers", "version": 1}, "taken": "2026-11-20T10:00:00Z", "cluster": "lab", "answers": {}}"#;
        let inventory = read(text).unwrap();
        assert_eq!(
            (inventory.system.as_str(), inventory.schema.name.as_str()),
            ("ceph", "inventory")
        );
    }

    #[test]
    fn what_is_none_is_told_from_what_is_damaged() {
        assert!(matches!(
            read(r#"{"schema": {"name": "inventory", "version": 1}, "taken"#),
            Err(InventoryError::Truncated { line: 1, .. })
        ));
        assert!(matches!(
            read(r#"{"schema": {"name": "inventory", "version": 2}, "more": 1}"#),
            Err(InventoryError::Newer(2))
        ));
        assert!(matches!(
            read(r#"{"schema": {"name": "plan", "version": 1}}"#),
            Err(InventoryError::Other(name)) if name == "plan"
        ));
        assert!(matches!(
            read(r#"{"kind": "snapshot", "version": 1}"#),
            Err(InventoryError::Other(name)) if name == "snapshot"
        ));
        assert!(matches!(read("[]"), Err(InventoryError::Shape(_))));
    }
}
