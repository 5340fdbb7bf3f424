//! Cases on clusters that the real Rook lays out. Where it cannot be had they are skipped, and say so.

mod drains;
mod installed;
mod meddled;
mod releases;
mod written;

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};
use stagger_e2e::case::Phases;
use stagger_e2e::ceph_in_pods::ASKED_ABOUT_EVICTIONS;
use stagger_e2e::command::{run, say};
use stagger_e2e::rook_cluster::{NAMESPACE, RookCluster, RookSpec, beside_rook};
use stagger_e2e::roots::{Release, ensure as roots};
use stagger_e2e::second_build::SecondBuild;
use stagger_e2e::stagger::binary;

use drains::drain;

const AGENT: &str = env!("CARGO_BIN_EXE_node-agent");

#[test]
#[ignore = "needs root, Go, Ceph and Rook; cargo xtask test --long runs it"]
fn rook_lays_out_a_cluster_and_hands_it_back_unharmed() -> Result<()> {
    let spec = RookSpec::default();
    beside_rook(
        "rook_lays_out_a_cluster_and_hands_it_back_unharmed",
        AGENT,
        spec,
        |cluster, phases| {
            let complaints = cluster.complaints()?;
            ensure!(complaints.is_empty(), "{complaints:?}");
            say(format!("memory: {} MB", cluster.memory()? / 1_000_000));
            let before = cluster.incarnations()?;
            cluster.kill_operator()?;
            cluster.wait_reconciled(Duration::from_mins(5))?;
            phases.lap("another operator has gone through it");
            cluster.wait_clean(Duration::from_mins(1))?;
            let restarts = cluster.restarts_since(&before)?;
            ensure!(restarts.is_empty(), "{restarts:?}");
            Ok(())
        },
    )
}

/// By itself, which shows that the second build is one to Rook, and to what an update of ours is to be compared.
#[test]
#[ignore = "needs root, Go, Ceph and Rook; cargo xtask test --long runs it"]
fn rook_updates_by_itself_and_restarts_each_daemon_once() -> Result<()> {
    let spec = RookSpec {
        nodes: 3,
        ..RookSpec::default()
    };
    beside_rook(
        "rook_updates_by_itself_and_restarts_each_daemon_once",
        AGENT,
        spec,
        |cluster, phases| {
            let before = cluster.incarnations()?;
            let image = cluster.next_image();
            cluster.patch_cluster(&json!({ "spec": { "cephVersion": { "image": image } } }))?;
            cluster.wait_told("Rook has updated all", Duration::from_mins(10), |status| {
                Ok(status["phase"] == "Ready" && status["version"]["image"] == image)
            })?;
            phases.lap("updated by Rook");
            cluster.wait_clean(Duration::from_mins(1))?;
            let versions = cluster.rados()?.mon("versions")?;
            let all: Vec<&String> = versions["overall"]
                .as_object()
                .context("no versions")?
                .keys()
                .collect();
            let (_, version) = image.rsplit_once(":v").context("the image has a version")?;
            let wanted = format!("ceph version {version} ");
            ensure!(all.len() == 1 && all[0].starts_with(&wanted), "{versions:#}");
            let restarts = cluster.restarts_since(&before)?;
            ensure!(
                restarts.len() == before.len() && restarts.values().all(|count| *count == 1),
                "{restarts:?}"
            );
            Ok(())
        },
    )
}

/// With Rook on all the time, and killed while OSDs are changed: each daemon is restarted once, by us.
#[test]
#[ignore = "needs root, Go, Ceph and Rook; cargo xtask test runs it"]
fn stagger_updates_while_rook_runs() -> Result<()> {
    let spec = RookSpec {
        nodes: 3,
        ..RookSpec::default()
    };
    beside_rook(
        "stagger_updates_while_rook_runs",
        AGENT,
        spec,
        updated_while_rook_runs,
    )
}

/// The same with all kinds of daemons that a cluster can have.
#[test]
#[ignore = "needs root, Go, Ceph and Rook; cargo xtask test --long runs it"]
fn with_a_file_system_and_an_object_store() -> Result<()> {
    let spec = RookSpec {
        nodes: 3,
        file_system: true,
        object_store: true,
        ..RookSpec::default()
    };
    let name = "with_a_file_system_and_an_object_store";
    beside_rook(name, AGENT, spec, updated_while_rook_runs)
}

