//! Deployments, pods and nodes, with the fields that stagger reads.
//!
//! The names are Kubernetes' own. Most of a large cluster's objects is volumes, probes and variables: a
//! thousand OSDs in the full types take three times the memory. Diagnostics of a failure request the whole
//! objects.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1;
use k8s_openapi::api::core::v1::{self as core, LocalObjectReference, ResourceRequirements, Toleration};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta, OwnerReference, Time};
use kube::Resource;
use serde::{Deserialize, Deserializer, Serialize};

use crate::api::names;
use crate::api::names::BLOCK_PATH;

/// A Deployment.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, Resource)]
#[resource(inherit = v1::Deployment)]
pub struct Deployment {
    /// Its name, its labels but for those that only tell people what it is, and those annotations that are ours or asked for:
    /// Rook keeps all of a Deployment in one.
    #[serde(deserialize_with = "of_deployment")]
    pub metadata: ObjectMeta,
    /// What is wanted.
    #[serde(default)]
    pub spec: DeploymentSpec,
    /// What there is; `None`: its controller has not looked at it yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<DeploymentStatus>,
}

/// What is wanted of a Deployment.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DeploymentSpec {
    /// How many pods; `None`: one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
    /// Which pods are its own.
    #[serde(default)]
    pub selector: LabelSelector,
    /// What pods are made of.
    #[serde(default)]
    pub template: PodTemplateSpec,
}

/// How far a Deployment's controller has come.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[expect(missing_docs, reason = "the fields are Kubernetes' own")]
pub struct DeploymentStatus {
    pub observed_generation: Option<i64>,
    pub replicas: Option<i32>,
    pub updated_replicas: Option<i32>,
    pub ready_replicas: Option<i32>,
    #[serde(deserialize_with = "conditions")]
    pub conditions: Option<Vec<ObjectCondition>>,
}

/// A DaemonSet: what runs on each node.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, Resource)]
#[resource(inherit = v1::DaemonSet)]
pub struct DaemonSet {
    /// Its name and labels.
    #[serde(deserialize_with = "metadata")]
    pub metadata: ObjectMeta,
    /// What is wanted.
    pub spec: DaemonSetSpec,
    /// What there is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<DaemonSetStatus>,
}

/// What is wanted of a DaemonSet.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct DaemonSetSpec {
    /// What pods are made of.
    pub template: PodTemplateSpec,
}

/// How far a DaemonSet's controller has come.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[expect(missing_docs, reason = "the fields are Kubernetes' own")]
pub struct DaemonSetStatus {
    pub desired_number_scheduled: i32,
    pub updated_number_scheduled: Option<i32>,
    pub number_ready: i32,
}

/// A condition of a Deployment, pod or node. Why something is as it should be is not kept.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the fields are Kubernetes' own")]
pub struct ObjectCondition {
    #[serde(rename = "type")]
    pub type_: String,
    pub status: String,
    pub reason: Option<String>,
    pub message: Option<String>,
}

/// What pods are made of.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct PodTemplateSpec {
    /// What is said of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata: Option<TemplateMeta>,
    /// What runs in them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spec: Option<PodSpec>,
}

/// What is said of pods that are to be made. Labels are looked at on the pods themselves.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct TemplateMeta {
    /// Their annotations.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub annotations: Option<BTreeMap<String, String>>,
}

/// A pod.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, Resource)]
#[resource(inherit = core::Pod)]
pub struct Pod {
    /// Its name, its labels, by which anybody's budgets select it, and its annotations, by which it is told of which template it is.
    #[serde(deserialize_with = "metadata")]
    pub metadata: ObjectMeta,
    /// What runs in it and where, and its priority: with what variables, and where it might, is its Deployment's to say.
    #[serde(default, deserialize_with = "of_pod")]
    pub spec: Option<PodSpec>,
    /// How it is.
    pub status: Option<PodStatus>,
}

