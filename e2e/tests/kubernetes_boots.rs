//! A real Kubernetes control plane starts, obeys RBAC, and is gone with its sandbox.

use std::fs;

use anyhow::{Result, ensure};
use stagger_e2e::cache;
use stagger_e2e::kubernetes::Plane;
use stagger_e2e::sandbox::Sandbox;

#[test]
#[ignore = "needs root and Go; cargo xtask test runs it"]
fn a_control_plane_starts_and_obeys_rbac() -> Result<()> {
    let folders = cache::dir()?.join("clusters");
    fs::create_dir_all(&folders)?;
    let folder = tempfile::Builder::new()
        .prefix("kubernetes-")
        .tempdir_in(&folders)?
        .keep();
    let sandbox = Sandbox::start(&folder, &[])?;
    let plane = Plane::start(&sandbox)?;
    let version = plane.ask(&["version", "-o", "json"])?;
    ensure!(version.contains("v1.36.4"), "{version}");

    plane.ask(&["create", "namespace", "rook-ceph"])?;
    let asked = |who: &str, verb: &str| {
        plane.ask(&[
            "auth",
            "can-i",
            verb,
            "deployments.apps",
            "-n",
            "rook-ceph",
            "--as",
            who,
        ])
    };
    ensure!(
        asked("system:serviceaccount:rook-ceph:default", "delete").is_err(),
        "an account without a role may delete Deployments"
    );
    plane.ask(&[
        "create",
        "deployment",
        "osd",
        "-n",
        "rook-ceph",
        "--image=ceph:18",
        "--replicas=1",
    ])?;
    // The controllers make a ReplicaSet and a Pod of it, and the scheduler finds no node.
    let pods = [
        "wait",
        "pod",
        "--all",
        "-n",
        "rook-ceph",
        "--for=condition=PodScheduled=False",
    ];
    for _ in 0..50 {
        if plane.ask(&[&pods[..], &["--timeout=20s"]].concat()).is_ok() {
            return Ok(());
        }
        std::thread::sleep(std::time::Duration::from_millis(200));
    }
    anyhow::bail!("no pod was made: {}", plane.logs_tail())
}
