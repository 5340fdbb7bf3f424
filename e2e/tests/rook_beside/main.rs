//! Cases on clusters that the real Rook lays out. Where it cannot be had they are skipped, and say so.

mod written;

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use stagger_e2e::command::say;
use stagger_e2e::rook_cluster::{RookSpec, SecondBuild, beside_rook};
use stagger_e2e::roots::{Release, ensure as roots};

const AGENT: &str = env!("CARGO_BIN_EXE_node-agent");

#[test]
#[ignore = "needs root, Go, Ceph and Rook; cargo xtask test runs it"]
fn rook_lays_out_a_cluster_and_hands_it_back_unharmed() -> Result<()> {
    let spec = RookSpec::default();
    beside_rook(
        "rook_lays_out_a_cluster_and_hands_it_back_unharmed",
        AGENT,
        spec,
        |cluster, phases| {
            let complaints = cluster.complaints()?;
            ensure!(complaints.is_empty(), "{complaints:?}");
            say(format!("memory: {} MB", cluster.memory()? / 1_000_000));
            let before = cluster.incarnations()?;
            cluster.kill_operator()?;
            cluster.wait_reconciled(Duration::from_mins(5))?;
            phases.lap("another operator has gone through it");
            cluster.wait_clean(Duration::from_mins(1))?;
            let restarts = cluster.restarts_since(&before)?;
            ensure!(restarts.is_empty(), "{restarts:?}");
            Ok(())
        },
    )
}

/// It says so of itself when it is made; here it is found again.
#[test]
#[ignore = "needs root and Ceph; cargo xtask test --long runs it"]
fn a_second_build_calls_itself_by_the_next_version() -> Result<()> {
    let root = roots(&[Release::Tentacle])?.pop().context("no root of Ceph 20")?;
    let made = SecondBuild::of(&root)?;
    ensure!(made.version != root.ceph_version() && made.layer.join("usr/bin/ceph-osd").is_file());
    ensure!(SecondBuild::of(&root)? == made);
    Ok(())
}
