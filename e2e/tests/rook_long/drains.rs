//! Drains by `kubectl drain`.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::json;
use stagger_e2e::laid_out::Operator;
use stagger_e2e::rados::Target;
use stagger_e2e::roots::Release;

use crate::{from_18_to_20, on_18, wait_for_osds};

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

/// A cordon alone blocks nobody, and drains of others get through beside it. A node that stays drained for longer than
/// `osdMaintenanceTimeout` has no `noout` any more.
#[test]
#[ignore = "needs root, Go and Ceph; cargo xtask test --long runs it"]
fn a_cordon_that_lasts() -> Result<()> {
    on_18("a_cordon_that_lasts", |cluster, _operator, phases| {
        cluster.plane.ask(&["cordon", "host5"])?;
        std::thread::sleep(Duration::from_secs(10));
        let status = cluster.wait_told("nothing is told", Duration::from_secs(5), |_| Ok(true))?;
        ensure!(cluster.is_at_rest(&status)?, "a cordon blocks: {status:#}");
        cluster
            .patch_cluster(&json!({ "spec": { "disruptionManagement": { "osdMaintenanceTimeout": 1 } } }))?;
        cluster.drain("host2", 120)?;
        phases.lap("another node drained beside it");
        cluster.wait_told("noout is on it", Duration::from_secs(30), |_| {
            Ok(cluster.crush_flags()? == json!({ "host2": ["noout"] }))
        })?;
        cluster.wait_told("noout has its end", Duration::from_secs(90), |_| {
            Ok(cluster.crush_flags()? == json!({}))
        })?;
        phases.lap("a minute later noout is gone, and the node still drained");
        cluster.uncordon("host2")?;
        cluster.wait_told("nothing is left", Duration::from_mins(2), |status| {
            cluster.is_at_rest(status)
        })?;
        cluster.uncordon("host5")
    })
}

/// Two nodes in two failure domains are drained at the same time: one goes, then the other, and both are done
/// with nobody's help but the one who gives a node back.
#[test]
#[ignore = "needs root, Go and Ceph; cargo xtask test --long runs it"]
fn two_at_once_in_two_domains() -> Result<()> {
    on_18("two_at_once_in_two_domains", |cluster, _operator, phases| {
        let one = |node: &'static str| -> Result<()> {
            cluster
                .drain(node, 240)
                .with_context(|| format!("draining {node}"))?;
            cluster.uncordon(node)
        };
        std::thread::scope(|scope| {
            let both = [scope.spawn(|| one("host1")), scope.spawn(|| one("host6"))];
            both.into_iter().try_for_each(|drain| {
                let drained = drain.join();
                drained.unwrap_or_else(|_| Err(anyhow::anyhow!("a drain could not be waited for")))
            })
        })?;
        phases.lap("both drained and given back");
        cluster.wait_told("nothing is left", Duration::from_mins(2), |status| {
            cluster.is_at_rest(status)
        })?;
        Ok(())
    })
}

/// A node whose OSDs hold nothing is drained and stays so: nothing is missing, so another may be drained.
#[test]
#[ignore = "needs root, Go and Ceph; cargo xtask test --long runs it"]
fn osds_without_placement_groups() -> Result<()> {
    on_18("osds_without_placement_groups", |cluster, _operator, phases| {
        let weigh = |weight: f64| -> Result<()> {
            for osd in ["osd.4", "osd.5"] {
                let wish = json!({ "name": osd, "weight": weight });
                cluster
                    .ceph
                    .rados()
                    .command(Target::Mon, "osd crush reweight", wish)?;
            }
            cluster.ceph.wait_clean(Duration::from_mins(3)).map(|_| ())
        };
        weigh(0.0)?;
        cluster.wait_told("they hold nothing", Duration::from_mins(2), |_| {
            let df = cluster.ceph.rados().command(Target::Mgr, "osd df", json!({}))?;
            let nodes = df["nodes"].as_array().context("no nodes")?;
            let theirs = nodes.iter().filter(|node| node["id"] == 4 || node["id"] == 5);
            Ok(theirs.filter(|node| node["pgs"] == 0).count() == 2)
        })?;
        phases.lap("host2 holds nothing");
        cluster.drain("host2", 120)?;
        phases.lap("host2 drained");
        cluster
            .drain("host10", 180)
            .context("the second node, while the first stays drained")?;
        phases.lap("another one drained beside it");
        cluster.uncordon("host10")?;
        cluster.uncordon("host2")?;
        weigh(1.0)?;
        cluster.wait_told("nothing is left", Duration::from_mins(2), |status| {
            cluster.is_at_rest(status)
        })?;
        Ok(())
    })
}

/// A node is drained while an upgrade is at its OSDs: both come to their end, and no client notices.
#[test]
#[ignore = "needs root, Go and Ceph; cargo xtask test --long runs it"]
fn during_an_upgrade() -> Result<()> {
    from_18_to_20("during_an_upgrade", |cluster, _operator, image, phases| {
        wait_for_osds(cluster)?;
        cluster.drain("host9", 300)?;
        phases.lap("a node drained in mid-upgrade");
        cluster.uncordon("host9")?;
        cluster.wait_ready(image, Duration::from_mins(6))?;
        phases.lap("18 to 20");
        cluster.wait_told("nothing is left", Duration::from_mins(2), |status| {
            cluster.is_at_rest(status)
        })?;
        Ok(())
    })
}
