//! Installed as the guide says: an image that is built, pods that run it, kustomize and Helm that bring it there.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};
use stagger_e2e::command::{output, run};
use stagger_e2e::kubernetes::helm;
use stagger_e2e::rook_cluster::{NAMESPACE, RookCluster, RookSpec, beside_rook};
use stagger_e2e::stagger_image::{self, NAME};

use crate::{AGENT, evictions_are_asked_about, given_back};

const DEPLOY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy");

/// The first five minutes of the guide, with kustomize: who drains a node is told by the webhook behind its Service, an
/// update goes through, and all of it goes without leaving anything closed. Then once more by Helm.
#[test]
#[ignore = "needs root, Go, Ceph, Rook and the network, and compiles for minutes; cargo xtask test --long runs it"]
fn by_kustomize_and_by_helm_from_an_image_that_is_built() -> Result<()> {
    let image = stagger_image::ensure()?;
    let spec = RookSpec {
        nodes: 3,
        zones: 0,
        images: [(NAME.to_owned(), image)].into(),
        pod_networks: true,
        ..RookSpec::default()
    };
    let name = "by_kustomize_and_by_helm_from_an_image_that_is_built";
    beside_rook(name, AGENT, spec, |cluster, phases| {
        cluster
            .patch_cluster(&json!({ "spec": { "disruptionManagement": { "managePodBudgets": false } } }))?;
        let overlay = overlay(cluster)?;
        cluster.plane.ask(&["apply", "--server-side", "-k", &overlay])?;
        serves(cluster, &json!(["drains", "updates"]))?;
        phases.lap("installed by kustomize");
        only_one_node_goes(cluster)?;
        phases.lap("a second drain was told why not");
        updated(cluster)?;
        phases.lap("updated");
        gone(cluster)?;
        cluster.plane.ask(&["delete", "-k", &overlay, "--timeout=60s"])?;
        phases.lap("taken away");

        let program = helm::program()?;
        let helm = |words: &[&str]| {
            let mut command = cluster.sandbox().command(&program);
            command.args(words).args(["--namespace", NAMESPACE]);
            command.arg("--kubeconfig").arg(cluster.plane.kubeconfig());
            // It would keep a cache and settings of its own below the home.
            run(command.env("HOME", cluster.dir()))
        };
        let chart = format!("{DEPLOY}/helm/stagger");
        helm(&["install", "stagger", &chart, "--wait", "--timeout=120s"])?;
        serves(cluster, &json!(["drains"]))?;
        phases.lap("installed by Helm");
        only_one_node_goes(cluster)?;
        phases.lap("the same again");
        let uninstalled = helm(&["uninstall", "stagger", "--timeout=120s"]);
        ensure!(uninstalled.is_err(), "it went, and a CephMaintenance is there");
        was_told_why_it_stays(cluster)?;
        phases.lap("uninstalling was refused");
        // Whoever keeps it after all has it as before.
        helm(&["rollback", "stagger", "1"])?;
        helm(&["upgrade", "stagger", &chart, "--wait", "--timeout=120s"])?;
        phases.lap("it was kept, and upgraded");
        gone(cluster)?;
        helm(&["uninstall", "stagger"]).map(drop)
    })
}

/// A folder of one's own, as in the guide.
fn overlay(cluster: &RookCluster) -> Result<String> {
    let folder = cluster.dir().join("overlay");
    fs::create_dir(&folder).with_context(|| format!("making {}", folder.display()))?;
    // Kustomize takes bases by relative paths alone.
    let base = cluster.dir().join("deploy");
    let copied = run(std::process::Command::new("cp").arg("-r").arg(DEPLOY).arg(&base));
    copied.context("copying the manifests")?;
    let text = format!("namespace: {NAMESPACE}\nresources: [../deploy]\n");
    let file = folder.join("kustomization.yaml");
    fs::write(&file, text).with_context(|| format!("writing {}", file.display()))?;
    Ok(folder.display().to_string())
}

