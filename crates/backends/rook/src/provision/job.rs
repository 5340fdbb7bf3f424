//! The Job that prepares the devices of a node or the volume of a claim: `stagger osd prepare`, in the Ceph
//! image.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::batch::v1::Job;
use kube::ResourceExt as _;
use serde_json::{Value, json};

use super::JobTarget;
use super::claims::{PVC, of_pods, path, volume};
use super::crush_location::{crush_arguments, hostname, location};
use super::deployment::device_volumes;
use crate::api::access::{ENDPOINTS, SECRET};
use crate::api::cluster::DeviceSet;
use crate::api::names::{self, PREPARE_APP as APP};

/// The label with the node.
const NODE: &str = "stagger.dev/node";
/// The label with the claim. Jobs of Rook's have only its own.
const CLAIM: &str = "stagger.dev/claim";
/// The account that may write the report.
const ACCOUNT: &str = "stagger-osd-prepare";
/// Where our own program is put for the image of Ceph.
const BIN: &str = "/stagger";

/// The name of a Job.
pub fn name(at: &JobTarget) -> String {
    names::short(&format!("{APP}-{}", at.name()))
}

/// What a Job prepares, if it is one of these.
pub fn at(job: &Job) -> Option<JobTarget> {
    let labels = job.labels();
    let node = labels.get(NODE).cloned().map(JobTarget::Node);
    node.or_else(|| labels.get(CLAIM).cloned().map(JobTarget::Claim))
}

/// What a Job prepares.
#[derive(Debug, Clone, Copy)]
pub enum On<'a> {
    /// Devices of a node.
    Node {
        /// Its name.
        name: &'a str,
        /// Its labels.
        labels: &'a BTreeMap<String, String>,
        /// The devices.
        devices: &'a BTreeSet<String>,
    },
    /// The volume of a claim.
    Claim {
        /// Its name.
        name: &'a str,
        /// The set that it belongs to.
        set: &'a DeviceSet,
    },
}

/// What a Job is made of.
#[derive(Debug, Clone, Copy)]
pub struct Prepare<'a> {
    /// The cluster's namespace.
    pub namespace: &'a str,
    /// The CephCluster, as an owner reference.
    pub owner: &'a Value,
    /// What it prepares.
    pub on: On<'a>,
    /// The image with Ceph.
    pub image: &'a str,
    /// The image with `stagger`.
    pub own_image: &'a str,
    /// The path of `stagger` in it.
    pub own_path: &'a str,
    /// What pods of OSDs have in common on this cluster: tolerations and the like.
    pub like: &'a Value,
}

/// In what Jobs differ.
struct Parts {
    at: JobTarget,
    labels: Value,
    /// What `osd prepare` is told.
    words: Vec<String>,
    volumes: Vec<Value>,
    mounts: Vec<Value>,
    /// Block volumes that the container sees. One that is privileged sees the node's devices instead.
    devices: Vec<Value>,
    privileged: bool,
    /// Where its pod runs.
    pod: Value,
}

impl Parts {
    fn of(on: On<'_>) -> Self {
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        match on {
            On::Node {
                name,
                labels,
                devices,
            } => {
                let (volumes, mounts) = device_volumes(devices.iter().map(String::as_str));
                let place = self::crush_arguments(&location(name, labels));
                let mut told = words(&["--node", name, "--location", &place]);
                for device in devices {
                    told.extend(words(&["--device", device]));
                }
                Self {
                    at: JobTarget::Node(name.to_owned()),
                    labels: json!({ NODE: name }),
                    words: told,
                    volumes,
                    mounts,
                    devices: Vec::new(),
                    privileged: true,
                    pod: json!({ "nodeSelector": { names::HOSTNAME: hostname(name, labels) } }),
                }
            }
            On::Claim { name, set } => {
                let (volume, device) = volume(name);
                // On which node it will run nobody knows yet. What is above the host is read from that node's
                // labels by who reads the report; the Job's account may not read them.
                let host = match set.portable {
                    Some(true) => name,
                    Some(false) | None => "$(NODE_NAME)",
                };
                let (place, path) = (format!("root=default host={host}"), path(name));
                let told = [
                    "--node",
                    "$(NODE_NAME)",
                    "--pvc",
                    name,
                    "--location",
                    &place,
                    "--device",
                    &path,
                ];
                let placement = set.prepare_placement.as_ref().or(set.placement.as_ref());
                Self {
                    at: JobTarget::Claim(name.to_owned()),
                    labels: json!({ CLAIM: name, PVC: name }),
                    words: words(&told),
                    volumes: vec![volume],
                    mounts: Vec::new(),
                    devices: vec![device],
                    privileged: false,
                    pod: of_pods(set, placement),
                }
            }
        }
    }
}

