//! A store whose gateways are pods of one Deployment, which Kubernetes itself updates one after the other.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use stagger_e2e::ceph_in_pods::{CephInPods, NAMESPACE, Operator, in_pods};
use stagger_e2e::roots::Release;

use crate::{AGENT, ask_for, images};

/// From 18 to 20: the second pod is only made when the first serves, clients write and read all the time, and at the
/// end both have the image, and Ceph tells of two on 20.
#[test]
#[ignore = "needs root, Go and Ceph; cargo xtask test --long runs it"]
fn of_one_deployment_are_updated_by_kubernetes() -> Result<()> {
    let name = "of_one_deployment_are_updated_by_kubernetes";
    let releases = [Release::Reef, Release::Tentacle];
    in_pods(name, AGENT, Release::Reef, &releases, |cluster, phases| {
        cluster.gateways_in_one_deployment()?;
        wait_versions(cluster, "of 18", |version| version.contains(" 18."))?;
        phases.lap("two gateways in one Deployment");
        let _operator = Operator::start(cluster, "one", Release::Tentacle)?;
        cluster.wait_ready(&cluster.image(Release::Reef)?, Duration::from_mins(1))?;
        let image = cluster.image(Release::Tentacle)?;
        ask_for(cluster, &image)?;
        let status = cluster.wait_ready(&image, Duration::from_mins(8))?;
        phases.lap("18 to 20");
        ensure!(status["run"]["verdict"] == "done", "{status:#}");
        wait_versions(cluster, "of 20", |version| version.contains(" 20."))?;
        ensure!(images(cluster)? == BTreeSet::from([image]));
        ensure_one_after_the_other(cluster)?;
        let budget = cluster.get("poddisruptionbudget", "rook-ceph-rgw-store")?;
        ensure!(budget["spec"]["minAvailable"] == 1, "{budget:#}");
        let deployment = cluster.get("deployment", "rook-ceph-rgw-store-a")?;
        ensure!(deployment["spec"]["strategy"]["type"] == "RollingUpdate");
        Ok(())
    })
}

/// Waits until Ceph tells of two gateways, of a version like that and of no other: it forgets those that have
/// ended only after a while.
fn wait_versions(cluster: &CephInPods, what: &str, is: impl Fn(&str) -> bool) -> Result<()> {
    cluster.wait_told(&format!("two gateways {what}"), Duration::from_mins(2), |_| {
        let told = cluster.ceph.rados().mon("versions")?;
        let gateways: BTreeMap<String, u64> =
            serde_json::from_value(told["rgw"].clone()).context("`versions` tells of no gateways")?;
        Ok(gateways.keys().all(|version| is(version)) && gateways.values().sum::<u64>() == 2)
    })?;
    Ok(())
}

/// The later of the two pods was made when the earlier one was ready, and both are.
fn ensure_one_after_the_other(cluster: &CephInPods) -> Result<()> {
    let of_gateways = [
        "get",
        "pods",
        "-n",
        NAMESPACE,
        "-l",
        "app=rook-ceph-rgw",
        "-o",
        "json",
    ];
    let list: Value = serde_json::from_str(&cluster.plane.ask(&of_gateways)?)?;
    let pods = list["items"].as_array().context("no list of pods")?;
    let mut times = Vec::new();
    for pod in pods {
        let conditions = pod["status"]["conditions"].as_array().context("no conditions")?;
        let ready = conditions
            .iter()
            .find(|one| one["type"] == "Ready" && one["status"] == "True")
            .with_context(|| format!("a gateway is not ready: {pod:#}"))?;
        let word = |value: &Value| value.as_str().map(str::to_owned).context("no time");
        times.push((
            word(&pod["metadata"]["creationTimestamp"])?,
            word(&ready["lastTransitionTime"])?,
        ));
    }
    times.sort();
    let [(_, first_ready), (second_made, _)] = &times[..] else {
        anyhow::bail!("there are {} pods of gateways", times.len());
    };
    ensure!(second_made >= first_ready, "both at once: {times:?}");
    Ok(())
}
