//! The command line against an operator's CephMaintenance on a real API server. Without a Ceph no upgrade runs
//! here: its status is written as an operator writes it, and a command is heard by writing that it was. At the
//! end the operator itself tells what it can.

use std::fs;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use stagger_e2e::ceph_in_pods::rights_in;
use stagger_e2e::command::output;
use stagger_e2e::folder::Folder;
use stagger_e2e::kubernetes::{Plane, definitions};
use stagger_e2e::sandbox::Sandbox;
use stagger_e2e::stagger::binary;

const NAMESPACE: &str = "rook-ceph";
const SCENARIO: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../scenarios/no-way-back.toml");

/// A plane, and somebody with a kubeconfig.
struct Lab<'a> {
    sandbox: &'a Sandbox,
    plane: Plane,
}

impl Lab<'_> {
    fn apply(&self, object: &Value, options: &[&str]) -> Result<()> {
        let path = self.sandbox.dir().join("object.json");
        fs::write(&path, object.to_string())?;
        let path = path.display().to_string();
        let words = [
            &["apply", "--server-side", "--force-conflicts", "-f", &path],
            options,
        ]
        .concat();
        self.plane.ask(&words).map(drop)
    }

    /// As the operator writes it.
    fn tell(&self, status: &Value) -> Result<()> {
        let object = json!({
            "apiVersion": "stagger.dev/v1alpha1", "kind": "CephMaintenance",
            "metadata": { "name": "main", "namespace": NAMESPACE }, "status": status,
        });
        self.apply(&object, &["--subresource=status", "--field-manager=stagger"])
    }

    /// A kubeconfig for an account.
    fn kubeconfig_of(&self, account: &str) -> Result<String> {
        let token = self.plane.ask(&["create", "token", account, "-n", NAMESPACE])?;
        let path = self.sandbox.dir().join(format!("{account}.kubeconfig"));
        let text = self.plane.kubeconfig_for(account, NAMESPACE, token.trim());
        fs::write(&path, text)?;
        Ok(path.display().to_string())
    }

    /// `stagger` as the administrator, or as whoever that kubeconfig is for.
    fn stagger_as(&self, kubeconfig: &str, words: &[&str]) -> Result<Output> {
        let mut command = self.sandbox.command(binary()?);
        let state = self.sandbox.dir().join("state");
        command.arg("--state").arg(state).args(words);
        command.args(["--kubeconfig", kubeconfig]).stdin(Stdio::null());
        output(&mut command)
    }

    fn stagger(&self, words: &[&str]) -> Result<Output> {
        self.stagger_as(&self.plane.kubeconfig().display().to_string(), words)
    }

    /// It must end with that code, and say those words on stdout or stderr.
    fn says(&self, words: &[&str], code: i32, said: &[&str]) -> Result<()> {
        holds(words, &self.stagger(words)?, code, said)
    }

    fn json(&self, words: &[&str]) -> Result<Value> {
        let out = self.stagger(&[words, &["--json"]].concat())?;
        serde_json::from_slice(&out.stdout).with_context(|| format!("{words:?}: {out:?}"))
    }
}

fn holds(words: &[&str], out: &Output, code: i32, said: &[&str]) -> Result<()> {
    let text = [&out.stdout[..], &out.stderr[..]]
        .map(String::from_utf8_lossy)
        .concat();
    ensure!(
        out.status.code() == Some(code),
        "{words:?}: {:?}: {text}",
        out.status
    );
    for one in said {
        ensure!(text.contains(one), "{words:?} does not say {one:?}: {text}");
    }
    Ok(())
}

