//! The Deployment of a new OSD, with Rook's names and labels, so that Rook finds in it one of its own.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use k8s_openapi::api::apps::v1::Deployment;
use serde_json::{Map, Value, json};

use super::OsdInfo;
use super::job::hostname;
use super::place::{location, words};
use crate::made::image_of;
use crate::names;

/// The annotation with a path by which an OSD's device is known besides the one that it was made with.
pub const DEVICE: &str = "stagger.dev/device";
/// The variables that say, as Rook's do, which device an OSD has.
const BLOCK_PATH: &str = "ROOK_BLOCK_PATH";

/// What a Deployment is made of.
#[derive(Debug, Clone, Copy)]
pub struct NewOsd<'a> {
    /// The cluster's namespace.
    pub namespace: &'a str,
    /// The CephCluster's name.
    pub cluster: &'a str,
    /// The CephCluster, as an owner reference.
    pub owner: &'a Value,
    /// The cluster's identity.
    pub fsid: &'a str,
    /// The node.
    pub node: &'a str,
    /// Its labels.
    pub labels: &'a BTreeMap<String, String>,
    /// What the node reported.
    pub osd: &'a OsdInfo,
    /// The image with Ceph.
    pub image: &'a str,
    /// An OSD that runs that image already.
    pub sibling: Option<&'a Deployment>,
}

/// The Deployment.
pub fn deployment(of: NewOsd<'_>) -> Value {
    let id = of.osd.id.to_string();
    let place = location(of.node, of.labels);
    let mut labels = json!({
        "app": names::OSD_APP,
        "rook_cluster": of.namespace,
        "ceph_daemon_type": "osd",
        "ceph_daemon_id": id,
        "osd": id,
        "ceph-osd-id": id,
        "failure-domain": of.node,
        "portable": "false",
        "osd-store": "bluestore",
        "topology-location-root": "default",
        "app.kubernetes.io/name": "ceph-osd",
        "app.kubernetes.io/instance": id,
        "app.kubernetes.io/component": "cephclusters.ceph.rook.io",
        "app.kubernetes.io/part-of": of.cluster,
        "app.kubernetes.io/created-by": "stagger",
        "app.kubernetes.io/managed-by": "stagger",
    });
    if !of.osd.device_class.is_empty() {
        labels["device-class"] = json!(of.osd.device_class);
    }
    for (level, name) in &place {
        labels[names::topology(level)] = json!(name);
    }
    let mut of_deployment = labels.clone();
    for label in ["ceph-version", "rook-version"] {
        let known = of
            .sibling
            .and_then(|osd| osd.metadata.labels.as_ref()?.get(label));
        if let Some(known) = known {
            of_deployment[label] = json!(known);
        }
    }
    let mut pod = pod(&of, &id, &place);
    names::add(&mut pod, &like(of.sibling));
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {
            "name": format!("rook-ceph-osd-{id}"), "namespace": of.namespace, "labels": of_deployment,
            "ownerReferences": [of.owner],
        },
        "spec": {
            "replicas": 1,
            "revisionHistoryLimit": 5,
            "strategy": { "type": "Recreate" },
            "selector": { "matchLabels": {
                "app": names::OSD_APP, "rook_cluster": of.namespace, "ceph-osd-id": id,
            } },
            "template": { "metadata": { "labels": labels }, "spec": pod },
        },
    })
}

/// Makes the OSD's folder anew from what its device says of it, and refuses a device that has another OSD.
const ACTIVATE: &str = r#"set -eu
dir=/var/lib/ceph/osd/ceph-$ROOK_OSD_ID
ceph-bluestore-tool prime-osd-dir --dev "$ROOK_BLOCK_PATH" --path "$dir"
found=$(cat "$dir/fsid")
if [ "$found" != "$ROOK_OSD_UUID" ]; then
    echo "$ROOK_BLOCK_PATH has the OSD $found, and this is $ROOK_OSD_UUID: which device is it now?" >&2
    exit 1
fi
ln -snf "$ROOK_BLOCK_PATH" "$dir/block"
chown -RL ceph:ceph "$dir" /run/ceph
"#;

