//! `CephMaintenance`: what this operator may do for a CephCluster, and its status.
//!
//! The CephCluster itself belongs to Rook and its owner. It is read, and its status is never written.

#![allow(
    clippy::duplicated_attributes,
    reason = "one list of columns has many columns"
)]
#![allow(
    unreachable_pub,
    reason = "the derive of a schema with rules repeats the struct inside a function"
)]

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, ValidationRule,
};
use kube::{CustomResource, CustomResourceExt as _, KubeSchema, ResourceExt as _};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use crate::api::cluster::{CephCluster, Free, is_default};
use crate::api::policy::UpdatePolicy;

/// The finalizer by which what is held for a cluster is given back before its CephMaintenance goes.
pub const FINALIZER: &str = "stagger.dev/give-back";

/// The definitions of all resources that are ours.
pub fn definitions() -> Vec<CustomResourceDefinition> {
    let mut maintenances = CephMaintenance::crd();
    for version in &mut maintenances.spec.versions {
        let schema = version.schema.as_mut();
        if let Some(root) = schema.and_then(|schema| schema.open_api_v3_schema.as_mut()) {
            root.x_kubernetes_validations = Some(vec![lock(), fits_a_label()]);
        }
    }
    vec![maintenances]
}

/// With `updatePolicy.onSpecChange: lock`, what a run is to do is not changed while it is under way. A pause is no such
/// change; the lock itself may be opened.
fn lock() -> ValidationRule {
    let same = |of: &str, field: &str| {
        format!(
            "(has(self.{of}.{field}) ? has(oldSelf.{of}.{field}) && self.{of}.{field} == oldSelf.{of}.{field} \
             : !has(oldSelf.{of}.{field}))"
        )
    };
    let policy = [
        "skipUpgradeChecks",
        "continueUpgradeAfterChecksEvenIfNotHealthy",
        "healthErrorsToIgnore",
        "onFailure",
        "doorsOpenAfterMinutes",
        "windows",
        "interruptions",
        "partial",
        "osds",
    ]
    .map(|field| same("spec.updatePolicy", field));
    ValidationRule {
        rule: format!(
            "!has(self.spec.updatePolicy) || !has(self.spec.updatePolicy.onSpecChange) || \
             self.spec.updatePolicy.onSpecChange != 'lock' || !has(oldSelf.status) || \
             !has(oldSelf.status.underWay) || !oldSelf.status.underWay || \
             ({} && has(oldSelf.spec.updatePolicy) && {})",
            same("spec", "image"),
            policy.join(" && ")
        ),
        message: Some(
            "an update is under way, and spec.updatePolicy.onSpecChange is lock: wait for its end, end it, or \
             set onSpecChange to interrupt"
                .to_owned(),
        ),
        ..ValidationRule::default()
    }
}

/// A daemon that Rook is kept from has it in a label.
fn fits_a_label() -> ValidationRule {
    ValidationRule {
        rule: "size(self.metadata.name) <= 63".to_owned(),
        message: Some("a name of at most 63 characters, as in labels".to_owned()),
        ..ValidationRule::default()
    }
}

/// `spec` of a CephMaintenance.
#[derive(CustomResource, KubeSchema, Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[kube(
    group = "stagger.dev",
    version = "v1alpha1",
    kind = "CephMaintenance",
    plural = "cephmaintenances",
    shortname = "cephmaint",
    category = "ceph",
    category = "stagger",
    namespaced,
    status = "CephMaintenanceStatus",
    derive = "PartialEq",
    derive = "Default",
    doc = "Updates and drains of a Rook-managed Ceph cluster by stagger.",
    printcolumn(name = "Cluster", type_ = "string", json_path = ".spec.cephCluster"),
    printcolumn(name = "Manages", type_ = "string", json_path = ".spec.manage"),
    printcolumn(name = "Image", type_ = "string", json_path = ".status.image"),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Message", type_ = "string", json_path = ".status.message"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct CephMaintenanceSpec {
    /// The CephCluster to manage, in the same namespace. It cannot be changed.
    #[x_kube(validation = Rule::new("self == oldSelf").message("another CephCluster needs a CephMaintenance of its own"))]
    #[schemars(length(min = 1, max = 63))]
    pub ceph_cluster: String,
    /// What stagger manages; if empty: it only observes.
    #[schemars(length(max = 3), extend("x-kubernetes-list-type" = "set"))]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub manage: Vec<Manage>,
    /// The Ceph image that the daemons are to run; if it is not set, that of the CephCluster. While Rook's operator runs,
    /// nothing is updated without it.
    #[schemars(length(min = 1, max = 512))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// How it is updated.
    #[serde(default, skip_serializing_if = "is_default")]
    pub update_policy: UpdatePolicy,
}