#[test]
#[ignore = "needs root and Go; cargo xtask test --long runs it"]
fn an_operator_is_asked_through_a_kubeconfig() -> Result<()> {
    let folder = Folder::make("kube-commands-", 1_000_000_000)?;
    let sandbox = Sandbox::start(folder.path(), &[])?;
    let lab = Lab {
        plane: Plane::start(&sandbox)?,
        sandbox: &sandbox,
    };
    lab.plane.ask(&["create", "namespace", NAMESPACE])?;
    let at = ["-n", NAMESPACE];
    let status = [&["status"][..], &at].concat();

    nothing_has_to_be_installed(&lab)?;
    lab.says(
        &["pause", "-n", NAMESPACE],
        2,
        &["no such resource", "deploy/crds.yaml"],
    )?;
    let deploy = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy");
    lab.plane.ask(&["apply", "--server-side", "-k", deploy])?;
    lab.plane
        .ask(&["wait", "--for=condition=Established", "crd", "--all"])?;
    lab.says(
        &["pause", "-n", NAMESPACE],
        2,
        &["there is no CephMaintenance in namespace rook-ceph"],
    )?;
    lab.says(&status, 3, &["UNMANAGED", "osd.9 may not"])?;
    let named = [&status[..], &["--name", "main"]].concat();
    lab.says(&named, 2, &["there is no CephMaintenance in namespace rook-ceph"])?;
    lab.plane.ask(&[
        "delete",
        "pods,pdb,cephclusters",
        "--all",
        "--force",
        "-n",
        NAMESPACE,
    ])?;
    lab.apply(&ours("main"), &[])?;
    lab.says(&status, 3, &["UNKNOWN", "no leader"])?;

    what_is_told_is_shown(&lab)?;
    versions_are_counted(&lab)?;
    commands_are_heard(&lab)?;
    who_may_not_is_told(&lab)?;

    lab.apply(&ours("other"), &[])?;
    lab.says(
        &status,
        2,
        &["there are 2 CephMaintenances", "main, other", "--name"],
    )?;
    let named = [&status[..], &["--name", "main"]].concat();
    lab.says(&named, 3, &["rook-ceph/main"])?;
    the_operator_itself_is_understood(&lab)
}

/// A node is drained in a cluster with Rook alone: the budgets that hold it up are told, as the API server counts them.
fn nothing_has_to_be_installed(lab: &Lab) -> Result<()> {
    let (status, versions) = (["status", "-n", NAMESPACE], ["versions", "-n", NAMESPACE]);
    lab.says(&status, 2, &["Rook is not installed"])?;
    lab.says(&versions, 2, &["Rook is not installed"])?;
    definitions::of_rook(&lab.plane)?;
    lab.says(&status, 2, &["there is no CephCluster in namespace rook-ceph"])?;
    let cluster = json!({
        "apiVersion": "ceph.rook.io/v1", "kind": "CephCluster",
        "metadata": { "name": "main", "namespace": NAMESPACE }, "spec": { "dataDirHostPath": "/var/lib/rook" },
    });
    lab.apply(&cluster, &[])?;
    lab.says(&versions, 0, &["none in the cluster", "the Lease is not held"])?;
    lab.says(&status, 0, &["UNMANAGED", "rook-ceph/main", "0 of 0 are ready"])?;
    let node = json!({
        "apiVersion": "v1", "kind": "Node", "metadata": { "name": "n9" }, "spec": { "unschedulable": true },
    });
    lab.apply(&node, &[])?;
    let labels = json!({ "app": "rook-ceph-osd", "ceph-osd-id": "9", "rook_cluster": NAMESPACE });
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": "rook-ceph-osd-9", "namespace": NAMESPACE, "labels": labels },
        "spec": { "nodeName": "n9", "containers": [{ "name": "osd", "image": "ceph" }] },
    });
    lab.apply(&pod, &[])?;
    let ready = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "rook-ceph-osd-9", "namespace": NAMESPACE },
        "status": { "phase": "Running", "conditions": [{ "type": "Ready", "status": "True" }] },
    });
    lab.apply(&ready, &["--subresource=status", "--field-manager=kubelet"])?;
    lab.says(&status, 0, &["1 of 1 are ready", "cordoned   n9", "osd.9 may go"])?;
    let budget = json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
        "metadata": { "name": "rook-ceph-osd-host-n9", "namespace": NAMESPACE },
        "spec": { "maxUnavailable": 0, "selector": { "matchLabels": { "app": "rook-ceph-osd" } } },
    });
    lab.apply(&budget, &[])?;
    lab.says(
        &status,
        3,
        &["osd.9 may not: PodDisruptionBudget rook-ceph-osd-host-n9"],
    )?;
    let seen = lab.json(&status)?;
    ensure!(
        seen["cordoned"][0]["blocked"]["osd.9"].is_string() && seen["schema"]["name"] == "rook-unmanaged",
        "{seen}"
    );
    // Who may see nothing but this namespace's cluster is told what is missing.
    lab.plane
        .ask(&["create", "serviceaccount", "narrow", "-n", NAMESPACE])?;
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
        "metadata": { "name": "narrow", "namespace": NAMESPACE },
        "rules": [
            { "apiGroups": ["ceph.rook.io"], "resources": ["cephclusters"], "verbs": ["get", "list"] },
            { "apiGroups": ["stagger.dev"], "resources": ["cephmaintenances"], "verbs": ["list"] },
        ],
    });
    lab.apply(&role, &[])?;
    lab.plane.ask(&[
        "create",
        "rolebinding",
        "narrow",
        "-n",
        NAMESPACE,
        "--role=narrow",
        "--serviceaccount=rook-ceph:narrow",
    ])?;
    let narrow = lab.kubeconfig_of("narrow")?;
    let out = lab.stagger_as(&narrow, &status)?;
    holds(&status, &out, 0, &["UNMANAGED", "unseen     see the pods: "])
}

