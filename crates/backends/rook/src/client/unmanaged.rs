//! A Rook cluster without a CephMaintenance, as Kubernetes shows it, and why a drain of its nodes does not
//! progress. It works without anything of stagger in the cluster.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{ApiResource, DynamicObject, ListParams};
use kube::{Api, Client, ResourceExt as _};
use schemars::JsonSchema;
use serde::Serialize;

use super::{ClientError, api_error_hint, cluster_name};
use crate::api::cluster::CephCluster;
use crate::api::daemons;
use crate::api::eviction_api::{self, Evictee};

/// Where Rook keeps which failure domain drains.
const ROOKS: &str = "rook-ceph-pdbstatemap";
/// The key in it.
const DRAINING: &str = "draining-failure-domain";

/// What is seen of it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Unmanaged {
    /// Its namespace.
    pub namespace: String,
    /// The CephCluster.
    pub cluster: String,
    /// The image that it wants.
    pub image: Option<String>,
    /// What Rook reports of it: `Ready`, `Progressing` …
    pub phase: Option<String>,
    /// The same in a sentence.
    pub message: Option<String>,
    /// What Ceph last reported to Rook: `HEALTH_OK` …
    pub health: Option<String>,
    /// Ceph's warnings, each with its sentence.
    pub warnings: BTreeMap<String, String>,
    /// How many pods Rook's daemons have.
    pub pods: usize,
    /// Those of them that are not ready.
    pub not_ready: Vec<String>,
    /// The failure domain that drains, as Rook has it.
    pub draining: Option<String>,
    /// The nodes that are cordoned, with those pods on them that a drain would evict.
    pub cordoned: Vec<CordonedNode>,
    /// What could not be looked at, and so is missing here.
    pub unseen: Vec<String>,
}

/// A node that is cordoned.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CordonedNode {
    /// Its name.
    pub node: String,
    /// The pods that a drain may evict now.
    pub may_go: Vec<String>,
    /// Those that the eviction API would refuse, each with the reason.
    pub blocked: BTreeMap<String, String>,
}

impl Unmanaged {
    /// Looks at the only CephCluster of a namespace.
    ///
    /// # Errors
    /// There is none, there are several, or the API server does not say.
    pub async fn observe(client: &Client, namespace: &str) -> Result<Self, ClientError> {
        let name = cluster_name(client, namespace).await?;
        let clusters: Api<DynamicObject> =
            Api::namespaced_with(client.clone(), namespace, &ApiResource::erase::<CephCluster>(&()));
        let tried = format!("read CephCluster {namespace}/{name}");
        let found = clusters
            .get(&name)
            .await
            .map_err(|error| api_error_hint(tried, error))?;
        let mut seen = Self::of_cluster(namespace, &found);
        let labels = ListParams::default().labels(&format!("rook_cluster={namespace}"));
        let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
        let budgets: Api<PodDisruptionBudget> = Api::namespaced(client.clone(), namespace);
        let nodes: Api<Node> = Api::all(client.clone());
        let maps: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
        let all = ListParams::default();
        let (pods, budgets, nodes, map) = tokio::join!(
            pods.list(&labels),
            budgets.list(&all),
            nodes.list(&all),
            maps.get_opt(ROOKS)
        );
        let pods = seen
            .note("the pods", pods)
            .map_or_else(Vec::new, |list| list.items);
        seen.of_pods(&pods);
        seen.draining = seen
            .note("what Rook drains", map)
            .flatten()
            .and_then(|map| map.data?.remove(DRAINING))
            .filter(|domain| !domain.is_empty());
        let nodes = seen.note("which nodes are cordoned", nodes);
        let budgets = seen.note("PodDisruptionBudgets", budgets);
        if let (Some(nodes), Some(budgets)) = (nodes, budgets) {
            seen.cordoned = cordoned(&nodes.items, &pods, &budgets.items);
        }
        Ok(seen)
    }

    /// Whether something waits for an eviction that would be refused.
    pub fn is_blocked(&self) -> bool {
        self.cordoned.iter().any(|node| !node.blocked.is_empty())
    }

