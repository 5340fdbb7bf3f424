//! Others write what a run beside Rook relies on: it is held, says who it was, and goes on once that is put right. And it is ended
//! in its midst, by the deletion of its CephMaintenance.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use stagger_e2e::ceph_in_pods::Operator;
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
            let operator = killed_with_labels_held(cluster, operator)?;
            phases.lap("the operator was killed with labels held, and another one goes on");
            let meddled = meddled(cluster, &image);
            meddled.with_context(|| operator.log())?;
            phases.lap("others meddled");
            ended(cluster, &image).with_context(|| operator.log())?;
            phases.lap("deleted, and Rook went on");
            Ok(())
        },
    )
}

/// What keeps Rook from daemons outlives the operator that set it, and the next one goes on with the same run.
fn killed_with_labels_held(cluster: &RookCluster, operator: Operator) -> Result<Operator> {
    let at_osds = cluster.wait_ours("OSDs are changed", Duration::from_mins(8), |status| {
        Ok(status["run"]["current"]["stage"] == "osd")
    });
    let before = at_osds.with_context(|| operator.log())?;
    let labels = held(cluster)?;
    ensure!(!labels.is_empty(), "Rook is kept from no daemon");
    operator.kill()?;
    ensure!(held(cluster)? == labels, "labels went with the operator");
    let operator = cluster.operators().start("two", &[])?;
    let goes_on = cluster.wait_ours(
        "another operator goes on with the run",
        Duration::from_mins(3),
        |status| {
            let (was, now) = (&before["run"], &status["run"]);
            Ok(now["run"] == was["run"] && now["changed"].as_u64() > was["changed"].as_u64())
        },
    );
    goes_on.with_context(|| operator.log())?;
    Ok(operator)
}

fn meddled(cluster: &RookCluster, image: &str) -> Result<()> {
    let old = cluster.image();
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
            Ok(why.contains("was removed from the Deployment")
                && why.contains("kubectl-annotate wrote it last"))
        },
    )?;
    label("ceph.rook.io/do-not-reconcile=stagger")?;
    cluster.wait_ours("it goes on with the label", Duration::from_mins(3), |status| {
        Ok(!why(status).contains("was removed from the Deployment"))
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

/// The units of the open wave of a run.
fn of_open_wave(status: &Value) -> Vec<&str> {
    let by_what_is_done = status["run"]["current"]["units"].as_object();
    let units = by_what_is_done.into_iter().flat_map(|all| all.values());
    units
        .filter_map(Value::as_array)
        .flatten()
        .filter_map(Value::as_str)
        .collect()
}

/// The wave that is open is finished first.
fn ended(cluster: &RookCluster, image: &str) -> Result<()> {
    let open = cluster.wait_ours("a wave of OSDs is open", Duration::from_mins(3), |status| {
        Ok(status["run"]["current"]["stage"] == "osd" && !of_open_wave(status).is_empty())
    })?;
    let words = [
        "delete",
        "cephmaintenance",
        NAMESPACE,
        "-n",
        NAMESPACE,
        "--timeout=240s",
    ];
    cluster.plane.ask(&words)?;
    for unit in of_open_wave(&open) {
        let name = format!("rook-ceph-{}", unit.replace('.', "-"));
        let found = cluster.plane.object(NAMESPACE, "deployment", &name)?;
        let (pods, state) = (&found["spec"]["template"]["spec"], &found["status"]);
        ensure!(
            pods["containers"][0]["image"] == image && state["readyReplicas"] == 1,
            "{unit} of the wave that was open is not on {image}: {found:#}"
        );
    }
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
