//! The daemons of a cluster, as Kubernetes shows them.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::ResourceExt as _;
use stagger_core::model::UnitId;

use crate::api::cache::ObjectCache;
use crate::api::daemons::{self, osd_of};
use crate::api::eviction_api::{self, Evictee};
use crate::api::names;
use crate::api::objects::Pod;
use crate::disruption::drains::{OsdState, fixed};

/// The OSDs, with their failure domains of a level.
pub(super) fn osds(watched: &ObjectCache, level: Option<&str>) -> Vec<OsdState> {
    let label = names::topology(level.unwrap_or("host"));
    let (found, _) = watched.daemons();
    let mut osds = Vec::new();
    for (unit, deployment) in found {
        let Some(id) = osd_of(&unit) else {
            continue;
        };
        let pods = watched.pods_of(&deployment);
        let leaving = pods.iter().any(|pod| {
            let status = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
            let evicted = status
                .into_iter()
                .flatten()
                .any(|one| one.type_ == "DisruptionTarget" && one.status == "True");
            pod.metadata.deletion_timestamp.is_some() || evicted
        });
        let template = deployment.spec.template.spec.as_ref();
        let pinned = template
            .and_then(|spec| spec.node_selector.as_ref())
            .and_then(|selector| selector.hostname.clone());
        let bound = pods
            .iter()
            .find_map(|pod| pod.spec.as_ref().and_then(|spec| spec.node_name.clone()));
        osds.push(OsdState {
            id,
            domain: deployment.labels().get(&label).cloned(),
            serves: daemons::serves(&deployment),
            leaving,
            // Until Ceph is asked.
            up: true,
            cordoned: bound.or(pinned).filter(|node| watched.is_cordoned(node)),
            replaced: daemons::is_being_replaced(&deployment),
        });
    }
    osds
}

/// The pods of other daemons that somebody waits to evict, each in a sentence: they are on cordoned nodes, and `refused` was their
/// eviction a moment ago, or the budget over them lets none go now.
pub(super) fn waiting(watched: &ObjectCache, refused: &BTreeMap<UnitId, String>) -> BTreeMap<String, String> {
    let budgets = watched.budgets();
    let (found, _) = watched.daemons();
    let mut waiting = BTreeMap::new();
    for (unit, deployment) in found.iter().filter(|(unit, _)| osd_of(unit).is_none()) {
        for pod in watched.pods_of(deployment) {
            let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
            let Some(node) = node.filter(|node| watched.is_cordoned(node)) else {
                continue;
            };
            if let Some(why) = wait_reason(&pod, unit, node, refused, budgets.iter().map(|one| &**one)) {
                waiting.insert(pod.name_any(), why);
            }
        }
    }
    waiting
}

/// Why the pod of a daemon on a cordoned node is not evicted, if it is not.
fn wait_reason<'b>(
    pod: &Pod,
    unit: &UnitId,
    node: &str,
    refused: &BTreeMap<UnitId, String>,
    budgets: impl IntoIterator<Item = &'b PodDisruptionBudget>,
) -> Option<String> {
    if pod.metadata.deletion_timestamp.is_some() {
        return None;
    }
    let status = pod.status.as_ref();
    let mut conditions = status
        .and_then(|status| status.conditions.as_ref())
        .into_iter()
        .flatten();
    let evictee = Evictee {
        labels: pod.labels(),
        is_pending: status.and_then(|status| status.phase.as_deref()) == Some("Pending"),
        is_ready: conditions.any(|one| one.type_ == "Ready" && one.status == "True"),
    };
    // The webhook knows more, where somebody has asked.
    let why = match refused.get(unit) {
        Some(why) => why.clone(),
        None => eviction_api::may_be_evicted(&evictee, budgets).err()?,
    };
    Some(format!(
        "{unit} on the cordoned node {node} may not be evicted now: {why}; a drain of {node} waits until that is over"
    ))
}

/// All other daemons.
pub(super) fn non_osd_daemons(watched: &ObjectCache, quorum: &BTreeSet<String>) -> Vec<fixed::Daemon> {
    watched
        .deployments()
        .iter()
        .filter_map(|deployment| {
            let labels = deployment.labels();
            let group = ["rook_file_system", "rook_object_store"]
                .into_iter()
                .find_map(|label| Some((label.to_owned(), labels.get(label)?.clone())));
            let app = labels.get(names::APP)?.clone();
            // Rook's monitors have no readiness probe: their pods are ready, whatever they do.
            let id = labels.get(daemons::ID);
            let is_out = app == names::MON_APP && !id.is_some_and(|id| quorum.contains(id));
            // With no quorum none is known to be out of it.
            let out = id.filter(|_| is_out && !quorum.is_empty()).cloned();
            let ready = deployment
                .status
                .as_ref()
                .and_then(|status| status.ready_replicas)
                .filter(|_| !is_out);
            let number = |count: Option<i32>, default: u32| {
                count
                    .and_then(|count| u32::try_from(count).ok())
                    .unwrap_or(default)
            };
            Some(fixed::Daemon {
                app,
                group,
                count: number(deployment.spec.replicas, 1),
                ready: number(ready, 0),
                out,
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(app: &str, id: &str) -> Pod {
        serde_json::from_value(json!({
            "metadata": { "name": format!("{app}-{id}-x"), "labels": { "app": app, "ceph_daemon_id": id } },
            "spec": { "nodeName": "n2", "containers": [] },
            "status": { "phase": "Running", "conditions": [{ "type": "Ready", "status": "True" }] },
        }))
        .unwrap()
    }

    fn budget(app: &str, allowed: i32, healthy: i32) -> PodDisruptionBudget {
        let selector: Value = json!({ "matchLabels": { "app": app } });
        serde_json::from_value(json!({
            "metadata": { "name": format!("{app}-pdb"), "generation": 1 }, "spec": { "selector": selector },
            "status": {
                "observedGeneration": 1, "disruptionsAllowed": allowed, "currentHealthy": healthy,
                "desiredHealthy": 2, "expectedPods": 3,
            },
        }))
        .unwrap()
    }

    /// OSDs have failure domains, and are told by those.
    #[test]
    fn a_monitor_a_metadata_server_and_a_gateway_that_may_not_go_are_named_with_their_node() {
        for (app, name) in [
            ("rook-ceph-mon", "mon.b"),
            ("rook-ceph-mds", "mds.fs-a"),
            ("rook-ceph-rgw", "rgw.store.a"),
        ] {
            let unit = UnitId::new(name).unwrap();
            let pod = pod(app, "b");
            let why = |allowed, refused: &BTreeMap<UnitId, String>| {
                let budgets = [budget("other", 0, 2), budget(app, allowed, 2 + allowed)];
                wait_reason(&pod, &unit, "n2", refused, &budgets)
            };
            let nobody = BTreeMap::new();
            assert_eq!(why(1, &nobody), None);
            let said = why(0, &nobody).unwrap();
            let starts = format!(
                "{name} on the cordoned node n2 may not be evicted now: PodDisruptionBudget {app}-pdb lets none go"
            );
            assert!(said.starts_with(&starts), "{said}");
            // The budget permits it, and Ceph does not.
            let refused = BTreeMap::from([(unit.clone(), "Ceph says no: no quorum".to_owned())]);
            assert!(why(1, &refused).unwrap().contains("Ceph says no: no quorum"));
            let mut going = pod.clone();
            going.metadata.deletion_timestamp =
                Some(serde_json::from_value(json!("2026-11-29T10:00:00Z")).unwrap());
            assert_eq!(wait_reason(&going, &unit, "n2", &refused, &[]), None);
        }
    }
}