/// With the rights of its manifest, on a cluster that it can say something of without any Ceph.
fn the_operator_itself_is_understood(lab: &Lab) -> Result<()> {
    lab.plane.ask(&["create", "namespace", "bare"])?;
    let mut bare = ours("bare");
    bare["metadata"]["namespace"] = json!("bare");
    bare["spec"] = json!({ "cephCluster": "bare", "manage": ["updates"] });
    lab.apply(&bare, &[])?;
    rights_in(&lab.plane, "bare")?;
    definitions::of_rook(&lab.plane)?;
    let cluster = json!({
        "apiVersion": "ceph.rook.io/v1", "kind": "CephCluster",
        "metadata": { "name": "bare", "namespace": "bare" }, "spec": { "dataDirHostPath": "/var/lib/rook" },
    });
    lab.apply(&cluster, &[])?;
    // The one before has gone.
    lab.apply(&lease("2020-01-01T00:00:00.000000Z"), &[])?;
    let kubeconfig = lab.kubeconfig_of("stagger-operator")?;
    let mut command = lab.sandbox.command(binary()?);
    command.arg("--state").arg(lab.sandbox.dir().join("operator"));
    command.args(["operator", "--namespace", NAMESPACE, "--watch-namespace", "bare"]);
    command.args(["--identity", "op-2", "--lock-expires", "6"]);
    command.env("KUBECONFIG", kubeconfig).stdin(Stdio::null());
    let operator = Running(command.stdout(Stdio::null()).spawn()?);
    let words = ["status", "-n", "bare", "--operator-namespace", NAMESPACE];
    let said = ["BLOCKED  NoImage", "leader op-2", "Blocked since"];
    let mut seen = Ok(());
    for _ in 0..60 {
        seen = lab.says(&words, 3, &said);
        if seen.is_ok() {
            break;
        }
        std::thread::sleep(Duration::from_millis(500));
    }
    seen?;
    lab.says(
        &["pause", "-n", "bare", "--operator-namespace", NAMESPACE],
        1,
        &["no upgrade of CephCluster bare/bare is under way"],
    )?;
    operator.end()
}

/// What is wanted for the cluster of that name.
fn ours(name: &str) -> Value {
    json!({
        "apiVersion": "stagger.dev/v1alpha1", "kind": "CephMaintenance",
        "metadata": { "name": name, "namespace": NAMESPACE },
        "spec": { "cephCluster": name, "manage": ["updates"], "image": "quay.io/ceph/ceph:v20.2.4" },
    })
}