fn pod(of: &NewOsd<'_>, id: &str, place: &[(&str, String)]) -> Value {
    let socket = format!("/run/ceph/ceph-osd.{id}.asok");
    // Its own word, whatever the monitors think.
    let active = format!("ceph --admin-daemon {socket} status | grep -q '\"state\": \"active\"'");
    let answers = format!("ceph --admin-daemon {socket} status");
    let probe = |script: &str, more: Value| {
        let mut probe = json!({ "exec": { "command": ["sh", "-c", script] }, "timeoutSeconds": 10 });
        names::add(&mut probe, &more);
        probe
    };
    let env = json!([
        { "name": "ROOK_OSD_ID", "value": id },
        { "name": "ROOK_OSD_UUID", "value": of.osd.uuid },
        { "name": BLOCK_PATH, "value": of.osd.device },
        { "name": "ROOK_CV_MODE", "value": "raw" },
        { "name": "ROOK_LV_BACKED_PV", "value": "false" },
        { "name": "ROOK_NODE_NAME", "value": of.node },
        { "name": "ROOK_CEPH_MON_HOST",
          "valueFrom": { "secretKeyRef": { "name": "rook-ceph-config", "key": "mon_host" } } },
        { "name": "NODE_NAME", "valueFrom": { "fieldRef": { "fieldPath": "spec.nodeName" } } },
        { "name": "POD_NAME", "valueFrom": { "fieldRef": { "fieldPath": "metadata.name" } } },
    ]);
    let (mut volumes, mut mounts) = device_volumes([of.osd.device.as_str()]);
    volumes.extend([
        json!({ "name": "osd-folder", "emptyDir": {} }),
        json!({ "name": "run", "emptyDir": {} }),
        json!({ "name": "config", "configMap": {
            "name": "rook-config-override", "optional": true,
            "items": [{ "key": "config", "path": "ceph.conf" }],
        } }),
    ]);
    mounts.extend([
        json!({ "name": "osd-folder", "mountPath": format!("/var/lib/ceph/osd/ceph-{id}") }),
        json!({ "name": "run", "mountPath": "/run/ceph" }),
        json!({ "name": "config", "mountPath": "/etc/ceph", "readOnly": true }),
    ]);
    let privileged = json!({ "privileged": true, "runAsUser": 0, "readOnlyRootFilesystem": false });
    json!({
        "nodeSelector": { "kubernetes.io/hostname": hostname(of.node, of.labels) },
        "automountServiceAccountToken": false,
        "terminationGracePeriodSeconds": 60,
        "volumes": volumes,
        "initContainers": [{
            "name": "activate", "image": of.image, "command": ["sh", "-c", ACTIVATE],
            "env": env, "volumeMounts": mounts, "securityContext": privileged,
        }],
        "containers": [{
            "name": "osd", "image": of.image,
            "command": ["ceph-osd"],
            "args": [
                // Not by CEPH_ARGS, which `ceph --admin-daemon` in the probes would take for words of its question.
                "--foreground", "--id", id, "--fsid", of.fsid, "-m", "$(ROOK_CEPH_MON_HOST)", "--setuser", "ceph", "--setgroup", "ceph",
                format!("--crush-location={}", words(place)),
                "--log-to-stderr=true", "--err-to-stderr=true", "--mon-cluster-log-to-stderr=true",
                "--default-log-to-file=false", "--default-mon-cluster-log-to-file=false",
            ],
            "env": env, "volumeMounts": mounts, "securityContext": privileged,
            // Up to 30 minutes: a large OSD that was killed reads all of itself first.
            "startupProbe": probe(&active, json!({ "periodSeconds": 10, "failureThreshold": 180 })),
            "readinessProbe": probe(&active, json!({ "periodSeconds": 10, "failureThreshold": 3 })),
            "livenessProbe": probe(&answers, json!({ "periodSeconds": 10, "failureThreshold": 6 })),
        }],
    })
}

/// What makes devices seen in a container: all of `/dev` for those in it, and the folder of one that is a file.
pub(super) fn device_volumes<'a>(devices: impl IntoIterator<Item = &'a str>) -> (Vec<Value>, Vec<Value>) {
    let folders: BTreeSet<&str> = devices
        .into_iter()
        .map(|device| {
            if device.starts_with("/dev/") {
                return "/dev";
            }
            let parent = Path::new(device).parent().and_then(Path::to_str);
            parent.unwrap_or("/")
        })
        .collect();
    let named = folders.into_iter().enumerate();
    named
        .map(|(nth, folder)| {
            let name = format!("devices-{nth}");
            (
                json!({ "name": name, "hostPath": { "path": folder } }),
                json!({ "name": name, "mountPath": folder }),
            )
        })
        .unzip()
}

