//! The Job that prepares a node's devices: `stagger osd prepare`, in the image of Ceph.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::deployment::device_volumes;
use super::place::{location, words};
use crate::access::{ENDPOINTS, SECRET};
use crate::names;

/// The label of the Job and its pod.
pub const APP: &str = "rook-ceph-osd-prepare";
/// The label with the node.
pub const NODE: &str = "stagger.dev/node";
/// The account that may write the report.
const ACCOUNT: &str = "stagger-osd-prepare";
/// Where our own program is put for the image of Ceph.
const BIN: &str = "/stagger";

/// The name of a node's Job.
pub fn name(node: &str) -> String {
    names::short(&format!("{APP}-{node}"))
}

/// What a Job is made of.
#[derive(Debug, Clone, Copy)]
pub struct Prepare<'a> {
    /// The cluster's namespace.
    pub namespace: &'a str,
    /// The CephCluster, as an owner reference.
    pub owner: &'a Value,
    /// The node.
    pub node: &'a str,
    /// Its labels.
    pub labels: &'a BTreeMap<String, String>,
    /// The devices.
    pub devices: &'a BTreeSet<String>,
    /// The image with Ceph.
    pub image: &'a str,
    /// The image with `stagger`.
    pub own_image: &'a str,
    /// The path of `stagger` in it.
    pub own_path: &'a str,
    /// What pods of OSDs have in common on this cluster: tolerations and the like.
    pub like: &'a Value,
}

/// The Job.
///
/// Its container has the administrator's key, as Rook's has: there is no OSD without one.
pub fn job(of: Prepare<'_>) -> Value {
    let from = |name: &str, kind: &str, object: &str, key: &str| json!({ "name": name, "valueFrom": { kind: { "name": object, "key": key } } });
    let (mut volumes, mut mounts) = device_volumes(of.devices.iter().map(String::as_str));
    volumes.extend([
        json!({ "name": "stagger", "emptyDir": {} }),
        json!({ "name": "config", "configMap": {
            "name": "rook-config-override", "optional": true,
            "items": [{ "key": "config", "path": "ceph.conf" }],
        } }),
    ]);
    mounts.extend([
        json!({ "name": "stagger", "mountPath": BIN }),
        json!({ "name": "config", "mountPath": "/etc/ceph", "readOnly": true }),
    ]);
    let mut command = vec![
        format!("{BIN}/stagger"),
        "osd".to_owned(),
        "prepare".to_owned(),
        "--namespace".to_owned(),
        of.namespace.to_owned(),
        "--node".to_owned(),
        of.node.to_owned(),
        "--location".to_owned(),
        words(&location(of.node, of.labels)),
    ];
    for device in of.devices {
        command.extend(["--device".to_owned(), device.clone()]);
    }
    let labels = json!({ "app": APP, "rook_cluster": of.namespace, NODE: of.node });
    let mut pod = json!({
        "restartPolicy": "OnFailure",
        "serviceAccountName": ACCOUNT,
        "nodeSelector": { "kubernetes.io/hostname": hostname(of.node, of.labels) },
        "volumes": volumes,
        "initContainers": [{
            "name": "copy-bins", "image": of.own_image,
            "command": ["cp", of.own_path, format!("{BIN}/stagger")],
            "volumeMounts": [{ "name": "stagger", "mountPath": BIN }],
        }],
        "containers": [{
            "name": "provision", "image": of.image, "command": command,
            "securityContext": { "privileged": true, "runAsUser": 0, "readOnlyRootFilesystem": false },
            "env": [
                from("ROOK_MON_ENDPOINTS", "configMapKeyRef", ENDPOINTS, "data"),
                from("ROOK_CEPH_USERNAME", "secretKeyRef", SECRET, "ceph-username"),
                from("ROOK_CEPH_SECRET", "secretKeyRef", SECRET, "ceph-secret"),
                from("ROOK_FSID", "secretKeyRef", SECRET, "fsid"),
            ],
            "volumeMounts": mounts,
        }],
    });
    names::add(&mut pod, of.like);
    json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {
            "name": name(of.node), "namespace": of.namespace, "labels": labels, "ownerReferences": [of.owner],
        },
        "spec": {
            // A device that cannot be prepared is reported; what is left is a pod that cannot run.
            "backoffLimit": 3,
            "template": { "metadata": { "labels": labels }, "spec": pod },
        },
    })
}

/// The name by which pods are bound to a node.
pub(super) fn hostname<'a>(node: &'a str, labels: &'a BTreeMap<String, String>) -> &'a str {
    labels.get("kubernetes.io/hostname").map_or(node, String::as_str)
}
