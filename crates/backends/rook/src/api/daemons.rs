//! Which Deployment is which daemon.

use std::collections::BTreeMap;

use kube::ResourceExt as _;
use stagger_core::model::UnitId;

use crate::api::names;
use crate::api::objects::Deployment;

/// The label with the kind of a daemon.
pub const KIND: &str = "ceph_daemon_type";
/// The label with its id.
pub const ID: &str = "ceph_daemon_id";

/// The kinds of daemons that are units.
pub const KINDS: [&str; 5] = ["mon", "mgr", "osd", "mds", "rgw"];

/// The unit that a Deployment runs; `None`: it runs something else.
///
/// # Errors
/// It should be one, and its labels do not say which; in words, with what to do.
pub fn unit_of(deployment: &Deployment) -> Result<Option<UnitId>, String> {
    unit_of_labels(deployment.labels())
        .map_err(|error| format!("Deployment {}: {error}", deployment.name_any()))
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
    if !KINDS.contains(&kind) {
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
pub fn is_wanted(deployment: &Deployment) -> bool {
    deployment.spec.replicas != Some(0)
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
