//! What a cluster reports: one parser for each answer, and [`collect`](fn@collect), which sends all queries.
//!
//! The parsers read Ceph's JSON as it is: unused fields are ignored, needed ones must be present and valid.
//! Nothing here evaluates facts; that is the part of [`crate::translate`].

pub mod cephadm;
pub mod collect;
pub mod health;
pub mod mds;
pub mod mgr;
pub mod mon;
pub mod osd;
mod parse;
pub mod pg;
pub mod pg_state;
pub mod release;
pub mod rgw;
pub mod stores;
pub mod tree;
pub mod versions;

use jiff::Timestamp;
use serde::Serialize;
use stagger_core::model::Fact;

pub use collect::{CollectError, CollectOptions, collect};
pub use parse::ParseError;
pub(crate) use parse::{from_json, invalid};

/// All that was read of one cluster, at one OSD map epoch.
#[derive(Debug, Clone, PartialEq)]
pub struct CephFacts {
    /// The cluster's id.
    pub fsid: String,
    /// When reading began.
    pub collected_at: Timestamp,
    /// The OSD map: OSDs, pools, flags.
    pub osds: osd::OsdMap,
    /// The CRUSH tree.
    pub tree: tree::CrushTree,
    /// What each OSD says about itself, as of its last start.
    pub osd_metadata: Vec<osd::OsdMetadata>,
    /// The placement groups, or why they are unknown.
    pub pgs: Fact<pg::PgMap>,
    /// The monitors and their quorum.
    pub mons: mon::Quorum,
    /// What each monitor says about itself.
    pub mon_metadata: Vec<DaemonMetadata>,
    /// The managers.
    pub mgrs: mgr::MgrMap,
    /// What each manager says about itself.
    pub mgr_metadata: Vec<DaemonMetadata>,
    /// The file systems and their metadata servers.
    pub fs: mds::FsMap,
    /// What each metadata server says about itself.
    pub mds_metadata: Vec<DaemonMetadata>,
    /// The object gateways.
    pub gateways: Vec<rgw::Gateway>,
    /// Daemons of which only the map of services tells.
    pub others: Vec<rgw::OtherDaemon>,
    /// What Ceph complains of.
    pub health: health::Health,
    /// How many daemons run which version.
    pub versions: versions::DaemonVersions,
    /// Crash reports that are not archived, or why they are unknown.
    pub crashes: Fact<Vec<health::Crash>>,
    /// The orchestrator that manages the daemons, if there is one, or why it is unknown.
    pub orchestrator: Fact<Option<String>>,
    /// What cephadm is about, where it is the orchestrator; otherwise, or where it does not tell, why not.
    pub cephadm: Fact<cephadm::CephadmFacts>,
}

/// What a daemon says about itself, as of its last start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, serde::Deserialize)]
pub struct DaemonMetadata {
    /// Its name without the kind: `a`.
    pub name: String,
    /// `18.2.7`; a daemon that never started has none.
    #[serde(
        default,
        rename = "ceph_version_short",
        skip_serializing_if = "Option::is_none"
    )]
    pub version: Option<String>,
    /// The host that it runs on.
    #[serde(default, rename = "hostname", skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// The database under a monitor, `rocksdb`, `leveldb` or `unknown`, where it was asked for:
    /// [`stores::ask_mons`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kv_backend: Option<String>,
    /// The image that it runs in, if it runs in a container: by its tag or its digest.
    #[serde(default, rename = "container_image", skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
}

/// Reads `mon metadata`, `mgr metadata` or `mds metadata`.
///
/// # Errors
/// No JSON, or not that shape.
pub fn read_metadata(bytes: &[u8], source: &str) -> Result<Vec<DaemonMetadata>, ParseError> {
    let mut all: Vec<DaemonMetadata> = from_json(bytes, source)?;
    for daemon in &all {
        parse::name(&daemon.name, source)?;
    }
    all.sort_by(|a, b| a.name.cmp(&b.name));
    match all.windows(2).find(|pair| pair[0].name == pair[1].name) {
        Some(pair) => Err(invalid(
            source,
            format!("two daemons are called {:?}", pair[0].name),
        )),
        None => Ok(all),
    }
}
