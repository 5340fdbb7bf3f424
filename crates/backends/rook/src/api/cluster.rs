//! A CephCluster, as far as stagger reads it.
//!
//! It belongs to Rook and its owner: its definition and its status are never written, and of its spec only
//! the image, by an update beside a running Rook. Of its status, stagger reads what Rook reports about that
//! image.

use kube::CustomResource;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// What is not set is not written either: a definition with defaults would write them into every resource.
pub(crate) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// `spec` of a CephCluster.
#[derive(CustomResource, Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[kube(
    group = "ceph.rook.io",
    version = "v1",
    kind = "CephCluster",
    plural = "cephclusters",
    namespaced,
    status = "CephClusterStatus",
    schema = "disabled",
    derive = "PartialEq",
    derive = "Default"
)]
#[serde(rename_all = "camelCase")]
pub struct CephClusterSpec {
    /// Which Ceph the daemons run.
    #[serde(default, skip_serializing_if = "is_default")]
    pub ceph_version: CephVersion,
    /// Where daemons keep their data on the hosts. Without it an upgrade is refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data_dir_host_path: Option<String>,
    /// Rook's word for `updatePolicy.skipUpgradeChecks`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub skip_upgrade_checks: Option<bool>,
    /// Rook's word for `updatePolicy.continueUpgradeAfterChecksEvenIfNotHealthy`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub continue_upgrade_after_checks_even_if_not_healthy: Option<bool>,
    /// How long to wait for an OSD that may not be stopped now, in minutes. Rook's default is 10.
    #[serde(rename = "waitTimeoutForHealthyOSDInMinutes")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wait_timeout_for_healthy_osd_in_minutes: Option<i64>,
    /// Whether Rook updates an OSD only while all placement groups are clean. Not obeyed where it says no: here an update always
    /// waits for them.
    #[serde(rename = "upgradeOSDRequiresHealthyPGs")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub upgrade_osd_requires_healthy_pgs: Option<bool>,
    /// Rook's word for `updatePolicy.osds.removeIfOutAndSafeToDestroy`.
    #[serde(rename = "removeOSDsIfOutAndSafeToRemove")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remove_osds_if_out_and_safe_to_remove: Option<bool>,
    /// The same by the name that the design gave it.
    #[serde(rename = "removeOSDsIfOutAndSafeToDestroy")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remove_osds_if_out_and_safe_to_destroy: Option<bool>,
    /// OSDs.
    #[serde(default, skip_serializing_if = "is_default")]
    pub storage: StorageSpec,
    /// Node drains.
    #[serde(default, skip_serializing_if = "is_default")]
    pub disruption_management: DisruptionManagement,
    /// Rook's: resources by kind of daemon. Of `mon`, `mgr` and `osd` a change is a new revision.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resources: Option<Free>,
    /// Rook's: priority classes by kind of daemon, or of `all`. A change is a new revision.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority_class_names: Option<Free>,
    /// Rook's: annotations of pods by kind of daemon, and of `all`. A change is a new revision.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub annotations: Option<Free>,
}

/// `status` of a CephCluster, which Rook writes.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CephClusterStatus {
    /// The image that Rook goes by.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<DetectedVersion>,
    /// How far Rook is.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<RookCondition>,
}

/// `status.version`: what Rook has found in the image.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DetectedVersion {
    /// The image.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
}

/// A condition of a CephCluster; when it was looked at last is not kept, or it would be another each minute.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RookCondition {
    /// `Progressing`, `Ready` …
    #[serde(rename = "type")]
    pub kind: String,
    /// `True`, `False`.
    pub status: String,
    /// Rook's own words.
    pub message: String,
}

impl CephClusterStatus {
    /// Why Rook's last reconcile of it has failed, in Rook's words. `state` and `message` are overwritten by health checks in 1.16; this
    /// condition stays (`UpdateClusterCondition` in `pkg/operator/ceph/controller/conditions.go`, 1.16.9 and 1.20.6).
    pub fn failure(&self) -> Option<&str> {
        let failed = |one: &&RookCondition| one.kind == "Progressing" && one.status == "False";
        let found = self.conditions.iter().find(failed)?;
        Some(found.message.as_str())
    }
}

/// `spec.cephVersion`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CephVersion {
    /// The image: `quay.io/ceph/ceph:v18.2.7`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// Whether a release may be tried that is not known to work.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow_unsupported: Option<bool>,
}

/// `spec.storage`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StorageSpec {
    /// Rook's word for `updatePolicy.osds.maxInParallelPerCluster`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub osd_max_updates_in_parallel: Option<i64>,
    /// Whether `devices` counts for every node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub use_all_nodes: Option<bool>,
    /// Rook's: every device that is empty. Not obeyed here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub use_all_devices: Option<bool>,
    /// Rook's: devices by a regular expression. Not obeyed here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device_filter: Option<String>,
    /// Rook's: devices by a regular expression on their paths. Not obeyed here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device_path_filter: Option<String>,
    /// The devices of nodes that name none of their own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub devices: Option<Vec<StorageDevice>>,
    /// Nodes, each with its devices.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nodes: Option<Vec<StorageNode>>,
    /// OSDs on PersistentVolumeClaims.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub storage_class_device_sets: Option<Vec<DeviceSet>>,
}

/// A set in `spec.storage.storageClassDeviceSets`: OSDs on volumes that are asked for by one template.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DeviceSet {
    /// Its name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// How many OSDs it has. A smaller number takes none away.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<i64>,
    /// Whether its OSDs may go to other nodes with their volumes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub portable: Option<bool>,
    /// Rook's. A set that is encrypted is left alone here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub encrypted: Option<bool>,
    /// Rook's: settings for slow devices. Not obeyed here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tune_device_class: Option<bool>,
    /// Rook's: settings for fast devices. Not obeyed here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tune_fast_device_class: Option<bool>,
    /// What its claims ask for: one template. A set with more of them, for metadata or a log, is left alone here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume_claim_templates: Option<Vec<Free>>,
    /// Where its OSDs may run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub placement: Option<Free>,
    /// Where its volumes may be prepared; as `placement`, if it is not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prepare_placement: Option<Free>,
    /// Limits and requests of its OSDs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resources: Option<Free>,
    /// Who places its pods.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scheduler_name: Option<String>,
}

/// A node in `spec.storage.nodes`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StorageNode {
    /// Its name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Its devices.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub devices: Option<Vec<StorageDevice>>,
    /// Rook's. Not obeyed here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub use_all_devices: Option<bool>,
    /// Rook's. Not obeyed here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device_filter: Option<String>,
    /// Rook's. Not obeyed here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device_path_filter: Option<String>,
}

/// A device, or a file that stands for one.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StorageDevice {
    /// Its name in `/dev`, or its path.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Its path, which counts before the name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fullpath: Option<String>,
}

/// `spec.disruptionManagement`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DisruptionManagement {
    /// Whether PodDisruptionBudgets are managed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub manage_pod_budgets: Option<bool>,
    /// How long `noout` stays on a drained failure domain, in minutes; 30, if not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub osd_maintenance_timeout: Option<i64>,
    /// The states in which a placement group is healthy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pg_healthy_regex: Option<String>,
    /// Deprecated, without effect.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pg_health_check_timeout: Option<i64>,
    /// Deprecated, without effect.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub manage_machine_disruption_budgets: Option<bool>,
}

/// An object whose fields are not the resource definition's business.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Free(pub serde_json::Map<String, serde_json::Value>);

impl JsonSchema for Free {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Free".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true })
    }
}
