//! Others, and the machines, do something while OSDs are down for a revision.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};
use stagger_e2e::ceph::spec::EC_POOL;
use stagger_e2e::ceph_in_pods::{CephInPods, NAMESPACE, Operator};
use stagger_e2e::rados::Target;
use stagger_e2e::roots::Release;

use crate::{ask_for, images, on_18, wait_for_osds};

/// The OSDs of a run's open wave.
fn wave(run: &Value) -> BTreeSet<u64> {
    let units = run["current"]["units"].as_object().into_iter().flatten();
    units
        .flat_map(|(_, units)| units.as_array().into_iter().flatten())
        .filter_map(|unit| unit.as_str()?.strip_prefix("osd.")?.parse().ok())
        .collect()
}

/// The OSDs of each placement group that is erasure-coded.
fn erasure_coded(cluster: &CephInPods) -> Result<Vec<BTreeSet<u64>>> {
    let mut rados = cluster.ceph.rados();
    let answer = rados.command(Target::Mgr, "pg ls-by-pool", json!({ "poolstr": EC_POOL }))?;
    let groups = answer["pg_stats"].as_array().context("no placement groups")?;
    let up = groups
        .iter()
        .map(|group| group["up"].as_array().into_iter().flatten());
    Ok(up.map(|osds| osds.filter_map(Value::as_u64).collect()).collect())
}

/// The same release by another name is asked for: the shortest way to waves.
fn ask_for_revision(cluster: &CephInPods) -> Result<String> {
    let image = format!("{}-again", cluster.image(Release::Reef)?);
    ask_for(cluster, &image)?;
    Ok(image)
}

/// The run ends, and every daemon has the image.
fn ensure_ends_well(cluster: &CephInPods, image: &str) -> Result<()> {
    let status = cluster.wait_ready(image, Duration::from_mins(8))?;
    ensure!(status["run"]["verdict"] == "done", "{status:#}");
    let now = images(cluster)?;
    ensure!(now == BTreeSet::from([image.to_owned()]), "{now:?}");
    Ok(())
}

/// While a wave is down nothing else may be evicted. Where nobody manages budgets, somebody evicts an OSD of the
/// wave itself: the wave waits for it, and the run comes to its end.
#[test]
#[ignore = "needs root, Go and Ceph; cargo xtask test --long runs it"]
fn osd_pod_evicted_in_mid_wave() -> Result<()> {
    on_18("osd_pod_evicted_in_mid_wave", |cluster, _operator, phases| {
        let image = ask_for_revision(cluster)?;
        let down = wave(&wait_for_osds(cluster)?);
        let other = (0..u64::from(cluster.ceph.spec().osds)).find(|osd| !down.contains(osd));
        let other = other.context("all OSDs are in one wave")?;
        let pod = cluster.pod_of_osd(other)?;
        let name = pod["metadata"]["name"].as_str().unwrap_or_default();
        let refused = cluster.evict(name)?;
        ensure!(
            refused.is_some(),
            "osd.{other} was evicted while {down:?} are down"
        );
        phases.lap("nothing outside the wave may go");
        let manage = |what: &Value| cluster.patch_cluster(&json!({ "spec": { "manage": what } }));
        manage(&json!(["updates", "provisioning"]))?;
        cluster.wait_told("the budget lets one go", Duration::from_secs(30), |_| {
            Ok(cluster.osd_budgets()?.values().all(|lets_go| *lets_go == 1))
        })?;
        // It is nobody's now, and would let none go while the wave is down.
        for budget in cluster.osd_budgets()?.keys() {
            cluster.plane.ask(&["delete", "pdb", budget, "-n", NAMESPACE])?;
        }
        let (osd, before) = evicted(cluster)?;
        cluster.wait_told("it has another pod", Duration::from_mins(1), |_| {
            let now = cluster.pod_of_osd(osd);
            Ok(now.is_ok_and(|now| now["metadata"]["uid"] != before["metadata"]["uid"]))
        })?;
        phases.lap(format!("osd.{osd} of the wave evicted"));
        manage(&json!(["drains", "updates", "provisioning"]))?;
        ensure_ends_well(cluster, &image)?;
        phases.lap("the run's end");
        cluster.wait_told("nothing is left", Duration::from_mins(2), |status| {
            cluster.is_at_rest(status)
        })?;
        Ok(())
    })
}