/// What the pods of a cluster's OSDs have in common, which is nothing of an OSD's own.
pub(crate) fn like(sibling: Option<&Deployment>) -> Value {
    const FIELDS: [&str; 8] = [
        "hostNetwork",
        "dnsPolicy",
        "tolerations",
        "priorityClassName",
        "imagePullSecrets",
        "schedulerName",
        "runtimeClassName",
        "hostPID",
    ];
    let spec = sibling.and_then(|osd| osd.spec.template.spec.as_ref());
    let spec = serde_json::to_value(spec).unwrap_or_default();
    let fields: Map<String, Value> = FIELDS
        .into_iter()
        .filter_map(|field| Some((field.to_owned(), spec.get(field)?.clone())))
        .collect();
    Value::Object(fields)
}

/// The paths by which an OSD's device is known.
pub(crate) fn devices_of(osd: &Deployment) -> BTreeSet<String> {
    let spec = osd.spec.template.spec.as_ref();
    let own = spec.and_then(|spec| spec.containers.iter().find(|container| container.name == "osd"));
    let from_env = own.and_then(|own| {
        let all = own.env.as_ref()?;
        all.iter().find(|env| env.name == BLOCK_PATH)?.value.clone()
    });
    let noted = osd.metadata.annotations.as_ref();
    let noted = noted.and_then(|all| all.get(DEVICE).cloned());
    from_env.into_iter().chain(noted).collect()
}

/// The node that an OSD is bound to.
pub(crate) fn node_of(osd: &Deployment) -> Option<String> {
    let selector = osd.spec.template.spec.as_ref()?.node_selector.as_ref()?;
    selector.get("kubernetes.io/hostname").cloned()
}

/// The image for a new OSD: the one that is wanted, once every monitor has it; an OSD must not be newer than
/// they are. Before, the one that most OSDs have, or else a monitor's.
pub(crate) fn image<'a>(
    wanted: &'a str,
    mons: impl IntoIterator<Item = &'a Deployment>,
    osds: impl IntoIterator<Item = &'a Deployment>,
) -> Option<&'a str> {
    fn own<'a>(deployment: &'a Deployment, kind: &str) -> Option<&'a str> {
        image_of(deployment.spec.template.spec.as_ref()?, kind)
    }
    let mons: BTreeSet<_> = mons.into_iter().filter_map(|mon| own(mon, "mon")).collect();
    // Of monitors that are not seen it is not known what they run.
    if mons.iter().eq([&wanted]) {
        return Some(wanted);
    }
    let mut count: BTreeMap<&str, usize> = BTreeMap::new();
    for image in osds.into_iter().filter_map(|osd| own(osd, "osd")) {
        *count.entry(image).or_default() += 1;
    }
    let most = count.into_iter().max_by_key(|(_, count)| *count);
    most.map(|(image, _)| image)
        .or_else(|| mons.into_iter().find(|image| *image != wanted))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(kind: &str, image: &str) -> Deployment {
        serde_json::from_value(json!({
            "metadata": { "name": "x" },
            "spec": { "selector": {}, "template": {
                "spec": { "containers": [{ "name": kind, "image": image }] },
            } },
        }))
        .unwrap()
    }

    #[test]
    fn a_new_osd_is_not_newer_than_the_monitors() {
        let (old, new) = (of("mon", "v18"), of("mon", "v20"));
        let osds = [of("osd", "v18"), of("osd", "v18"), of("osd", "v20")];
        assert_eq!(image("v20", [&new, &new], &osds), Some("v20"));
        assert_eq!(image("v20", [&new, &old], &osds), Some("v18"));
        assert_eq!(image("v20", [&new, &old], []), Some("v18"));
        // Monitors that are not seen count as old.
        assert_eq!(image("v20", [], &osds), Some("v18"));
        assert_eq!(image("v20", [], []), None);
    }
}
