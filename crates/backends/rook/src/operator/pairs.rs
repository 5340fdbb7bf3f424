//! Which CephMaintenance goes with which CephCluster.

use std::collections::BTreeMap;

use kube::ResourceExt as _;
use kube::runtime::watcher;

use crate::cluster::CephCluster;
use crate::maintenance::{CephMaintenance, Desired};

/// A namespace, and a name in it.
pub(super) type Key = (String, String);

/// An object that is followed.
pub(super) enum Object {
    Maintenance(CephMaintenance),
    Cluster(CephCluster),
}

/// What a watch tells.
pub(super) enum Change {
    There(Object),
    Gone(Object),
    /// A list of all begins.
    Begins,
    /// It was seen as a whole.
    Listed,
}

impl Change {
    pub(super) fn of<K>(event: watcher::Event<K>, object: impl Fn(K) -> Object) -> Self {
        match event {
            watcher::Event::Apply(found) | watcher::Event::InitApply(found) => Self::There(object(found)),
            watcher::Event::Delete(gone) => Self::Gone(object(gone)),
            watcher::Event::Init => Self::Begins,
            watcher::Event::InitDone => Self::Listed,
        }
    }
}

/// All that is seen of both.
#[derive(Default)]
pub(super) struct Pairs {
    maintenances: BTreeMap<Key, CephMaintenance>,
    clusters: BTreeMap<Key, CephCluster>,
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
    pub(super) fn set(&mut self, object: Object) {
        match object {
            Object::Maintenance(found) => drop(self.maintenances.insert(key(&found), found)),
            Object::Cluster(found) => drop(self.clusters.insert(key(&found), found)),
        }
    }

    pub(super) fn remove(&mut self, object: &Object) {
        match object {
            Object::Maintenance(gone) => drop(self.maintenances.remove(&key(gone))),
            Object::Cluster(gone) => drop(self.clusters.remove(&key(gone))),
        }
    }

    /// Each with the CephCluster that it names. Of several that name one, the oldest is obeyed.
    pub(super) fn sorted(&self) -> Sorted {
        let mut by_age: Vec<&CephMaintenance> = self.maintenances.values().collect();
        by_age.sort_by_key(|one| (one.metadata.creation_timestamp.clone(), key(*one)));
        let mut taken: BTreeMap<Key, String> = BTreeMap::new();
        let (mut desired, mut unused) = (BTreeMap::new(), Vec::new());
        for maintenance in by_age {
            let cluster_name = maintenance.spec.ceph_cluster.clone();
            let named = (maintenance.namespace().unwrap_or_default(), cluster_name.clone());
            let mut not = |reason, why| unused.push((maintenance.clone(), Unused { reason, why }));
            if let Some(other) = taken.get(&named) {
                let why = format!(
                    "CephMaintenance {other} is about CephCluster {cluster_name} too, and older: delete one"
                );
                not("AnotherIsObeyed", why);
            } else if let Some(cluster) = self.clusters.get(&named) {
                taken.insert(named, maintenance.name_any());
                let (maintenance, cluster) = (maintenance.clone(), cluster.clone());
                desired.insert(key(&maintenance), Desired { maintenance, cluster });
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

/// Whether nothing is wanted otherwise: their statuses are nobody's wish.
pub(super) fn is_same(one: &Desired, other: &Desired) -> bool {
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
        )
    };
    of(one) == of(other)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use serde_json::json;

    use super::*;
    use crate::maintenance;

    fn maintenance(name: &str, cluster: &str, created: i64) -> Object {
        let mut found = maintenance::desired(json!({}), json!({})).maintenance;
        found.metadata.name = Some(name.to_owned());
        found.metadata.namespace = Some("n".to_owned());
        found.metadata.creation_timestamp = Some(Time(jiff::Timestamp::from_second(created).unwrap()));
        found.spec.ceph_cluster = cluster.to_owned();
        Object::Maintenance(found)
    }

    fn cluster(name: &str) -> Object {
        let mut found = maintenance::desired(json!({}), json!({})).cluster;
        found.metadata.name = Some(name.to_owned());
        found.metadata.namespace = Some("n".to_owned());
        Object::Cluster(found)
    }

    #[test]
    fn the_oldest_of_several_is_obeyed_and_the_others_are_told_so() {
        let mut pairs = Pairs::default();
        for object in [
            maintenance("a", "c", 20),
            maintenance("b", "c", 10),
            maintenance("lost", "gone", 0),
            cluster("c"),
            cluster("nobodys"),
        ] {
            pairs.set(object);
        }
        let sorted = pairs.sorted();
        let names = |key: &Key| key.1.clone();
        assert_eq!(sorted.desired.keys().map(names).collect::<Vec<_>>(), ["b"]);
        let unused: Vec<_> = sorted
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
        pairs.remove(&maintenance("b", "c", 10));
        assert_eq!(
            pairs.sorted().desired.keys().map(names).collect::<Vec<_>>(),
            ["a"]
        );
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
        assert!(is_same(&one, &other));
        other
            .maintenance
            .annotations_mut()
            .insert("stagger.dev/command".to_owned(), "pause#1".to_owned());
        assert!(!is_same(&one, &other));
    }
}
