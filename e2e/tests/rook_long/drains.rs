//! Drains by `kubectl drain`.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};
use stagger_e2e::ceph::out_of_reach;
use stagger_e2e::ceph_in_pods::{CephInPods, Operator};
use stagger_e2e::rados::{Rados, Target};
use stagger_e2e::roots::Release;

use crate::{from_18_to_20, on_18, wait_for_osds};

/// By what the API server refuses an eviction where a budget keeps a pod.
const BY_BUDGET: &str = "Cannot evict pod as it would violate the pod's disruption budget";
/// What stands in the place of an OSD that a placement group does not have.
const NO_OSD: u64 = 0x7fff_ffff;

/// As cluster-api does it: each node in turn, with no hand but the one that cordons and uncordons. No placement group is
/// out of reach meanwhile.
#[test]
#[ignore = "needs root, Go and Ceph; cargo xtask test --long runs it"]
fn every_node_in_turn() -> Result<()> {
    on_18("every_node_in_turn", |cluster, _operator, phases| {
        let hosts = cluster.ceph.spec().racks * cluster.ceph.spec().hosts_per_rack;
        for host in 0..hosts {
            let node = format!("host{host}");
            drain_watched(cluster, &node).with_context(|| format!("draining {node}"))?;
            cluster.uncordon(&node)?;
            wait_until_active(cluster).with_context(|| format!("{node} is given back"))?;
            phases.lap(format!("{node} drained and given back"));
        }
        cluster.wait_told("nothing is left", Duration::from_mins(2), |status| {
            cluster.is_at_rest(status)
        })?;
        Ok(())
    })
}

/// `kubectl drain`, while it is looked at each moment that no placement group has lost what it needs.
fn drain_watched(cluster: &CephInPods, node: &str) -> Result<()> {
    std::thread::scope(|scope| {
        let drain = scope.spawn(|| cluster.drain(node, 180));
        while !drain.is_finished() {
            every_group_serves(cluster)?;
            std::thread::sleep(Duration::from_millis(300));
        }
        let drained = drain.join();
        drained.unwrap_or_else(|_| Err(anyhow::anyhow!("a drain could not be waited for")))
    })?;
    every_group_serves(cluster)
}

/// None has fewer copies than its pool asks for.
fn every_group_serves(cluster: &CephInPods) -> Result<()> {
    let status = cluster.ceph.rados().mon("status")?;
    let lost = out_of_reach(&status)?;
    ensure!(lost.is_empty(), "data is out of reach: {lost:?}");
    Ok(())
}

/// Waits until every placement group is active, with as many copies as its pool serves with.
fn wait_until_active(cluster: &CephInPods) -> Result<()> {
    let limit = Duration::from_mins(1);
    let waited = cluster
        .ceph
        .wait_for("every placement group is active", limit, every_group_is_active);
    waited.map(|_| ())
}

fn every_group_is_active(rados: &mut Rados) -> Result<bool> {
    let osds = rados.mon("osd dump")?;
    let groups = rados.command(Target::Mgr, "pg dump", json!({}))?;
    let pools = osds["pools"].as_array().context("no pools")?;
    let groups = groups["pg_map"]["pg_stats"]
        .as_array()
        .context("no placement groups")?;
    let least = |group: &Value| {
        let (pool, _) = group["pgid"].as_str()?.split_once('.')?;
        let pool: u64 = pool.parse().ok()?;
        let of_group = pools.iter().find(|one| one["pool"] == pool)?;
        of_group["min_size"].as_u64()
    };
    let is_active = |group: &Value| {
        let acting = group["acting"].as_array().into_iter().flatten();
        let copies = acting.filter(|osd| **osd != NO_OSD).count() as u64;
        let state = group["state"].as_str().unwrap_or_default();
        state.split('+').any(|word| word == "active") && least(group).is_some_and(|least| copies >= least)
    };
    Ok(!groups.is_empty() && groups.iter().all(is_active))
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
        kept_by_the_budget(cluster, "host6")?;
        phases.lap("a second node kept by the budget alone");
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

/// A node is drained in vain: the budget keeps the pod of each of its OSDs, and each is the same as before.
fn kept_by_the_budget(cluster: &CephInPods, node: &str) -> Result<()> {
    let before = pods_of_osds(cluster, node)?;
    ensure!(!before.is_empty(), "no OSD is on {node}");
    let Err(refused) = cluster.drain(node, 10) else {
        bail!("{node} was drained beside another one");
    };
    let said = format!("{refused:#}");
    let is_kept = |pod: &String| {
        let mut lines = said.lines();
        lines.any(|line| line.contains(pod) && line.contains(BY_BUDGET))
    };
    ensure!(
        before.keys().all(is_kept),
        "not all of {before:?} are kept: {said}"
    );
    let after = pods_of_osds(cluster, node)?;
    ensure!(
        after == before,
        "the pods of {node} were {before:?}, and are {after:?}"
    );
    Ok(())
}

/// The pods of OSDs on a node that are not about to go, with their uids.
fn pods_of_osds(cluster: &CephInPods, node: &str) -> Result<BTreeMap<String, String>> {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let pods = cluster.all("pods")?;
    let found = pods.iter().filter(|pod| {
        pod["spec"]["nodeName"] == node
            && pod["metadata"]["labels"]["ceph-osd-id"].is_string()
            && pod["metadata"]["deletionTimestamp"].is_null()
    });
    Ok(found
        .filter_map(|pod| {
            let metadata = &pod["metadata"];
            Some((text(&metadata["name"])?, text(&metadata["uid"])?))
        })
        .collect())
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
