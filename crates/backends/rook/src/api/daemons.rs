//! Which Deployment runs which daemon.

use std::collections::BTreeMap;

use kube::ResourceExt as _;
use stagger_core::model::UnitId;

use crate::api::names;
use crate::api::objects::{Deployment, Pod};

/// The label with the kind of a daemon.
pub const KIND: &str = "ceph_daemon_type";
/// The label with its id.
pub const ID: &str = "ceph_daemon_id";

/// The label of gateways with the name of their object store.
const STORE: &str = "rook_object_store";

/// The label of what looks like a monitor, and only tries a node (`monCanaryLabelSelector` in `pkg/operator/ceph/cluster/mon/mon.go` of 1.20.6).
const CANARY: &str = "mon_canary";

/// The kinds of daemons that are units.
pub const KINDS: [&str; 5] = ["mon", "mgr", "osd", "mds", "rgw"];

/// The unit that a Deployment runs; `None`: it runs something else.
///
/// # Errors
/// It should be one, and its labels do not say which; in words, with what to do.
pub fn unit_of(deployment: &Deployment) -> Result<Option<UnitId>, String> {
    let (name, labels) = (deployment.name_any(), deployment.labels());
    let found = match gateway_of(&name, labels) {
        Some(id) => UnitId::new(id).map(Some).map_err(|error| error.to_string()),
        None => unit_of_labels(labels),
    };
    found.map_err(|error| format!("Deployment {name}: {error}"))
}

/// The gateways of a Deployment of Rook's own: their label [`ID`] has the name of their store, and Ceph knows them by their user, which
/// Rook makes of the Deployment's name (`generateCephXUser` in `pkg/operator/ceph/object/config.go` of 1.20.6).
fn gateway_of(deployment: &str, labels: &BTreeMap<String, String>) -> Option<String> {
    let is_store = labels.get(ID).is_some() && labels.get(ID) == labels.get(STORE);
    let user = deployment.strip_prefix("rook-ceph-rgw-").filter(|_| is_store)?;
    Some(format!("rgw.{}", user.replace('-', ".")))
}

/// The unit whose Deployment or pod has these labels; `None`: it is something else. Where older releases of Rook wrote
/// no [`ID`], it is the label that has the name of the kind, or `ceph-osd-id`.
///
/// # Errors
/// It should be one, and they do not say which; in words, with what to do.
pub fn unit_of_labels(labels: &BTreeMap<String, String>) -> Result<Option<UnitId>, String> {
    let app = labels.get(names::APP).map(String::as_str).unwrap_or_default();
    let kind = labels
        .get(KIND)
        .map(String::as_str)
        .or_else(|| app.strip_prefix("rook-ceph-"))
        .unwrap_or_default();
    // With that Rook finds out where a new monitor could run; it is none.
    if !KINDS.contains(&kind) || labels.contains_key(CANARY) {
        return Ok(None);
    }
    let id = labels
        .get(ID)
        .or_else(|| labels.get(kind))
        .or_else(|| labels.get("ceph-osd-id").filter(|_| kind == "osd"))
        .ok_or_else(|| format!("there is no label {ID}; set it to the daemon's id"))?;
    if kind == "osd" && id.parse::<u32>().is_err() {
        return Err(format!(
            "its label {ID} is {id:?}, and an OSD's id is a number; set it right"
        ));
    }
    UnitId::new(format!("{kind}.{id}"))
        .map(Some)
        .map_err(|error| error.to_string())
}

/// Whether a Deployment asks for any pods. One that was scaled to nothing is not missed.
pub fn wants_replicas(deployment: &Deployment) -> bool {
    deployment.spec.replicas != Some(0)
}

/// Whether a pod of it is ready.
pub fn serves(deployment: &Deployment) -> bool {
    let status = deployment.status.as_ref();
    let ready = status.and_then(|status| status.ready_replicas);
    ready.is_some_and(|ready| ready > 0)
}

/// Whether an OSD is being replaced: it is down for a reason that is no drain, and known.
pub fn is_being_replaced(osd: &Deployment) -> bool {
    osd.annotations().contains_key(names::REPLACED)
}

/// Whether nothing of a pod runs any more, nor ever will.
pub fn is_over(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Failed" | "Succeeded"))
}

/// The number of the OSD that a unit is.
pub fn osd_of(unit: &UnitId) -> Option<u32> {
    unit.as_str().strip_prefix("osd.")?.parse().ok()
}

/// The kind in a unit's name.
pub fn kind_of(unit: &UnitId) -> &str {
    unit.as_str()
        .split_once('.')
        .map_or(unit.as_str(), |(kind, _)| kind)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn unit(name: &str, labels: &Value) -> Result<Option<String>, String> {
        let deployment = json!({ "metadata": { "name": name, "labels": labels } });
        let deployment: Deployment = serde_json::from_value(deployment).unwrap();
        unit_of(&deployment).map(|unit| unit.map(|unit| unit.to_string()))
    }

    #[test]
    fn a_pod_that_was_evicted_for_want_of_memory_is_over() {
        for (phase, over) in [
            ("Failed", true),
            ("Succeeded", true),
            ("Running", false),
            ("Pending", false),
        ] {
            let evicted = json!([{ "type": "DisruptionTarget", "status": "True" }]);
            let pod =
                json!({ "metadata": { "name": "p" }, "status": { "phase": phase, "conditions": evicted } });
            assert_eq!(is_over(&serde_json::from_value(pod).unwrap()), over, "{phase}");
        }
    }

    /// Labels as Rook 1.20.6 writes them.
    #[test]
    fn daemons_are_known_by_what_rook_writes() {
        let labels = |app: &str, id: &str, more: (&str, &str)| {
            let mut labels = json!({ "app": app, "rook_cluster": "rook-ceph", "ceph_daemon_id": id });
            labels["ceph_daemon_type"] = json!(app.trim_start_matches("rook-ceph-"));
            labels[more.0] = json!(more.1);
            labels
        };
        let of_store = labels("rook-ceph-rgw", "my-store", ("rook_object_store", "my-store"));
        let found = |name, labels: &Value| unit(name, labels).unwrap().unwrap();
        assert_eq!(found("rook-ceph-rgw-my-store-a", &of_store), "rgw.my.store.a");
        let of_fs = labels("rook-ceph-mds", "fs-a", ("rook_file_system", "fs"));
        assert_eq!(found("rook-ceph-mds-fs-a", &of_fs), "mds.fs-a");
        let osd = labels("rook-ceph-osd", "3", ("ceph-osd-id", "3"));
        assert_eq!(found("rook-ceph-osd-3", &osd), "osd.3");
        assert_eq!(
            unit("rook-ceph-tools", &json!({ "app": "rook-ceph-tools" })),
            Ok(None)
        );
        let canary = labels("rook-ceph-mon", "d", ("mon_canary", "true"));
        assert_eq!(unit("rook-ceph-mon-d-canary", &canary), Ok(None));
        let other = labels("rook-ceph-osd", "three", ("ceph-osd-id", "3"));
        assert!(unit("rook-ceph-osd-3", &other).is_err_and(|why| why.contains("an OSD's id is a number")));
    }
}
