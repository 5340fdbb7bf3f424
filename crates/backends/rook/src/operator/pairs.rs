//! Which CephMaintenance goes with which CephCluster.

use std::collections::BTreeMap;

use kube::ResourceExt as _;
use kube::runtime::reflector::Store;

use crate::api::cluster::CephCluster;
use crate::api::maintenance::{CephMaintenance, Desired};
use crate::api::names::DO_NOT_RECONCILE;

/// A namespace, and a name in it.
pub(super) type Key = (String, String);

/// All that is seen of both, each namespace by a watch of its own.
#[derive(Default)]
pub(super) struct Pairs {
    pub(super) maintenances: Vec<Store<CephMaintenance>>,
    pub(super) clusters: Vec<Store<CephCluster>>,
}

/// What is to be seen to, and what is not.
pub(super) struct Sorted {
    /// By the CephMaintenance.
    pub(super) desired: BTreeMap<Key, Desired>,
    pub(super) unused: Vec<(CephMaintenance, Unused)>,
}

/// Why nothing is done for a CephMaintenance.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Unused {
    pub(super) reason: &'static str,
    pub(super) why: String,
}

impl Pairs {
    /// Each with the CephCluster that it names. Of several that name one, the oldest is obeyed.
    pub(super) fn sorted(&self) -> Sorted {
        let mut by_age: Vec<_> = self.maintenances.iter().flat_map(Store::state).collect();
        by_age.sort_by_key(|one| (one.metadata.creation_timestamp.clone(), key(&**one)));
        let clusters: BTreeMap<Key, _> = self
            .clusters
            .iter()
            .flat_map(Store::state)
            .map(|found| (key(&*found), found))
            .collect();
        let mut taken: BTreeMap<Key, String> = BTreeMap::new();
        let (mut desired, mut unused) = (BTreeMap::new(), Vec::new());
        for maintenance in by_age {
            let cluster_name = maintenance.spec.ceph_cluster.clone();
            let named = (maintenance.namespace().unwrap_or_default(), cluster_name.clone());
            let mut not =
                |reason, why| unused.push((CephMaintenance::clone(&maintenance), Unused { reason, why }));
            if let Some(other) = taken.get(&named) {
                let why = format!(
                    "CephMaintenance {other} is about CephCluster {cluster_name} too, and older: delete one"
                );
                not("AnotherIsObeyed", why);
            } else if let Some(cluster) = clusters.get(&named) {
                taken.insert(named, maintenance.name_any());
                let one = Desired {
                    maintenance: CephMaintenance::clone(&maintenance),
                    cluster: CephCluster::clone(cluster),
                };
                desired.insert(key(&one.maintenance), one);
            } else {
                let why = format!("there is no CephCluster {cluster_name} in namespace {}", named.0);
                not("NoCephCluster", why);
            }
        }
        Sorted { desired, unused }
    }
}

fn key<K: kube::ResourceExt>(object: &K) -> Key {
    (object.namespace().unwrap_or_default(), object.name_any())
}

