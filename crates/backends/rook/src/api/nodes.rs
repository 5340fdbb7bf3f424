//! The nodes of Kubernetes: one watch of them, for all clusters.

use std::collections::BTreeMap;
use std::sync::Arc;

use kube::runtime::reflector::Store;
use kube::runtime::watcher;
use kube::{Api, Client, ResourceExt as _};
use tokio::sync::watch;

use crate::api::names;
use crate::api::objects::{Node, Taint};
use crate::api::watches::{Watches, is_synced};

/// A node.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NodeSeen {
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Whether it is ready and takes new pods.
    pub takes_pods: bool,
}

/// What the watch shows.
pub struct NodeCache {
    nodes: Store<Node>,
    watches: Watches,
}

impl NodeCache {
    /// Begins to watch.
    pub fn begin(client: &Client) -> Self {
        let mut watches = Watches::new();
        Self {
            nodes: watches.watch(Api::all(client.clone()), watcher::Config::default()),
            watches,
        }
    }

    /// Returns when all have been seen once.
    pub async fn wait_until_synced(&self) {
        // The writer lives as long as the watch, which lives as long as this.
        self.nodes.wait_until_ready().await.ok();
    }

    /// Whether all have been seen once.
    pub fn is_synced(&self) -> bool {
        is_synced(&self.nodes)
    }

    /// Whether a node takes no new pods, or is gone.
    pub fn is_cordoned(&self, name: &str) -> bool {
        let node = self.nodes.find(|node| node.name_any() == name);
        node.is_none_or(|node| is_cordoned(&node))
    }

    /// Whether a node with that hostname takes new pods.
    pub fn takes_pods_of(&self, hostname: &str) -> bool {
        let takes = |node: &Node| {
            let own = node.labels().get(names::HOSTNAME).map(String::as_str);
            own == Some(hostname) && !is_cordoned(node)
        };
        self.nodes.find(takes).is_some()
    }

    /// All of them, by name.
    pub fn all(&self) -> BTreeMap<String, NodeSeen> {
        let nodes = self.nodes.state();
        nodes
            .iter()
            .map(|node| (node.name_any(), node_state(node)))
            .collect()
    }

    /// Which rights the watch lacks, and the cure.
    pub fn missing_rights(&self) -> Option<String> {
        self.watches.missing_rights()
    }

    /// Tells of changes.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.watches.changes()
    }
}

/// The taints by which autoscalers cordon a node that they are about to drain and delete: Kubernetes' cluster-autoscaler, and Karpenter since 1.0 and
/// before.
const GOES: [&str; 3] = [
    "ToBeDeletedByClusterAutoscaler",
    "karpenter.sh/disrupted",
    "karpenter.sh/disruption",
];

fn is_cordoned(node: &Node) -> bool {
    let Some(spec) = &node.spec else {
        return false;
    };
    let goes = |taint: &Taint| taint.effect == "NoSchedule" && GOES.contains(&taint.key.as_str());
    spec.unschedulable == Some(true) || spec.taints.iter().flatten().any(goes)
}

fn node_state(node: &Arc<Node>) -> NodeSeen {
    let status = node.status.as_ref();
    let conditions = status.and_then(|status| status.conditions.as_ref());
    let is_ready = conditions
        .into_iter()
        .flatten()
        .any(|condition| condition.type_ == "Ready" && condition.status == "True");
    NodeSeen {
        labels: node.labels().clone(),
        takes_pods: is_ready && !is_cordoned(node),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_node_that_an_autoscaler_is_about_to_delete_is_cordoned() {
        for (spec, cordoned) in [
            (json!({}), false),
            (json!({ "unschedulable": true }), true),
            (
                json!({ "taints": [{ "key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule" }] }),
                true,
            ),
            (
                json!({ "taints": [{ "key": "karpenter.sh/disrupted", "effect": "NoSchedule" }] }),
                true,
            ),
            // It may go some day.
            (
                json!({ "taints": [{ "key": "DeletionCandidateOfClusterAutoscaler", "effect": "PreferNoSchedule" }] }),
                false,
            ),
            (
                json!({ "taints": [{ "key": "storage", "value": "ceph", "effect": "NoSchedule" }] }),
                false,
            ),
        ] {
            let node = json!({ "metadata": { "name": "n1" }, "spec": spec });
            let node: Node = serde_json::from_value(node).unwrap();
            assert_eq!(is_cordoned(&node), cordoned, "{:?}", node.spec);
        }
    }
}