fn updated_while_rook_runs(cluster: &RookCluster, phases: &mut Phases) -> Result<()> {
    let before = cluster.incarnations()?;
    let (old, image) = (cluster.image(), cluster.next_image());
    asked_before_anything_is_installed(cluster, &image)?;
    phases.lap("asked by a kubeconfig");
    cluster.maintain(&json!([]))?;
    let operator = cluster.operators().start("one", &ASKED_ABOUT_EVICTIONS)?;
    looked_at_alone(cluster, &image).with_context(|| operator.log())?;
    phases.lap("looked at");
    cluster.maintain(&json!(["drains", "updates"]))?;
    evictions_are_asked_about(cluster).with_context(|| operator.log())?;
    let both = cluster.wait_ours(
        "that Rook manages budgets too",
        Duration::from_mins(1),
        |status| {
            Ok(status
                .to_string()
                .contains("managePodBudgets of the CephCluster is true"))
        },
    );
    both.with_context(|| operator.log())?;
    cluster.patch_cluster(&json!({ "spec": { "disruptionManagement": { "managePodBudgets": false } } }))?;
    let idle = cluster.wait_ours("nothing is to be done yet", Duration::from_mins(2), |status| {
        Ok(status["conditions"][0]["reason"] == "UpToDate" && status["image"] == old)
    });
    idle.with_context(|| operator.log())?;
    phases.lap("stagger sees to it");
    cluster.patch_maintenance(&json!({ "spec": { "image": image } }))?;
    let at_osds = cluster.wait_ours("OSDs are changed", Duration::from_mins(8), |status| {
        Ok(status["run"]["current"]["stage"] == "osd")
    });
    at_osds.with_context(|| operator.log())?;
    rook_is_kept_from_osds_alone(cluster)?;
    ensure!(named(cluster)? == image, "the CephCluster names another image");
    rook_has_updated_metadata_servers(cluster, &image)?;
    cluster.kill_operator()?;
    phases.lap("Rook was killed");
    let updated = cluster.wait_ours("all is updated", Duration::from_mins(10), |status| {
        let run = &status["run"];
        Ok(run["verdict"] == "done" && status["conditions"][0]["reason"] == "UpToDate")
    });
    updated.with_context(|| operator.log())?;
    phases.lap("updated");
    // From the beginning once more: it goes through every daemon.
    cluster.restart_operator()?;
    cluster.wait_reconciled(Duration::from_mins(5))?;
    cluster.wait_told("Rook has seen it", Duration::from_mins(3), |status| {
        Ok(status["phase"] == "Ready" && status["version"]["image"] == image)
    })?;
    phases.lap("Rook has gone through it");
    cluster.wait_clean(Duration::from_mins(1))?;
    let restarts = cluster.restarts_since(&before)?;
    ensure!(
        restarts.len() == before.len() && restarts.values().all(|count| *count == 1),
        "{restarts:?}"
    );
    let left = held(cluster)?;
    ensure!(left.is_empty(), "Rook is still kept from {left:?}");

    drained_and_back(cluster, "n1", "n2").with_context(|| operator.log())?;
    phases.lap("a node was drained, and a second one was not");
    let managers = cluster.plane.object(NAMESPACE, "pdb", "rook-ceph-mgr-pdb")?;
    ensure!(
        managers["metadata"]["labels"].is_null(),
        "that of Rook was taken: {managers:#}"
    );

    deleted_in_mid_drain(cluster, "n2").with_context(|| operator.log())?;
    phases.lap("the CephMaintenance is gone, in mid-drain");
    Ok(())
}

/// A CephMaintenance that manages nothing, also where it names another image: what is Rook's stays as it is, and what would be
/// done is told.
fn looked_at_alone(cluster: &RookCluster, image: &str) -> Result<()> {
    let before = cluster.incarnations()?;
    let budgets = cluster.plane.objects(NAMESPACE, "poddisruptionbudgets")?.len();
    cluster.patch_maintenance(&json!({ "spec": { "image": image } }))?;
    cluster.wait_ours("the cluster is looked at", Duration::from_mins(2), |status| {
        let told = status["conditions"].as_array().into_iter().flatten();
        let mut available = told.filter(|one| one["type"] == "Available");
        Ok(available.any(|one| one["status"] == "True"))
    })?;
    let status = cluster.wait_ours("nothing is begun", Duration::from_mins(1), |status| {
        Ok(status["run"].is_null() && status["drains"].is_null())
    })?;
    let after = cluster.plane.objects(NAMESPACE, "poddisruptionbudgets")?.len();
    ensure!(
        after == budgets,
        "of {budgets} budgets there are {after}: {status:#}"
    );
    ensure!(named(cluster)? != *image, "the CephCluster names another image");
    let left = held(cluster)?;
    ensure!(left.is_empty(), "Rook is kept from {left:?}");
    let restarts = cluster.restarts_since(&before)?;
    ensure!(restarts.is_empty(), "{restarts:?}");
    cluster.patch_maintenance(&json!({ "spec": { "image": Value::Null } }))
}

