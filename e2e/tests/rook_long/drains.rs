//! Drains by `kubectl drain`.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::json;
use stagger_e2e::laid_out::Operator;
use stagger_e2e::roots::Release;

use crate::on_18;

/// As cluster-api does it: each node in turn, with no hand but the one that cordons and uncordons.
#[test]
#[ignore = "needs root, Go and Ceph; cargo xtask test --long runs it"]
fn every_node_in_turn() -> Result<()> {
    on_18("every_node_in_turn", |cluster, _operator, phases| {
        let hosts = cluster.ceph.spec().racks * cluster.ceph.spec().hosts_per_rack;
        for host in 0..hosts {
            let node = format!("host{host}");
            cluster
                .drain(&node, 180)
                .with_context(|| format!("draining {node}"))?;
            cluster.uncordon(&node)?;
            phases.lap(format!("{node} drained and given back"));
        }
        cluster.wait_told("nothing is left", Duration::from_mins(2), |status| {
            cluster.is_at_rest(status)
        })?;
        Ok(())
    })
}

/// The operator is killed in mid-drain: what it had set stands, and the next one takes it back in time.
#[test]
#[ignore = "needs root, Go and Ceph; cargo xtask test --long runs it"]
fn operator_restarted_in_mid_drain() -> Result<()> {
    on_18("operator_restarted_in_mid_drain", |cluster, first, phases| {
        cluster.drain("host2", 120)?;
        let status = cluster.wait_told("the drain is told", Duration::from_secs(30), |status| {
            Ok(status["drains"]["draining"] == json!(["host2"]))
        })?;
        cluster.ensure_only_this_drains("host2", &status)?;
        first.kill()?;
        phases.lap("the operator killed in mid-drain");
        // With nobody there the budgets stand, and nothing else may go.
        ensure!(
            cluster.drain("host6", 5).is_err(),
            "a second node was drained beside the first"
        );
        cluster.uncordon("host2")?;
        cluster.uncordon("host6")?;
        let _second = Operator::start(cluster, "two", Release::Reef)?;
        cluster.wait_told("nothing is left", Duration::from_mins(3), |status| {
            cluster.is_at_rest(status)
        })?;
        phases.lap("another took its work over");
        Ok(())
    })
}

/// A cordon alone blocks nobody, and drains of others get through beside it.
#[test]
#[ignore = "needs root, Go and Ceph; cargo xtask test --long runs it"]
fn a_cordon_that_lasts() -> Result<()> {
    on_18("a_cordon_that_lasts", |cluster, _operator, phases| {
        cluster.plane.ask(&["cordon", "host5"])?;
        std::thread::sleep(Duration::from_secs(10));
        let status = cluster.wait_told("nothing is told", Duration::from_secs(5), |_| Ok(true))?;
        ensure!(cluster.is_at_rest(&status)?, "a cordon blocks: {status:#}");
        cluster.drain("host2", 120)?;
        cluster.uncordon("host2")?;
        phases.lap("another node drained beside it");
        cluster.wait_told("nothing is left", Duration::from_mins(2), |status| {
            cluster.is_at_rest(status)
        })?;
        cluster.uncordon("host5")
    })
}
