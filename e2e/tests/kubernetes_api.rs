//! The resource definitions on a real API server: what it takes, what it refuses, and what it leaves alone.

use std::io::Write as _;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};
use stagger_e2e::command::run;
use stagger_e2e::folder::Folder;
use stagger_e2e::kubernetes::servers::KUBERNETES;
use stagger_e2e::kubernetes::{Plane, definitions};
use stagger_e2e::sandbox::Sandbox;

#[test]
#[ignore = "needs root and Go; cargo xtask test runs it"]
fn the_definitions_on_a_real_api_server() -> Result<()> {
    let folder = Folder::make("kubernetes-", 1_000_000_000)?;
    let sandbox = Sandbox::start(folder.path(), &[])?;
    let plane = Plane::start(&sandbox)?;
    let version = plane.ask(&["version", "-o", "json"])?;
    ensure!(version.contains(KUBERNETES), "{version}");
    rbac_is_on(&plane)?;
    controllers_work(&plane)?;
    definitions_are_taken(&plane)?;
    a_maintenance_is_about_one_cluster(&plane)?;
    what_is_absurd_is_refused(&plane)?;
    // In a program of its own: the API server listens inside.
    run(sandbox
        .command(env!("CARGO_BIN_EXE_journal-laws"))
        .arg(plane.kubeconfig()))?;
    what_the_operator_runs_by_goes_last(&plane)
}

/// While something may be held for a CephMaintenance nothing is deleted by which the operator would give it back; the
/// resource definition takes CephMaintenances away, and then all goes.
fn what_the_operator_runs_by_goes_last(plane: &Plane) -> Result<()> {
    let base = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy");
    plane.ask(&["apply", "--server-side", "-k", base])?;
    let held = r#"{"metadata":{"finalizers":["stagger.dev/give-back"]}}"#;
    let free = r#"{"metadata":{"finalizers":null}}"#;
    let finalizers = |patch: &str| {
        plane.ask(&[
            "patch",
            "cephmaint",
            "main",
            "-n",
            "rook-ceph",
            "--type=merge",
            "-p",
            patch,
        ])
    };
    let parts = [
        "deployment/stagger-operator",
        "serviceaccount/stagger-operator",
        "role/stagger-cluster",
        "rolebinding/stagger-cluster",
        "role/stagger-operator",
        "rolebinding/stagger-operator",
        "clusterrole/stagger-operator",
        "clusterrolebinding/stagger-operator",
    ];
    let try_delete = |part: &str| plane.ask(&["delete", part, "-n", "rook-ceph", "--dry-run=server"]);
    // A policy is heeded some moments after it was written.
    finalizers(held)?;
    let begun = std::time::Instant::now();
    for part in parts {
        loop {
            match try_delete(part) {
                Err(error) => {
                    let error = format!("{error:#}");
                    ensure!(
                        error.contains("may be held for CephMaintenance rook-ceph/main"),
                        "{part}: {error}"
                    );
                    break;
                }
                Ok(_) if begun.elapsed() < Duration::from_mins(1) => {
                    std::thread::sleep(Duration::from_millis(500));
                }
                Ok(said) => bail!("{part} may go: {said}"),
            }
        }
    }
    // Others are not asked about.
    plane.ask(&["delete", "deployment/osd", "-n", "rook-ceph", "--dry-run=server"])?;
    let refused = plane.ask(&["delete", "-k", base, "--wait=false"]);
    ensure!(refused.is_err(), "all of it went while something may be held");
    for part in parts {
        plane.ask(&["get", part, "-n", "rook-ceph"])?;
    }
    // As the operator does when it has given everything back.
    finalizers(free)?;
    plane.ask(&[
        "wait",
        "--for=delete",
        "crd/cephmaintenances.stagger.dev",
        "--timeout=60s",
    ])?;
    plane.ask(&["delete", "-k", base, "--ignore-not-found"])?;
    let left = plane.ask(&[
        "get",
        "deployments,serviceaccounts,roles,rolebindings",
        "-n",
        "rook-ceph",
        "-o",
        "name",
    ])?;
    ensure!(!left.contains("stagger"), "left behind: {left}");
    Ok(())
}

fn rbac_is_on(plane: &Plane) -> Result<()> {
    plane.ask(&["create", "namespace", "rook-ceph"])?;
    let nobody = "system:serviceaccount:rook-ceph:nobody";
    let asked = [
        "auth",
        "can-i",
        "delete",
        "deployments.apps",
        "-n",
        "rook-ceph",
        "--as",
        nobody,
    ];
    let answer = plane.ask(&asked);
    ensure!(
        answer.is_err(),
        "an account without a role may delete Deployments"
    );
    Ok(())
}

/// A Deployment becomes a ReplicaSet and a Pod, for which the scheduler finds no node.
fn controllers_work(plane: &Plane) -> Result<()> {
    plane.ask(&[
        "create",
        "deployment",
        "osd",
        "-n",
        "rook-ceph",
        "--image=ceph:18",
    ])?;
    for _ in 0..100 {
        let pods = plane.ask(&["get", "pods", "-n", "rook-ceph", "-o", "json"])?;
        if pods.contains("\"reason\": \"Unschedulable\"") {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(200));
    }
    bail!(
        "no pod was made, or nobody looked for a node: {}",
        plane.logs_tail()
    )
}