/// While OSDs are changed, of which there are three.
fn rook_is_kept_from_osds_alone(cluster: &RookCluster) -> Result<()> {
    let held = held(cluster)?;
    let of = |kind: &str| {
        held.iter()
            .filter(|name| name.starts_with(&format!("rook-ceph-{kind}-")))
            .count()
    };
    ensure!(
        of("osd") == 3 && of("mon") + of("mgr") + of("mds") == 0,
        "Rook is kept from {held:?}"
    );
    Ok(())
}

/// The CephMaintenance goes while a node is drained, and leaves nothing that is closed. Before that the operator may not be
/// uninstalled.
fn deleted_in_mid_drain(cluster: &RookCluster, node: &str) -> Result<()> {
    drain(cluster, node, 180)?;
    one_domain_drains(cluster)?;
    let Err(refused) = may_be_uninstalled(cluster) else {
        bail!("an operator that holds budgets may be uninstalled");
    };
    let refused = format!("{refused:#}");
    ensure!(refused.contains("do not uninstall yet"), "{refused}");
    given_back(cluster, 60)?;
    may_be_uninstalled(cluster)?;
    cluster.plane.ask(&["uncordon", node])?;
    cluster.wait_clean(Duration::from_mins(3))
}

/// Deletes the CephMaintenance, which has to be gone within so many seconds, and leaves nothing that is closed.
fn given_back(cluster: &RookCluster, seconds: u32) -> Result<()> {
    let timeout = format!("--timeout={seconds}s");
    let words = ["delete", "cephmaintenance", NAMESPACE, "-n", NAMESPACE, &timeout];
    cluster.plane.ask(&words)?;
    let budget = cluster.plane.object(NAMESPACE, "pdb", "rook-ceph-osd")?;
    ensure!(
        budget["spec"]["maxUnavailable"] == 1 && budget["metadata"]["labels"].is_null(),
        "{budget:#}"
    );
    let flags = crush_flags(cluster)?;
    ensure!(flags == json!({}), "noout is left: {flags}");
    let left = held(cluster)?;
    ensure!(left.is_empty(), "Rook is still kept from {left:?}");
    Ok(())
}

/// What Helm asks before it takes the operator away.
fn may_be_uninstalled(cluster: &RookCluster) -> Result<String> {
    let mut command = cluster.sandbox().command(binary()?);
    command.env("KUBECONFIG", cluster.plane.kubeconfig());
    run(command.args(["operator", "--may-be-uninstalled", "--watch-namespace", NAMESPACE]))
}

/// With a kubeconfig alone: what an update would do, and why a unit goes when it does.
fn asked_before_anything_is_installed(cluster: &RookCluster, image: &str) -> Result<()> {
    let (_, version) = image.rsplit_once(":v").context("the image has a version")?;
    let asked = |words: &[&str]| cluster.operators().asked(words);
    // The only gateway of its store: who uses it will notice.
    let permitted = if cluster.spec().object_store {
        &["--interrupt", "rgw"][..]
    } else {
        &[]
    };
    let plan = asked(&[&["plan", "upgrade", "--to", version], permitted].concat())?;
    ensure!(
        plan.contains("mon") && plan.contains("osd") && plan.contains("waves"),
        "{plan}"
    );
    let why = asked(&["explain", "osd.1", "upgrade", "--to", version])?;
    ensure!(why.contains("osd.1"), "{why}");
    let rehearsed = asked(&[&["simulate", "upgrade", "--to", version], permitted].concat())?;
    ensure!(
        rehearsed.contains("done: every unit serves on the target"),
        "{rehearsed}"
    );
    let versions = asked(&["versions"])?;
    ensure!(versions.contains("osd"), "{versions}");
    // Rook makes pools meanwhile, whose groups peer at first; and a manager that has just become active has no reports of some.
    let mut observed = asked(&["observe"])?;
    let begun = Instant::now();
    while !observed.contains("+ pgs-clean") && begun.elapsed() < Duration::from_mins(1) {
        std::thread::sleep(Duration::from_secs(1));
        observed = asked(&["observe"])?;
    }
    ensure!(
        observed.contains("rook-ceph") && observed.contains("+ pgs-clean"),
        "{observed}"
    );
    let words = ["get", "crd", "-o", "name"];
    let definitions = cluster.plane.ask(&words)?;
    ensure!(
        !definitions.contains("stagger"),
        "something was installed: {definitions}"
    );
    Ok(())
}

