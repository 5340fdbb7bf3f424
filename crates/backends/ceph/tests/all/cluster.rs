//! The recorded clusters.

use std::path::{Path, PathBuf};

use stagger_ceph::api::recorded::Recorded;
use stagger_ceph::facts::{CephFacts, CollectOptions, collect};

pub(crate) const VERSIONS: [&str; 3] = ["16.2.15", "18.2.7", "20.2.4"];

pub(crate) fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fixtures")
        .join(name)
}

pub(crate) fn text(name: &str) -> String {
    std::fs::read_to_string(fixture(name)).unwrap()
}

pub(crate) fn now() -> jiff::Timestamp {
    "2026-11-21T00:30:00Z".parse().unwrap()
}

/// What is learnt of the cluster that was recorded under that version.
pub(crate) fn recorded(version: &str) -> CephFacts {
    facts_of(&Recorded::new(fixture(version))).unwrap()
}

pub(crate) fn facts_of(
    api: &dyn stagger_ceph::api::CephApi,
) -> Result<CephFacts, stagger_ceph::facts::CollectError> {
    let options = CollectOptions {
        pause: std::time::Duration::ZERO,
        ..CollectOptions::default()
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(collect(api, &options, now()))
}

/// An effect of some run.
pub(crate) fn call() -> stagger_engine::cluster::Call {
    stagger_engine::cluster::Call {
        run: stagger_core::model::RunId::new("r1").unwrap(),
        seq: 1,
        announced: 1,
        fence: 1,
        deadline: None,
    }
}
