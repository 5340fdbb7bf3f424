//! The Deployment of a new OSD, with Rook's names and labels, so that Rook recognises it as its own.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::{Map, Value, json};

use super::claims::{PVC, of_pods, volume};
use super::crush_location::{crush_arguments, hostname, location, location_of, topology};
use super::{JobTarget, OsdInfo};
use crate::api::cluster::DeviceSet;
use crate::api::names::{self, BLOCK_PATH, SET};
use crate::api::objects::Deployment;
use crate::api::pod_revision::image_of;

/// The annotation with a path by which an OSD's device is known besides the one that it was made with.
pub const DEVICE: &str = "stagger.dev/device";

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
    /// The node on which it was prepared.
    pub node: &'a str,
    /// Its labels.
    pub labels: &'a BTreeMap<String, String>,
    /// The claim whose volume it has, with its set; `None`: a device of the node.
    pub claim: Option<(&'a str, &'a DeviceSet)>,
    /// What was reported.
    pub osd: &'a OsdInfo,
    /// The image with Ceph.
    pub image: &'a str,
    /// An OSD that runs that image already.
    pub sibling: Option<&'a Deployment>,
}

/// In what an OSD on a node's device differs from one on the volume of a claim.
struct Member {
    /// Where it is in the CRUSH map.
    place: Vec<(&'static str, String)>,
    /// The name of its host there.
    host: String,
    labels: Value,
    env: Vec<Value>,
    volumes: Vec<Value>,
    mounts: Vec<Value>,
    /// Block volumes that its containers see. One that is privileged sees the node's devices instead.
    devices: Vec<Value>,
    privileged: bool,
    command: Value,
    resources: Value,
    /// Where its pod runs.
    pod: Value,
}

impl Member {
    fn of(of: &NewOsd<'_>) -> Self {
        let bound = json!({ names::HOSTNAME: hostname(of.node, of.labels) });
        let Some((claim, set)) = of.claim else {
            let (volumes, mounts) = device_volumes([of.osd.device.as_str()]);
            return Self {
                place: location(of.node, of.labels),
                host: of.node.to_owned(),
                labels: json!({ "portable": "false" }),
                env: Vec::new(),
                volumes,
                mounts,
                devices: Vec::new(),
                privileged: true,
                command: json!(["ceph-osd"]),
                resources: json!({}),
                pod: json!({ "nodeSelector": bound }),
            };
        };
        let portable = set.portable == Some(true);
        let (volume, device) = volume(claim);
        let mut env = vec![json!({ "name": "ROOK_PVC_BACKED_OSD", "value": "true" })];
        let mut pod = of_pods(set, set.placement.as_ref());
        let (place, host) = if portable {
            let above = topology(of.labels);
            if let Some((label, name)) = above.first() {
                env.push(json!({ "name": "ROOK_TOPOLOGY_AFFINITY", "value": format!("{label}={name}") }));
            }
            // Not bound to a node, but to where it is in the CRUSH map: elsewhere copies would lie together.
            pod["nodeSelector"] = json!(above.into_iter().collect::<BTreeMap<_, _>>());
            (location_of(claim, of.labels), claim)
        } else {
            pod["nodeSelector"] = bound;
            (location(of.node, of.labels), of.node)
        };
        Self {
            place,
            host: host.to_owned(),
            labels: json!({ "portable": portable.to_string(), PVC: claim, SET: set.name }),
            env,
            volumes: vec![volume],
            mounts: Vec::new(),
            devices: vec![device],
            privileged: false,
            command: json!(["sh", "-c", OWN, "ceph-osd"]),
            resources: json!(set.resources),
            pod,
        }
    }
}

/// The Deployment.
pub fn deployment(of: NewOsd<'_>) -> Value {
    let id = of.osd.id.to_string();
    let seat = Member::of(&of);
    let mut labels = json!({
        "app": names::OSD_APP,
        "rook_cluster": of.namespace,
        "ceph_daemon_type": "osd",
        "ceph_daemon_id": id,
        "osd": id,
        "ceph-osd-id": id,
        "failure-domain": seat.host,
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
    for (level, name) in &seat.place {
        labels[names::topology(level)] = json!(name);
    }
    names::add(&mut labels, &seat.labels);
    let mut of_deployment = labels.clone();
    for label in ["ceph-version", "rook-version"] {
        let known = of
            .sibling
            .and_then(|osd| osd.metadata.labels.as_ref()?.get(label));
        if let Some(known) = known {
            of_deployment[label] = json!(known);
        }
    }
    let mut pod = pod(&of, &id, &seat);
    names::add(&mut pod, &common_fields(of.sibling));
    names::add(&mut pod, &seat.pod);
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

/// Each container sees the volume of a claim as a device of its own, which is root's at first.
const OWN: &str = r#"chown ceph:ceph "$ROOK_BLOCK_PATH" && exec ceph-osd "$@""#;

fn pod(of: &NewOsd<'_>, id: &str, seat: &Member) -> Value {
    let socket = format!("/run/ceph/ceph-osd.{id}.asok");
    // Its own word, whatever the monitors think.
    let active = format!("ceph --admin-daemon {socket} status | grep -q '\"state\": \"active\"'");
    let answers = format!("ceph --admin-daemon {socket} status");
    let probe = |script: &str, more: Value| {
        let mut probe = json!({ "exec": { "command": ["sh", "-c", script] }, "timeoutSeconds": 10 });
        names::add(&mut probe, &more);
        probe
    };
    let mut env = json!([
        { "name": "ROOK_OSD_ID", "value": id },
        { "name": "ROOK_OSD_UUID", "value": of.osd.uuid },
        { "name": BLOCK_PATH, "value": of.osd.device },
        { "name": "ROOK_CV_MODE", "value": "raw" },
        { "name": "ROOK_LV_BACKED_PV", "value": "false" },
        { "name": "ROOK_NODE_NAME", "value": seat.host },
        { "name": "ROOK_CEPH_MON_HOST",
          "valueFrom": { "secretKeyRef": { "name": "rook-ceph-config", "key": "mon_host" } } },
        { "name": "NODE_NAME", "valueFrom": { "fieldRef": { "fieldPath": "spec.nodeName" } } },
        { "name": "POD_NAME", "valueFrom": { "fieldRef": { "fieldPath": "metadata.name" } } },
    ]);
    if let Some(env) = env.as_array_mut() {
        env.extend(seat.env.iter().cloned());
    }
    let (mut volumes, mut mounts) = (seat.volumes.clone(), seat.mounts.clone());
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
    let security = json!({ "privileged": seat.privileged, "runAsUser": 0, "readOnlyRootFilesystem": false });
    json!({
        "automountServiceAccountToken": false,
        "terminationGracePeriodSeconds": 60,
        "volumes": volumes,
        "initContainers": [{
            "name": "activate", "image": of.image, "command": ["sh", "-c", ACTIVATE],
            "env": env, "volumeMounts": mounts, "volumeDevices": seat.devices, "securityContext": security,
        }],
        "containers": [{
            "name": "osd", "image": of.image,
            "command": seat.command, "resources": seat.resources,
            "args": [
                // Not by CEPH_ARGS, which `ceph --admin-daemon` in the probes would take for words of its question.
                "--foreground", "--id", id, "--fsid", of.fsid, "-m", "$(ROOK_CEPH_MON_HOST)", "--setuser", "ceph", "--setgroup", "ceph",
                format!("--crush-location={}", crush_arguments(&seat.place)),
                "--log-to-stderr=true", "--err-to-stderr=true", "--mon-cluster-log-to-stderr=true",
                "--default-log-to-file=false", "--default-mon-cluster-log-to-file=false",
            ],
            "env": env, "volumeMounts": mounts, "volumeDevices": seat.devices, "securityContext": security,
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
pub(crate) fn common_fields(sibling: Option<&Deployment>) -> Value {
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
        .filter(|(_, value)| !value.is_null())
        .collect();
    Value::Object(fields)
}

/// The paths by which an OSD's device is known.
pub(crate) fn devices_of(osd: &Deployment) -> BTreeSet<String> {
    let spec = osd.spec.template.spec.as_ref();
    let own = spec.and_then(|spec| spec.containers.iter().find(|container| container.name == "osd"));
    let from_env = own.and_then(|own| own.env.iter().find(|env| env.name == BLOCK_PATH)?.value.clone());
    let noted = osd.metadata.annotations.as_ref();
    let noted = noted.and_then(|all| all.get(DEVICE).cloned());
    from_env.into_iter().chain(noted).collect()
}

/// The claim whose volume an OSD has, or else the node that it is bound to.
pub(crate) fn osd_location(osd: &Deployment) -> Option<JobTarget> {
    let labels = osd.metadata.labels.as_ref();
    if let Some(claim) = labels.and_then(|labels| labels.get(PVC)) {
        return Some(JobTarget::Claim(claim.clone()));
    }
    let selector = osd.spec.template.spec.as_ref()?.node_selector.as_ref()?;
    selector.hostname.clone().map(JobTarget::Node)
}

/// The image for a new OSD: the one that is wanted, once every monitor has it; an OSD must not be newer than
/// they are. Before, the one that most OSDs have, or else a monitor's.
pub(crate) fn image<'a>(
    wanted: &'a str,
    mons: impl IntoIterator<Item = &'a Deployment>,
    osds: impl IntoIterator<Item = &'a Deployment>,
) -> Option<&'a str> {
    fn kind_image<'a>(deployment: &'a Deployment, kind: &str) -> Option<&'a str> {
        image_of(deployment.spec.template.spec.as_ref()?, kind)
    }
    let mons: BTreeSet<_> = mons
        .into_iter()
        .filter_map(|mon| kind_image(mon, "mon"))
        .collect();
    // Of monitors that are not seen it is not known what they run.
    if mons.iter().eq([&wanted]) {
        return Some(wanted);
    }
    let mut count: BTreeMap<&str, usize> = BTreeMap::new();
    for image in osds.into_iter().filter_map(|osd| kind_image(osd, "osd")) {
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
    fn an_osd_on_a_claim_is_bound_to_its_node_or_only_to_its_rack() {
        let labels = BTreeMap::from([("topology.rook.io/rack".to_owned(), "r1".to_owned())]);
        let osd = OsdInfo {
            id: 7,
            uuid: "u".to_owned(),
            device: "/mnt/c".to_owned(),
            ..OsdInfo::default()
        };
        let made = |claim: Option<(&str, &DeviceSet)>| {
            deployment(NewOsd {
                namespace: "rook-ceph",
                cluster: "my-cluster",
                owner: &json!({}),
                fsid: "f",
                node: "n1",
                labels: &labels,
                claim,
                osd: &osd,
                image: "ceph",
                sibling: None,
            })
        };
        let set: DeviceSet = serde_json::from_value(json!({
            "name": "set1", "resources": { "limits": { "memory": "4Gi" } },
            "placement": { "tolerations": [{ "key": "storage" }] },
        }))
        .unwrap();
        for (portable, host, bound) in [
            (false, "n1", json!({ "kubernetes.io/hostname": "n1" })),
            (true, "c", json!({ "topology.rook.io/rack": "r1" })),
        ] {
            let set = DeviceSet {
                portable: Some(portable),
                ..set.clone()
            };
            let one = made(Some(("c", &set)));
            let seen: Deployment = serde_json::from_value(one.clone()).unwrap();
            assert_eq!(osd_location(&seen), Some(JobTarget::Claim("c".to_owned())));
            assert_eq!(devices_of(&seen), BTreeSet::from(["/mnt/c".to_owned()]));
            let template = &one["spec"]["template"];
            let labels = &template["metadata"]["labels"];
            assert_eq!(labels[PVC], "c");
            assert_eq!(labels["portable"], portable.to_string());
            assert_eq!(labels["failure-domain"], host);
            assert_eq!(labels["topology-location-host"], host);
            assert_eq!(labels["topology-location-rack"], "r1");
            let pod = &template["spec"];
            assert_eq!(pod["nodeSelector"], bound);
            assert_eq!(pod["tolerations"][0]["key"], "storage");
            assert_eq!(pod["volumes"][0]["persistentVolumeClaim"]["claimName"], "c");
            let own = &pod["containers"][0];
            assert_eq!(own["resources"]["limits"]["memory"], "4Gi");
            assert_eq!(own["securityContext"]["privileged"], false);
            for container in [own, &pod["initContainers"][0]] {
                assert_eq!(container["volumeDevices"][0]["devicePath"], "/mnt/c");
            }
            let place = format!("--crush-location=root=default host={host} rack=r1");
            assert!(own["args"].as_array().unwrap().contains(&json!(place)), "{own}");
            assert!(own["startupProbe"].is_object() && own["livenessProbe"].is_object());
        }
        let seen: Deployment = serde_json::from_value(made(None)).unwrap();
        assert_eq!(osd_location(&seen), Some(JobTarget::Node("n1".to_owned())));
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
