//! What the node agent gives to pods, on a real API server: volumes, variables, accounts.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};
use stagger_e2e::command::run;
use stagger_e2e::folder::Folder;
use stagger_e2e::kubernetes::Plane;
use stagger_e2e::kubernetes::servers::Servers;
use stagger_e2e::loop_devices;
use stagger_e2e::node::{Agent, Image, Node, Settings};
use stagger_e2e::sandbox::Sandbox;

const AGENT: &str = env!("CARGO_BIN_EXE_node-agent");
/// The image that is the machine itself.
const IMAGE: &str = "machine:test";
/// One with layers and a command of its own.
const LAYERED: &str = "layered:test";
/// A file that a pod writes into its root, and that the machine must not have.
const WRITTEN: &str = "/written-by-a-pod-of-a-test";

#[test]
#[ignore = "needs root and Go; cargo xtask test runs it"]
fn pods_have_volumes_and_accounts() -> Result<()> {
    let folder = Folder::make("node-agent-", 1_000_000_000)?;
    let sandbox = Sandbox::start(folder.path(), &[])?;
    let plane = Plane::start(&sandbox)?;
    let files = ["one", "other"].map(|name| sandbox.dir().join("disks").join(name));
    let devices = loop_devices::make(&sandbox, &files, 1 << 20)?;
    let own = |devices, address: &str| Node {
        address: address.parse().ok(),
        devices: Some(devices),
        ..Node::default()
    };
    let settings = Settings {
        kubeconfig: plane.kubeconfig(),
        folder: sandbox.dir().join("nodes"),
        nodes: [
            ("n0".to_owned(), Node::default()),
            ("n1".to_owned(), own(devices[..1].to_vec(), "10.20.0.1")),
            ("n2".to_owned(), own(devices[1..].to_vec(), "10.20.0.2")),
        ]
        .into(),
        images: [
            (IMAGE.to_owned(), Image::default()),
            (LAYERED.to_owned(), layered(&sandbox)?),
        ]
        .into(),
        pod_networks: true,
    };
    let agent = Agent::start(&sandbox, &plane, Path::new(AGENT), &settings)?;
    create(
        &plane,
        &json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "key" },
        "stringData": { "password": "s3" } }),
    )?;
    create(
        &plane,
        &json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "words" },
        "data": { "greeting": "hello", "other": "bye" } }),
    )?;
    let seen = a_pod_has_all_it_asks_for(&plane, &settings.folder);
    seen.with_context(|| logs(&settings.folder))?;
    let seen = what_is_missing_is_waited_for(&plane);
    seen.with_context(|| logs(&settings.folder))?;
    let seen = kubectl_shows_logs(&plane);
    seen.with_context(|| logs(&settings.folder))?;
    let seen = a_node_has_its_own_address_and_devices(&plane, &devices);
    seen.with_context(|| logs(&settings.folder))?;
    let seen = pods_have_their_own_network_and_user(&plane, &settings.folder);
    seen.with_context(|| logs(&settings.folder))?;
    let dir = sandbox.dir().to_owned();
    drop((agent, plane, sandbox));
    let left = loop_devices::left(&dir)?;
    ensure!(left.is_empty() && !dir.exists(), "left: {left:?}");
    Ok(())
}

/// An image of two layers over the machine's own files, with a program that it starts by itself.
fn layered(sandbox: &Sandbox) -> Result<Image> {
    let folder = sandbox.dir().join("layers");
    fs::create_dir_all(&folder)?;
    // In memory: no layer may lie in the root, and the root here is all of the machine's disk.
    let make = "mount -t tmpfs tmpfs \"$0\"; cd \"$0\"; mkdir -p over/srv under/srv; \
                echo over >over/srv/both; echo under | tee under/srv/both >under/srv/one";
    run(sandbox.command("sh").args(["-euc", make]).arg(&folder))?;
    let layers = ["over", "under"].map(|name| folder.join(name));
    Ok(Image {
        layers: layers.to_vec(),
        entrypoint: ["sh", "-euxc"].map(str::to_owned).into(),
        ..Image::default()
    })
}