/// What runs in a pod, and where it may.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[expect(missing_docs, reason = "the fields are Kubernetes' own")]
pub struct PodSpec {
    #[serde(deserialize_with = "containers")]
    pub containers: Vec<Container>,
    #[serde(deserialize_with = "exact")]
    pub init_containers: Option<Vec<Container>>,
    pub node_name: Option<String>,
    pub node_selector: Option<NodeSelector>,
    pub priority_class_name: Option<String>,
    pub host_network: Option<bool>,
    #[serde(rename = "hostPID")]
    pub host_pid: Option<bool>,
    pub dns_policy: Option<String>,
    pub tolerations: Option<Vec<Toleration>>,
    pub image_pull_secrets: Option<Vec<LocalObjectReference>>,
    pub scheduler_name: Option<String>,
    pub runtime_class_name: Option<String>,
}

/// The node to which a pod is bound by its hostname; what else is asked of a node is the scheduler's.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct NodeSelector {
    /// Its hostname.
    #[serde(rename = "kubernetes.io/hostname", skip_serializing_if = "Option::is_none")]
    pub hostname: Option<String>,
}

/// A container, with no more of its variables than those that are looked at.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
#[expect(missing_docs, reason = "the fields are Kubernetes' own")]
pub struct Container {
    pub name: String,
    pub image: Option<String>,
    pub resources: Option<ResourceRequirements>,
    #[serde(deserialize_with = "variables")]
    pub env: Vec<EnvVar>,
}

/// A variable of a container.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the fields are Kubernetes' own")]
pub struct EnvVar {
    pub name: String,
    pub value: Option<String>,
}

/// How a pod is.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[expect(missing_docs, reason = "the fields are Kubernetes' own")]
pub struct PodStatus {
    pub phase: Option<String>,
    #[serde(deserialize_with = "conditions")]
    pub conditions: Option<Vec<ObjectCondition>>,
    #[serde(deserialize_with = "exact")]
    pub container_statuses: Option<Vec<ContainerStatus>>,
    #[serde(deserialize_with = "exact")]
    pub init_container_statuses: Option<Vec<ContainerStatus>>,
}

/// How a container is.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[expect(missing_docs, reason = "the fields are Kubernetes' own")]
pub struct ContainerStatus {
    pub name: String,
    pub restart_count: i32,
    pub state: Option<ContainerState>,
    pub last_state: Option<ContainerState>,
}

/// What a container waits for, or how it ended.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
#[expect(missing_docs, reason = "the fields are Kubernetes' own")]
pub struct ContainerState {
    pub waiting: Option<ContainerStateWaiting>,
    pub terminated: Option<Terminated>,
}

/// Why a container does not run yet.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
#[expect(missing_docs, reason = "the fields are Kubernetes' own")]
pub struct ContainerStateWaiting {
    pub reason: Option<String>,
    pub message: Option<String>,
}

/// How a container ended.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[expect(missing_docs, reason = "the fields are Kubernetes' own")]
pub struct Terminated {
    pub exit_code: i32,
    pub message: Option<String>,
}

/// A node. Of a real one most is the images that lie on it.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, Resource)]
#[resource(inherit = core::Node)]
pub struct Node {
    /// Its name and labels.
    #[serde(deserialize_with = "of_node")]
    pub metadata: ObjectMeta,
    /// What is wanted of it.
    pub spec: Option<NodeSpec>,
    /// How it is.
    pub status: Option<NodeStatus>,
}

/// What is wanted of a node.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
#[expect(missing_docs, reason = "the fields are Kubernetes' own")]
pub struct NodeSpec {
    pub unschedulable: Option<bool>,
    #[serde(deserialize_with = "exact")]
    pub taints: Option<Vec<Taint>>,
}

/// What keeps pods away from a node.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
#[expect(missing_docs, reason = "the fields are Kubernetes' own")]
pub struct Taint {
    pub key: String,
    pub effect: String,
}

/// How a node is.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
#[expect(missing_docs, reason = "the fields are Kubernetes' own")]
pub struct NodeStatus {
    #[serde(deserialize_with = "conditions")]
    pub conditions: Option<Vec<ObjectCondition>>,
}

/// How labels begin that Kubernetes recommends for people. No Deployment is found by one.
const FOR_PEOPLE: &str = "app.kubernetes.io/";

/// What is kept of an object's metadata. Who wrote which field is much of an object, and nobody here asks for it.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[derive(Default)]
struct Metadata {
    name: Option<String>,
    namespace: Option<String>,
    uid: Option<String>,
    generation: Option<i64>,
    resource_version: Option<String>,
    creation_timestamp: Option<Time>,
    deletion_timestamp: Option<Time>,
    labels: Option<BTreeMap<String, String>>,
    annotations: Option<BTreeMap<String, String>>,
    #[serde(deserialize_with = "exact")]
    owner_references: Option<Vec<OwnerReference>>,
}