/// The Job.
///
/// Its container has the administrator's key, as Rook's has: there is no OSD without one.
pub fn job(of: Prepare<'_>) -> Value {
    let from = |name: &str, kind: &str, object: &str, key: &str| json!({ "name": name, "valueFrom": { kind: { "name": object, "key": key } } });
    let Parts {
        at,
        labels: own_labels,
        words,
        mut volumes,
        mut mounts,
        devices,
        privileged,
        pod: own_pod,
    } = Parts::of(of.on);
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
    ];
    command.extend(words);
    let mut labels = json!({ "app": APP, "rook_cluster": of.namespace });
    names::add(&mut labels, &own_labels);
    let mut pod = json!({
        "restartPolicy": "OnFailure",
        "serviceAccountName": ACCOUNT,
        "volumes": volumes,
        "initContainers": [{
            "name": "copy-bins", "image": of.own_image,
            "command": ["cp", of.own_path, format!("{BIN}/stagger")],
            "volumeMounts": [{ "name": "stagger", "mountPath": BIN }],
        }],
        "containers": [{
            "name": "provision", "image": of.image, "command": command,
            "securityContext": { "privileged": privileged, "runAsUser": 0, "readOnlyRootFilesystem": false },
            "env": [
                from("ROOK_MON_ENDPOINTS", "configMapKeyRef", ENDPOINTS, "data"),
                from("ROOK_CEPH_USERNAME", "secretKeyRef", SECRET, "ceph-username"),
                from("ROOK_CEPH_SECRET", "secretKeyRef", SECRET, "ceph-secret"),
                from("ROOK_FSID", "secretKeyRef", SECRET, "fsid"),
                { "name": "NODE_NAME", "valueFrom": { "fieldRef": { "fieldPath": "spec.nodeName" } } },
            ],
            "volumeMounts": mounts, "volumeDevices": devices,
        }],
    });
    names::add(&mut pod, of.like);
    names::add(&mut pod, &own_pod);
    json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {
            "name": name(&at), "namespace": of.namespace, "labels": labels, "ownerReferences": [of.owner],
        },
        "spec": {
            // A device that cannot be prepared is reported; what is left is a pod that cannot run.
            "backoffLimit": 3,
            "template": { "metadata": { "labels": labels }, "spec": pod },
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(on: On<'_>) -> Value {
        job(Prepare {
            namespace: "rook-ceph",
            owner: &json!({}),
            on,
            image: "ceph",
            own_image: "stagger",
            own_path: "/usr/bin/stagger",
            like: &json!({ "tolerations": [{ "key": "all" }] }),
        })
    }

    #[test]
    fn the_volume_of_a_claim_is_prepared_wherever_it_is() {
        let set: DeviceSet = serde_json::from_value(json!({
            "name": "set1", "portable": true,
            "placement": { "tolerations": [{ "key": "osd" }] },
            "preparePlacement": { "nodeAffinity": { "a": 1 }, "tolerations": [{ "key": "prepare" }], "other": 1 },
        }))
        .unwrap();
        let name = "set1-data-0x";
        let job = made(On::Claim { name, set: &set });
        assert_eq!(job["metadata"]["name"], "rook-ceph-osd-prepare-set1-data-0x");
        let seen: Job = serde_json::from_value(job.clone()).unwrap();
        assert_eq!(at(&seen), Some(JobTarget::Claim(name.to_owned())));
        let pod = &job["spec"]["template"]["spec"];
        assert_eq!(pod["nodeSelector"], Value::Null);
        assert_eq!(pod["affinity"], json!({ "nodeAffinity": { "a": 1 } }));
        assert_eq!(pod["tolerations"], json!([{ "key": "prepare" }]));
        assert_eq!(pod["other"], Value::Null);
        assert_eq!(pod["volumes"][0]["persistentVolumeClaim"]["claimName"], name);
        let own = &pod["containers"][0];
        assert_eq!(own["volumeDevices"][0]["devicePath"], "/mnt/set1-data-0x");
        assert_eq!(own["securityContext"]["privileged"], false);
        let command: Vec<_> = own["command"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(Value::as_str)
            .collect();
        let told = "--node $(NODE_NAME) --pvc set1-data-0x --location root=default host=set1-data-0x --device \
                    /mnt/set1-data-0x";
        assert!(command.join(" ").ends_with(told), "{command:?}");
        let staying = DeviceSet::default();
        let job = made(On::Claim { name, set: &staying });
        let pod = &job["spec"]["template"]["spec"];
        assert!(
            pod["containers"][0]["command"]
                .to_string()
                .contains("host=$(NODE_NAME)")
        );
        assert_eq!(pod["tolerations"], json!([{ "key": "all" }]));
    }

    #[test]
    fn the_devices_of_a_node_are_prepared_on_it() {
        let devices = ["/dev/sdb".to_owned()].into();
        let labels = BTreeMap::new();
        let job = made(On::Node {
            name: "n1",
            labels: &labels,
            devices: &devices,
        });
        let seen: Job = serde_json::from_value(job.clone()).unwrap();
        assert_eq!(at(&seen), Some(JobTarget::Node("n1".to_owned())));
        let pod = &job["spec"]["template"]["spec"];
        assert_eq!(pod["nodeSelector"]["kubernetes.io/hostname"], "n1");
        assert_eq!(pod["containers"][0]["securityContext"]["privileged"], true);
        let rooks: Job = serde_json::from_value(json!({ "metadata": { "labels": { PVC: "x" } } })).unwrap();
        assert_eq!(at(&rooks), None);
    }
}