/// Two pods on nodes with addresses and disks of their own.
fn a_node_has_its_own_address_and_devices(plane: &Plane, devices: &[PathBuf]) -> Result<()> {
    let pod = |node: &str, claims: String| {
        let of = |path: &str| json!({ "fieldRef": { "fieldPath": path } });
        let disks = json!({ "name": "disks", "mountPath": "/dev" });
        let records = json!({ "name": "records", "mountPath": "/run/udev" });
        json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": node },
            "spec": { "restartPolicy": "Never", "nodeName": node, "hostNetwork": true, "containers": [
                { "name": "main", "image": LAYERED, "args": [claims],
                  "resources": { "limits": { "memory": "1Gi" } },
                  "env": [
                    { "name": "POD", "valueFrom": of("status.podIP") },
                    { "name": "HOST", "valueFrom": of("status.hostIP") },
                    { "name": "LIMIT", "valueFrom": { "resourceFieldRef": { "resource": "limits.memory", "divisor": "1Mi" } } },
                  ],
                  "volumeMounts": [disks, records] },
                // Without the volume it sees no other.
                { "name": "bare", "image": IMAGE, "command": ["sh", "-c", "ls /dev/loop*"] },
            ], "volumes": [
                { "name": "disks", "hostPath": { "path": "/dev" } },
                { "name": "records", "hostPath": { "path": "/run/udev" } },
            ] } })
    };
    for (node, mine, others, address) in [
        ("n1", &devices[0], &devices[1], "10.20.0.1"),
        ("n2", &devices[1], &devices[0], "10.20.0.2"),
    ] {
        let claims = format!(
            r#"test "$POD $HOST $LIMIT" = "{address} {address} 1024"
            test "$(cat /srv/both) $(cat /srv/one)" = "over under"
            test -b {mine}
            test ! -e {others}
            echo x >{mine}
            echo x >/dev/null
            echo $(cat /sys/class/block/{name}/dev) >/dev/shm/number
            grep E:DEVTYPE=disk "/run/udev/data/b$(cat /dev/shm/number)""#,
            mine = mine.display(),
            others = others.display(),
            name = mine.file_name().unwrap_or_default().display(),
        );
        create(plane, &pod(node, claims))?;
        let succeeded = "--for=jsonpath={.status.phase}=Succeeded";
        plane.ask(&["wait", "pod", node, succeeded, "--timeout=30s"])?;
        let told = plane.ask(&[
            "get",
            "pod",
            node,
            "-o",
            "jsonpath={.status.podIP} {.status.hostIP}",
        ])?;
        ensure!(told == format!("{address} {address}"), "{told}");
        let node_address = "jsonpath={.status.addresses[0].address}";
        ensure!(plane.ask(&["get", "node", node, "-o", node_address])? == address);
        let seen = plane.ask(&["logs", node, "-c", "bare"])?;
        ensure!(seen.trim() == mine.display().to_string(), "{seen}");
    }
    Ok(())
}

