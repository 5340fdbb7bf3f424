//! Whether OSDs may stop together: stagger's own version of `ceph osd ok-to-stop`.
//!
//! The rules are those of Ceph 16 and 18, over the same facts, with the same fields in the answer: each
//! placement group that loses a member must keep enough for its pool's `min_size`. Ceph 20.2.4 tests only
//! groups whose *last* acting OSD is in the set, and so approves sets that it should not;
//! [`compare`](fn@compare) shows where.
//!
//! Some sets that Ceph approves are refused here, with their groups listed apart as `also_unsafe_pgs`. Ceph
//! counts only the complete members of a degraded group. So it passes over a group when only its incomplete
//! members are in the set, though the group stops serving when too few are left, and over a group without any
//! complete member. It counts a member that the OSD map shows as down if the group has not been reported
//! since. It takes a stale report as fresh. And it does not count the sites of a stretch pool: of four copies
//! in two sites it lets both of one site go, and the group cannot peer.

mod compare;
mod largest;
mod oracle;
mod verdict;

use std::fs::File;
use std::path::Path;

pub use compare::{Agreement, OkToStopAnswer, Proof, compare};
pub use largest::Largest;
pub use oracle::Oracle;
pub use verdict::{OkToStopReport, OkToStopVerdict, report};

use crate::facts::ParseError;
use crate::facts::osd::OsdMap;
use crate::facts::pg::PgMap;
use crate::facts::tree::CrushTree;

/// An OSD that does not exist. Ceph itself answers that it may stop.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no osd.{id}{}", and_nearest(.nearest))]
pub struct NoSuchOsd {
    /// The number asked about.
    pub id: u32,
    /// The numbers nearest to it that exist, at most three.
    pub nearest: Vec<u32>,
}

fn and_nearest(ids: &[u32]) -> String {
    if ids.is_empty() {
        return ": the cluster has no OSDs".to_owned();
    }
    let names: Vec<String> = ids.iter().map(|id| format!("osd.{id}")).collect();
    format!("; the nearest are {}", names.join(", "))
}

/// The maps that the oracle looks at.
#[derive(Debug, Clone, PartialEq)]
pub struct Maps {
    /// The placement groups.
    pub pgs: PgMap,
    /// OSDs and pools.
    pub osds: OsdMap,
    /// The CRUSH tree.
    pub tree: CrushTree,
}

impl Maps {
    /// An oracle on these maps.
    pub fn oracle(&self) -> Oracle<'_> {
        Oracle::new(&self.pgs, &self.osds, &self.tree)
    }
}

/// Reads `pg_dump.json`, `osd_dump.json` and `osd_tree.json` in a folder, as `ceph … -f json` prints
/// them. The first may be the brief one too.
///
/// # Errors
/// A file that is missing or cannot be read.
pub fn load(folder: &Path) -> Result<Maps, ParseError> {
    let path = |name: &str| folder.join(name);
    let bytes = |name: &str| {
        std::fs::read(path(name)).map_err(|error| ParseError {
            origin: path(name).display().to_string(),
            source: error.into(),
        })
    };
    let origin = |name: &str| path(name).display().to_string();
    let pg_dump = File::open(path("pg_dump.json")).map_err(|error| ParseError {
        origin: origin("pg_dump.json"),
        source: error.into(),
    })?;
    Ok(Maps {
        pgs: PgMap::read(pg_dump, &origin("pg_dump.json"))?,
        osds: OsdMap::read(&bytes("osd_dump.json")?, &origin("osd_dump.json"))?,
        tree: CrushTree::read(&bytes("osd_tree.json")?, &origin("osd_tree.json"))?,
    })
}
