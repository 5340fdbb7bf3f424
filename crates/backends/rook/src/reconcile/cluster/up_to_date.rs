//! Whether there is something to do, and the status if there is not.

use std::collections::BTreeSet;
use std::sync::Arc;

use kube::ResourceExt as _;
use stagger_core::model::UnitId;

use crate::api::daemons::{kind_of, serves, wants_replicas};
use crate::api::names;
use crate::api::objects::Deployment;
use crate::executor::beside::Daemons;
use crate::executor::goal::Goal;
use crate::executor::managed_fields::has_revision;

/// `app` of what runs Ceph's image and is no unit: Rook sees to these by itself.
const ROOKS: [&str; 5] = [
    "rook-ceph-exporter",
    "rook-ceph-crashcollector",
    "rook-ceph-rbd-mirror",
    "rook-ceph-fs-mirror",
    "rook-ceph-nfs",
];

/// The daemons whose Deployments are not as they should be, without those that are `absent` and do not serve.
pub(super) fn differing(daemons: &Daemons, wish: &Goal, absent: &BTreeSet<UnitId>) -> Vec<UnitId> {
    let differs = |unit: &UnitId, deployment: &Deployment| {
        let kind = kind_of(unit);
        let rests = absent.contains(unit) && !serves(deployment);
        wants_replicas(deployment) && !rests && !has_revision(deployment, kind, &wish.pod_revision(kind, ""))
    };
    daemons
        .iter()
        .filter(|(unit, deployment)| differs(unit, deployment))
        .map(|(unit, _)| unit.clone())
        .collect()
}

/// The Deployments that run Ceph, are no units, and have another image.
pub(super) fn outdated_deployments(deployments: &[Arc<Deployment>], image: &str) -> Vec<String> {
    let is_behind = |deployment: &Deployment| {
        let app = deployment.labels().get(names::APP).map(String::as_str);
        let spec = deployment.spec.template.spec.as_ref();
        let mut containers = spec.iter().flat_map(|spec| &spec.containers);
        app.is_some_and(|app| ROOKS.contains(&app))
            && wants_replicas(deployment)
            && !containers.any(|container| container.image.as_deref() == Some(image))
    };
    let all = deployments.iter().filter(|deployment| is_behind(deployment));
    let mut names: Vec<String> = all.map(|deployment| deployment.name_any()).collect();
    names.sort();
    names
}

/// What is said where nothing is left to do. `wish`: the image, with what else pods are made of.
pub(super) fn up_to_date(wish: &str, absent: &[UnitId], behind: &[String]) -> String {
    let absent: Vec<&str> = absent.iter().map(UnitId::as_str).collect();
    let behind: Vec<&str> = behind.iter().map(String::as_str).collect();
    let mut said = format!("every daemon has the image {wish}");
    if !absent.is_empty() {
        said = format!(
            "{said}, but for those that are dead and out, or destroyed: {}",
            name_list(&absent)
        );
    }
    if !behind.is_empty() {
        said = format!(
            "{said}; not updated here, and with another image: {}",
            name_list(&behind)
        );
    }
    said
}

fn name_list(all: &[&str]) -> String {
    match all {
        [] => String::new(),
        [only] => (*only).to_owned(),
        [first, others @ ..] => format!("{first} and {} more", others.len()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::api::maintenance::desired;

    /// Else `kubectl wait` for `UpToDate` would never return, for an OSD that may never come back.
    #[test]
    fn an_osd_that_is_dead_and_out_keeps_no_update_from_being_over() {
        let daemon = |id: u32, ready: u32| {
            let deployment = json!({
                "metadata": { "name": format!("rook-ceph-osd-{id}") },
                "spec": { "selector": {}, "template": { "spec": { "containers": [
                    { "name": "osd", "image": "ceph:old" },
                ] } } },
                "status": { "readyReplicas": ready },
            });
            let unit = UnitId::new(format!("osd.{id}")).unwrap();
            (unit, Arc::new(serde_json::from_value(deployment).unwrap()))
        };
        let wanted = desired(json!({}), json!({ "manage": ["updates"], "image": "ceph:new" }));
        let wish = Goal::of(&wanted, true).unwrap();
        let dead = UnitId::new("osd.5").unwrap();
        let daemons = Daemons::from([daemon(5, 0)]);
        assert_eq!(
            differing(&daemons, &wish, &BTreeSet::new()),
            std::slice::from_ref(&dead)
        );
        let absent = BTreeSet::from([dead.clone()]);
        assert_eq!(differing(&daemons, &wish, &absent), []);
        assert_eq!(
            up_to_date("ceph:new", std::slice::from_ref(&dead), &[]),
            "every daemon has the image ceph:new, but for those that are dead and out, or destroyed: osd.5"
        );
        // It serves again: it is a daemon as all others.
        assert_eq!(differing(&Daemons::from([daemon(5, 1)]), &wish, &absent), [dead]);
    }

    #[test]
    fn what_runs_ceph_and_is_no_daemon_is_told_where_it_runs_another_image() {
        let deployment = |app: &str, name: &str, image: &str| -> Arc<Deployment> {
            let deployment = json!({
                "metadata": { "name": name, "labels": { "app": app } },
                "spec": { "selector": {}, "template": { "spec": { "containers": [
                    { "name": "other", "image": "other:1" }, { "name": "ceph", "image": image },
                ] } } },
            });
            Arc::new(serde_json::from_value(deployment).unwrap())
        };
        let all = [
            deployment("rook-ceph-exporter", "rook-ceph-exporter-n2", "ceph:old"),
            deployment("rook-ceph-exporter", "rook-ceph-exporter-n1", "ceph:new"),
            deployment("rook-ceph-nfs", "rook-ceph-nfs-a", "ceph:old"),
            deployment("rook-ceph-osd", "rook-ceph-osd-1", "ceph:old"),
            deployment("rook-ceph-tools", "rook-ceph-tools", "ceph:old"),
        ];
        let behind = outdated_deployments(&all, "ceph:new");
        assert_eq!(behind, ["rook-ceph-exporter-n2", "rook-ceph-nfs-a"]);
        assert_eq!(
            up_to_date("ceph:new", &[], &behind),
            "every daemon has the image ceph:new; not updated here, and with another image: rook-ceph-exporter-n2 and 1 more"
        );
        assert_eq!(
            up_to_date("ceph:new", &[], &[]),
            "every daemon has the image ceph:new"
        );
    }
}