/// Two pods on one node serve at the same port, as a user who may do little, and are asked there.
fn pods_have_their_own_network_and_user(plane: &Plane, nodes: &Path) -> Result<()> {
    // Where they may read it.
    let tools = nodes.join("hosts/n1/tools");
    fs::create_dir_all(&tools).with_context(|| format!("making {}", tools.display()))?;
    fs::copy(Servers::get()?.program("kubectl"), tools.join("kubectl")).context("copying kubectl")?;
    let script = r#"set -eux
        test "$(id -u) $(id -g) $(id -G)" = "65532 65532 65532"
        echo mine >/scratch/note
        exec /tools/kubectl proxy --port=8099 --address=0.0.0.0 --accept-hosts='.*'"#;
    let names = ["first", "second"];
    for name in names {
        let pod = json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name },
            "spec": { "nodeName": "n1",
                "securityContext": { "runAsUser": 65532, "runAsGroup": 65532, "fsGroup": 65532 },
                "containers": [{
                    "name": "main", "image": IMAGE, "command": ["sh", "-c", script],
                    "volumeMounts": [
                        { "name": "scratch", "mountPath": "/scratch" },
                        { "name": "tools", "mountPath": "/tools", "readOnly": true },
                    ],
                    "readinessProbe": { "httpGet": { "path": "/version", "port": 8099 }, "periodSeconds": 1 },
                }],
                "volumes": [
                    { "name": "scratch", "emptyDir": {} },
                    { "name": "tools", "hostPath": { "path": "/tools" } },
                ] } });
        create(plane, &pod)?;
    }
    plane.ask(&[
        "wait",
        "pod",
        "first",
        "second",
        "--for=condition=Ready",
        "--timeout=60s",
    ])?;
    let addresses = "jsonpath={.items[*].status.podIP} {.items[*].status.hostIP}";
    let told = plane.ask(&[
        "get",
        "pods",
        "--field-selector=spec.nodeName=n1,status.phase=Running",
        "-o",
        addresses,
    ])?;
    let told: Vec<&str> = told.split_whitespace().collect();
    let [one, other, node, same] = told[..] else {
        bail!("{told:?}")
    };
    ensure!(
        one != other && one.starts_with("10.30.") && node == "10.20.0.1" && same == node,
        "{told:?}"
    );
    plane.ask(&[
        "delete",
        "pod",
        "first",
        "second",
        "--grace-period=1",
        "--timeout=20s",
    ])?;
    Ok(())
}

fn a_pod_has_all_it_asks_for(plane: &Plane, nodes: &Path) -> Result<()> {
    let kubectl = Servers::get()?.program("kubectl");
    // Each line is a claim, and the first that does not hold ends the container.
    let claims = format!(
        r#"set -eux
        test "$(cat /scratch/note)" = written
        test "$(cat /part)" = part
        test "$(stat -c %a /secret/deep/password /words/greeting /read-only/about/labels)" = '400
640
644'
        test "$(cat /read-only/about/labels)" = 'app="all"'
        if touch /read-only/about/new; then exit 9; fi
        test "$(cat /secret/deep/password)" = s3
        test "$(ls /words | tr '\n' ' ')" = "greeting other "
        if touch /words/new || touch /read-only/new; then exit 9; fi
        test "$PASSWORD $GREETING $W_other" = "s3 hello bye"
        test "$SENTENCE" = 'hello, s3 $(NONE)'
        test "$(cat /about/labels)" = 'app="all"'
        test -c /dev/null
        touch {WRITTEN}
        echo 'of the node' >/var/lib/own/mark
        {kubectl} auth whoami -o 'jsonpath={{.status.userInfo.username}}' >/var/lib/own/account
        touch /run/ready
        trap 'echo ended >/var/lib/own/mark; exit 0' TERM
        while :; do sleep 0.1; done"#,
        kubectl = kubectl.display()
    );
    let mount = |name: &str, path: &str| json!({ "name": name, "mountPath": path });
    create(
        plane,
        &json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": { "name": "all", "labels": { "app": "all" } },
            "spec": {
                "nodeSelector": { "kubernetes.io/hostname": "n0" },
                "initContainers": [{
                    "name": "first", "image": IMAGE,
                    "command": ["sh", "-c", "echo written >/scratch/note; echo part >/scratch/part"],
                    "volumeMounts": [mount("work", "/scratch")],
                }],
                "containers": [{
                    "name": "main", "image": IMAGE, "command": ["sh", "-c", claims],
                    "envFrom": [{ "prefix": "W_", "configMapRef": { "name": "words" } }],
                    "env": [
                        { "name": "PASSWORD", "valueFrom": { "secretKeyRef": { "name": "key", "key": "password" } } },
                        { "name": "GREETING", "valueFrom": { "configMapKeyRef": { "name": "words", "key": "greeting" } } },
                        { "name": "SENTENCE", "value": "$(GREETING), $(PASSWORD) $(NONE)" },
                    ],
                    "volumeMounts": [
                        mount("work", "/scratch"),
                        { "name": "work", "mountPath": "/part", "subPath": "part" },
                        { "name": "work", "mountPath": "/read-only", "readOnly": true },
                        mount("node", "/var/lib/own"),
                        mount("secret", "/secret"),
                        mount("words", "/words"),
                        mount("about", "/about"),
                        // Its place is made in a volume that is read-only.
                        mount("about", "/read-only/about"),
                    ],
                    // In the container's own /run.
                    "readinessProbe": { "exec": { "command": ["test", "-e", "/run/ready"] }, "periodSeconds": 1 },
                }],
                "volumes": [
                    { "name": "work", "emptyDir": {} },
                    { "name": "node", "hostPath": { "path": "/var/lib/of-pods", "type": "DirectoryOrCreate" } },
                    { "name": "secret", "secret": { "secretName": "key",
                        "items": [{ "key": "password", "path": "deep/password", "mode": 256 }] } },
                    { "name": "words", "configMap": { "name": "words", "defaultMode": 416 } },
                    { "name": "about", "downwardAPI": { "items": [
                        { "path": "labels", "fieldRef": { "fieldPath": "metadata.labels" } }] } },
                ],
            },
        }),
    )?;
    plane.ask(&["wait", "pod/all", "--for=condition=Ready", "--timeout=60s"])?;
    let of_node = nodes.join("hosts/n0/var/lib/of-pods");
    let account = fs::read_to_string(of_node.join("account")).context("reading who the pod is")?;
    ensure!(account == "system:serviceaccount:default:default", "{account}");
    ensure!(fs::read_to_string(of_node.join("mark"))? == "of the node\n");
    ensure!(!Path::new(WRITTEN).exists(), "the pod wrote to the machine");
    let uid = plane.ask(&["get", "pod", "all", "-o", "jsonpath={.metadata.uid}"])?;
    plane.ask(&["delete", "pod", "all", "--timeout=20s"])?;
    let mark = fs::read_to_string(of_node.join("mark"))?;
    ensure!(
        mark == "ended\n",
        "the first process was not asked to end: {mark}"
    );
    only_logs_are_left(&nodes.join("pods").join(uid))
}

