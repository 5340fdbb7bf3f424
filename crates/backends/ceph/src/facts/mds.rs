//! The file systems and their metadata servers.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{ParseError, from_json, parse};

/// The file systems, as `fs dump` lists them. A stopped metadata server is in no list.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct FsMap {
    /// The file systems, by name.
    pub filesystems: Vec<Filesystem>,
    /// The metadata servers that stand by for whichever file system needs one, sorted.
    pub standbys: Vec<String>,
}

/// A file system.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Filesystem {
    /// Its name.
    pub name: String,
    /// How many ranks it should have.
    pub max_mds: u32,
    /// Ranks without a server, and ranks with damaged data.
    pub lost_ranks: u32,
    /// Whether a standby may follow a rank's journal.
    pub standby_replay: bool,
    /// Its metadata servers, by name.
    pub servers: Vec<MetadataServer>,
}

impl Filesystem {
    /// How many servers hold a rank, those included that are about to stop.
    pub fn ranks(&self) -> usize {
        self.servers.iter().filter(|server| !server.follows()).count()
    }
}

/// A metadata server of a file system.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MetadataServer {
    /// Its name.
    pub name: String,
    /// `up:active`, `up:replay`, `up:standby-replay`.
    pub state: String,
    /// Whether it has not been heard from for a while.
    pub laggy: bool,
}

impl MetadataServer {
    /// It serves a rank.
    pub fn active(&self) -> bool {
        self.state == "up:active" && !self.laggy
    }

    /// It only follows one that does.
    pub fn follows(&self) -> bool {
        self.state == "up:standby-replay"
    }
}

#[derive(Deserialize)]
struct Raw {
    #[serde(default)]
    standbys: Vec<RawServer>,
    #[serde(default)]
    filesystems: Vec<RawFs>,
}

#[derive(Deserialize)]
struct RawFs {
    mdsmap: RawMap,
}

#[derive(Deserialize)]
struct RawMap {
    fs_name: String,
    max_mds: u32,
    #[serde(default)]
    flags: u64,
    #[serde(default)]
    failed: Vec<i64>,
    #[serde(default)]
    damaged: Vec<i64>,
    #[serde(default)]
    info: BTreeMap<String, RawServer>,
}

#[derive(Deserialize)]
struct RawServer {
    name: String,
    state: String,
    #[serde(default)]
    laggy_since: Option<String>,
}

/// The bit of `flags` by which standbys may follow: `CEPH_MDSMAP_ALLOW_STANDBY_REPLAY`.
const STANDBY_REPLAY: u64 = 1 << 5;

impl FsMap {
    /// Reads `fs dump`.
    ///
    /// # Errors
    /// No JSON, not that shape, or a name that cannot be one.
    pub fn read(bytes: &[u8], origin: &str) -> Result<Self, ParseError> {
        let raw: Raw = from_json(bytes, origin)?;
        let mut standbys: Vec<String> = raw.standbys.into_iter().map(|mds| mds.name).collect();
        standbys.sort();
        standbys.dedup();
        let mut filesystems = Vec::new();
        for RawFs { mdsmap } in raw.filesystems {
            let mut servers: Vec<MetadataServer> = mdsmap
                .info
                .into_values()
                .map(|mds| MetadataServer {
                    name: mds.name,
                    state: mds.state,
                    laggy: mds.laggy_since.is_some(),
                })
                .collect();
            servers.sort_by(|a, b| a.name.cmp(&b.name));
            filesystems.push(Filesystem {
                name: mdsmap.fs_name,
                max_mds: mdsmap.max_mds,
                lost_ranks: (mdsmap.failed.len() + mdsmap.damaged.len()) as u32,
                standby_replay: mdsmap.flags & STANDBY_REPLAY != 0,
                servers,
            });
        }
        filesystems.sort_by(|a, b| a.name.cmp(&b.name));
        let servers = filesystems.iter().flat_map(|fs| &fs.servers).map(|mds| &mds.name);
        for name in servers.chain(&standbys) {
            parse::name(name, origin)?;
        }
        Ok(Self {
            filesystems,
            standbys,
        })
    }
}
