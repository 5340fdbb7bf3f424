//! Deployments of daemons with Rook's names and labels.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::NAMESPACE;
use super::as_rook::AsRook;
use crate::ceph::{Cluster, Daemon, Kind};
use crate::roots::Release;

/// What depends on the cluster that a daemon is of.
struct Parts {
    node: String,
    /// Of an OSD.
    rack: u32,
    command: Vec<String>,
    socket: PathBuf,
}

/// The Deployment of a daemon.
pub(super) fn of(ceph: &Cluster, daemon: &Daemon, image: &str) -> Result<Value> {
    let rack = match daemon.kind {
        Kind::Osd => {
            ceph.spec()
                .place(daemon.id.parse().context("an OSD's id is a number")?)
                .0
        }
        Kind::Mon | Kind::Mgr | Kind::Mds | Kind::Rgw => 0,
    };
    let parts = Parts {
        node: place(ceph, daemon),
        rack,
        command: command(ceph, daemon)?,
        socket: ceph
            .dir()
            .join("run")
            .join(format!("{}.asok", daemon.ceph_name())),
    };
    Ok(deployment(daemon, image, &parts))
}

/// What the Deployment of a daemon has, as [`told_of`] tells it: the same on each cluster.
pub fn imitation(daemon: &Daemon) -> Value {
    let parts = Parts {
        node: "node".to_owned(),
        rack: 0,
        command: Vec::new(),
        socket: PathBuf::new(),
    };
    told_of(&deployment(daemon, "image", &parts))
}

/// What a Deployment has, by the names of it: what it selects its pods by, its labels and theirs, its annotations and
/// theirs, how it replaces pods, and the variables of each container.
pub fn told_of(deployment: &Value) -> Value {
    let keys = |value: &Value| -> Vec<String> {
        let all = value.as_object().into_iter().flatten();
        all.map(|(key, _)| key.clone()).collect()
    };
    let (meta, spec) = (&deployment["metadata"], &deployment["spec"]);
    let (of_pods, pod) = (&spec["template"]["metadata"], &spec["template"]["spec"]);
    let mut variables = Vec::new();
    for containers in ["initContainers", "containers"] {
        for container in pod[containers].as_array().into_iter().flatten() {
            let name = container["name"].as_str().unwrap_or_default();
            let env = container["env"].as_array().into_iter().flatten();
            variables.push(name.to_owned());
            variables.extend(env.filter_map(|one| Some(format!("{name}: {}", one["name"].as_str()?))));
        }
    }
    json!({
        "selector": keys(&spec["selector"]["matchLabels"]),
        "labels": keys(&meta["labels"]),
        "labels of pods": keys(&of_pods["labels"]),
        "annotations": keys(&meta["annotations"]),
        "annotations of pods": keys(&of_pods["annotations"]),
        "strategy": [spec["strategy"]["type"]],
        "containers and their variables": variables,
    })
}

