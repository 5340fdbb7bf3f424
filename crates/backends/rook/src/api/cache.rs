//! A cache of a cluster's Kubernetes objects, kept up to date by watches, so that no request is repeated.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::runtime::reflector::Store;
use kube::runtime::watcher;
use kube::{Api, Client, ResourceExt as _};
use serde_json::Value;
use stagger_core::model::UnitId;
use tokio::sync::watch;

use crate::api::nodes::{NodeCache, NodeSeen};
use crate::api::objects::{Deployment, Pod};
use crate::api::watches::Watches;
use crate::api::{daemons, names};

/// The Deployments, pods, budgets, prepare Jobs and claims of one namespace, beside the nodes of all.
pub struct ObjectCache {
    deployments: Store<Deployment>,
    pods: Store<Pod>,
    nodes: Arc<NodeCache>,
    budgets: Store<PodDisruptionBudget>,
    jobs: Store<Job>,
    reports: Store<ConfigMap>,
    claims: Store<PersistentVolumeClaim>,
    found: Mutex<Arc<CacheIndex>>,
    watches: Watches,
}

/// What is looked up by daemon, as of a number of changes.
#[derive(Default)]
struct CacheIndex {
    changes: u64,
    daemons: BTreeMap<UnitId, Arc<Deployment>>,
    /// What is wrong with Deployments of which it is not clear whose they are.
    wrong: Vec<String>,
    /// By the labels in [`IDS`], and all of them by none.
    pods: BTreeMap<Option<(&'static str, String)>, Vec<Arc<Pod>>>,
}

impl CacheIndex {
    /// Of two Deployments with one daemon's labels the first by name is Rook's own: who makes a copy adds to it.
    fn add(&mut self, unit: UnitId, deployment: Arc<Deployment>) {
        let (other, own) = match self.daemons.remove(&unit) {
            None => (None, deployment),
            Some(there) if there.name_any() <= deployment.name_any() => (Some(deployment), there),
            Some(there) => (Some(there), deployment),
        };
        if let Some(other) = other {
            self.wrong.push(format!(
                "Deployment {} has the labels of {unit}, as {} has; delete it, or take its labels away",
                other.name_any(),
                own.name_any()
            ));
        }
        self.daemons.insert(unit, own);
    }
}

/// The labels of which Rook's selectors have one that tells a daemon from its like.
const IDS: [&str; 2] = ["ceph-osd-id", daemons::ID];

impl ObjectCache {
    /// Begins to watch.
    pub fn begin(client: &Client, namespace: &str, nodes: Arc<NodeCache>) -> Self {
        let daemons = || watcher::Config::default().labels(&format!("rook_cluster={namespace}"));
        let mut watches = Watches::new();
        let deployments = watches.watch(Api::namespaced(client.clone(), namespace), daemons());
        let pods = watches.watch(Api::namespaced(client.clone(), namespace), daemons());
        watches.follow(nodes.changes());
        let budgets = watches.watch(
            Api::namespaced(client.clone(), namespace),
            watcher::Config::default(),
        );
        let jobs = watches.watch(
            Api::namespaced(client.clone(), namespace),
            watcher::Config::default().labels(&format!("{}={}", names::APP, names::PREPARE_APP)),
        );
        let reports = watches.watch(
            Api::namespaced(client.clone(), namespace),
            watcher::Config::default().labels(names::PREPARE_REPORTS),
        );
        let claims = watches.watch(
            Api::namespaced(client.clone(), namespace),
            watcher::Config::default().labels(names::SET),
        );
        Self {
            deployments,
            pods,
            nodes,
            budgets,
            jobs,
            reports,
            claims,
            found: Mutex::default(),
            watches,
        }
    }

    /// Returns when everything has been seen once.
    pub async fn wait_until_synced(&self) {
        // The writers live as long as the watches, which live as long as this.
        self.deployments.wait_until_ready().await.ok();
        self.pods.wait_until_ready().await.ok();
        self.nodes.wait_until_synced().await;
        self.budgets.wait_until_ready().await.ok();
        self.jobs.wait_until_ready().await.ok();
        self.reports.wait_until_ready().await.ok();
        self.claims.wait_until_ready().await.ok();
    }

    /// Which rights the watches lack, and the cure. While they do, what is shown here may be old.
    pub fn missing_rights(&self) -> Option<String> {
        self.watches
            .missing_rights()
            .or_else(|| self.nodes.missing_rights())
    }

    /// What is looked up by daemon, gathered once for all that ask between two changes: a wave of many daemons
    /// looks after each of them at every change of any.
    fn found(&self) -> Arc<CacheIndex> {
        let changes = *self.watches.changes().borrow();
        let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        // What changes from here on is counted after it is in its store, and gathered then.
        if found.changes != changes || changes == 0 {
            *found = Arc::new(self.gather(changes));
        }
        Arc::clone(&found)
    }