/// `kubectl drain` takes the OSD of a node, nothing of another one may go meanwhile, and all of it is back afterwards.
fn drained_and_back(cluster: &RookCluster, node: &str, other: &str) -> Result<()> {
    drain(cluster, node, 180)?;
    one_domain_drains(cluster)?;
    refused_by_the_webhook(cluster, other)?;
    why_it_stays(cluster, node, other)?;
    cluster.plane.ask(&["uncordon", node, other])?;
    cluster.wait_clean(Duration::from_mins(3))?;
    cluster.wait_ours("the drain is over", Duration::from_mins(1), |status| {
        Ok(status["drains"].is_null())
    })?;
    Ok(())
}

/// Waits until one failure domain drains: it has `noout`, and no OSD of another one may go.
fn one_domain_drains(cluster: &RookCluster) -> Result<()> {
    cluster.wait_ours("the node drains", Duration::from_mins(1), |status| {
        let drains = &status["drains"];
        Ok(drains["draining"].as_array().is_some_and(|all| all.len() == 1)
            && drains["noout"].as_object().is_some_and(|all| all.len() == 1))
    })?;
    let budget = cluster.plane.object(NAMESPACE, "pdb", "rook-ceph-osd")?;
    ensure!(budget["spec"]["maxUnavailable"] == 0, "others may go: {budget:#}");
    let flags = crush_flags(cluster)?;
    ensure!(
        flags.as_object().is_some_and(|all| !all.is_empty()),
        "nothing has noout: {flags}"
    );
    Ok(())
}

/// Whoever drains a second node is told by the webhook why the pod of its OSD stays.
fn refused_by_the_webhook(cluster: &RookCluster, node: &str) -> Result<()> {
    let Err(refused) = drain(cluster, node, 15) else {
        bail!("{node} was drained beside another one");
    };
    let said = format!("{refused:#}");
    let words = [
        "rook-ceph-osd-",
        "evictions.stagger.dev",
        " may not be evicted now: ",
    ];
    let is_told = said
        .lines()
        .any(|line| words.iter().all(|word| line.contains(word)));
    ensure!(is_told, "{said}");
    Ok(())
}

/// Who asks why a second node does not get empty is told, by `stagger status` and by an Event.
fn why_it_stays(cluster: &RookCluster, node: &str, other: &str) -> Result<()> {
    let status = cluster.operators().asked(&["status"])?;
    let is_told = status
        .lines()
        .any(|line| line.starts_with("drains") && line.contains(node) && line.contains(other));
    ensure!(is_told, "neither {node} nor {other}: {status}");
    let words = [
        "get",
        "events",
        "-n",
        NAMESPACE,
        "--field-selector",
        "reason=DrainBlocked",
    ];
    cluster.wait_ours("an Event names it", Duration::from_mins(1), |_| {
        let events = cluster
            .plane
            .ask(&[&words[..], &["-o", "jsonpath={.items[*].message}"]].concat())?;
        Ok(events.contains(other))
    })?;
    Ok(())
}

/// The CRUSH nodes that have flags, as `noout`.
fn crush_flags(cluster: &RookCluster) -> Result<Value> {
    let dump = cluster.rados()?.mon("osd dump")?;
    Ok(dump["crush_node_flags"].clone())
}

/// Waits until an operator of ours has registered itself to be asked about evictions.
fn evictions_are_asked_about(cluster: &RookCluster) -> Result<()> {
    let words = [
        "get",
        "validatingwebhookconfiguration",
        "stagger-evictions",
        "-o",
        "json",
    ];
    cluster.wait_ours("evictions are asked about", Duration::from_mins(2), |_| {
        let asked: Value = serde_json::from_str(&cluster.plane.ask(&words)?)?;
        Ok(asked["webhooks"][0]["clientConfig"]["caBundle"].is_string())
    })?;
    Ok(())
}