/// The pods of the operator run and one of them leads; the CephMaintenance is seen to, and evictions are asked about.
fn serves(cluster: &RookCluster, manage: &Value) -> Result<()> {
    let rollout = [
        "rollout",
        "status",
        "deployment/stagger-operator",
        "-n",
        NAMESPACE,
        "--timeout=120s",
    ];
    cluster.plane.ask(&rollout).with_context(|| operators(cluster))?;
    let maintenance = json!({
        "apiVersion": "stagger.dev/v1alpha1", "kind": "CephMaintenance",
        "metadata": { "name": NAMESPACE, "namespace": NAMESPACE },
        "spec": { "cephCluster": NAMESPACE, "manage": manage },
    });
    cluster.plane.apply("kubectl", &[maintenance])?;
    let one = format!("cephmaintenance/{NAMESPACE}");
    let available = [
        "wait",
        &one,
        "-n",
        NAMESPACE,
        "--for=condition=Available",
        "--timeout=60s",
    ];
    cluster
        .plane
        .ask(&available)
        .with_context(|| operators(cluster))?;
    evictions_are_asked_about(cluster)
}

/// A node is drained; who drains a second one is told what for it has to wait, until the first is back.
fn only_one_node_goes(cluster: &RookCluster) -> Result<()> {
    drain(cluster, "n0", 120).with_context(|| operators(cluster))?;
    // The operator that leads may be evicted from there as well: until another leads, a budget refuses, which says no more.
    let Err(refused) = drain(cluster, "n1", 60) else {
        bail!("n1 was drained while n0 is down: {}", operators(cluster));
    };
    let said = format!("{refused:#}");
    ensure!(
        said.contains("evictions.stagger.dev") && said.contains(" may not be evicted now: "),
        "{said}\n{}",
        operators(cluster)
    );
    cluster.plane.ask(&["uncordon", "n0", "n1"])?;
    cluster.wait_clean(Duration::from_mins(3))?;
    cluster.wait_ours("the drain is over", Duration::from_mins(1), |status| {
        Ok(status["drains"].is_null())
    })?;
    Ok(())
}

fn drain(cluster: &RookCluster, node: &str, seconds: u32) -> Result<()> {
    let timeout = format!("--timeout={seconds}s");
    let words = [
        "drain",
        node,
        "--ignore-daemonsets",
        "--delete-emptydir-data",
        "--force",
        &timeout,
    ];
    let ended = output(cluster.plane.kubectl().args(words))?;
    let said = String::from_utf8_lossy(&ended.stderr);
    ensure!(ended.status.success(), "draining {node}: {said}");
    Ok(())
}

/// By the two commands of the guide.
fn updated(cluster: &RookCluster) -> Result<()> {
    cluster.patch_maintenance(&json!({ "spec": { "image": cluster.next_image() } }))?;
    let one = format!("cephmaintenance/{NAMESPACE}");
    let observed = [
        "wait",
        &one,
        "-n",
        NAMESPACE,
        "--for=condition=UpToDate=false",
        "--timeout=60s",
    ];
    cluster.plane.ask(&observed).with_context(|| operators(cluster))?;
    let updated = [
        "wait",
        &one,
        "-n",
        NAMESPACE,
        "--for=condition=UpToDate",
        "--timeout=600s",
    ];
    cluster.plane.ask(&updated).with_context(|| operators(cluster))?;
    Ok(())
}

/// The CephMaintenance goes, and leaves nothing that is closed.
fn gone(cluster: &RookCluster) -> Result<()> {
    given_back(cluster, 60).with_context(|| operators(cluster))
}

/// The release is there yet, and the Job that Helm asks has said why.
fn was_told_why_it_stays(cluster: &RookCluster) -> Result<()> {
    let words = ["logs", "job/stagger-may-be-uninstalled", "-n", NAMESPACE];
    let said = cluster.plane.ask(&words)?;
    ensure!(
        said.contains("do not uninstall yet") && said.contains("delete cephmaintenance rook-ceph"),
        "{said}"
    );
    cluster
        .plane
        .object(NAMESPACE, "deployment", "stagger-operator")
        .map(drop)
}

/// What the operators said last, for the message of a failed test.
fn operators(cluster: &RookCluster) -> String {
    let mut text = String::new();
    for words in [
        &["get", "pods", "-n", NAMESPACE, "-o", "wide"][..],
        &["describe", "pods", "-l", "app=stagger-operator", "-n", NAMESPACE],
        &[
            "logs",
            "-l",
            "app=stagger-operator",
            "-n",
            NAMESPACE,
            "--tail=30",
            "--prefix",
        ],
    ] {
        let said = output(cluster.plane.kubectl().args(words));
        text.push_str(&said.map_or_else(
            |error| format!("{error:#}\n"),
            |said| String::from_utf8_lossy(&[said.stdout, said.stderr].concat()).into_owned() + "\n",
        ));
    }
    text
}
