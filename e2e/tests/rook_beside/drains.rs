//! Drains of nodes that Rook has laid out, while Rook runs.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};
use serde_json::{Value, json};
use stagger_e2e::ceph::out_of_reach;
use stagger_e2e::ceph_in_pods::ASKED_ABOUT_EVICTIONS;
use stagger_e2e::command::{output, say};
use stagger_e2e::load::Load;
use stagger_e2e::rados::Target;
use stagger_e2e::rook_cluster::{NAMESPACE, RookCluster, RookSpec, beside_rook};

use crate::{
    AGENT, crush_flags, evictions_are_asked_about, given_back, one_domain_drains, refused_by_the_webhook,
};

/// Each node in turn, as for new kernels. One comes back with an empty disk; the next one is told to wait for its data.
#[test]
#[ignore = "needs root, Go, Ceph and Rook; cargo xtask test --long runs it"]
fn every_node_in_turn_and_one_comes_back_empty() -> Result<()> {
    let spec = RookSpec {
        nodes: 4,
        zones: 0,
        ..RookSpec::default()
    };
    let name = "every_node_in_turn_and_one_comes_back_empty";
    beside_rook(name, AGENT, spec, |cluster, phases| {
        cluster
            .patch_cluster(&json!({ "spec": { "disruptionManagement": { "managePodBudgets": false } } }))?;
        cluster.maintain(&json!(["drains"]))?;
        let operator = cluster.operators().start("one", &ASKED_ABOUT_EVICTIONS)?;
        evictions_are_asked_about(cluster)?;
        let mut load = cluster.load()?;
        phases.lap("stagger sees to drains, and clients are at work");

        for node in cluster.spec().nodes() {
            let drained = drain(cluster, &node, 180);
            drained.with_context(|| operator.log())?;
            if node == "n1" {
                came_back_empty(cluster, &node).with_context(|| operator.log())?;
                phases.lap("n1 has an empty disk, and n2 had to wait for its data");
            } else {
                cluster.plane.ask(&["uncordon", &node])?;
            }
            // Whoever drains the next one does not look at Ceph: it is not for him to know.
            nobody_noticed(cluster, &mut load)?;
            phases.lap(format!("{node} was drained"));
        }
        cluster.wait_clean(Duration::from_mins(3))?;
        cluster.wait_ours("nothing is left", Duration::from_mins(1), |status| {
            Ok(status["drains"].is_null() && crush_flags(cluster)? == json!({}))
        })?;
        let report = load.stop()?;
        ensure!(report.failures().is_empty(), "clients noticed: {report:?}");
        Ok(())
    })
}

/// Rook is asked to leave budgets alone while it has a drain in hand: what it has closed, and `noout`, would stay so for ever. The
/// operator that takes it over is killed, and the next one gives it back all the same.
#[test]
#[ignore = "needs root, Go, Ceph and Rook; cargo xtask test --long runs it"]
fn taken_over_from_rook_in_mid_drain() -> Result<()> {
    let spec = RookSpec {
        nodes: 3,
        zones: 0,
        ..RookSpec::default()
    };
    let name = "taken_over_from_rook_in_mid_drain";
    beside_rook(name, AGENT, spec, |cluster, phases| {
        drain(cluster, "n1", 180)?;
        cluster.wait_told("Rook keeps the other nodes", Duration::from_mins(3), |_| {
            let budgets = budgets(cluster)?;
            let blocks = |node: &str| budgets.contains(&format!("rook-ceph-osd-host-{node}"));
            Ok(blocks("n0") && blocks("n2") && crush_flags(cluster)? != json!({}))
        })?;
        phases.lap("Rook has a drain in hand");

        let operator = nothing_goes_meanwhile(cluster, "n2", || {
            cluster.patch_cluster(
                &json!({ "spec": { "disruptionManagement": { "managePodBudgets": false } } }),
            )?;
            cluster.maintain(&json!(["drains"]))?;
            let operator = cluster.operators().start("one", &ASKED_ABOUT_EVICTIONS)?;
            evictions_are_asked_about(cluster)?;
            is_ours(cluster).with_context(|| operator.log())?;
            Ok(operator)
        })?;
        phases.lap("stagger has it in hand, and nothing of n2 could go meanwhile");

        operator.kill()?;
        let operator = cluster.operators().start("two", &ASKED_ABOUT_EVICTIONS)?;
        // Nobody leads before the Lease of the one that was killed has run out.
        given_back(cluster, 120).with_context(|| operator.log())?;
        phases.lap("another operator has given it back, in mid-drain");
        cluster.maintain(&json!(["drains"]))?;
        evictions_are_asked_about(cluster)?;
        is_ours(cluster).with_context(|| operator.log())?;
        phases.lap("stagger has it in hand again");
        refused_by_the_webhook(cluster, "n2").with_context(|| operator.log())?;
        cluster.plane.ask(&["uncordon", "n1", "n2"])?;
        cluster.wait_clean(Duration::from_mins(3))?;
        let over = cluster.wait_ours("nothing is left", Duration::from_mins(2), |status| {
            let budget = cluster.plane.object(NAMESPACE, "pdb", "rook-ceph-osd")?;
            Ok(status["drains"].is_null()
                && crush_flags(cluster)? == json!({})
                && budget["spec"]["maxUnavailable"] == 1)
        });
        over.with_context(|| operator.log())?;
        phases.lap("noout is gone, and one OSD may go again");
        let drained = drain(cluster, "n2", 180);
        drained.with_context(|| operator.log())?;
        cluster.plane.ask(&["uncordon", "n2"])?;
        cluster.wait_clean(Duration::from_mins(3))
    })
}