/// No label keeps Rook from them, so no OSD has its turn before it has.
fn rook_has_updated_metadata_servers(cluster: &RookCluster, image: &str) -> Result<()> {
    let words = [
        "get",
        "deployments",
        "-n",
        NAMESPACE,
        "-l",
        "app=rook-ceph-mds",
        "-o",
        "json",
    ];
    let found: Value = serde_json::from_str(&cluster.plane.ask(&words)?)?;
    let all = found["items"].as_array().context("a list of Deployments")?;
    ensure!(all.is_empty() != cluster.spec().file_system, "{found:#}");
    for one in all {
        let is_done = one["spec"]["template"]["spec"]["containers"][0]["image"] == *image
            && one["spec"]["replicas"] == 1
            && one["status"]["readyReplicas"] == 1;
        ensure!(is_done, "OSDs are changed beside {one:#}");
    }
    Ok(())
}

/// The Deployments that Rook is kept from.
fn held(cluster: &RookCluster) -> Result<Vec<String>> {
    let words = [
        "get",
        "deployments",
        "-n",
        NAMESPACE,
        "-l",
        "ceph.rook.io/do-not-reconcile,stagger.dev/held-by",
    ];
    let names = cluster
        .plane
        .ask(&[&words[..], &["-o", "jsonpath={.items[*].metadata.name}"]].concat())?;
    Ok(names.split_whitespace().map(str::to_owned).collect())
}

/// The image that the CephCluster names.
fn named(cluster: &RookCluster) -> Result<Value> {
    let found = cluster.plane.object(NAMESPACE, "cephcluster", NAMESPACE)?;
    Ok(found["spec"]["cephVersion"]["image"].clone())
}

/// What we write of a daemon is what Rook would write itself: when it is on again it restarts nothing.
#[test]
#[ignore = "needs root, Go, Ceph and Rook; cargo xtask test --long runs it"]
fn stagger_updates_and_rook_restarts_nothing_afterwards() -> Result<()> {
    let spec = RookSpec {
        nodes: 3,
        ..RookSpec::default()
    };
    beside_rook(
        "stagger_updates_and_rook_restarts_nothing_afterwards",
        AGENT,
        spec,
        |cluster, phases| {
            cluster.scale_operator(0)?;
            let before = cluster.incarnations()?;
            let image = cluster.next_image();
            cluster.maintain(&json!(["updates"]))?;
            let unguarded = cluster.operators().start("one", &[])?;
            cluster.patch_cluster(&json!({ "spec": { "cephVersion": { "image": image } } }))?;
            let waits = cluster.wait_ours(
                "nothing begins while an OSD might be evicted beside a wave",
                Duration::from_mins(3),
                |status| Ok(status.to_string().contains("EvictionsNotGuarded")),
            );
            let waits = waits.with_context(|| unguarded.log())?;
            ensure!(waits["run"].is_null(), "a run was begun: {waits:#}");
            let restarts = cluster.restarts_since(&before)?;
            ensure!(restarts.values().all(|count| *count == 0), "{restarts:?}");
            unguarded.kill()?;
            let operator = cluster.operators().start("two", &ASKED_ABOUT_EVICTIONS)?;
            let updated = cluster.wait_ours("all is updated", Duration::from_mins(10), |status| {
                let run = &status["run"];
                Ok(run["verdict"] == "done" && status["conditions"][0]["reason"] == "UpToDate")
            });
            updated.with_context(|| operator.log())?;
            phases.lap("updated by stagger");
            let restarts = cluster.restarts_since(&before)?;
            ensure!(
                restarts.len() == before.len() && restarts.values().all(|count| *count == 1),
                "{restarts:?}"
            );
            operator.kill()?;
            let before = cluster.incarnations()?;
            cluster.scale_operator(1)?;
            cluster.wait_reconciled(Duration::from_mins(5))?;
            cluster.wait_told("Rook has seen it", Duration::from_mins(2), |status| {
                Ok(status["phase"] == "Ready" && status["version"]["image"] == image)
            })?;
            phases.lap("Rook has gone through it");
            cluster.wait_clean(Duration::from_mins(1))?;
            let restarts = cluster.restarts_since(&before)?;
            ensure!(restarts.is_empty(), "{restarts:?}");
            Ok(())
        },
    )
}

/// It says so of itself when it is made; here it is found again.
#[test]
#[ignore = "needs root and Ceph; cargo xtask test --long runs it"]
fn a_second_build_calls_itself_by_the_next_version() -> Result<()> {
    let root = roots(&[Release::Tentacle])?.pop().context("no root of Ceph 20")?;
    let made = SecondBuild::of(&root)?;
    ensure!(made.version != root.ceph_version() && made.layer.join("usr/bin/ceph-osd").is_file());
    ensure!(SecondBuild::of(&root)? == made);
    Ok(())
}