/// Whether nothing is wanted otherwise: their statuses are nobody's wish, but for Rook's word about the image that is named, for which
/// a run waits.
pub(super) fn is_same(one: &Desired, other: &Desired) -> bool {
    let word = |cluster: &CephCluster| {
        let status = cluster.status.as_ref();
        (
            status.and_then(|status| status.version.clone()),
            status.and_then(|status| status.failure()).map(str::to_owned),
            cluster.labels().get(DO_NOT_RECONCILE).cloned(),
        )
    };
    let of = |desired: &Desired| {
        let Desired { maintenance, cluster } = desired;
        (
            maintenance.spec.clone(),
            maintenance.metadata.generation,
            maintenance.metadata.annotations.clone(),
            maintenance.metadata.deletion_timestamp.clone(),
            maintenance.metadata.finalizers.clone(),
            cluster.spec.clone(),
            cluster.metadata.uid.clone(),
            cluster.metadata.deletion_timestamp.clone(),
            word(cluster),
        )
    };
    of(one) == of(other)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use kube::runtime::reflector::store;
    use kube::runtime::reflector::store::Writer;
    use kube::runtime::watcher::Event;
    use serde_json::json;

    use super::*;
    use crate::api::maintenance;

    fn maintenance(name: &str, cluster: &str, created: i64) -> CephMaintenance {
        let mut found = maintenance::desired(json!({}), json!({})).maintenance;
        found.metadata.name = Some(name.to_owned());
        found.metadata.namespace = Some("n".to_owned());
        found.metadata.creation_timestamp = Some(Time(jiff::Timestamp::from_second(created).unwrap()));
        found.spec.ceph_cluster = cluster.to_owned();
        found
    }

    fn cluster(name: &str) -> CephCluster {
        let mut found = maintenance::desired(json!({}), json!({})).cluster;
        found.metadata.name = Some(name.to_owned());
        found.metadata.namespace = Some("n".to_owned());
        found
    }

    /// What is kept of one namespace, and its two watches.
    fn watched() -> (Pairs, Writer<CephMaintenance>, Writer<CephCluster>) {
        let ((maintenances, told), (clusters, rook)) = (store(), store());
        let pairs = Pairs {
            maintenances: vec![maintenances],
            clusters: vec![clusters],
        };
        (pairs, told, rook)
    }

    /// A watch lists these.
    fn lists<K>(writer: &mut Writer<K>, found: Vec<K>)
    where
        K: kube::Resource<DynamicType = ()> + Clone + 'static,
    {
        writer.apply_watcher_event(&Event::Init);
        for one in found {
            writer.apply_watcher_event(&Event::InitApply(one));
        }
        writer.apply_watcher_event(&Event::InitDone);
    }

    fn obeyed(pairs: &Pairs) -> Vec<String> {
        pairs.sorted().desired.into_keys().map(|key| key.1).collect()
    }

    #[test]
    fn the_oldest_of_several_is_obeyed_and_the_others_are_told_so() {
        let (pairs, mut told, mut rook) = watched();
        lists(
            &mut told,
            vec![
                maintenance("a", "c", 20),
                maintenance("b", "c", 10),
                maintenance("lost", "gone", 0),
            ],
        );
        lists(&mut rook, vec![cluster("c"), cluster("nobodys")]);
        assert_eq!(obeyed(&pairs), ["b"]);
        let unused: Vec<_> = pairs
            .sorted()
            .unused
            .iter()
            .map(|(of, unused)| (of.name_any(), unused.reason))
            .collect();
        assert_eq!(
            unused,
            [
                ("lost".to_owned(), "NoCephCluster"),
                ("a".to_owned(), "AnotherIsObeyed")
            ]
        );
        // It goes, and the other one is obeyed.
        told.apply_watcher_event(&Event::Delete(maintenance("b", "c", 10)));
        assert_eq!(obeyed(&pairs), ["a"]);
    }

    #[test]
    fn what_went_while_a_watch_was_interrupted_is_gone_when_it_was_listed_again() {
        let (pairs, mut told, mut rook) = watched();
        lists(
            &mut told,
            vec![maintenance("a", "c", 10), maintenance("b", "d", 10)],
        );
        lists(&mut rook, vec![cluster("c"), cluster("d")]);
        assert_eq!(obeyed(&pairs), ["a", "b"]);
        // The watch begins anew: what is not listed yet is not missing.
        rook.apply_watcher_event(&Event::Init);
        rook.apply_watcher_event(&Event::InitApply(cluster("d")));
        assert_eq!(obeyed(&pairs), ["a", "b"]);
        rook.apply_watcher_event(&Event::InitDone);
        assert_eq!(obeyed(&pairs), ["b"]);
    }

    #[test]
    fn a_status_is_no_wish_and_an_annotation_is_one() {
        let one = maintenance::desired(json!({}), json!({}));
        let mut other = one.clone();
        other.maintenance.status = Some(maintenance::CephMaintenanceStatus {
            message: Some("else".to_owned()),
            ..Default::default()
        });
        other.cluster.metadata.resource_version = Some("7".to_owned());
        let status = |image: &str, ready: &str| {
            let progress = json!({ "type": "Progressing", "status": "True", "message": ready });
            let status = json!({ "version": { "image": image }, "conditions": [progress] });
            Some(serde_json::from_value(status).unwrap())
        };
        let mut rook = one.clone();
        rook.cluster.status = status("ceph:20", "Configuring Ceph Mons");
        other.cluster.status = status("ceph:20", "Configuring Ceph OSDs");
        assert!(is_same(&rook, &other));
        // Rook has taken up another image: a run waits for that.
        other.cluster.status = status("ceph:21", "Configuring Ceph OSDs");
        assert!(!is_same(&rook, &other));
        other.cluster.status = None;
        assert!(is_same(&one, &other));
        other
            .maintenance
            .annotations_mut()
            .insert("stagger.dev/command".to_owned(), "pause#1".to_owned());
        assert!(!is_same(&one, &other));
    }
}