fn metadata<'de, D: Deserializer<'de>>(from: D) -> Result<ObjectMeta, D::Error> {
    let seen = Metadata::deserialize(from)?;
    Ok(ObjectMeta {
        name: seen.name,
        namespace: seen.namespace,
        uid: seen.uid,
        generation: seen.generation,
        resource_version: seen.resource_version,
        creation_timestamp: seen.creation_timestamp,
        deletion_timestamp: seen.deletion_timestamp,
        labels: seen.labels.map(full),
        annotations: seen.annotations,
        owner_references: seen.owner_references,
        ..ObjectMeta::default()
    })
}

/// The same map with no room left in it: one that was filled name by name, in order, is half empty.
fn full(map: BTreeMap<String, String>) -> BTreeMap<String, String> {
    map.into_iter().collect()
}

/// A list with no room left in it.
fn exact<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<Option<Vec<T>>, D::Error> {
    let mut all = Option::<Vec<T>>::deserialize(from)?;
    if let Some(all) = &mut all {
        all.shrink_to_fit();
    }
    Ok(all)
}

fn containers<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Container>, D::Error> {
    exact(from).map(Option::unwrap_or_default)
}

fn conditions<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Vec<ObjectCondition>>, D::Error> {
    let mut all = exact::<D, ObjectCondition>(from)?;
    for one in all.iter_mut().flatten() {
        if one.status == "True" {
            (one.reason, one.message) = (None, None);
        }
    }
    Ok(all)
}

fn of_pod<'de, D: Deserializer<'de>>(from: D) -> Result<Option<PodSpec>, D::Error> {
    let seen = Option::<PodSpec>::deserialize(from)?;
    Ok(seen.map(|mut seen| {
        for container in &mut seen.containers {
            container.env = Vec::new();
        }
        PodSpec {
            containers: seen.containers,
            node_name: seen.node_name,
            priority_class_name: seen.priority_class_name,
            ..PodSpec::default()
        }
    }))
}

fn of_deployment<'de, D: Deserializer<'de>>(from: D) -> Result<ObjectMeta, D::Error> {
    let mut seen = metadata(from)?;
    if let Some(annotations) = &mut seen.annotations {
        annotations.retain(|name, _| name.starts_with("stagger.dev/") || name == names::REPLACED);
    }
    seen.labels = seen.labels.map(|labels| {
        let kept = |name: &str| !name.starts_with(FOR_PEOPLE) || name == names::VERSION;
        labels.into_iter().filter(|(name, _)| kept(name)).collect()
    });
    Ok(seen)
}

fn of_node<'de, D: Deserializer<'de>>(from: D) -> Result<ObjectMeta, D::Error> {
    let seen = metadata(from)?;
    Ok(ObjectMeta {
        annotations: None,
        ..seen
    })
}

fn variables<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<EnvVar>, D::Error> {
    let mut all = Option::<Vec<EnvVar>>::deserialize(from)?.unwrap_or_default();
    all.retain(|env| [BLOCK_PATH, names::IMAGE, names::RELEASE].contains(&env.name.as_str()));
    all.shrink_to_fit();
    Ok(all)
}

#[cfg(test)]
mod tests {
    use kube::{Resource as _, ResourceExt as _};
    use serde_json::json;

    use super::*;
    use crate::executor::managed_fields;
    use crate::provision;

