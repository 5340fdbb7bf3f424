//! The Helm chart by the real Helm: it says what the kustomize base says, and a real API server takes it.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use stagger_e2e::command::run;
use stagger_e2e::folder::Folder;
use stagger_e2e::kubernetes::{Plane, helm};
use stagger_e2e::sandbox::Sandbox;

const NAMESPACE: &str = "rook-ceph";
const DEPLOY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy");

/// Objects by kind and name.
type Objects = BTreeMap<(String, String), Value>;

#[test]
#[ignore = "needs root and Go, builds Helm once; cargo xtask test --long runs it"]
fn the_chart_is_what_the_base_is() -> Result<()> {
    let helm = helm::program()?;
    let folder = Folder::make("helm-", 1_000_000_000)?;
    let sandbox = Sandbox::start(folder.path(), &[])?;
    let plane = Plane::start(&sandbox)?;
    plane.ask(&["create", "namespace", NAMESPACE])?;
    let chart = format!("{DEPLOY}/helm/stagger");
    let helm = |words: &[&str]| {
        let mut command = sandbox.command(&helm);
        command.args(words).args(["--namespace", NAMESPACE]);
        command.arg("--kubeconfig").arg(plane.kubeconfig());
        // It would keep a cache and settings of its own below the home.
        command.env("HOME", sandbox.dir());
        run(&mut command)
    };
    helm(&["lint", "--strict", &chart])?;

    // Hooks are of the chart alone.
    let rendered = objects(&plane, &helm(&["template", "stagger", &chart, "--no-hooks"])?)?;
    let base = run(plane.kubectl().args(["kustomize", &format!("{DEPLOY}/operator")]))?;
    let base = objects(&plane, &base)?;
    ensure!(base.len() > 5, "the base has only {:?}", base.keys());
    for key in rendered.keys().chain(base.keys()) {
        let (ours, theirs) = (rendered.get(key), base.get(key));
        ensure!(
            ours == theirs,
            "{key:?} by Helm:\n{ours:#?}\nby kustomize:\n{theirs:#?}"
        );
    }

    helm(&["install", "stagger", &chart])?;
    let args = |wanted: &str| -> Result<()> {
        let path = "jsonpath={.spec.template.spec.containers[0].args}";
        let said = plane.ask(&[
            "get",
            "deployment",
            "stagger-operator",
            "-n",
            NAMESPACE,
            "-o",
            path,
        ])?;
        ensure!(said.contains(wanted), "no {wanted} in {said}");
        Ok(())
    };
    args("\"--watch-namespace=$(NAMESPACE)\"")?;
    plane.ask(&["get", "cephmaintenances.stagger.dev", "-A"])?;
    for namespace in ["storage", "more"] {
        plane.ask(&["create", "namespace", namespace])?;
    }
    let more = [
        "--set",
        "watchNamespaces={storage,more}",
        "--set",
        "extraArgs={--plain-logs}",
    ];
    helm(&[&["upgrade", "stagger", &chart][..], &more].concat())?;
    args("\"--watch-namespace=storage,more\"")?;
    args("\"--plain-logs\"")?;
    // Rights are those of the namespaces that are named, and in the one before there are none left.
    for (namespace, is_there) in [("storage", true), ("more", true), (NAMESPACE, false)] {
        let found = plane.ask(&["get", "role,rolebinding", "-n", namespace, "-o", "name"])?;
        ensure!(
            found.matches("stagger-cluster").count() == if is_there { 2 } else { 0 },
            "{namespace}: {found}"
        );
    }

    // No node of this cluster runs a pod that could be asked: the release stays, and whoever keeps it has it as before.
    let refused = helm(&["uninstall", "stagger", "--timeout=5s"]);
    ensure!(refused.is_err(), "it went, and nobody was asked");
    helm(&["rollback", "stagger", "2"])?;
    helm(&[&["upgrade", "stagger", &chart][..], &more].concat())?;
    args("\"--plain-logs\"")?;
    helm(&["uninstall", "stagger", "--no-hooks"])?;
    let left = plane.ask(&[
        "get",
        "deployments,serviceaccounts,pdb",
        "-n",
        NAMESPACE,
        "-o",
        "name",
    ])?;
    ensure!(!left.contains("stagger"), "left behind: {left}");
    // Resources of people are never taken away with the program.
    plane.ask(&["get", "cephmaintenances.stagger.dev", "-A"])?;
    Ok(())
}

/// What `kubectl` reads in a text of many objects.
fn objects(plane: &Plane, text: &str) -> Result<Objects> {
    let mut child = plane
        .kubectl()
        .args([
            "create",
            "--dry-run=client",
            "--validate=false",
            "-o",
            "json",
            "-f",
            "-",
        ])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .context("start kubectl")?;
    child
        .stdin
        .take()
        .context("kubectl has no input")?
        .write_all(text.as_bytes())?;
    let out = child.wait_with_output()?;
    ensure!(out.status.success(), "kubectl cannot read it: {text}");
    // A list of one, or one object after another.
    let mut all = Objects::new();
    for document in serde_json::Deserializer::from_slice(&out.stdout).into_iter::<Value>() {
        let document = document?;
        let items = match document["items"].as_array() {
            Some(items) => items.clone(),
            None => vec![document],
        };
        for item in items {
            let word = |place: &str| item.pointer(place).and_then(Value::as_str).map(str::to_owned);
            let kind = word("/kind").context("an object without a kind")?;
            let name = word("/metadata/name").context("an object without a name")?;
            all.insert((kind, name), item);
        }
    }
    Ok(all)
}
