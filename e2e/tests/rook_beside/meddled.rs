//! Others write what a run beside Rook relies on: it is held, says who it was, and goes on once that is put right. And it is ended
//! in its midst, by the deletion of its CephMaintenance.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use stagger_e2e::rook_cluster::{NAMESPACE, RookCluster, RookSpec, beside_rook};

use crate::{AGENT, held, named};

#[test]
#[ignore = "needs root, Go, Ceph and Rook; cargo xtask test --long runs it"]
fn others_meddle_and_it_is_ended_in_its_midst() -> Result<()> {
    let spec = RookSpec {
        nodes: 6,
        ..RookSpec::default()
    };
    beside_rook(
        "others_meddle_and_it_is_ended_in_its_midst",
        AGENT,
        spec,
        |cluster, phases| {
            cluster.patch_cluster(
                &json!({ "spec": { "disruptionManagement": { "managePodBudgets": false } } }),
            )?;
            cluster.maintain(&json!(["drains", "updates"]))?;
            let one_by_one = json!({ "osds": { "maxInParallelPerCluster": 1 } });
            let image = cluster.next_image();
            cluster.patch_maintenance(&json!({ "spec": { "image": image, "updatePolicy": one_by_one } }))?;
            let operator = cluster.operators().start("one", &[])?;
            let meddled = meddled(cluster, &image);
            meddled.with_context(|| operator.log())?;
            phases.lap("others meddled");
            ended(cluster, &image).with_context(|| operator.log())?;
            phases.lap("deleted, and Rook went on");
            Ok(())
        },
    )
}

fn meddled(cluster: &RookCluster, image: &str) -> Result<()> {
    let old = cluster.image();
    cluster.wait_ours("OSDs are changed", Duration::from_mins(8), |status| {
        Ok(status["run"]["current"]["stage"] == "osd")
    })?;
    let held = held(cluster)?;
    let last = held.last().context("Rook is kept from no daemon")?;
    let deployment = format!("deployment/{last}");
    let label = |label: &str| {
        cluster
            .plane
            .ask(&["label", &deployment, "-n", NAMESPACE, label, "--overwrite"])
    };
    label("ceph.rook.io/do-not-reconcile-")?;
    let note = ["annotate", &deployment, "-n", NAMESPACE, "example.com/note=mine"];
    cluster.plane.ask(&note)?;
    let why = |status: &Value| status["run"]["why"].as_str().unwrap_or_default().to_owned();
    cluster.wait_ours(
        "a label that is gone holds it",
        Duration::from_mins(3),
        |status| {
            let why = why(status);
            Ok(why.contains("took the label") && why.contains("kubectl-annotate wrote it last"))
        },
    )?;
    label("ceph.rook.io/do-not-reconcile=stagger")?;
    cluster.wait_ours("it goes on with the label", Duration::from_mins(3), |status| {
        Ok(!why(status).contains("took the label"))
    })?;
    // As whoever owns the object in a repository of manifests would.
    cluster.patch_cluster(&json!({ "spec": { "cephVersion": { "image": old } } }))?;
    cluster.wait_ours(
        "another image in the CephCluster holds it",
        Duration::from_mins(3),
        |status| {
            let why = why(status);
            Ok(status["phase"] == "Blocked"
                && why.contains("step-failed")
                && why.contains(&format!("name {old} since")))
        },
    )?;
    cluster.patch_cluster(&json!({ "spec": { "cephVersion": { "image": image } } }))?;
    let resume = json!({ "metadata": { "annotations": { "stagger.dev/command": "resume#1" } } });
    cluster.patch_maintenance(&resume)?;
    cluster.wait_ours("it goes on with the image", Duration::from_mins(3), |status| {
        Ok(status["phase"] == "Progressing" && !why(status).contains("step-failed"))
    })?;
    Ok(())
}

fn ended(cluster: &RookCluster, image: &str) -> Result<()> {
    let words = [
        "delete",
        "cephmaintenance",
        NAMESPACE,
        "-n",
        NAMESPACE,
        "--timeout=240s",
    ];
    cluster.plane.ask(&words)?;
    let left = held(cluster)?;
    ensure!(left.is_empty(), "Rook is still kept from {left:?}");
    ensure!(named(cluster)? == image, "the CephCluster names another image");
    let flags = cluster.rados()?.mon("osd dump")?;
    let is_set = |flags: &Value| flags.as_object().is_some_and(|all| !all.is_empty());
    ensure!(
        !flags["flags"].as_str().unwrap_or_default().contains("noout") && !is_set(&flags["crush_node_flags"]),
        "noout is left: {} {}",
        flags["flags"],
        flags["crush_node_flags"]
    );
    let (_, version) = image.rsplit_once(":v").context("the image has a version")?;
    let wanted = format!("ceph version {version} ");
    let begun = std::time::Instant::now();
    loop {
        let versions = cluster.rados()?.mon("versions")?;
        let all = versions["overall"].as_object().context("no versions")?;
        if all.len() == 1 && all.keys().all(|one| one.starts_with(&wanted)) {
            return Ok(());
        }
        ensure!(
            begun.elapsed() < Duration::from_mins(8),
            "Rook does not go on: {versions:#}"
        );
        std::thread::sleep(Duration::from_secs(1));
    }
}
