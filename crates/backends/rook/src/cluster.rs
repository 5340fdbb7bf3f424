//! The CephCluster resource: the fields of it that are read here, Rook's and ours.
//!
//! All others are Rook's business; the definition preserves them, and nothing of a `spec` is ever written.

#![allow(
    clippy::duplicated_attributes,
    reason = "one list of columns has many columns"
)]

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, ValidationRule,
};
use kube::{CustomResource, CustomResourceExt as _};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use crate::policy::UpdatePolicy;

/// What is not set is not written either: a definition with defaults would write them into every resource.
pub(crate) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// The definitions of all resources that are read here.
pub fn definitions() -> Vec<CustomResourceDefinition> {
    let mut clusters = CephCluster::crd();
    for version in &mut clusters.spec.versions {
        let schema = version.schema.as_mut();
        if let Some(root) = schema.and_then(|schema| schema.open_api_v3_schema.as_mut()) {
            root.x_kubernetes_validations = Some(vec![lock()]);
        }
    }
    vec![clusters]
}

/// With `updatePolicy.onSpecChange: lock`, what a run is to do is not changed while it is under way. A pause
/// is no such change, and neither are devices for new OSDs; the lock itself may be opened.
fn lock() -> ValidationRule {
    let spec = [
        "cephVersion",
        "skipUpgradeChecks",
        "continueUpgradeAfterChecksEvenIfNotHealthy",
        "waitTimeoutForHealthyOSDInMinutes",
        "resources",
        "priorityClassNames",
        "annotations",
    ];
    let policy = [
        "skipUpgradeChecks",
        "continueUpgradeAfterChecksEvenIfNotHealthy",
        "healthErrorsToIgnore",
        "onFailure",
        "doorsOpenAfterMinutes",
        "windows",
        "osds",
    ];
    let same = |of: &str, field: &&str| {
        format!(
            "(has(self.{of}.{field}) ? has(oldSelf.{of}.{field}) && self.{of}.{field} == oldSelf.{of}.{field} \
             : !has(oldSelf.{of}.{field}))"
        )
    };
    let spec: Vec<String> = spec.iter().map(|field| same("spec", field)).collect();
    let policy: Vec<String> = policy
        .iter()
        .map(|field| same("spec.updatePolicy", field))
        .collect();
    ValidationRule {
        // With optional fields the server takes the rule for too dear.
        rule: format!(
            "!has(self.spec.updatePolicy) || !has(self.spec.updatePolicy.onSpecChange) || \
             self.spec.updatePolicy.onSpecChange != 'lock' || !has(oldSelf.status) || \
             !has(oldSelf.status.upgrade) || !has(oldSelf.status.upgrade.underWay) || \
             !oldSelf.status.upgrade.underWay || ({} && has(oldSelf.spec.updatePolicy) && {})",
            spec.join(" && "),
            policy.join(" && ")
        ),
        message: Some(
            "an upgrade is under way, and spec.updatePolicy.onSpecChange is lock: wait for its end, end it, or \
             set onSpecChange to interrupt"
                .to_owned(),
        ),
        ..ValidationRule::default()
    }
}