    fn gather(&self, changes: u64) -> CacheIndex {
        let mut found = CacheIndex {
            changes,
            ..CacheIndex::default()
        };
        for deployment in self.deployments.state() {
            match daemons::unit_of(&deployment) {
                Ok(Some(unit)) => found.add(unit, deployment),
                Ok(None) => {}
                Err(why) => found.wrong.push(why),
            }
        }
        found.wrong.sort();
        // One that is over stays beside its successor until somebody deletes it, with the mark of what ended it: a node that was shut down, or
        // had no memory or disk left.
        for pod in self.pods.state().into_iter().filter(|pod| !daemons::is_over(pod)) {
            for label in IDS {
                if let Some(id) = pod.labels().get(label) {
                    let key = Some((label, id.clone()));
                    found.pods.entry(key).or_default().push(Arc::clone(&pod));
                }
            }
            found.pods.entry(None).or_default().push(pod);
        }
        found
    }

    /// The Deployment of each daemon, and what is wrong with those of which it is not clear.
    pub fn daemons(&self) -> (BTreeMap<UnitId, Arc<Deployment>>, Vec<String>) {
        let found = self.found();
        (found.daemons.clone(), found.wrong.clone())
    }

    /// All Deployments of the cluster.
    pub fn deployments(&self) -> Vec<Arc<Deployment>> {
        self.deployments.state()
    }

    /// The resource that owns the Deployments of a file system or store, as an owner reference.
    pub fn owner_of(&self, app: &str, group: Option<&(String, String)>) -> Option<Value> {
        let (label, name) = group?;
        let one = self.deployments.find(|deployment| {
            let labels = deployment.labels();
            labels.get(names::APP).map(String::as_str) == Some(app) && labels.get(label) == Some(name)
        })?;
        let owners = one.owner_references();
        let mut owner = owners
            .iter()
            .find(|owner| owner.controller == Some(true))?
            .clone();
        // Where owner references are checked, as OpenShift does, whoever writes this has to have rights on the owner's finalizers.
        owner.block_owner_deletion = None;
        serde_json::to_value(owner).ok()
    }

    /// A daemon's Deployment.
    pub fn daemon(&self, unit: &UnitId) -> Option<Arc<Deployment>> {
        self.found().daemons.get(unit).cloned()
    }

    /// The pods of a Deployment.
    pub fn pods_of(&self, deployment: &Deployment) -> Vec<Arc<Pod>> {
        let wanted = deployment.spec.selector.match_labels.clone().unwrap_or_default();
        let key = IDS
            .into_iter()
            .find_map(|label| Some((label, wanted.get(label)?.clone())));
        let found = self.found();
        let pods = found.pods.get(&key).into_iter().flatten();
        pods.filter(|pod| {
            let labels = pod.labels();
            !wanted.is_empty()
                && wanted
                    .iter()
                    .all(|(label, value)| labels.get(label) == Some(value))
        })
        .cloned()
        .collect()
    }

    /// All pods of daemons.
    pub fn pods(&self) -> Vec<Arc<Pod>> {
        self.pods.state()
    }

    /// A pod of a daemon, by its name.
    pub fn pod(&self, name: &str) -> Option<Arc<Pod>> {
        self.pods.find(|pod| pod.metadata.name.as_deref() == Some(name))
    }

    /// All budgets of the namespace.
    pub fn budgets(&self) -> Vec<Arc<PodDisruptionBudget>> {
        self.budgets.state()
    }

    /// Whether a node takes no new pods, or is gone.
    pub fn is_cordoned(&self, name: &str) -> bool {
        self.nodes.is_cordoned(name)
    }

    /// The node on which alone the pods of a Deployment may run, by its selector.
    pub fn node_of(deployment: &Deployment) -> Option<&String> {
        let template = deployment.spec.template.spec.as_ref()?;
        template.node_selector.as_ref()?.hostname.as_ref()
    }

    /// The same, if that node takes no new pods or is gone.
    pub fn closed_node(&self, deployment: &Deployment) -> Option<String> {
        let hostname = Self::node_of(deployment)?;
        (!self.nodes.takes_pods_of(hostname)).then(|| hostname.clone())
    }

    /// All nodes.
    pub fn nodes(&self) -> BTreeMap<String, NodeSeen> {
        self.nodes.all()
    }

    /// The Jobs that prepare devices.
    pub fn prepare_jobs(&self) -> Vec<Arc<Job>> {
        self.jobs.state()
    }

    /// What nodes report of their devices.
    pub fn reports(&self) -> Vec<Arc<ConfigMap>> {
        self.reports.state()
    }

    /// The claims of sets of devices.
    pub fn claims(&self) -> Vec<Arc<PersistentVolumeClaim>> {
        self.claims.state()
    }

    /// Tells of changes.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.watches.changes()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn of_two_deployments_of_one_daemon_rooks_own_counts_and_the_other_is_named() {
        let named = |name: &str| {
            let deployment = serde_json::from_value(json!({ "metadata": { "name": name } }));
            Arc::new(deployment.unwrap())
        };
        let unit = UnitId::new("osd.3").unwrap();
        for names in [
            ["rook-ceph-osd-3", "rook-ceph-osd-3-maintenance"],
            ["rook-ceph-osd-3-maintenance", "rook-ceph-osd-3"],
        ] {
            let mut found = CacheIndex::default();
            for name in names {
                found.add(unit.clone(), named(name));
            }
            assert_eq!(found.daemons[&unit].name_any(), "rook-ceph-osd-3");
            let said = "Deployment rook-ceph-osd-3-maintenance has the labels of osd.3, as rook-ceph-osd-3 has; delete it, or take its \
                        labels away";
            assert_eq!(found.wrong, [said]);
        }
    }
}