/// Evicts an OSD of an open wave: its number, and the pod that it had.
fn evicted(cluster: &CephInPods) -> Result<(u64, Value)> {
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_mins(2) {
        for osd in wave(&wait_for_osds(cluster)?) {
            // Its pod may be between two.
            let Ok(pod) = cluster.pod_of_osd(osd) else {
                continue;
            };
            let name = pod["metadata"]["name"].as_str().unwrap_or_default();
            match cluster.evict(name) {
                Ok(None) => return Ok((osd, pod)),
                Ok(Some(why)) => bail!("nobody manages budgets, and {name} may not go: {why}"),
                Err(_) => {}
            }
        }
    }
    bail!("no OSD of a wave could be evicted")
}

/// A node without any OSD of the open wave loses its power: the run names what is missing and stops nothing
/// more. Once the node is back it goes on by itself.
#[test]
#[ignore = "needs root, Go and Ceph; cargo xtask test --long runs it"]
fn node_lost_in_mid_wave() -> Result<()> {
    on_18("node_lost_in_mid_wave", |cluster, _operator, phases| {
        cluster.patch_cluster(&json!({ "spec": { "waitTimeoutForHealthyOSDInMinutes": 1 } }))?;
        let image = ask_for_revision(cluster)?;
        // What is written in two pieces of three while the third is down for the wave cannot be read without one of
        // the two: no node goes that shares such a group with the wave.
        let groups = erasure_coded(cluster)?;
        let beside = |down: &BTreeSet<u64>, osds: &[u64]| {
            let shared = groups.iter().filter(|group| !group.is_disjoint(down));
            osds.iter()
                .all(|osd| !down.contains(osd) && shared.clone().all(|group| !group.contains(osd)))
        };
        // Nodes with OSDs and nothing else.
        let nodes = [("host9", [18, 19]), ("host10", [20, 21]), ("host11", [22, 23])];
        let mut lost = None;
        cluster.wait_told("a wave apart from a node", Duration::from_mins(4), |status| {
            let down = wave(&status["run"]);
            let apart = nodes.iter().find(|(_, osds)| beside(&down, osds));
            lost = apart.filter(|_| !down.is_empty()).map(|found| (down, found));
            Ok(lost.is_some())
        })?;
        let (down, (node, osds)) = lost.context("no wave was apart from a node")?;
        cluster.agent.lose(node)?;
        let status = cluster.wait_told("it is held", Duration::from_mins(6), |status| {
            let message = status["message"].as_str().unwrap_or_default();
            Ok(message.contains("fault-outside-the-wave"))
        })?;
        phases.lap(format!("held without {node}"));
        let message = status["message"].as_str().unwrap_or_default();
        for osd in osds {
            ensure!(message.contains(&format!("osd.{osd}")), "{message}");
        }
        let run = &status["run"];
        ensure!(wave(run) == down, "{down:?} were open: {status:#}");
        let passed = run["waves_passed"].clone();
        cluster.agent.find(node)?;
        cluster.wait_told("it goes on", Duration::from_mins(4), |status| {
            Ok(status["run"]["waves_passed"] != passed)
        })?;
        phases.lap("the node is back, and the next wave");
        ensure_ends_well(cluster, &image)?;
        phases.lap("the run's end");
        Ok(())
    })
}

/// The API server is killed and comes back: the operator is the same process, and carries on the same run.
#[test]
#[ignore = "needs root, Go and Ceph; cargo xtask test --long runs it"]
fn api_server_restarted_in_mid_wave() -> Result<()> {
    on_18(
        "api_server_restarted_in_mid_wave",
        |cluster, mut operator, phases| {
            let image = ask_for_revision(cluster)?;
            let run = wait_for_osds(cluster)?["run"].clone();
            cluster.plane.restart_api_server(Duration::from_secs(3))?;
            phases.lap("the API server killed and started again");
            // Until it has read who may do what, an API server forbids everything. The operator says so, changes
            // nothing, and goes on by itself.
            cluster.wait_told("the run's end", Duration::from_mins(8), |status| {
                let message = status["message"].as_str().unwrap_or_default();
                if status["phase"] == "Blocked" && !message.contains("is forbidden") {
                    bail!("it is blocked: {status:#}");
                }
                Ok(status["phase"] == "Ready")
            })?;
            ensure_ends_well(cluster, &image)?;
            ensure!(operator.runs()?, "the operator has ended: {}", operator.log());
            let status = cluster.wait_told("it is told", Duration::from_secs(5), |_| Ok(true))?;
            ensure!(status["run"]["run"] == run, "another run than {run}: {status:#}");
            ensure!(Operator::leader(cluster, std::slice::from_ref(&operator))? == 0);
            phases.lap("the run's end");
            Ok(())
        },
    )
}
