//! The resource definitions on a real API server: what it takes, what it refuses, and what it leaves alone.

use std::io::Write as _;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};
use stagger_e2e::command::run;
use stagger_e2e::folder::Folder;
use stagger_e2e::kubernetes::Plane;
use stagger_e2e::kubernetes::servers::KUBERNETES;
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
    a_resource_of_rook_survives(&plane)?;
    what_is_absurd_is_refused(&plane)?;
    // In a program of its own: the API server listens inside.
    run(sandbox
        .command(env!("CARGO_BIN_EXE_journal-laws"))
        .arg(plane.kubeconfig()))?;
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
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/crds.yaml");
    plane.ask(&["apply", "--server-side", "-f", path])?;
    plane.ask(&[
        "wait",
        "crd/cephclusters.ceph.rook.io",
        "--for=condition=Established",
        "--timeout=30s",
    ])?;
    Ok(())
}

/// What Rook's own example has, in part, with fields that our definition knows nothing of.
fn of_rook() -> Value {
    json!({
        "apiVersion": "ceph.rook.io/v1",
        "kind": "CephCluster",
        "metadata": { "name": "rook-ceph", "namespace": "rook-ceph" },
        "spec": {
            "cephVersion": { "image": "quay.io/ceph/ceph:v18.2.7", "allowUnsupported": false },
            "dataDirHostPath": "/var/lib/rook",
            "skipUpgradeChecks": false,
            "mon": { "count": 3, "allowMultiplePerNode": false },
            "mgr": { "count": 2, "modules": [{ "name": "rook", "enabled": true }] },
            "dashboard": { "enabled": true, "ssl": true },
            "storage": { "useAllNodes": true, "useAllDevices": true, "config": {} },
            "disruptionManagement": { "managePodBudgets": true, "osdMaintenanceTimeout": 30 },
            "priorityClassNames": { "mon": "system-node-critical" },
        },
    })
}

fn a_resource_of_rook_survives(plane: &Plane) -> Result<()> {
    let written = of_rook();
    create(plane, &written, &[])??;
    let kept = plane.ask(&["get", "cephcluster", "rook-ceph", "-n", "rook-ceph", "-o", "json"])?;
    let kept: Value = serde_json::from_str(&kept)?;
    ensure!(
        kept["spec"] == written["spec"],
        "the API server keeps another spec: {}",
        kept["spec"]
    );
    let shown = plane.ask(&["get", "cephclusters", "-n", "rook-ceph"])?;
    ensure!(
        shown.contains("IMAGE") && shown.contains("quay.io/ceph/ceph:v18.2.7"),
        "{shown}"
    );
    Ok(())
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

/// Another cluster with that `updatePolicy`.
fn with(update_policy: &Value) -> Value {
    let mut cluster = of_rook();
    cluster["metadata"]["name"] = json!("other");
    cluster["spec"]["updatePolicy"] = update_policy.clone();
    cluster
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
