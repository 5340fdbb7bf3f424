//! The report on the devices of a node, or on the volume of a claim: Rook's format, in Rook's ConfigMap.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt as _;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::JobTarget;
use super::claims::PVC;
use crate::api::names;

/// The key in the ConfigMap.
const KEY: &str = "status";
/// The label with the node, or with the claim.
const NODE: &str = "node";

/// How far a node is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Nothing has been done yet.
    Starting,
    /// Devices are being prepared.
    Orchestrating,
    /// All are.
    Completed,
    /// Some could not be; the others are.
    Failed,
}

impl Stage {
    /// Rook's word for it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Orchestrating => "orchestrating",
            Self::Completed => "completed",
            Self::Failed => "failed",
        }
    }

    /// Whether nothing more will come.
    pub fn is_over(self) -> bool {
        matches!(self, Self::Completed | Self::Failed)
    }
}

/// An OSD on a device, as Rook writes it down. Fields that are not read here are written as Rook does.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct OsdInfo {
    /// Its number.
    pub id: u32,
    /// The name of the cluster in Ceph's own configuration: `ceph`.
    pub cluster: String,
    /// Its own UUID, which its device has too.
    pub uuid: String,
    /// `hdd`, `ssd` …; empty: as the OSD finds out.
    pub device_class: String,
    /// The path of its device. Rook's name for it is of old.
    #[serde(rename = "lv-path")]
    pub device: String,
    /// Where it is in the CRUSH map: `root=default host=n1`.
    pub location: String,
    /// How its device is used: `raw`.
    #[serde(rename = "lv-mode")]
    pub mode: String,
    /// `bluestore`.
    pub store: String,
    /// The node on which it was prepared.
    #[serde(rename = "nodeName")]
    pub node: String,
    /// The claim whose volume its device is, if it is none of the node's own.
    #[serde(rename = "pvcName")]
    pub claim: String,
}

/// What a node reports.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct NodeReport {
    /// The OSDs on it that it was asked for.
    pub osds: Vec<OsdInfo>,
    /// How far it is, in Rook's word.
    pub status: String,
    /// Whether they are on a PersistentVolumeClaim rather than a node's own device.
    pub pvc_backed_osd: bool,
    /// What went wrong.
    pub message: String,
}

impl NodeReport {
    /// How far it is; a word that is not known is of somebody who is at work.
    pub fn stage(&self) -> Stage {
        [Stage::Starting, Stage::Completed, Stage::Failed]
            .into_iter()
            .find(|stage| stage.word() == self.status)
            .unwrap_or(Stage::Orchestrating)
    }
}

/// The name of the ConfigMap with the report.
pub fn name(at: &JobTarget) -> String {
    names::short(&format!("rook-ceph-osd-{}-status", at.name()))
}

/// The ConfigMap with the report.
pub fn status_map(namespace: &str, at: &JobTarget, status: &NodeReport) -> Value {
    let mut labels = json!({ "app": names::OSD_APP, "status": "provisioning", NODE: at.name() });
    if let JobTarget::Claim(claim) = at {
        labels[PVC] = json!(claim);
    }
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": { "name": name(at), "namespace": namespace, "labels": labels },
        "data": { KEY: serde_json::to_string(status).unwrap_or_default() },
    })
}

/// Of what a report is and what it says, or why that cannot be read.
pub fn read(map: &ConfigMap) -> (JobTarget, Result<NodeReport, String>) {
    let name = map.name_any();
    let named = map.labels().get(NODE).cloned().unwrap_or_else(|| {
        let inner = name.strip_prefix("rook-ceph-osd-").unwrap_or(&name);
        inner.strip_suffix("-status").unwrap_or(inner).to_owned()
    });
    let text = map.data.as_ref().and_then(|data| data.get(KEY));
    let status: Result<NodeReport, _> = match text {
        None => Err(format!("it has no key {KEY}")),
        Some(text) => {
            serde_json::from_str(text).map_err(|error| format!("its key {KEY} is no report: {error}"))
        }
    };
    // Rook writes no label that tells a claim from a node.
    let is_claim =
        map.labels().contains_key(PVC) || status.as_ref().is_ok_and(|status| status.pvc_backed_osd);
    let at = if is_claim {
        JobTarget::Claim(named)
    } else {
        JobTarget::Node(named)
    };
    (at, status)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_of_rooks_is_read_and_one_of_ours_is_rooks() {
        let rooks = r#"{"osds":[{"id":3,"cluster":"ceph","uuid":"u","device-part-uuid":"","device-class":"hdd",
            "lv-path":"/dev/sdb","metadata-path":"","wal-path":"","skip-lv-release":true,
            "location":"root=default host=n1","lv-backed-pv":false,"lv-mode":"raw","store":"bluestore",
            "topologyAffinity":"","encrypted":false,"exportService":false,"nodeName":"","pvcName":"",
            "device-type":""}],"status":"completed","pvc-backed-osd":false,"message":""}"#;
        let map: ConfigMap = serde_json::from_value(json!({
            "metadata": { "name": "rook-ceph-osd-n1-status", "labels": { "node": "n1" } },
            "data": { "status": rooks },
        }))
        .unwrap();
        let (at, status) = read(&map);
        let status = status.unwrap();
        let node = JobTarget::Node("n1".to_owned());
        assert_eq!((&at, status.stage()), (&node, Stage::Completed));
        assert_eq!(
            (status.osds[0].id, status.osds[0].device.as_str()),
            (3, "/dev/sdb")
        );
        let again: ConfigMap = serde_json::from_value(status_map("rook-ceph", &node, &status)).unwrap();
        assert_eq!(read(&again), (node, Ok(status)));
        let text = &again.data.unwrap()["status"];
        for field in [
            "\"lv-path\":\"/dev/sdb\"",
            "\"lv-mode\":\"raw\"",
            "\"pvc-backed-osd\":false",
        ] {
            assert!(text.contains(field), "{text}");
        }
    }

    #[test]
    fn what_is_no_report_says_why() {
        for (data, why) in [
            (json!({}), "no key"),
            (json!({ "status": "{" }), "is no report"),
            (json!({ "status": "[1]" }), "is no report"),
            (json!({ "status": r#"{"osds":[{"id":-1}]}"# }), "is no report"),
        ] {
            let map: ConfigMap = serde_json::from_value(json!({
                "metadata": { "name": "rook-ceph-osd-n1-status" }, "data": data,
            }))
            .unwrap();
            let (at, status) = read(&map);
            assert_eq!(at.name(), "n1");
            assert!(status.unwrap_err().contains(why));
        }
    }

    #[test]
    fn a_report_of_a_claim_is_known_by_its_label_or_by_what_it_says() {
        let claim = JobTarget::Claim("set1-data-0x".to_owned());
        let status = NodeReport {
            pvc_backed_osd: true,
            ..NodeReport::default()
        };
        let map: ConfigMap = serde_json::from_value(status_map("rook-ceph", &claim, &status)).unwrap();
        assert_eq!(map.name_any(), "rook-ceph-osd-set1-data-0x-status");
        assert_eq!(read(&map).0, claim);
        let mut broken = map.clone();
        broken.data = None;
        assert_eq!(read(&broken).0, claim);
        let mut rooks = map;
        rooks.metadata.labels.as_mut().unwrap().remove(PVC);
        assert_eq!(read(&rooks).0, claim);
    }
}