fn definitions_are_taken(plane: &Plane) -> Result<()> {
    definitions::ours(plane)?;
    // None of Rook's is among them.
    let text = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/crds.yaml"))?;
    ensure!(
        !text.contains("rook.io"),
        "a definition of Rook's is ours to apply"
    );
    Ok(())
}

/// Nothing but whose it is.
fn of_ours() -> Value {
    json!({
        "apiVersion": "stagger.dev/v1alpha1", "kind": "CephMaintenance",
        "metadata": { "name": "main", "namespace": "rook-ceph" },
        "spec": {
            "cephCluster": "main", "manage": ["drains", "updates"], "image": "quay.io/ceph/ceph:v20.2.4",
            "updatePolicy": { "osds": { "grow": false } },
        },
    })
}

/// What is written is kept as it is, and is about one cluster for good.
fn a_maintenance_is_about_one_cluster(plane: &Plane) -> Result<()> {
    let written = of_ours();
    create(plane, &written, &[])??;
    let kept = plane.ask(&["get", "cephmaint", "main", "-n", "rook-ceph", "-o", "json"])?;
    let kept: Value = serde_json::from_str(&kept)?;
    ensure!(
        kept["spec"] == written["spec"],
        "the API server keeps another spec: {}",
        kept["spec"]
    );
    let shown = plane.ask(&["get", "ceph,stagger", "-n", "rook-ceph"])?;
    ensure!(
        shown.contains("MANAGES") && shown.contains("[\"drains\",\"updates\"]"),
        "{shown}"
    );
    let patch = |patch: &str| {
        let words = [
            "patch",
            "cephmaintenance",
            "main",
            "-n",
            "rook-ceph",
            "--type=merge",
            "-p",
            patch,
        ];
        plane.ask(&words)
    };
    let Err(error) = patch(r#"{"spec":{"cephCluster":"other"}}"#) else {
        bail!("it is about another cluster now");
    };
    ensure!(
        format!("{error:#}").contains("a CephMaintenance of its own"),
        "{error:#}"
    );
    let Err(error) = patch(r#"{"spec":{"manage":["everything"]}}"#) else {
        bail!("it does everything now");
    };
    ensure!(format!("{error:#}").contains("Unsupported value"), "{error:#}");
    // `kubectl wait` goes by conditions.
    let status = r#"{"status":{"conditions":[{"type":"UpToDate","status":"True","reason":"UpToDate","message":"",
        "lastTransitionTime":"2026-11-25T10:00:00Z"}]}}"#;
    let words = [
        "patch",
        "cephmaintenance",
        "main",
        "-n",
        "rook-ceph",
        "--subresource=status",
        "--type=merge",
        "-p",
    ];
    plane.ask(&[&words[..], &[status]].concat())?;
    let words = [
        "wait",
        "cephmaintenance/main",
        "-n",
        "rook-ceph",
        "--for=condition=UpToDate",
        "--timeout=5s",
    ];
    plane.ask(&words).map(drop)
}

fn what_is_absurd_is_refused(plane: &Plane) -> Result<()> {
    let policy = |osds: Value| json!({ "osds": osds });
    let window =
        |from: &str| json!({ "windows": [{ "days": [], "from": from, "until": "05:00", "zone": "UTC" }] });
    let refused = [
        (
            "a number of 1 or more",
            policy(json!({ "maxInParallelPerCluster": 0 })),
        ),
        (
            "a number of 1 or more",
            policy(json!({ "maxInParallelPerCluster": "101%" })),
        ),
        (
            "a number of 1 or more",
            policy(json!({ "maxInParallelPerCluster": "many" })),
        ),
        ("greater than or equal to 0", policy(json!({ "soakSeconds": -1 }))),
        ("Unsupported value", json!({ "onFailure": "hope" })),
        ("should match", window("25:00")),
    ];
    for (why, update_policy) in refused {
        let error = match create(plane, &with(&update_policy), &["--dry-run=server"])? {
            Ok(()) => bail!("{update_policy} was taken"),
            Err(error) => error.to_string(),
        };
        ensure!(error.contains(why), "{update_policy} was refused so: {error}");
    }
    for good in [
        policy(json!({ "maxInParallelPerCluster": "15%" })),
        policy(json!({ "maxInParallelPerCluster": 4, "grow": false })),
        json!({ "onFailure": "continue", "pause": true, "healthErrorsToIgnore": ["POOL_NO_REDUNDANCY"] }),
        window("22:00"),
    ] {
        create(plane, &with(&good), &["--dry-run=server"])?.with_context(|| format!("{good} was refused"))?;
    }
    Ok(())
}

/// Another with that `updatePolicy`.
fn with(update_policy: &Value) -> Value {
    let mut maintenance = of_ours();
    maintenance["metadata"]["name"] = json!("other");
    maintenance["spec"]["updatePolicy"] = update_policy.clone();
    maintenance
}

/// Creates an object; the inner error is the server's word.
fn create(plane: &Plane, object: &Value, options: &[&str]) -> Result<Result<()>> {
    let mut child = plane
        .kubectl()
        .args(["create", "-f", "-"])
        .args(options)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let mut stdin = child.stdin.take().context("kubectl has no stdin")?;
    stdin.write_all(object.to_string().as_bytes())?;
    drop(stdin);
    let out = child.wait_with_output()?;
    if out.status.success() {
        return Ok(Ok(()));
    }
    Ok(Err(anyhow::anyhow!(
        "{}",
        String::from_utf8_lossy(&out.stderr).into_owned()
    )))
}