fn only_logs_are_left(pod: &Path) -> Result<()> {
    let mut left = Vec::new();
    for _ in 0..50 {
        left = files(pod)?;
        if left.iter().all(|path| path.ends_with("0.log")) && left.len() == 2 {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    bail!("a pod that is gone has left {left:?}")
}

/// A pod that lacks a volume, and one that lacks a variable: both wait, say so, and then run.
fn what_is_missing_is_waited_for(plane: &Plane) -> Result<()> {
    let pod = |name: &str, mut container: Value, volumes: Value| {
        container["name"] = json!("main");
        container["image"] = json!(IMAGE);
        container["command"] = json!(["sh", "-c", "echo last words >/run/message; exit 7"]);
        container["terminationMessagePath"] = json!("/run/message");
        json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name },
            "spec": { "restartPolicy": "Never", "containers": [container], "volumes": volumes } })
    };
    let mounted = json!({ "volumeMounts": [{ "name": "late", "mountPath": "/late" }] });
    let volumes = json!([{ "name": "late", "secret": { "secretName": "late" } }]);
    create(plane, &pod("volume", mounted, volumes))?;
    let used = json!({ "env": [{ "name": "LATE",
        "valueFrom": { "secretKeyRef": { "name": "late", "key": "x" } } }] });
    create(plane, &pod("variable", used, json!([])))?;
    let state = ".status.containerStatuses[0].state";
    for (name, reason) in [
        ("pod/volume", "ContainerCreating"),
        ("pod/variable", "CreateContainerConfigError"),
    ] {
        let waits = format!("--for=jsonpath={{{state}.waiting.reason}}={reason}");
        plane.ask(&["wait", name, &waits, "--timeout=30s"])?;
        let message = format!("jsonpath={{{state}.waiting.message}}");
        let message = plane.ask(&["get", name, "-o", &message])?;
        ensure!(message.contains("no Secret late"), "{name}: {message}");
    }
    create(
        plane,
        &json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "late" },
        "stringData": { "x": "y" } }),
    )?;
    for name in ["pod/volume", "pod/variable"] {
        plane.ask(&[
            "wait",
            name,
            "--for=jsonpath={.status.phase}=Failed",
            "--timeout=30s",
        ])?;
        let ended = format!("jsonpath={{{state}.terminated.exitCode}} {{{state}.terminated.message}}");
        let ended = plane.ask(&["get", name, "-o", &ended])?;
        ensure!(ended.trim() == "7 last words", "{name}: {ended}");
    }
    plane.ask(&["delete", "pod", "volume", "variable", "--timeout=20s"])?;
    Ok(())
}