/// `spec` of a CephCluster.
#[derive(CustomResource, JsonSchema, Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[kube(
    group = "ceph.rook.io",
    version = "v1",
    kind = "CephCluster",
    plural = "cephclusters",
    shortname = "ceph",
    namespaced,
    status = "CephClusterStatus",
    derive = "PartialEq",
    derive = "Default",
    doc = "A Ceph storage cluster.",
    printcolumn(name = "Image", type_ = "string", json_path = ".spec.cephVersion.image"),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Message", type_ = "string", json_path = ".status.message"),
    printcolumn(name = "Health", type_ = "string", json_path = ".status.ceph.health"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-preserve-unknown-fields" = true))]
pub struct CephClusterSpec {
    /// Which Ceph the daemons run.
    #[serde(default, skip_serializing_if = "is_default")]
    pub ceph_version: CephVersion,
    /// Where daemons keep their data on the hosts. Without it an upgrade is refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data_dir_host_path: Option<String>,
    /// Deprecated: `updatePolicy.skipUpgradeChecks`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub skip_upgrade_checks: Option<bool>,
    /// Deprecated: `updatePolicy.continueUpgradeAfterChecksEvenIfNotHealthy`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub continue_upgrade_after_checks_even_if_not_healthy: Option<bool>,
    /// How long to wait for an OSD that may not be stopped now, in minutes. Rook's default is 10.
    #[serde(rename = "waitTimeoutForHealthyOSDInMinutes")]
    #[schemars(range(min = 0))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wait_timeout_for_healthy_osd_in_minutes: Option<i64>,
    /// Whether placement groups must be clean before each wave of OSDs.
    #[serde(rename = "upgradeOSDRequiresHealthyPGs")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub upgrade_osd_requires_healthy_pgs: Option<bool>,
    /// Deprecated: `updatePolicy.osds.removeIfOutAndSafeToDestroy`.
    #[serde(rename = "removeOSDsIfOutAndSafeToRemove")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remove_osds_if_out_and_safe_to_remove: Option<bool>,
    /// The same by the name that the design gave it.
    #[serde(rename = "removeOSDsIfOutAndSafeToDestroy")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remove_osds_if_out_and_safe_to_destroy: Option<bool>,
    /// How the cluster is updated and upgraded.
    #[serde(default, skip_serializing_if = "is_default")]
    pub update_policy: UpdatePolicy,
    /// OSDs.
    #[serde(default, skip_serializing_if = "is_default")]
    pub storage: Storage,
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

/// `spec.cephVersion`.
#[derive(JsonSchema, Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-preserve-unknown-fields" = true))]
pub struct CephVersion {
    /// The image: `quay.io/ceph/ceph:v18.2.7`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// Whether a release may be tried that is not known to work.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow_unsupported: Option<bool>,
}

/// `spec.storage`.
#[derive(JsonSchema, Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-preserve-unknown-fields" = true))]
pub struct Storage {
    /// Deprecated: `updatePolicy.osds.maxInParallelPerCluster`.
    #[schemars(range(min = 1))]
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
#[derive(JsonSchema, Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-preserve-unknown-fields" = true))]
pub struct DeviceSet {
    /// Its name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// How many OSDs it has. A smaller number takes none away.
    #[schemars(range(min = 0))]
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
#[derive(JsonSchema, Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-preserve-unknown-fields" = true))]
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
#[derive(JsonSchema, Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-preserve-unknown-fields" = true))]
pub struct StorageDevice {
    /// Its name in `/dev`, or its path.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Its path, which counts before the name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fullpath: Option<String>,
}

/// `spec.disruptionManagement`.
#[derive(JsonSchema, Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-preserve-unknown-fields" = true))]
pub struct DisruptionManagement {
    /// Whether PodDisruptionBudgets are managed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub manage_pod_budgets: Option<bool>,
    /// How long `noout` stays on a drained failure domain, in minutes; 30, if not set.
    #[schemars(range(min = 0))]
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

/// `status` of a CephCluster, as far as it is read here.
#[derive(JsonSchema, Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-preserve-unknown-fields" = true))]
pub struct CephClusterStatus {
    /// In a word.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
    /// In a sentence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// What the operator has to tell of updates and upgrades.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "upgrade")]
    pub upgrade: Option<Free>,
    /// What the operator has to tell of drains.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drains: Option<Free>,
}

/// Of it only one field is the resource definition's business: a rule reads it.
fn upgrade(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "description": "What the operator has to tell of updates and upgrades.",
        "properties": {
            "underWay": { "type": "boolean", "description": "Whether a run is not over." },
        },
        "x-kubernetes-preserve-unknown-fields": true,
    })
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