/// The document of a run that waits for a person, as the program itself makes it.
fn held(lab: &Lab) -> Result<Value> {
    let local = |state: &str, words: &[&str]| -> Result<Value> {
        let mut command = lab.sandbox.command(binary()?);
        command.args(["--state", state, "--json"]).args(words);
        let out = output(command.stdin(Stdio::null()))?;
        serde_json::from_slice(&out.stdout).with_context(|| format!("{words:?}: {out:?}"))
    };
    let state = lab.sandbox.dir().join("local").display().to_string();
    let simulated = local(&state, &["simulate", "--fast", SCENARIO])?;
    let journal = simulated["journal"]
        .as_str()
        .context("a simulation has a journal")?;
    let (state, _) = journal.rsplit_once('/').context("a journal is in a folder")?;
    let mut run = local(state, &["status"])?;
    // The API server keeps no nulls there; neither does the operator send any.
    if let Some(fields) = run.as_object_mut() {
        fields.retain(|_, field| !field.is_null());
    }
    Ok(run)
}

fn told(run: &Value, heard: &str) -> Value {
    let condition = |kind: &str, status: &str| {
        json!({
            "type": kind, "status": status, "reason": "NeedsAPerson", "message": "",
            "observedGeneration": 1, "lastTransitionTime": "2026-11-03T10:00:00Z",
        })
    };
    json!({
        "phase": "Blocked", "message": "it waits for a person",
        "observedGeneration": 1, "run": run, "heard": heard,
        "conditions": [condition("UpToDate", "False"), condition("Blocked", "True")],
    })
}

fn lease(renewed: &str) -> Value {
    json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": { "name": "stagger-operator", "namespace": NAMESPACE },
        "spec": { "holderIdentity": "op-1", "leaseDurationSeconds": 3600, "renewTime": renewed },
    })
}

fn what_is_told_is_shown(lab: &Lab) -> Result<()> {
    let words = ["status", "-n", NAMESPACE];
    lab.apply(&lease("2020-01-01T00:00:00.000000Z"), &[])?;
    let mut run = held(lab)?;
    let wave = json!({ "stage": "osd", "since": "2026-11-03T10:00:00Z", "units": { "changing": ["osd.1"] }, "shut": [] });
    run["current"] = wave;
    lab.tell(&told(&run, ""))?;
    lab.says(
        &words,
        3,
        &[
            "BLOCKED  NeedsAPerson",
            "no leader: op-1 last renewed",
            "changing   osd.1",
        ],
    )?;
    // What is told no more is gone.
    run["current"]["units"] = json!({ "changed": ["osd.1"] });
    lab.tell(&told(&run, ""))?;
    let seen = lab.json(&words)?;
    ensure!(
        seen["run"]["current"]["units"] == json!({ "changed": ["osd.1"] }),
        "{seen}"
    );
    lab.says(
        &["pause", "-n", NAMESPACE],
        3,
        &["no operator would process it", "op-1 last renewed"],
    )?;
    lab.apply(&lease(&now()?), &[])?;
    lab.says(
        &words,
        3,
        &["leader op-1", "NEEDS YOU", "Blocked since 2026-11-03"],
    )
}

fn now() -> Result<String> {
    let out = output(Command::new("date").args(["-u", "+%Y-%m-%dT%H:%M:%S.000000Z"]))?;
    Ok(String::from_utf8(out.stdout)?.trim().to_owned())
}