    #[test]
    fn what_is_looked_at_is_kept() {
        let osd: Deployment = serde_json::from_value(json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {
                "name": "rook-ceph-osd-3", "resourceVersion": "8", "managedFields": [{ "manager": "rook" }],
                "annotations": {
                    "stagger.dev/fence": "7", "banzaicloud.com/last-applied": "all of it",
                    "osd.rook.io/replace-in-progress": "true",
                },
            },
            "spec": { "replicas": 1, "selector": { "matchLabels": { "a": "b" } }, "template": { "spec": {
                "hostNetwork": true, "hostPID": true, "nodeSelector": { "kubernetes.io/hostname": "n1" },
                "tolerations": [{ "operator": "Exists" }], "volumes": [{ "name": "x", "emptyDir": {} }],
                "containers": [{
                    "name": "osd", "image": "ceph:v18", "args": ["--foreground"],
                    "env": [
                        { "name": "A", "valueFrom": { "fieldRef": { "fieldPath": "metadata.name" } } },
                        { "name": "ROOK_BLOCK_PATH", "value": "/dev/sdb" },
                    ],
                }],
            } } },
            "status": { "readyReplicas": 1, "conditions": [{ "type": "Available", "status": "True" }] },
        }))
        .unwrap();
        assert_eq!(provision::devices_of(&osd), ["/dev/sdb".to_owned()].into());
        assert_eq!((managed_fields::fence_of(&osd), osd.annotations().len()), (7, 2));
        assert!(crate::api::daemons::is_being_replaced(&osd));
        assert_eq!(osd.resource_version().as_deref(), Some("8"));
        assert_eq!(osd.metadata.managed_fields, None);
        let like = provision::common_fields(Some(&osd));
        assert_eq!(
            like,
            json!({ "hostNetwork": true, "hostPID": true, "tolerations": [{ "operator": "Exists" }] })
        );
        assert_eq!(Deployment::plural(&()), "deployments");
        assert_eq!(Pod::api_version(&()), "v1");
    }

    /// A thousand OSDs have each of these.
    #[test]
    fn what_is_not_looked_at_is_not_kept() {
        let labels = json!({
            "app": "rook-ceph-osd", "app.kubernetes.io/part-of": "my-cluster", "app.kubernetes.io/version": "20.2.4-0",
        });
        let container = json!({
            "name": "osd", "image": "ceph:v20", "env": [{ "name": "CONTAINER_IMAGE", "value": "ceph:v20" }],
        });
        let template = json!({
            "metadata": { "labels": labels, "annotations": { "team": "storage" } },
            "spec": {
                "containers": [container], "initContainers": [container], "nodeName": "n1",
                "nodeSelector": { "kubernetes.io/hostname": "n1" }, "priorityClassName": "high",
            },
        });
        let status = json!({ "conditions": [
            { "type": "Available", "status": "True", "reason": "Enough", "message": "enough are ready" },
            { "type": "Progressing", "status": "False", "reason": "TooSlow", "message": "not in time" },
        ] });
        let deployment: Deployment = serde_json::from_value(json!({
            "metadata": { "name": "a", "labels": labels }, "spec": { "template": template }, "status": status,
        }))
        .unwrap();
        let kept: Vec<&str> = deployment.labels().keys().map(String::as_str).collect();
        assert_eq!(kept, ["app", "app.kubernetes.io/version"]);
        let made_of = &deployment.spec.template;
        let meta = made_of.metadata.as_ref().unwrap();
        assert_eq!(meta.annotations.as_ref().unwrap().len(), 1);
        let spec = made_of.spec.as_ref().unwrap();
        assert_eq!(spec.init_containers.as_ref().unwrap()[0].env.len(), 1);
        assert_eq!(
            spec.node_selector.as_ref().unwrap().hostname.as_deref(),
            Some("n1")
        );
        let told = deployment.status.unwrap().conditions.unwrap();
        assert_eq!(told[0].message, None);
        assert_eq!(
            (told[1].reason.as_deref(), told[1].message.as_deref()),
            (Some("TooSlow"), Some("not in time"))
        );

        // Any label of a pod may be in the selector of somebody's budget.
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {
                "name": "a-1", "labels": labels,
                "annotations": { "restarted": "r1-7", "cni.projectcalico.org/podIP": "10.0.0.7/32" },
            },
            "spec": template["spec"], "status": status,
        }))
        .unwrap();
        assert_eq!((pod.labels().len(), pod.annotations().len()), (3, 2));
        let spec = pod.spec.unwrap();
        assert_eq!(
            (spec.node_name.as_deref(), spec.priority_class_name.as_deref()),
            (Some("n1"), Some("high"))
        );
        assert_eq!(
            (spec.containers[0].image.as_deref(), spec.containers[0].env.len()),
            (Some("ceph:v20"), 0)
        );
        assert_eq!((spec.init_containers, spec.node_selector), (None, None));
    }
}
