//! Versions: of the operator, of its agents, and both versions of each daemon, Rook's and Ceph's.

use std::collections::BTreeMap;

use kube::ResourceExt as _;
use schemars::JsonSchema;
use serde::Serialize;

use crate::api::daemons;
use crate::api::names;
use crate::api::names::VERSION;
use crate::api::objects::{DaemonSet, Deployment, PodSpec};
use crate::api::pod_revision::image_of;
use crate::client::status::Leader;
use crate::executor::managed_fields::VERSION as CEPH_VERSION;

/// The label with the release of Rook that wrote a Deployment.
const ROOK_VERSION: &str = "rook-version";
/// What stands where nobody can tell.
const UNKNOWN: &str = "unknown";

/// All versions of a cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ClusterVersions {
    /// The operator, if it runs in the cluster.
    pub operator: Option<Program>,
    /// Which of several operators leads.
    pub leader: Leader,
    /// The agents, if there are any.
    pub agents: Option<Program>,
    /// One row for each kind, pair of versions and image.
    pub daemons: Vec<DaemonRow>,
    /// Deployments of which it is not clear which daemon they run.
    pub unclear: Vec<String>,
}

/// A program of ours in the cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Program {
    /// Its release, by its label.
    pub version: String,
    /// Its image.
    pub image: String,
    /// How many there should be.
    pub wanted: i32,
    /// How many of them are of this image, and ready.
    pub ready: i32,
}

/// The daemons of one kind that run the same.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Row")]
pub struct DaemonRow {
    /// Their kind.
    pub kind: String,
    /// The release of Rook that wrote their Deployments.
    pub rook_version: String,
    /// The release of Ceph, by the label of their Deployments.
    pub ceph_version: String,
    /// Their image.
    pub image: String,
    /// How many they are.
    pub count: usize,
    /// Which.
    pub daemons: Vec<String>,
    /// Those of them that have a pod of another image, or one that is not ready, or none.
    pub not_ready: Vec<String>,
}

impl ClusterVersions {
    /// The rows for the Deployments of a cluster's daemons.
    pub fn of(
        operator: Option<&Deployment>,
        agents: Option<&DaemonSet>,
        leader: Leader,
        deployments: &[Deployment],
    ) -> Self {
        let mut rows: BTreeMap<(String, String, String, String), DaemonRow> = BTreeMap::new();
        let mut unclear = Vec::new();
        for deployment in deployments {
            let name = match daemons::unit_of(deployment) {
                Ok(Some(unit)) => unit.to_string(),
                Ok(None) => deployment.name_any(),
                Err(why) => {
                    unclear.push(why);
                    continue;
                }
            };
            let kind = kind(deployment);
            let rook_version = label(deployment.labels(), ROOK_VERSION);
            let ceph_version = label(deployment.labels(), CEPH_VERSION);
            let image = image(deployment.spec.template.spec.as_ref(), &kind);
            let key = (
                kind.clone(),
                rook_version.clone(),
                ceph_version.clone(),
                image.clone(),
            );
            let row = rows.entry(key).or_insert_with(|| DaemonRow {
                kind,
                rook_version,
                ceph_version,
                image,
                count: 0,
                daemons: Vec::new(),
                not_ready: Vec::new(),
            });
            row.count += 1;
            if !is_ready(deployment) {
                row.not_ready.push(name.clone());
            }
            row.daemons.push(name);
        }
        unclear.sort();
        Self {
            operator: operator.map(|found| Program {
                version: label(found.labels(), VERSION),
                image: image(found.spec.template.spec.as_ref(), "operator"),
                wanted: found.spec.replicas.unwrap_or(1),
                ready: updated_pods(found),
            }),
            leader,
            agents: agents.map(|found| {
                let status = found.status.clone().unwrap_or_default();
                let updated = status.updated_number_scheduled.unwrap_or(0);
                Program {
                    version: label(found.labels(), VERSION),
                    image: image(found.spec.template.spec.as_ref(), "agent"),
                    wanted: status.desired_number_scheduled,
                    ready: updated.min(status.number_ready),
                }
            }),
            daemons: rows.into_values().collect(),
            unclear,
        }
    }
}

/// What kind of daemon a Deployment runs: also those that are no units, as mirrors and collectors.
fn kind(deployment: &Deployment) -> String {
    let labels = deployment.labels();
    let app = labels
        .get(names::APP)
        .map(|app| app.trim_start_matches("rook-ceph-"));
    let kind = labels.get(daemons::KIND).map(String::as_str);
    kind.or(app).unwrap_or(UNKNOWN).to_owned()
}

