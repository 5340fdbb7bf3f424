//! Upgrades by the operator, and what may come in between.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};
use stagger_e2e::laid_out::{LaidOut, NAMESPACE, Operator, in_pods};
use stagger_e2e::roots::Release;

use crate::{AGENT, ask_for, on_18};

/// The images of all daemons' pods.
fn images(cluster: &LaidOut) -> Result<BTreeSet<String>> {
    Ok(cluster
        .all("pods")?
        .iter()
        .filter(|pod| pod["metadata"]["labels"]["rook_cluster"] == NAMESPACE)
        .filter_map(|pod| pod["spec"]["containers"][0]["image"].as_str().map(str::to_owned))
        .collect())
}

fn waves_passed(status: &Value) -> u64 {
    status["upgrade"]["run"]["waves_passed"].as_u64().unwrap_or(0)
}

#[test]
#[ignore = "needs root, Go and Ceph; cargo xtask test --long runs it"]
fn leader_killed_three_times() -> Result<()> {
    let releases = [Release::Reef, Release::Tentacle];
    in_pods(
        "leader_killed_three_times",
        AGENT,
        Release::Reef,
        &releases,
        |cluster, phases| {
            let start = |name: &str| Operator::start(cluster, name, Release::Tentacle);
            let mut operators = vec![start("one")?, start("two")?];
            cluster.wait_ready(&cluster.image(Release::Reef)?, Duration::from_mins(1))?;
            let image = cluster.image(Release::Tentacle)?;
            ask_for(cluster, &image)?;
            for (nth, after) in [1, 6, 10].into_iter().enumerate() {
                cluster.wait_told("some waves more", Duration::from_mins(5), |status| {
                    if status["phase"] == "Blocked" {
                        bail!("it is blocked: {status:#}");
                    }
                    Ok(waves_passed(status) >= after && status["upgrade"]["run"]["current"].is_object())
                })?;
                let leader = Operator::leader(cluster, &operators)?;
                operators.remove(leader).kill()?;
                operators.push(start(&format!("next-{nth}"))?);
                phases.lap(format!("the leader killed after {after} waves"));
            }
            cluster.wait_ready(&image, Duration::from_mins(8))?;
            phases.lap("18 to 20");
            ensure!(images(cluster)? == BTreeSet::from([image]));
            Ok(())
        },
    )
}

/// A new image of the release that runs: a revision, no upgrade. Its OSDs end at their start. One OSD is hit,
/// and comes back to the image before.
#[test]
#[ignore = "needs root, Go and Ceph; cargo xtask test --long runs it"]
fn new_image_crash_loops_at_osds() -> Result<()> {
    on_18("new_image_crash_loops_at_osds", |cluster, _operator, phases| {
        let old = cluster.image(Release::Reef)?;
        // Of itself a revision of one release goes on without the unit that failed.
        cluster.patch_cluster(&json!({ "spec": { "updatePolicy": { "onFailure": "rollback" } } }))?;
        ask_for(cluster, &format!("{old}-ceph-osd-fails"))?;
        let mut hit = BTreeSet::new();
        let status = cluster.wait_told("it was taken back", Duration::from_mins(12), |status| {
            let tail = cluster.all("pods")?;
            for pod in &tail {
                let restarts = pod["status"]["containerStatuses"][0]["restartCount"].as_u64();
                let osd = pod["metadata"]["labels"]["ceph-osd-id"].as_str();
                if let (Some(1..), Some(osd)) = (restarts, osd) {
                    hit.insert(osd.to_owned());
                }
            }
            Ok(status["upgrade"]["gaveUp"].is_string())
        })?;
        phases.lap("taken back");
        ensure!(hit.len() == 1, "the OSDs that were hit: {hit:?}");
        ensure!(
            status["upgrade"]["run"]["ending"]["ending"] == "rolled-back",
            "{status:#}"
        );
        // What serves on the new image stays: the monitors and managers before it. No OSD is left on it.
        let of_osds: BTreeSet<String> = cluster
            .all("pods")?
            .iter()
            .filter(|pod| pod["metadata"]["labels"]["app"] == "rook-ceph-osd")
            .filter_map(|pod| pod["spec"]["containers"][0]["image"].as_str().map(str::to_owned))
            .collect();
        ensure!(of_osds == BTreeSet::from([old.clone()]), "{of_osds:?}");
        // It is not tried again by itself, and says so.
        let status = cluster.wait_told("it says why", Duration::from_secs(30), |status| {
            Ok(status["phase"] == "Blocked")
        })?;
        let message = status["message"].as_str().context("no message")?;
        ensure!(message.contains("was taken back"), "{message}");
        cluster.ceph.wait_clean(Duration::from_mins(2))?;
        ask_for(cluster, &old)?;
        cluster.wait_told("all are on the old image", Duration::from_mins(5), |status| {
            let message = status["message"].as_str().unwrap_or_default();
            Ok(status["phase"] == "Ready" && message.ends_with(&old))
        })?;
        let now = images(cluster)?;
        ensure!(now == BTreeSet::from([old]), "{now:?}");
        phases.lap("the old image wanted again");
        Ok(())
    })
}

/// Another image is wanted while OSDs are in the midst of it: the open wave is finished, and the rest goes to
/// that one.
#[test]
#[ignore = "needs root, Go and Ceph; cargo xtask test --long runs it"]
fn another_image_in_mid_upgrade() -> Result<()> {
    let releases = [Release::Reef, Release::Tentacle];
    in_pods(
        "another_image_in_mid_upgrade",
        AGENT,
        Release::Reef,
        &releases,
        |cluster, phases| {
            let _operator = Operator::start(cluster, "one", Release::Tentacle)?;
            cluster.wait_ready(&cluster.image(Release::Reef)?, Duration::from_mins(1))?;
            let first = cluster.image(Release::Tentacle)?;
            ask_for(cluster, &first)?;
            let run = cluster.wait_told("a wave of OSDs is open", Duration::from_mins(4), |status| {
                Ok(status["upgrade"]["run"]["current"]["stage"] == "osd")
            })?["upgrade"]["run"]["run"]
                .clone();
            let second = format!("{first}-again");
            ask_for(cluster, &second)?;
            cluster.wait_told("another run has begun", Duration::from_mins(3), |status| {
                let now = &status["upgrade"]["run"];
                Ok(now["run"] != run && now["verdict"] == "running")
            })?;
            phases.lap("another run has begun");
            cluster.wait_ready(&second, Duration::from_mins(8))?;
            phases.lap("all on the other image");
            let now = images(cluster)?;
            ensure!(now == BTreeSet::from([second]), "{now:?}");
            let required = cluster.ceph.rados().mon("osd dump")?["require_osd_release"].clone();
            ensure!(required == "tentacle", "{required}");
            Ok(())
        },
    )
}
