//! Cases of a cluster that Rook laid out, each on a real Kubernetes with real Ceph daemons in its pods, under
//! load.

mod cost;
mod drains;
mod gateways;
mod growth;
mod interrupted;
mod system;
mod upgrades;
mod wishes;

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Result, bail};
use serde_json::{Value, json};
use stagger_e2e::case::Phases;
use stagger_e2e::ceph_in_pods::{CephInPods, NAMESPACE, Operator, in_pods};
use stagger_e2e::roots::Release;

const AGENT: &str = env!("CARGO_BIN_EXE_node-agent");

/// A case on release 18 alone, with an operator that has nothing to do yet.
fn on_18(name: &str, work: impl FnOnce(&CephInPods, Operator, &mut Phases) -> Result<()>) -> Result<()> {
    in_pods(name, AGENT, Release::Reef, &[Release::Reef], |cluster, phases| {
        let operator = Operator::start(cluster, "one", Release::Reef)?;
        cluster.wait_ready(&cluster.image(Release::Reef)?, Duration::from_mins(1))?;
        work(cluster, operator, phases)
    })
}

/// A case in which an operator has been asked to go from release 18 to 20; `work` gets the image of 20.
fn from_18_to_20(
    name: &str,
    work: impl FnOnce(&CephInPods, Operator, &str, &mut Phases) -> Result<()>,
) -> Result<()> {
    let releases = [Release::Reef, Release::Tentacle];
    in_pods(name, AGENT, Release::Reef, &releases, |cluster, phases| {
        let operator = Operator::start(cluster, "one", Release::Tentacle)?;
        cluster.wait_ready(&cluster.image(Release::Reef)?, Duration::from_mins(1))?;
        let image = cluster.image(Release::Tentacle)?;
        ask_for(cluster, &image)?;
        work(cluster, operator, &image, phases)
    })
}

/// Waits until a wave of OSDs is open, and gives the document of its run.
fn wait_for_osds(cluster: &CephInPods) -> Result<Value> {
    let status = cluster.wait_told("a wave of OSDs is open", Duration::from_mins(4), |status| {
        if status["phase"] == "Blocked" {
            bail!("it is blocked: {status:#}");
        }
        Ok(status["run"]["current"]["stage"] == "osd")
    })?;
    Ok(status["run"].clone())
}

/// The images of all daemons' pods.
fn images(cluster: &CephInPods) -> Result<BTreeSet<String>> {
    images_of(cluster, |_| true)
}

/// The images of the pods with such labels.
fn images_of(cluster: &CephInPods, which: impl Fn(&Value) -> bool) -> Result<BTreeSet<String>> {
    Ok(cluster
        .all("pods")?
        .iter()
        .filter(|pod| pod["metadata"]["labels"]["rook_cluster"] == NAMESPACE)
        .filter(|pod| which(&pod["metadata"]["labels"]))
        .filter_map(|pod| pod["spec"]["containers"][0]["image"].as_str().map(str::to_owned))
        .collect())
}

/// Asks for an image, and for quick waves.
fn ask_for(cluster: &CephInPods, image: &str) -> Result<()> {
    cluster.patch_cluster(&json!({ "spec": {
        "cephVersion": { "image": image },
        "updatePolicy": {
            "doorsOpenAfterMinutes": 0,
            "osds": { "maxInParallelPerCluster": "100%", "soakSeconds": 0 },
        },
    } }))
}