fn label(labels: &BTreeMap<String, String>, name: &str) -> String {
    labels.get(name).cloned().unwrap_or_else(|| UNKNOWN.to_owned())
}

fn image(spec: Option<&PodSpec>, container: &str) -> String {
    spec.and_then(|spec| image_of(spec, container))
        .unwrap_or(UNKNOWN)
        .to_owned()
}

/// How many pods are made of the Deployment as it is now, and ready.
fn updated_pods(deployment: &Deployment) -> i32 {
    let status = deployment.status.clone().unwrap_or_default();
    // A status of an older generation tells of other pods.
    if status.observed_generation < deployment.metadata.generation {
        return 0;
    }
    let updated = status.updated_replicas.unwrap_or(0);
    updated.min(status.ready_replicas.unwrap_or(0))
}

/// Whether all pods are made of the Deployment as it is now, and ready.
fn is_ready(deployment: &Deployment) -> bool {
    let wanted = deployment.spec.replicas.unwrap_or(1);
    let there = deployment.status.as_ref().and_then(|status| status.replicas);
    wanted > 0 && updated_pods(deployment) == wanted && there.unwrap_or(0) == wanted
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn deployment(name: &str, labels: &Value, image: &str, status: &Value) -> Deployment {
        let kind = labels["ceph_daemon_type"].as_str().unwrap_or("other");
        serde_json::from_value(json!({
            "metadata": { "name": name, "labels": labels, "generation": 2 },
            "spec": { "selector": {}, "replicas": 1, "template": { "spec": { "containers": [
                { "name": "helper", "image": "helper:1" }, { "name": kind, "image": image },
            ] } } },
            "status": status,
        }))
        .unwrap()
    }

    fn osd(id: u32, ceph: &str, image: &str, status: &Value) -> Deployment {
        let labels = json!({
            "app": "rook-ceph-osd", "ceph_daemon_type": "osd", "ceph_daemon_id": id.to_string(),
            "rook-version": "v1.20.1", "ceph-version": ceph,
        });
        deployment(&format!("rook-ceph-osd-{id}"), &labels, image, status)
    }

    #[test]
    fn daemons_with_the_same_versions_and_image_are_a_row() {
        let ready =
            json!({ "observedGeneration": 2, "replicas": 1, "updatedReplicas": 1, "readyReplicas": 1 });
        let behind =
            json!({ "observedGeneration": 1, "replicas": 1, "updatedReplicas": 1, "readyReplicas": 1 });
        let surging =
            json!({ "observedGeneration": 2, "replicas": 2, "updatedReplicas": 1, "readyReplicas": 1 });
        let mirror = json!({ "app": "rook-ceph-rbd-mirror", "rook-version": "v1.20.1" });
        let nameless = json!({ "app": "rook-ceph-osd", "ceph_daemon_type": "osd" });
        let versions = ClusterVersions::of(
            None,
            None,
            Leader::Nobody,
            &[
                osd(0, "18.2.7-0", "ceph:v18", &ready),
                osd(1, "20.2.4-0", "ceph:v20", &ready),
                osd(2, "20.2.4-0", "ceph:v20", &behind),
                osd(3, "20.2.4-0", "ceph:v20", &surging),
                deployment("rook-ceph-rbd-mirror-a", &mirror, "ceph:v18", &Value::Null),
                deployment("rook-ceph-osd-x", &nameless, "ceph:v18", &ready),
            ],
        );
        let rows: Vec<_> = versions
            .daemons
            .iter()
            .map(|row| (row.kind.as_str(), row.ceph_version.as_str(), row.count))
            .collect();
        assert_eq!(
            rows,
            [
                ("osd", "18.2.7-0", 1),
                ("osd", "20.2.4-0", 3),
                ("rbd-mirror", "unknown", 1),
            ]
        );
        let not_ready: Vec<_> = versions.daemons.iter().flat_map(|row| &row.not_ready).collect();
        assert_eq!(not_ready, ["osd.2", "osd.3", "rook-ceph-rbd-mirror-a"]);
        assert_eq!(versions.daemons[1].daemons, ["osd.1", "osd.2", "osd.3"]);
        assert_eq!(versions.daemons[1].image, "ceph:v20");
        assert_eq!(
            versions.unclear,
            ["Deployment rook-ceph-osd-x: there is no label ceph_daemon_id; set it to the daemon's id"]
        );
    }
}