/// Does something while it is asked again and again whether the OSD of a node may go: it never may, whoever's budgets there
/// are. What is asked changes nothing.
fn nothing_goes_meanwhile<T>(
    cluster: &RookCluster,
    node: &str,
    work: impl FnOnce() -> Result<T>,
) -> Result<T> {
    let pods = cluster.plane.objects(NAMESPACE, "pods")?;
    let is_osd =
        |pod: &&Value| pod["metadata"]["labels"]["app"] == "rook-ceph-osd" && pod["spec"]["nodeName"] == node;
    let pod = pods.iter().find(is_osd).context("the node has no OSD")?;
    let name = pod["metadata"]["name"].as_str().context("a pod without a name")?;
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let watch = scope.spawn(|| {
            let mut asked = 0_u32;
            while !is_over.load(Ordering::SeqCst) {
                if cluster.plane.may_be_evicted(NAMESPACE, name)? {
                    bail!("{name} on {node} might have gone, after {asked} refusals");
                }
                asked += 1;
            }
            ensure!(asked > 20, "it was asked {asked} times only");
            Ok(asked)
        });
        let done = work();
        is_over.store(true, Ordering::SeqCst);
        let asked = watch.join().map_err(|_| anyhow!("asking panicked"))??;
        say(format!("{asked} times {name} might not go"));
        done
    })
}

/// The drain that Rook had in hand is ours: our budget is over all OSDs, and none of Rook's is beside it.
fn is_ours(cluster: &RookCluster) -> Result<()> {
    cluster.wait_ours("the drain is ours", Duration::from_mins(2), |status| {
        let draining = &status["drains"]["draining"];
        let budgets = budgets(cluster)?;
        Ok(draining.as_array().is_some_and(|all| all.len() == 1)
            && budgets.iter().any(|name| name == "rook-ceph-osd")
            && !budgets.iter().any(|name| name.starts_with("rook-ceph-osd-host-")))
    })?;
    one_domain_drains(cluster)
}

/// The names of all PodDisruptionBudgets.
fn budgets(cluster: &RookCluster) -> Result<Vec<String>> {
    let words = [
        "get",
        "pdb",
        "-n",
        NAMESPACE,
        "-o",
        "jsonpath={.items[*].metadata.name}",
    ];
    let names = cluster.plane.ask(&words)?;
    Ok(names.split_whitespace().map(str::to_owned).collect())
}

/// Gives a drained node an empty disk and has Rook find it. Until its data is back the next node may not go, and whoever
/// drains that one is told so.
fn came_back_empty(cluster: &RookCluster, node: &str) -> Result<()> {
    let tree = cluster.rados()?.mon("osd tree")?;
    let hosts = tree["nodes"].as_array().context("no tree")?;
    let host = hosts.iter().find(|one| one["name"] == node);
    let osd = host.and_then(|host| host["children"][0].as_u64());
    flags(cluster, "osd set")?;
    cluster.empty_disk(node, osd.with_context(|| format!("{node} has no OSD"))?)?;
    cluster.plane.ask(&["uncordon", node])?;
    cluster.restart_operator()?;
    cluster.wait_told("Rook has made a new OSD", Duration::from_mins(5), |_| {
        let status = cluster.rados()?.mon("osd dump")?;
        let osds = status["osds"].as_array().context("no OSDs")?;
        Ok(osds.len() == 4 && osds.iter().all(|osd| osd["up"] == 1))
    })?;
    let Err(refused) = drain(cluster, "n2", 20) else {
        anyhow::bail!("n2 was drained while the data of {node} is not back");
    };
    let said = format!("{refused:#}");
    ensure!(
        said.contains(" may not be evicted now: ") && said.contains("placement group"),
        "{said}"
    );
    cluster.plane.ask(&["uncordon", "n2"])?;
    flags(cluster, "osd unset")
}

/// What is to be filled is not filled meanwhile.
fn flags(cluster: &RookCluster, how: &str) -> Result<()> {
    for flag in ["norecover", "nobackfill"] {
        cluster
            .rados()?
            .command(Target::Mon, how, json!({ "key": flag }))?;
    }
    Ok(())
}

/// `kubectl drain`, while it is looked at each moment that no placement group has lost what it needs.
pub(crate) fn drain(cluster: &RookCluster, node: &str, seconds: u32) -> Result<()> {
    let timeout = format!("--timeout={seconds}s");
    let mut draining = cluster.plane.kubectl();
    draining.args([
        "drain",
        node,
        "--ignore-daemonsets",
        "--delete-emptydir-data",
        "--force",
        &timeout,
    ]);
    std::thread::scope(|scope| {
        let ended = scope.spawn(move || output(&mut draining));
        while !ended.is_finished() {
            every_group_serves(cluster)?;
            std::thread::sleep(Duration::from_millis(300));
        }
        let ended = ended
            .join()
            .map_err(|_| anyhow::anyhow!("the thread of a drain panicked"))??;
        let said = String::from_utf8_lossy(&ended.stderr);
        ensure!(ended.status.success(), "draining {node}: {said}");
        Ok(())
    })
}

/// None has fewer copies than its pool asks for.
fn every_group_serves(cluster: &RookCluster) -> Result<()> {
    let status = cluster.rados()?.mon("status")?;
    let lost = out_of_reach(&status)?;
    ensure!(lost.is_empty(), "data is out of reach: {lost:?}");
    Ok(())
}

fn nobody_noticed(cluster: &RookCluster, load: &mut Load) -> Result<()> {
    every_group_serves(cluster)?;
    let failures = load.failures();
    ensure!(failures.is_empty(), "clients noticed: {failures:?}");
    Ok(())
}
