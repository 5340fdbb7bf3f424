//! What Kubernetes shows of a cluster, kept up to date by watches: no question is asked twice.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::hash::Hash;
use std::sync::Arc;

use futures::StreamExt as _;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::runtime::reflector::{self, Store};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client, Resource, ResourceExt as _};
use serde::de::DeserializeOwned;
use serde_json::Value;
use stagger_core::model::UnitId;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::{daemons, names, provision};

/// A node.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NodeSeen {
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Whether it is ready and takes new pods.
    pub takes_pods: bool,
}

/// The Deployments, pods, budgets and prepare Jobs of one namespace, and the nodes.
pub struct Watched {
    deployments: Store<Deployment>,
    pods: Store<Pod>,
    nodes: Store<Node>,
    budgets: Store<PodDisruptionBudget>,
    jobs: Store<Job>,
    reports: Store<ConfigMap>,
    changed: watch::Receiver<u64>,
    /// Ends the watches when it is dropped.
    _watching: JoinSet<()>,
}

impl Watched {
    /// Begins to watch, and returns when everything has been seen once.
    pub async fn begin(client: &Client, namespace: &str) -> Self {
        let (tell, changed) = watch::channel(0);
        let tell = Arc::new(tell);
        let mut watching = JoinSet::new();
        let daemons = watcher::Config::default().labels(&format!("rook_cluster={namespace}"));
        let deployments = keep(
            Api::namespaced(client.clone(), namespace),
            daemons.clone(),
            &tell,
            &mut watching,
        );
        let pods = keep(
            Api::namespaced(client.clone(), namespace),
            daemons,
            &tell,
            &mut watching,
        );
        let nodes = keep(
            Api::all(client.clone()),
            watcher::Config::default(),
            &tell,
            &mut watching,
        );
        let budgets = keep(
            Api::namespaced(client.clone(), namespace),
            watcher::Config::default(),
            &tell,
            &mut watching,
        );
        let jobs = keep(
            Api::namespaced(client.clone(), namespace),
            watcher::Config::default().labels(&format!("{}={}", names::APP, provision::PREPARE_APP)),
            &tell,
            &mut watching,
        );
        let reports = keep(
            Api::namespaced(client.clone(), namespace),
            watcher::Config::default().labels(provision::REPORTS),
            &tell,
            &mut watching,
        );
        // The writers live as long as the watches, which live as long as this.
        deployments.wait_until_ready().await.ok();
        pods.wait_until_ready().await.ok();
        nodes.wait_until_ready().await.ok();
        budgets.wait_until_ready().await.ok();
        jobs.wait_until_ready().await.ok();
        reports.wait_until_ready().await.ok();
        Self {
            deployments,
            pods,
            nodes,
            budgets,
            jobs,
            reports,
            changed,
            _watching: watching,
        }
    }

    /// The Deployment of each daemon, and what is wrong with those of which it is not clear.
    pub fn daemons(&self) -> (BTreeMap<UnitId, Arc<Deployment>>, Vec<String>) {
        let mut found = BTreeMap::new();
        let mut wrong = Vec::new();
        for deployment in self.deployments.state() {
            match daemons::unit_of(&deployment) {
                Ok(Some(unit)) => drop(found.insert(unit, deployment)),
                Ok(None) => {}
                Err(why) => wrong.push(why),
            }
        }
        wrong.sort();
        (found, wrong)
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
        let owner = owners.iter().find(|owner| owner.controller == Some(true))?;
        serde_json::to_value(owner).ok()
    }

    /// A daemon's Deployment.
    pub fn daemon(&self, unit: &UnitId) -> Option<Arc<Deployment>> {
        self.deployments
            .find(|deployment| daemons::unit_of(deployment).ok().flatten().as_ref() == Some(unit))
    }

    /// The pods of a Deployment.
    pub fn pods_of(&self, deployment: &Deployment) -> Vec<Arc<Pod>> {
        let wanted = deployment.spec.selector.match_labels.clone().unwrap_or_default();
        if wanted.is_empty() {
            return Vec::new();
        }
        self.pods.state_filter(|pod| {
            wanted
                .iter()
                .all(|(label, value)| pod.labels().get(label) == Some(value))
        })
    }

    /// All pods of daemons.
    pub fn pods(&self) -> Vec<Arc<Pod>> {
        self.pods.state()
    }

    /// All budgets of the namespace.
    pub fn budgets(&self) -> Vec<Arc<PodDisruptionBudget>> {
        self.budgets.state()
    }

    /// Whether a node takes no new pods, or is gone.
    pub fn is_cordoned(&self, name: &str) -> bool {
        let node = self.nodes.find(|node| node.name_any() == name);
        node.is_none_or(|node| {
            let spec = node.spec.as_ref();
            spec.and_then(|spec| spec.unschedulable).unwrap_or(false)
        })
    }

    /// All nodes.
    pub fn nodes(&self) -> BTreeMap<String, NodeSeen> {
        let seen = |node: &Arc<Node>| {
            let status = node.status.as_ref();
            let conditions = status.and_then(|status| status.conditions.as_ref());
            let is_ready = conditions
                .into_iter()
                .flatten()
                .any(|condition| condition.type_ == "Ready" && condition.status == "True");
            let spec = node.spec.as_ref();
            let is_cordoned = spec.and_then(|spec| spec.unschedulable).unwrap_or(false);
            NodeSeen {
                labels: node.labels().clone(),
                takes_pods: is_ready && !is_cordoned,
            }
        };
        let nodes = self.nodes.state();
        nodes.iter().map(|node| (node.name_any(), seen(node))).collect()
    }

    /// The Jobs that prepare devices.
    pub fn prepare_jobs(&self) -> Vec<Arc<Job>> {
        self.jobs.state()
    }

    /// What nodes report of their devices.
    pub fn reports(&self) -> Vec<Arc<ConfigMap>> {
        self.reports.state()
    }

    /// Tells of changes.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changed.clone()
    }
}

fn keep<K>(
    api: Api<K>,
    config: watcher::Config,
    tell: &Arc<watch::Sender<u64>>,
    watching: &mut JoinSet<()>,
) -> Store<K>
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
    K::DynamicType: Eq + Hash + Clone + Default,
{
    let (store, writer) = reflector::store();
    let tell = Arc::clone(tell);
    watching.spawn(async move {
        let stream = reflector::reflector(writer, watcher(api, config).default_backoff());
        tokio::pin!(stream);
        while let Some(event) = stream.next().await {
            match event {
                Ok(_) => tell.send_modify(|count| *count += 1),
                Err(error) => tracing::warn!(%error, "a watch was interrupted and goes on"),
            }
        }
    });
    store
}