    /// An answer, or that it is missing.
    fn note<T>(&mut self, what: &str, answer: kube::Result<T>) -> Option<T> {
        match answer {
            Ok(answer) => Some(answer),
            Err(error) => {
                let why = api_error_hint(format!("see {what}"), error);
                self.unseen.push(why.to_string());
                None
            }
        }
    }

    fn of_cluster(namespace: &str, found: &DynamicObject) -> Self {
        let word = |path: &str| found.data.pointer(path)?.as_str().map(str::to_owned);
        let details = found
            .data
            .pointer("/status/ceph/details")
            .and_then(|all| all.as_object());
        let warnings = details.into_iter().flatten().map(|(name, detail)| {
            let message = detail["message"].as_str().unwrap_or_default();
            (name.clone(), message.to_owned())
        });
        Self {
            namespace: namespace.to_owned(),
            cluster: found.name_any(),
            image: word("/spec/cephVersion/image"),
            phase: word("/status/phase"),
            message: word("/status/message"),
            health: word("/status/ceph/health"),
            warnings: warnings.collect(),
            ..Self::default()
        }
    }

    fn of_pods(&mut self, pods: &[Pod]) {
        let run = pods.iter().filter(|pod| !is_over(pod));
        for pod in run {
            self.pods += 1;
            if !is_ready(pod) {
                self.not_ready.push(name_of(pod));
            }
        }
        self.not_ready.sort();
    }
}

/// The cordoned nodes that have pods of these.
fn cordoned(nodes: &[Node], pods: &[Pod], budgets: &[PodDisruptionBudget]) -> Vec<CordonedNode> {
    let is_cordoned = |node: &&Node| {
        let spec = node.spec.as_ref();
        spec.and_then(|spec| spec.unschedulable).unwrap_or(false)
    };
    let nodes = nodes.iter().filter(is_cordoned).map(|node| {
        let mut found = CordonedNode {
            node: node.name_any(),
            may_go: Vec::new(),
            blocked: BTreeMap::new(),
        };
        let on_it =
            |pod: &&Pod| pod.spec.as_ref().and_then(|spec| spec.node_name.as_ref()) == Some(&found.node);
        for pod in pods.iter().filter(on_it).filter(|pod| is_evictable(pod)) {
            match may_be_evicted(pod, budgets) {
                Ok(()) => found.may_go.push(name_of(pod)),
                Err(why) => drop(found.blocked.insert(name_of(pod), why)),
            }
        }
        found.may_go.sort();
        found
    });
    nodes
        .filter(|node| !node.may_go.is_empty() || !node.blocked.is_empty())
        .collect()
}

/// Whether `kubectl drain --ignore-daemonsets` asks for its eviction, and has to wait for the answer.
fn is_evictable(pod: &Pod) -> bool {
    let of_daemon_set = pod
        .owner_references()
        .iter()
        .any(|owner| owner.kind == "DaemonSet");
    !is_over(pod) && !of_daemon_set && pod.metadata.deletion_timestamp.is_none()
}

/// What the eviction API answers about a pod, with the reason where that is a no.
fn may_be_evicted(pod: &Pod, budgets: &[PodDisruptionBudget]) -> Result<(), String> {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    let evictee = Evictee {
        labels: pod.labels(),
        is_pending: phase == Some("Pending"),
        is_ready: is_ready(pod),
    };
    eviction_api::may_be_evicted(&evictee, budgets)
}

fn is_over(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
    let mut conditions = conditions.into_iter().flatten();
    conditions.any(|one| one.type_ == "Ready" && one.status == "True")
}

/// `osd.3`, where it is a daemon with an id of its own; its own name else.
fn name_of(pod: &Pod) -> String {
    let unit = daemons::unit_of_labels(pod.labels()).ok().flatten();
    // All gateways of a store have one and the same id in their labels.
    match unit {
        Some(unit) if daemons::kind_of(&unit) != "rgw" => unit.to_string(),
        Some(_) | None => pod.name_any(),
    }
}

#[cfg(test)]
mod tests;