fn deployment(daemon: &Daemon, image: &str, parts: &Parts) -> Value {
    let (kind, id) = (daemon.kind.to_string(), &daemon.id);
    let name = match daemon.kind {
        Kind::Mds => format!("rook-ceph-mds-fs-{id}"),
        Kind::Rgw => format!("rook-ceph-rgw-store-{id}"),
        Kind::Mon | Kind::Mgr | Kind::Osd => format!("rook-ceph-{kind}-{id}"),
    };
    let mut labels = json!({
        "app": format!("rook-ceph-{kind}"),
        "rook_cluster": NAMESPACE,
        "ceph_daemon_type": kind,
        "ceph_daemon_id": id,
        kind.clone(): id,
        "app.kubernetes.io/name": format!("ceph-{kind}"),
        "app.kubernetes.io/component": "cephclusters.ceph.rook.io",
        "app.kubernetes.io/managed-by": "rook-ceph-operator",
    });
    let node = &parts.node;
    if daemon.kind == Kind::Osd {
        labels["ceph-osd-id"] = json!(id);
        labels["failure-domain"] = json!(node);
        labels["portable"] = json!("false");
        labels["topology-location-root"] = json!("default");
        labels["topology-location-rack"] = json!(format!("rack{}", parts.rack));
        labels["topology-location-host"] = json!(node);
    }
    match daemon.kind {
        Kind::Mds => labels["rook_file_system"] = json!("fs"),
        Kind::Rgw => labels["rook_object_store"] = json!("store"),
        Kind::Mon | Kind::Mgr | Kind::Osd => {}
    }
    let rook = AsRook {
        kind: daemon.kind,
        id,
        image,
    };
    for (label, value) in rook.labels().as_object().into_iter().flatten() {
        labels[label] = value.clone();
    }
    let selector: BTreeMap<&str, &Value> = rook
        .selector()
        .iter()
        .map(|label| (*label, &labels[*label]))
        .collect();
    let mut of_deployment = labels.clone();
    let version = image.rsplit_once(":v").map_or("unknown", |(_, version)| version);
    of_deployment["ceph-version"] = json!(format!("{version}-0"));
    of_deployment["rook-version"] = json!("v1.20.0");
    if daemon.kind == Kind::Mgr
        && let Some(labels) = of_deployment.as_object_mut()
    {
        // As older releases of Rook wrote them.
        labels.remove("ceph_daemon_type");
        labels.remove("ceph_daemon_id");
    }
    let up = format!("test -S '{}'", parts.socket.display());
    let env =
        |name: &str, path: &str| json!({ "name": name, "valueFrom": { "fieldRef": { "fieldPath": path } } });
    let mut variables = rook.variables();
    variables.extend([
        env("POD_NAME", "metadata.name"),
        env("NODE_NAME", "spec.nodeName"),
    ]);
    let mut containers = vec![json!({
        "name": kind, "image": image, "command": parts.command,
        "env": variables,
        "startupProbe": {
            "exec": { "command": ["sh", "-c", up] },
            "periodSeconds": 1, "failureThreshold": 60,
        },
    })];
    let name_of_release = Release::ALL
        .into_iter()
        .find(|release| version.starts_with(&format!("{release}.")))
        .map_or("unknown", Release::name);
    containers.extend(rook.beside(&format!("ceph version {version}-0 {name_of_release}")));
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": { "name": name, "namespace": NAMESPACE, "labels": of_deployment },
        "spec": {
            "replicas": 1,
            "revisionHistoryLimit": 0,
            "strategy": rook.strategy(),
            "selector": { "matchLabels": selector },
            "template": {
                "metadata": { "labels": labels, "annotations": rook.annotations_of_pods() },
                "spec": {
                    "nodeSelector": { "kubernetes.io/hostname": node },
                    "hostNetwork": true,
                    "automountServiceAccountToken": false,
                    "terminationGracePeriodSeconds": 30,
                    "initContainers": rook.init_containers(),
                    "containers": containers,
                },
            },
        },
    })
}

/// OSDs are on the node that has their CRUSH host's name; others are spread.
pub(super) fn place(ceph: &Cluster, daemon: &Daemon) -> String {
    let nth = |id: &str| id.bytes().next().map_or(0, |letter| u32::from(letter - b'a'));
    let hosts = ceph.spec().racks * ceph.spec().hosts_per_rack;
    let host = match daemon.kind {
        Kind::Osd => ceph.spec().place(daemon.id.parse().unwrap_or(0)).1,
        // One in each rack.
        Kind::Mon => nth(&daemon.id) * ceph.spec().hosts_per_rack,
        Kind::Mgr => nth(&daemon.id) * ceph.spec().hosts_per_rack + 1,
        Kind::Mds => nth(&daemon.id) * ceph.spec().hosts_per_rack + 2,
        Kind::Rgw => nth(&daemon.id) * ceph.spec().hosts_per_rack + 3,
    };
    format!("host{}", host % hosts)
}

fn command(ceph: &Cluster, daemon: &Daemon) -> Result<Vec<String>> {
    let conf = ceph.conf().display().to_string();
    let program = match daemon.kind {
        Kind::Rgw => "radosgw".to_owned(),
        Kind::Mon | Kind::Mgr | Kind::Osd | Kind::Mds => format!("ceph-{}", daemon.kind),
    };
    let mut words = vec![program, "--foreground".to_owned(), "-c".to_owned(), conf];
    match daemon.kind {
        Kind::Rgw => words.extend(["-n".to_owned(), daemon.ceph_name()]),
        Kind::Mon | Kind::Mgr | Kind::Osd | Kind::Mds => words.extend(["-i".to_owned(), daemon.id.clone()]),
    }
    if daemon.kind == Kind::Mon {
        let path = ceph.dir().join("sw").join(format!("{daemon}.addr"));
        let address = fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
        words.extend(["--public-addrv".to_owned(), format!("[v2:{}]", address.trim())]);
    }
    Ok(words)
}
