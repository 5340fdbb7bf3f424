//! Configuration files: refused or taken, and what is taken means the same when it is written out.
#![no_main]

use libfuzzer_sys::fuzz_target;
use serde::Deserialize;
use stagger_ceph::config::{CephConfig, SoftwareByKind};
use stagger_ceph::translate::HealthPolicy;
use stagger_core::model::Policy;
use stagger_engine::hosts::Hosts;

/// The sections as `crates/cli/src/config.rs` puts them together.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Config {
    cluster: Cluster,
    #[serde(default)]
    policy: Policy,
    #[serde(default)]
    #[expect(dead_code, reason = "only read")]
    health: HealthPolicy,
    #[serde(default)]
    #[expect(dead_code, reason = "only read")]
    hosts: Hosts,
    #[serde(default)]
    software: SoftwareByKind,
}

#[derive(Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
enum Cluster {
    Ceph(CephConfig),
}

fuzz_target!(|text: &str| {
    let Ok(config) = toml::from_str::<Config>(text) else {
        return;
    };
    let Cluster::Ceph(cluster) = &config.cluster;
    cluster.access();
    for kind in ["mon", "osd", "other"] {
        config.software.of(kind);
    }
    let policy = &config.policy;
    let written = serde_json::to_string(policy).unwrap();
    assert_eq!(serde_json::from_str::<Policy>(&written).unwrap(), *policy);
});