fn versions_are_counted(lab: &Lab) -> Result<()> {
    for (id, ceph, image) in [
        (0, "18.2.7-0", "quay.io/ceph/ceph:v18.2.7"),
        (1, "20.2.4-0", "quay.io/ceph/ceph:v20.2.4"),
        (2, "20.2.4-0", "quay.io/ceph/ceph:v20.2.4"),
    ] {
        let name = format!("rook-ceph-osd-{id}");
        let pod = json!({ "app": "rook-ceph-osd", "ceph_daemon_id": id.to_string() });
        let labels = json!({
            "app": "rook-ceph-osd", "rook_cluster": NAMESPACE, "ceph_daemon_type": "osd",
            "ceph_daemon_id": id.to_string(), "rook-version": "v1.20.1", "ceph-version": ceph,
        });
        let object = json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": { "name": name, "namespace": NAMESPACE, "labels": labels },
            "spec": {
                "selector": { "matchLabels": pod },
                "template": { "metadata": { "labels": pod }, "spec": { "containers": [{ "name": "osd", "image": image }] } },
            },
        });
        lab.apply(&object, &[])?;
    }
    let words = ["versions", "-n", NAMESPACE];
    let found = lab.json(&words)?;
    let rows: Vec<_> = found["daemons"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|row| {
            (
                row["ceph_version"].clone(),
                row["count"].clone(),
                row["not_ready"].clone(),
            )
        })
        .collect();
    let expected = [
        (json!("18.2.7-0"), json!(1), json!(["osd.0"])),
        (json!("20.2.4-0"), json!(2), json!(["osd.1", "osd.2"])),
    ];
    ensure!(rows == expected, "{found}");
    // The operator of the manifests, which no node here runs.
    ensure!(
        found["operator"]["version"] == env!("CARGO_PKG_VERSION"),
        "{found}"
    );
    lab.says(
        &words,
        0,
        &["0 of 2 ready", "leader op-1", "agents    none", "osd.1-2"],
    )?;
    lab.says(&["versions", "-n", NAMESPACE, "--all"], 0, &["0 of 1", "osd.2\n"])
}

fn commands_are_heard(lab: &Lab) -> Result<()> {
    let before = lab.json(&["status", "-n", NAMESPACE])?;
    lab.says(
        &["pause", "-n", NAMESPACE, "--timeout", "1"],
        4,
        &["\"pause#1\" was not processed within 1 s"],
    )?;
    lab.says(&["status", "-n", NAMESPACE], 3, &["pause#1: not processed yet"])?;
    lab.says(&["resume", "-n", NAMESPACE, "--no-wait"], 0, &["resume#2"])?;
    // An operator that hears whatever is said.
    let hears = hearer(lab)?;
    let asked = lab.says(
        &["rollback", "-n", NAMESPACE],
        0,
        &["\"rollback#3\"", "was processed"],
    );
    hears.end()?;
    asked?;
    // Its journal is not here, so no door of it is known.
    lab.says(&["approve", "-n", NAMESPACE, "last-mon"], 2, &["there is no run"])?;
    let found: Value = serde_json::from_str(&lab.plane.ask(&[
        "get",
        "cephmaintenance",
        "main",
        "-n",
        NAMESPACE,
        "-o",
        "json",
    ])?)?;
    ensure!(
        found["metadata"]["generation"] == 1,
        "a spec was written: {found}"
    );
    ensure!(before["image"] == found["spec"]["image"], "{found}");
    Ok(())
}

/// Something that goes on until it is ended.
struct Running(Child);

impl Running {
    fn end(mut self) -> Result<()> {
        self.0.kill()?;
        self.0.wait()?;
        Ok(())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // One that was ended cannot be killed; one that cannot be killed ends with the sandbox.
        self.0.kill().ok();
    }
}

/// A shell that says of each command that it was heard.
fn hearer(lab: &Lab) -> Result<Running> {
    let kubectl = lab.plane.kubectl();
    let words: Vec<String> = std::iter::once(kubectl.get_program())
        .chain(kubectl.get_args())
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    let asks = words.join(" ");
    let script = format!(
        "while sleep 0.3; do \
         said=$({asks} get cephmaintenance main -n {NAMESPACE} -o 'jsonpath={{.metadata.annotations.stagger\\.dev/command}}'); \
         {asks} patch cephmaintenance main -n {NAMESPACE} --subresource=status --type merge \
         -p \"{{\\\"status\\\":{{\\\"heard\\\":\\\"$said\\\"}}}}\"; done"
    );
    let child = Command::new("sh")
        .args(["-c", &script])
        .envs(
            kubectl
                .get_envs()
                .filter_map(|(name, value)| Some((name, value?))),
        )
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    Ok(Running(child))
}

fn who_may_not_is_told(lab: &Lab) -> Result<()> {
    let words = ["status"];
    let out = lab.stagger_as(&lab.kubeconfig_of("default")?, &words)?;
    holds(
        &words,
        &out,
        2,
        &[
            "list the CephMaintenances of namespace rook-ceph",
            "forbidden",
            "rights",
        ],
    )
}