/// Something that stagger manages.
#[derive(JsonSchema, Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Manage {
    /// PodDisruptionBudgets, `noout` and evictions. Rook's `managePodBudgets` has to be off.
    Drains,
    /// Updates and upgrades.
    Updates,
    /// New OSDs, and the removal of old ones. Rook must not run.
    Provisioning,
}

/// `status` of a CephMaintenance.
#[derive(JsonSchema, Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-preserve-unknown-fields" = true))]
pub struct CephMaintenanceStatus {
    /// The generation of the spec that was observed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The phase: `Ready`, `Progressing`, `Blocked`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
    /// A sentence for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The target image.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// `Available`, `Progressing`, `Degraded`, `Blocked`, `UpToDate`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<StatusCondition>,
    /// Whether a run is active.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub under_way: Option<bool>,
    /// The run, or the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run: Option<Free>,
    /// Migrations of old objects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "anything")]
    pub migrations: Option<serde_json::Value>,
    /// The image that was rolled back or aborted: it is not tried again by itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gave_up: Option<String>,
    /// The run after which a retry was requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_after: Option<String>,
    /// The last command that was processed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub heard: Option<String>,
    /// The status of drains.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drains: Option<Free>,
    /// The status of new OSDs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provisioning: Option<Free>,
    /// The status of OSDs that may be removed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub removal: Option<String>,
}

/// A condition, as Kubernetes' API conventions have it.
#[derive(JsonSchema, Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StatusCondition {
    /// Which.
    #[serde(rename = "type")]
    pub kind: String,
    /// `True`, `False`.
    pub status: String,
    /// The machine-readable reason.
    pub reason: String,
    /// A sentence for people.
    pub message: String,
    /// The generation of the spec that was observed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The time of the last transition, in RFC 3339.
    #[schemars(extend("format" = "date-time"))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_transition_time: Option<String>,
}

fn anything(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "x-kubernetes-preserve-unknown-fields": true })
}

/// What is wanted for a cluster: its CephMaintenance, and the CephCluster that it names.
#[derive(Debug, Clone, PartialEq)]
pub struct Desired {
    /// What people let the operator do.
    pub maintenance: CephMaintenance,
    /// What Rook and its owner have of the cluster.
    pub cluster: CephCluster,
}

impl Desired {
    /// Whether that is done for the cluster. Nothing is for one whose CephMaintenance goes.
    pub fn manages(&self, what: Manage) -> bool {
        self.maintenance.spec.manage.contains(&what) && !self.is_deleting()
    }

    /// Whether all that is held is to be given back: one of the two was deleted.
    pub fn is_deleting(&self) -> bool {
        self.maintenance.metadata.deletion_timestamp.is_some()
            || self.cluster.metadata.deletion_timestamp.is_some()
    }

    /// The image that the daemons are to run, if any is named.
    pub fn image(&self) -> Option<&String> {
        let named = |image: &&String| !image.is_empty();
        self.maintenance
            .spec
            .image
            .as_ref()
            .filter(named)
            .or_else(|| self.cluster.spec.ceph_version.image.as_ref().filter(named))
    }

    /// The generation of what people let the operator do.
    pub fn generation(&self) -> i64 {
        self.maintenance.metadata.generation.unwrap_or(0)
    }

    /// Both generations, by which a change of either is seen.
    pub fn generations(&self) -> (Option<i64>, Option<i64>) {
        (
            self.maintenance.metadata.generation,
            self.cluster.metadata.generation,
        )
    }

    /// The name of the CephMaintenance.
    pub fn name(&self) -> String {
        self.maintenance.name_any()
    }
}

/// Both with these specs, for tests.
#[cfg(test)]
pub(crate) fn desired(cluster: serde_json::Value, mut maintenance: serde_json::Value) -> Desired {
    maintenance["cephCluster"] = "c".into();
    Desired {
        maintenance: CephMaintenance::new("m", serde_json::from_value(maintenance).unwrap()),
        cluster: CephCluster::new("c", serde_json::from_value(cluster).unwrap()),
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use serde_json::json;

    use super::*;

    /// Nothing is begun for either of them, and a run that is under way ends with its wave.
    #[test]
    fn a_cluster_that_is_deleted_is_given_back_as_if_its_maintenance_were() {
        let desired = || {
            desired(
                json!({}),
                json!({ "manage": ["drains", "updates", "provisioning"] }),
            )
        };
        let now = Some(Time(jiff::Timestamp::UNIX_EPOCH));
        let (mut of_ours, mut of_rook) = (desired(), desired());
        of_ours.maintenance.metadata.deletion_timestamp.clone_from(&now);
        of_rook.cluster.metadata.deletion_timestamp = now;
        for (one, goes) in [(desired(), false), (of_ours, true), (of_rook, true)] {
            assert_eq!(one.is_deleting(), goes);
            for what in [Manage::Drains, Manage::Updates, Manage::Provisioning] {
                assert_eq!(one.manages(what), !goes);
            }
        }
    }
}
