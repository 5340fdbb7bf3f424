//! The state before a run, as the measure of what is worse now.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use stagger_core::model::{Fact, Kind, Revision, Unit, UnitId, UnitState};

use crate::facts::CephFacts;

const DOCUMENT: &str = "ceph-baseline";
const VERSION: u32 = 1;

/// The state before a run, as stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Document", into = "Document")]
pub struct Baseline {
    /// When it was taken.
    pub at: Timestamp,
    /// The cluster's id.
    pub fsid: String,
    /// The complaints that stood, with whether each was an error. Muted ones are not among them.
    pub health: BTreeMap<String, bool>,
    /// How many managers stood by.
    pub mgr_standbys: u32,
    /// The OSDs on which data was placed.
    pub osds_in: BTreeSet<u32>,
    /// Crash reports that were there.
    pub crashes: BTreeSet<String>,
    /// The daemons that ran. What did not run before a run need not run after it.
    pub daemons: BTreeMap<UnitId, BaselineDaemon>,
}

/// A daemon that ran before a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BaselineDaemon {
    /// What kind of daemon.
    pub kind: Kind,
    /// What it ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<Revision>,
    /// Where it ran.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub domains: BTreeMap<String, String>,
}

/// A document that is no baseline.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("this is a {kind} document of version {version}, and {DOCUMENT} is read up to version {VERSION}")]
pub struct BaselineError {
    /// The kind found.
    pub kind: String,
    /// The version found.
    pub version: u32,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    kind: String,
    version: u32,
    at: Timestamp,
    fsid: String,
    health: BTreeMap<String, bool>,
    mgr_standbys: u32,
    osds_in: BTreeSet<u32>,
    crashes: BTreeSet<String>,
    daemons: BTreeMap<UnitId, BaselineDaemon>,
}

impl Baseline {
    /// What these facts say, with the units that they make.
    pub fn of(facts: &CephFacts, units: &[Unit]) -> Self {
        let checks = facts.health.checks.iter().filter(|(_, check)| !check.muted);
        let running = units
            .iter()
            .filter(|unit| unit.state == UnitState::Serving)
            .map(|unit| {
                let daemon = BaselineDaemon {
                    kind: unit.kind.clone(),
                    revision: unit.revision.clone(),
                    domains: unit.domains.clone(),
                };
                (unit.id.clone(), daemon)
            });
        let crashes = match &facts.crashes {
            Fact::Yes(crashes) => crashes.iter().map(|crash| crash.id.clone()).collect(),
            Fact::No(_) => BTreeSet::new(),
        };
        Self {
            at: facts.collected_at,
            fsid: facts.fsid.clone(),
            health: checks.map(|(code, check)| (code.clone(), check.error)).collect(),
            mgr_standbys: facts.mgrs.standbys.len() as u32,
            osds_in: facts
                .osds
                .osds
                .iter()
                .filter(|(_, osd)| osd.inside)
                .map(|(id, _)| *id)
                .collect(),
            crashes,
            daemons: running.collect(),
        }
    }
}

impl TryFrom<Document> for Baseline {
    type Error = BaselineError;
    fn try_from(document: Document) -> Result<Self, BaselineError> {
        let Document {
            kind,
            version,
            at,
            fsid,
            health,
            mgr_standbys,
            osds_in,
            crashes,
            daemons,
        } = document;
        if kind != DOCUMENT || version > VERSION {
            return Err(BaselineError { kind, version });
        }
        Ok(Self {
            at,
            fsid,
            health,
            mgr_standbys,
            osds_in,
            crashes,
            daemons,
        })
    }
}

impl From<Baseline> for Document {
    fn from(baseline: Baseline) -> Self {
        let Baseline {
            at,
            fsid,
            health,
            mgr_standbys,
            osds_in,
            crashes,
            daemons,
        } = baseline;
        Self {
            kind: DOCUMENT.to_owned(),
            version: VERSION,
            at,
            fsid,
            health,
            mgr_standbys,
            osds_in,
            crashes,
            daemons,
        }
    }
}
