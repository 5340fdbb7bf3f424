//! The goal of an upgrade: as requested, and as a run keeps it.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::release_code::ReleaseCode;
use stagger_core::model::Fact;

/// The release that is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WantedRelease {
    /// With its patch: `29.0.6`.
    pub release: String,
    /// What its own code says; `None`: it was not asked.
    pub code: Option<Fact<ReleaseCode>>,
}

impl WantedRelease {
    /// That release, by what this program knows of it.
    pub fn new(release: impl Into<String>) -> Self {
        Self {
            release: release.into(),
            code: None,
        }
    }
}

/// The release to which a cluster is upgraded, as a run's journal keeps it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UpgradeGoal {
    /// The release to go to: `29.0.6`.
    pub to: String,
    /// Where services come from, with the patch: going back goes there.
    pub from: String,
    /// The pin while both run.
    pub pin: String,
    /// The interruptions that a person permitted when the run began.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub interruptions: BTreeSet<String>,
    /// What the code of `to` says about itself, from the release on that services come from; `None`: this program's own table is
    /// what the run goes by.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<ReleaseCode>,
}
