//! Beside older releases of Rook, and beside one that is upgraded in the midst of a run.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::json;
use stagger_e2e::ceph_in_pods::ASKED_ABOUT_EVICTIONS;
use stagger_e2e::rook_cluster::{RookSpec, beside_rook};
use stagger_e2e::rook_program::RookRelease;
use stagger_e2e::roots::Release;

use crate::{AGENT, held, named, updated_while_rook_runs};

fn updated_beside(name: &str, rook: RookRelease, ceph: Release) -> Result<()> {
    let spec = RookSpec {
        rook,
        ceph,
        nodes: 3,
        ..RookSpec::default()
    };
    beside_rook(name, AGENT, spec, updated_while_rook_runs)
}

#[test]
#[ignore = "needs root, Go, Ceph and Rook; cargo xtask test --long runs it"]
fn rook_1_16() -> Result<()> {
    updated_beside("rook_1_16", RookRelease::V1_16, Release::Reef)
}

#[test]
#[ignore = "needs root, Go, Ceph and Rook; cargo xtask test --long runs it"]
fn rook_1_17() -> Result<()> {
    updated_beside("rook_1_17", RookRelease::V1_17, Release::Reef)
}

#[test]
#[ignore = "needs root, Go, Ceph and Rook; cargo xtask test --long runs it"]
fn rook_1_18() -> Result<()> {
    updated_beside("rook_1_18", RookRelease::V1_18, Release::Tentacle)
}

#[test]
#[ignore = "needs root, Go, Ceph and Rook; cargo xtask test --long runs it"]
fn rook_1_19() -> Result<()> {
    updated_beside("rook_1_19", RookRelease::V1_19, Release::Tentacle)
}

/// While OSDs are changed, the next Rook comes, which writes every daemon anew that it is not kept from. The run gets to
/// its end; Rook to its own; and nobody is kept from anything then.
#[test]
#[ignore = "needs root, Go, Ceph and Rook; cargo xtask test --long runs it"]
fn rook_is_upgraded_in_mid_run() -> Result<()> {
    let spec = RookSpec {
        rook: RookRelease::V1_19,
        next_rook: Some(RookRelease::V1_20),
        nodes: 3,
        ..RookSpec::default()
    };
    beside_rook("rook_is_upgraded_in_mid_run", AGENT, spec, |cluster, phases| {
        let before = cluster.incarnations()?;
        let image = cluster.next_image();
        cluster.maintain(&json!(["updates"]))?;
        let operator = cluster.operators().start("one", &ASKED_ABOUT_EVICTIONS)?;
        cluster.patch_maintenance(&json!({ "spec": { "image": image } }))?;
        let at_osds = cluster.wait_ours("OSDs are changed", Duration::from_mins(8), |status| {
            Ok(status["run"]["current"]["stage"] == "osd")
        });
        at_osds.with_context(|| operator.log())?;
        cluster.upgrade_rook()?;
        phases.lap("Rook was upgraded");
        let updated = cluster.wait_ours("all is updated", Duration::from_mins(15), |status| {
            let run = &status["run"];
            Ok(run["verdict"] == "done" && status["conditions"][0]["reason"] == "UpToDate")
        });
        updated.with_context(|| operator.log())?;
        phases.lap("updated");
        cluster.wait_reconciled(Duration::from_mins(10))?;
        cluster.wait_told("Rook has seen it", Duration::from_mins(5), |status| {
            Ok(status["phase"] == "Ready" && status["version"]["image"] == image)
        })?;
        phases.lap("the next Rook has gone through it");
        cluster.wait_clean(Duration::from_mins(3))?;
        ensure!(named(cluster)? == image, "the CephCluster names another image");
        // Once by us, and at most once by the Rook that writes all of them its own way.
        let restarts = cluster.restarts_since(&before)?;
        ensure!(
            restarts.len() == before.len() && restarts.values().all(|count| (1..=2).contains(count)),
            "{restarts:?}"
        );
        let left = held(cluster)?;
        ensure!(left.is_empty(), "Rook is still kept from {left:?}");
        Ok(())
    })
}