/// Of the run that there is, of the one before, in part, and until its end.
fn kubectl_shows_logs(plane: &Plane) -> Result<()> {
    let pod = |name: &str, policy: &str, script: &str| {
        json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name },
            "spec": { "restartPolicy": policy, "automountServiceAccountToken": false, "containers": [
                { "name": "main", "image": IMAGE, "command": ["sh", "-c", script],
                  "volumeMounts": [{ "name": "kept", "mountPath": "/kept" }] },
            ], "volumes": [{ "name": "kept", "emptyDir": {} }] } })
    };
    let script = "if mkdir /kept/once 2>/dev/null; then echo one; echo first; exit 1; fi; echo two; echo second; sleep 60";
    create(plane, &pod("again", "Always", script))?;
    plane.ask(&[
        "wait",
        "pod/again",
        "--for=jsonpath={.status.containerStatuses[0].restartCount}=1",
        "--timeout=30s",
    ])?;
    plane.ask(&["wait", "pod/again", "--for=condition=Ready", "--timeout=30s"])?;
    let log = |options: &[&str]| plane.ask(&[&["logs", "again"], options].concat());
    let mut said = String::new();
    for _ in 0..50 {
        said = log(&[])?;
        if said.ends_with("second\n") {
            break;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    ensure!(said == "two\nsecond\n", "{said}");
    let said = [log(&["--previous"])?, log(&["--tail=1"])?].concat();
    ensure!(said == "one\nfirst\nsecond\n", "{said}");
    create(
        plane,
        &pod("once", "Never", "for i in 1 2 3; do echo $i; sleep 0.5; done"),
    )?;
    plane.ask(&["wait", "pod/once", "--for=condition=Ready", "--timeout=30s"])?;
    let said = plane.ask(&["logs", "--follow", "once"])?;
    ensure!(said == "1\n2\n3\n", "{said}");
    let refused = plane.ask(&["logs", "--previous", "once"]);
    ensure!(refused.is_err_and(|why| why.to_string().contains("no earlier log")));
    plane.ask(&[
        "delete",
        "pod",
        "again",
        "once",
        "--grace-period=1",
        "--timeout=20s",
    ])?;
    Ok(())
}

fn create(plane: &Plane, object: &Value) -> Result<()> {
    let mut child = plane
        .kubectl()
        .args(["create", "-f", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()?;
    let mut stdin = child.stdin.take().context("kubectl has no stdin")?;
    stdin.write_all(object.to_string().as_bytes())?;
    drop(stdin);
    let out = child.wait_with_output()?;
    ensure!(
        out.status.success(),
        "kubectl create: {}",
        String::from_utf8_lossy(&out.stderr)
    );
    Ok(())
}

/// All files below a folder.
fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            found.extend(files(&entry.path())?);
        } else {
            found.push(entry.path());
        }
    }
    Ok(found)
}

/// What the containers said, for the message of a failed test.
fn logs(nodes: &Path) -> String {
    let mut paths = files(nodes).unwrap_or_default();
    paths.retain(|path| path.extension().is_some_and(|end| end == "log"));
    let texts = paths.iter().map(|path| {
        let text = fs::read(path).unwrap_or_default();
        format!("--- {}\n{}", path.display(), String::from_utf8_lossy(&text))
    });
    texts.collect::<Vec<_>>().join("\n")
}
