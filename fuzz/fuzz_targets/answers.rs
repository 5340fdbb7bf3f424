//! Ceph's answers: an error or facts, never a panic.
#![no_main]

use libfuzzer_sys::fuzz_target;
use stagger_ceph::facts::health::{Health, read_crashes};
use stagger_ceph::facts::mds::FsMap;
use stagger_ceph::facts::mgr::MgrMap;
use stagger_ceph::facts::mon::Quorum;
use stagger_ceph::facts::osd::{self, OsdMap};
use stagger_ceph::facts::pg::PgMap;
use stagger_ceph::facts::rgw::CephStatus;
use stagger_ceph::facts::tree::CrushTree;
use stagger_ceph::facts::versions::DaemonVersions;
use stagger_ceph::facts::{ParseError, read_metadata};
use stagger_ceph::oktostop::OkToStopAnswer;

type Parser = fn(&[u8]) -> Result<(), ParseError>;

/// In the order of the first byte of a seed, which `xtask/src/fuzz.rs` writes.
const PARSERS: [Parser; 13] = [
    |b| OsdMap::read(b, "it").map(drop),
    |b| CrushTree::read(b, "it").map(drop),
    |b| osd::read_metadata(b, "it").map(drop),
    |b| PgMap::read(b, "it").map(drop),
    |b| PgMap::read_slice(b, "it").map(drop),
    |b| Quorum::read(b, "it").map(drop),
    |b| read_metadata(b, "it").map(drop),
    |b| MgrMap::read(b, "it").map(drop),
    |b| FsMap::read(b, "it").map(drop),
    |b| CephStatus::read(b, "it").map(drop),
    |b| Health::read(b, "it").map(drop),
    |b| DaemonVersions::read(b, "it").map(drop),
    |b| {
        OkToStopAnswer::read(b, "it")
            .map(drop)
            .and(read_crashes(b, "it").map(drop))
    },
];

fuzz_target!(|bytes: &[u8]| {
    let Some((which, answer)) = bytes.split_first() else {
        return;
    };
    let at = usize::from(which.saturating_sub(b'a')) % PARSERS.len();
    if let Err(error) = PARSERS[at](answer) {
        assert_eq!(error.origin, "it", "an error says of what it is");
    }
});
