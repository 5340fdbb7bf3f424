//! The parts of a daemon's pod that stagger sets, and their short name: the revision.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use stagger_core::model::{IdError, Revision};

use crate::api::objects::PodSpec;
use crate::api::pod::Fields;

/// The parts of a daemon's pod that stagger sets.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PodRevision {
    /// The image with Ceph.
    pub image: String,
    /// The release of Ceph that is in it.
    pub release: String,
    /// What else the spec of the cluster names.
    #[serde(default, skip_serializing_if = "Fields::is_empty")]
    pub fields: Fields,
}

impl PodRevision {
    /// Its revision: the release, and a few letters that tell apart what is made of the same release.
    ///
    /// # Errors
    /// The release cannot be part of a name.
    pub fn revision(&self) -> Result<Revision, IdError> {
        let mut sum = Sha256::new_with_prefix(&self.image);
        for (field, value) in &self.fields {
            sum.update(format!("\n{field}\n{value}"));
        }
        let [a, b, c, ..] = sum.finalize().0;
        Revision::new(format!("{}-{a:02x}{b:02x}{c:02x}", self.release))
    }
}

impl std::fmt::Display for PodRevision {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.image)?;
        let mut before = " with";
        for (field, value) in &self.fields {
            write!(f, "{before} {field}={value}")?;
            before = ",";
        }
        Ok(())
    }
}

/// The image of a daemon's container, which Rook names after the kind of daemon.
pub fn image_of<'a>(spec: &'a PodSpec, kind: &str) -> Option<&'a str> {
    let own = spec.containers.iter().find(|container| container.name == kind);
    own.or_else(|| spec.containers.first())?.image.as_deref()
}

/// What revisions stand for: all that a run may have to bring back, and what it leads to.
pub type RevisionCatalog = BTreeMap<Revision, PodRevision>;
