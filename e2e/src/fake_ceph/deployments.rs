//! Deployments with Rook's names and labels, about as large as Rook's.

use serde_json::{Value, json};

/// The namespace of the cluster.
pub(super) const NAMESPACE: &str = "rook-ceph";

/// The Deployment of a daemon on a node; `rack` only of an OSD, whose node is its CRUSH host.
pub(super) fn of(kind: &str, id: &str, node: &str, rack: Option<&str>, image: &str) -> Value {
    let mut labels = json!({
        "app": format!("rook-ceph-{kind}"),
        "app.kubernetes.io/component": "cephclusters.ceph.rook.io",
        "app.kubernetes.io/created-by": "rook-ceph-operator",
        "app.kubernetes.io/instance": id,
        "app.kubernetes.io/managed-by": "rook-ceph-operator",
        "app.kubernetes.io/name": format!("ceph-{kind}"),
        "app.kubernetes.io/part-of": NAMESPACE,
        "ceph_daemon_id": id,
        "ceph_daemon_type": kind,
        kind: id,
        "rook.io/operator-namespace": NAMESPACE,
        "rook_cluster": NAMESPACE,
    });
    if let Some(rack) = rack {
        labels["ceph-osd-id"] = json!(id);
        labels["device-class"] = json!("hdd");
        labels["failure-domain"] = json!(node);
        labels["osd-store"] = json!("bluestore");
        labels["portable"] = json!("false");
        labels["topology-location-root"] = json!("default");
        labels["topology-location-rack"] = json!(rack);
        labels["topology-location-host"] = json!(node);
    }
    let number = if kind == "osd" {
        "ceph-osd-id"
    } else {
        "ceph_daemon_id"
    };
    let selector = json!({ "app": labels["app"], number: id, "rook_cluster": NAMESPACE });
    let mut of_deployment = labels.clone();
    of_deployment["ceph-version"] = json!("18.2.7-0");
    of_deployment["rook-version"] = json!("v1.20.0");
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {
            "name": format!("rook-ceph-{kind}-{id}"), "namespace": NAMESPACE, "labels": of_deployment,
        },
        "spec": {
            "replicas": 1,
            "revisionHistoryLimit": 0,
            "strategy": { "type": "Recreate" },
            "selector": { "matchLabels": selector },
            "template": {
                "metadata": { "labels": labels },
                "spec": {
                    "automountServiceAccountToken": false,
                    "nodeSelector": { "kubernetes.io/hostname": node },
                    "volumes": volumes(),
                    "initContainers": [
                        container("activate", image, id),
                        container("chown-container-data-dir", image, id),
                    ],
                    "containers": [container(kind, image, id), container("log-collector", image, id)],
                },
            },
        },
    })
}

const HOST_PATHS: [(&str, &str); 6] = [
    ("rook-data", "/var/lib/rook"),
    ("rook-ceph-log", "/var/lib/rook/rook-ceph/log"),
    ("rook-ceph-crash", "/var/lib/rook/rook-ceph/crash"),
    ("devices", "/dev"),
    ("run-udev", "/run/udev"),
    ("activate-osd", "/var/lib/rook/rook-ceph/osd"),
];

fn volumes() -> Vec<Value> {
    let path = |(name, path): (&str, &str)| json!({ "name": name, "hostPath": { "path": path, "type": "" } });
    let mut volumes: Vec<Value> = HOST_PATHS.map(path).into();
    volumes.push(json!({ "name": "rook-binaries", "emptyDir": {} }));
    volumes.push(json!({ "name": "rook-config-override", "configMap": { "name": "rook-config-override" } }));
    volumes
}

fn container(name: &str, image: &str, id: &str) -> Value {
    let of_pod =
        |name: &str, path: &str| json!({ "name": name, "valueFrom": { "fieldRef": { "fieldPath": path } } });
    let of_secret = |name: &str, key: &str| {
        json!({
            "name": name, "valueFrom": { "secretKeyRef": { "name": "rook-ceph-config", "key": key } },
        })
    };
    let mut env = vec![
        of_pod("POD_NAME", "metadata.name"),
        of_pod("POD_NAMESPACE", "metadata.namespace"),
        of_pod("NODE_NAME", "spec.nodeName"),
        of_pod("ROOK_PRIVATE_IP", "status.podIP"),
        of_pod("ROOK_PUBLIC_IP", "status.podIP"),
        of_secret("ROOK_CEPH_MON_HOST", "mon_host"),
        of_secret("ROOK_CEPH_MON_INITIAL_MEMBERS", "mon_initial_members"),
    ];
    for (name, value) in [
        ("CONTAINER_IMAGE", image),
        ("ROOK_CLUSTER_ID", "7d1c2f8e-3f0d-4a55-9c1e-2b7c0e8f6a11"),
        ("ROOK_CLUSTER_NAME", NAMESPACE),
        ("ROOK_CONFIG_DIR", "/var/lib/rook"),
        ("ROOK_CEPH_CONFIG_OVERRIDE", "/etc/rook/config/override.conf"),
        ("ROOK_OSD_ID", id),
        ("ROOK_OSD_UUID", "0b2f6a54-62cf-49a4-93fb-5d8a6f0f6d0e"),
        ("ROOK_OSD_STORE_TYPE", "bluestore"),
        ("ROOK_OSD_DEVICE_CLASS", "hdd"),
        ("ROOK_TOPOLOGY_AFFINITY", ""),
        ("ROOK_LV_BACKED_PV", "false"),
        ("ROOK_CV_MODE", "raw"),
        ("ROOK_BLOCK_PATH", "/dev/disk/by-id/wwn-0x5000c500a1b2c3d4"),
        ("CEPH_ARGS", "-m $(ROOK_CEPH_MON_HOST)"),
    ] {
        env.push(json!({ "name": name, "value": value }));
    }
    let mounts: Vec<Value> = HOST_PATHS
        .iter()
        .map(|(name, path)| json!({ "name": name, "mountPath": path }))
        .collect();
    json!({
        "name": name, "image": image, "imagePullPolicy": "IfNotPresent",
        "command": ["bash", "-x", "-c", "the words with which Rook starts this container"],
        "args": ["--foreground", "--id", id, "--setuser", "ceph", "--setgroup", "ceph",
            "--crush-location=root=default", "--default-log-to-stderr=true", "--default-err-to-stderr=true"],
        "env": env,
        "volumeMounts": mounts,
        "securityContext": { "privileged": true, "runAsUser": 0, "readOnlyRootFilesystem": false },
        "terminationMessagePolicy": "File",
    })
}
