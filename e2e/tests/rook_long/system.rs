//! The operator itself is upgraded, then its agents, and only then clusters.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use stagger_e2e::ceph_in_pods::{
    CephInPods, NAMESPACE, NEXT_STAGGER_IMAGE, Operator, STAGGER_IMAGE, in_pods,
};
use stagger_e2e::roots::Release;

use crate::{AGENT, ask_for};

/// The nodes of a cluster of the usual shape.
const NODES: usize = 12;
/// A release that is newer than any.
const NEXT: &str = "99.0.0";

/// The agents that are ready and not ending: the image of each, by node.
fn agents(cluster: &CephInPods) -> Result<BTreeMap<String, String>> {
    let pods = cluster.all("pods")?;
    let is_ready = |pod: &Value| {
        let conditions = pod["status"]["conditions"].as_array();
        pod["metadata"]["deletionTimestamp"].is_null()
            && conditions
                .into_iter()
                .flatten()
                .any(|one| one["type"] == "Ready" && one["status"] == "True")
    };
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    Ok(pods
        .iter()
        .filter(|pod| pod["metadata"]["labels"]["app"] == "stagger-agent" && is_ready(pod))
        .map(|pod| {
            (
                text(&pod["spec"]["nodeName"]),
                text(&pod["spec"]["containers"][0]["image"]),
            )
        })
        .collect())
}

fn are_all_of(agents: &BTreeMap<String, String>, image: &str) -> bool {
    agents.len() == NODES && agents.values().all(|found| found == image)
}

/// The Deployments that ask for an image.
fn with_image(cluster: &CephInPods, image: &str) -> Result<usize> {
    let all = cluster.all("deployments")?;
    let asks = |one: &&Value| one["spec"]["template"]["spec"]["containers"][0]["image"] == image;
    Ok(all.iter().filter(asks).count())
}

/// What each node has listed of its devices.
fn listed_devices(cluster: &CephInPods) -> Result<BTreeMap<String, Vec<Value>>> {
    let mut found = BTreeMap::new();
    for map in cluster.all("configmaps")? {
        if let Some(text) = map["data"]["devices.json"].as_str() {
            let devices = serde_json::from_str(text).context("devices are no JSON")?;
            found.insert(
                map["data"]["node"].as_str().unwrap_or_default().to_owned(),
                devices,
            );
        }
    }
    Ok(found)
}

/// A pod says something and is gone; its words are kept on its node.
fn last_words_are_kept(cluster: &CephInPods) -> Result<()> {
    let name = "rook-ceph-crashes";
    cluster.apply(
        "somebody",
        &[json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name, "namespace": NAMESPACE },
            "spec": {
                "nodeName": "host3", "restartPolicy": "Never", "automountServiceAccountToken": false,
                "containers": [{
                    "name": "c", "image": STAGGER_IMAGE, "command": ["sh", "-c", "echo last words; exit 3"],
                }],
            },
        })],
    )?;
    cluster.wait_told("the pod has ended", Duration::from_mins(1), |_| {
        Ok(cluster.get("pod", name)?["status"]["phase"] == "Failed")
    })?;
    let uid = cluster.get("pod", name)?["metadata"]["uid"].clone();
    let folder = format!("{NAMESPACE}_{name}_{}", uid.as_str().unwrap_or_default());
    // It is seen at least once.
    std::thread::sleep(Duration::from_secs(20));
    cluster.plane.ask(&["delete", "pod", name, "-n", NAMESPACE])?;
    let gone = cluster.on_node("host3", "var/log/pods").join(&folder);
    let kept = cluster
        .on_node("host3", "var/lib/stagger/logs")
        .join(&folder)
        .join("c/0.log");
    cluster.wait_told("its words are kept", Duration::from_mins(1), |_| {
        Ok(!gone.exists() && fs::read_to_string(&kept).is_ok_and(|text| text == "last words\n"))
    })?;
    Ok(())
}

/// A new operator brings its agents one after another, and what was asked for meanwhile waits for them. One that is
/// older touches nothing then.
#[test]
#[ignore = "needs root, Go and Ceph; cargo xtask test --long runs it"]
fn the_operator_is_upgraded_then_its_agents_then_clusters() -> Result<()> {
    in_pods(
        "the_operator_is_upgraded_then_its_agents_then_clusters",
        AGENT,
        Release::Reef,
        &[Release::Reef],
        |cluster, phases| {
            let image = cluster.image(Release::Reef)?;
            let one = Operator::start_with(cluster, "one", Release::Reef, &["--agents", "on"])?;
            cluster.wait_ready(&image, Duration::from_mins(1))?;
            cluster.wait_told("every node has an agent", Duration::from_mins(3), |_| {
                Ok(are_all_of(&agents(cluster)?, STAGGER_IMAGE))
            })?;
            let devices = listed_devices(cluster)?;
            ensure!(
                devices.len() == NODES && devices.values().all(|node| !node.is_empty()),
                "{devices:?}"
            );
            phases.lap("agents list devices");
            last_words_are_kept(cluster)?;
            phases.lap("and keep logs");
            one.kill()?;
            let again = format!("{image}-again");
            ask_for(cluster, &again)?;
            let next = [
                "--agents",
                "on",
                "--image",
                NEXT_STAGGER_IMAGE,
                "--version-as",
                NEXT,
            ];
            let two = Operator::start_with(cluster, "two", Release::Reef, &next)?;
            let mut waited = false;
            cluster.wait_told(
                "every agent is of the next image",
                Duration::from_mins(6),
                |status| {
                    let begun = with_image(cluster, &again)?;
                    let now = agents(cluster)?;
                    ensure!(now.len() + 1 >= NODES, "more than one is not ready: {now:?}");
                    waited |= status["conditions"][0]["reason"] == "AgentsFirst";
                    let done = are_all_of(&now, NEXT_STAGGER_IMAGE);
                    ensure!(done || begun == 0, "the cluster came first: {now:?}");
                    Ok(done)
                },
            )?;
            ensure!(waited, "nobody was told that the agents come first");
            phases.lap("agents, one by one");
            cluster.wait_told("the cluster's turn", Duration::from_mins(2), |status| {
                Ok(status["phase"] == "Progressing")
            })?;
            cluster.wait_ready(&again, Duration::from_mins(6))?;
            phases.lap("then the cluster");
            two.kill()?;
            ask_for(cluster, &image)?;
            let _old = Operator::start_with(cluster, "old", Release::Reef, &["--agents", "on"])?;
            let status = cluster.wait_told("the older one says so", Duration::from_mins(2), |status| {
                Ok(status["conditions"][0]["reason"] == "OperatorTooOld")
            })?;
            let told = status["message"].as_str().unwrap_or_default();
            ensure!(
                status["phase"] == "Blocked"
                    && told.contains(NEXT)
                    && told.contains(env!("CARGO_PKG_VERSION")),
                "{status:#}"
            );
            std::thread::sleep(Duration::from_secs(10));
            ensure!(
                with_image(cluster, &image)? == 0,
                "an older operator changed the cluster"
            );
            ensure!(
                are_all_of(&agents(cluster)?, NEXT_STAGGER_IMAGE),
                "an older operator changed the agents"
            );
            phases.lap("an older one touches nothing");
            Ok(())
        },
    )
}
