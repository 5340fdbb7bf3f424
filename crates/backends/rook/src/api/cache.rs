//! What Kubernetes shows of a cluster, kept up to date by watches: no question is asked twice.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::future::pending;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::StreamExt as _;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::runtime::reflector::{self, Store};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client, Resource, ResourceExt as _};
use serde::de::DeserializeOwned;
use serde_json::Value;
use stagger_core::model::UnitId;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use crate::api::objects::{Deployment, Node, Pod};
use crate::api::{daemons, names};

/// A node.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NodeSeen {
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Whether it is ready and takes new pods.
    pub takes_pods: bool,
}

/// A watch that was forbidden is granted when it was not forbidden again for so long. It is tried again every
/// half minute, and one that is granted says nothing until something changes.
const QUIET: Duration = Duration::from_secs(90);

/// So many objects are in memory twice at most, while all are read for the first time.
const PAGE: u32 = 100;

/// The Deployments, pods, budgets, prepare Jobs and claims of one namespace, and the nodes.
pub struct ObjectCache {
    deployments: Store<Deployment>,
    pods: Store<Pod>,
    nodes: Store<Node>,
    budgets: Store<PodDisruptionBudget>,
    jobs: Store<Job>,
    reports: Store<ConfigMap>,
    claims: Store<PersistentVolumeClaim>,
    found: Mutex<Arc<Found>>,
    watches: Watches,
}

/// What is looked up by daemon, as of a number of changes.
#[derive(Default)]
struct Found {
    changes: u64,
    daemons: BTreeMap<UnitId, Arc<Deployment>>,
    /// What is wrong with Deployments of which it is not clear whose they are.
    wrong: Vec<String>,
    /// By the labels in [`IDS`], and all of them by none.
    pods: BTreeMap<Option<(&'static str, String)>, Vec<Arc<Pod>>>,
}

/// The labels of which Rook's selectors have one that tells a daemon from its like.
const IDS: [&str; 2] = ["ceph-osd-id", daemons::ID];

impl ObjectCache {
    /// Begins to watch.
    pub fn begin(client: &Client, namespace: &str) -> Self {
        let daemons = || watcher::Config::default().labels(&format!("rook_cluster={namespace}"));
        let mut watches = Watches::new();
        let deployments = watches.keep(Api::namespaced(client.clone(), namespace), daemons());
        let pods = watches.keep(Api::namespaced(client.clone(), namespace), daemons());
        let nodes = watches.keep(Api::all(client.clone()), watcher::Config::default());
        let budgets = watches.keep(
            Api::namespaced(client.clone(), namespace),
            watcher::Config::default(),
        );
        let jobs = watches.keep(
            Api::namespaced(client.clone(), namespace),
            watcher::Config::default().labels(&format!("{}={}", names::APP, names::PREPARE_APP)),
        );
        let reports = watches.keep(
            Api::namespaced(client.clone(), namespace),
            watcher::Config::default().labels(names::PREPARE_REPORTS),
        );
        let claims = watches.keep(
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
    pub async fn seen(&self) {
        // The writers live as long as the watches, which live as long as this.
        self.deployments.wait_until_ready().await.ok();
        self.pods.wait_until_ready().await.ok();
        self.nodes.wait_until_ready().await.ok();
        self.budgets.wait_until_ready().await.ok();
        self.jobs.wait_until_ready().await.ok();
        self.reports.wait_until_ready().await.ok();
        self.claims.wait_until_ready().await.ok();
    }

    /// Which rights the watches lack, and the cure. While they do, what is shown here may be old.
    pub fn missing_rights(&self) -> Option<String> {
        self.watches.missing_rights()
    }

    /// What is looked up by daemon, gathered once for all that ask between two changes: a wave of many daemons
    /// looks after each of them at every change of any.
    fn found(&self) -> Arc<Found> {
        let changes = *self.watches.changes().borrow();
        let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        // What changes from here on is counted after it is in its store, and gathered then.
        if found.changes != changes || changes == 0 {
            *found = Arc::new(self.gather(changes));
        }
        Arc::clone(&found)
    }

    fn gather(&self, changes: u64) -> Found {
        let mut found = Found {
            changes,
            ..Found::default()
        };
        for deployment in self.deployments.state() {
            match daemons::unit_of(&deployment) {
                Ok(Some(unit)) => drop(found.daemons.insert(unit, deployment)),
                Ok(None) => {}
                Err(why) => found.wrong.push(why),
            }
        }
        found.wrong.sort();
        for pod in self.pods.state() {
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
        let owner = owners.iter().find(|owner| owner.controller == Some(true))?;
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
        let node = self.nodes.find(|node| node.name_any() == name);
        node.is_none_or(|node| {
            let spec = node.spec.as_ref();
            spec.and_then(|spec| spec.unschedulable).unwrap_or(false)
        })
    }

    /// The node on which alone the pods of a Deployment may run, by its selector.
    pub fn node_of(deployment: &Deployment) -> Option<&String> {
        let template = deployment.spec.template.spec.as_ref()?;
        template.node_selector.as_ref()?.get(names::HOSTNAME)
    }

    /// The same, if that node takes no new pods or is gone.
    pub fn closed_node(&self, deployment: &Deployment) -> Option<String> {
        let hostname = Self::node_of(deployment)?;
        let takes = |node: &Node| {
            let spec = node.spec.as_ref();
            node.labels().get(names::HOSTNAME) == Some(hostname)
                && !spec.and_then(|spec| spec.unschedulable).unwrap_or(false)
        };
        self.nodes.find(takes).is_none().then(|| hostname.clone())
    }

    /// All nodes.
    pub fn nodes(&self) -> BTreeMap<String, NodeSeen> {
        nodes(&self.nodes)
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

/// All nodes, as they are seen.
pub(crate) fn nodes(seen: &Store<Node>) -> BTreeMap<String, NodeSeen> {
    let one = |node: &Arc<Node>| {
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
    let nodes = seen.state();
    nodes.iter().map(|node| (node.name_any(), one(node))).collect()
}

/// Watches that tell of their changes together. Dropping it ends them.
pub(crate) struct Watches {
    tell: Tell,
    watching: JoinSet<()>,
}

impl Watches {
    /// None yet.
    pub(crate) fn new() -> Self {
        Self {
            tell: Tell {
                changed: Arc::new(watch::channel(0).0),
                forbidden: Arc::new(watch::channel(BTreeMap::new()).0),
            },
            watching: JoinSet::new(),
        }
    }

    /// Begins one more, and gives what it shows.
    pub(crate) fn keep<K>(&mut self, api: Api<K>, config: watcher::Config) -> Store<K>
    where
        K: Resource + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
        K::DynamicType: Eq + Hash + Clone + Default,
    {
        keep(api, config, &self.tell, &mut self.watching)
    }

    /// Tells of changes.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.tell.changed.subscribe()
    }

    /// Which rights the watches lack, and the cure.
    pub(crate) fn missing_rights(&self) -> Option<String> {
        let forbidden = self.tell.forbidden.borrow();
        let all: Vec<&str> = forbidden.values().map(String::as_str).collect();
        (!all.is_empty()).then(|| {
            format!(
                "{}; give the operator's account its role again: apply deploy/operator/rbac.yaml of this release",
                all.join("; ")
            )
        })
    }
}

/// Who is told by the watches.
#[derive(Clone)]
struct Tell {
    changed: Arc<watch::Sender<u64>>,
    /// What the API server says of watches that it forbids, by resource.
    forbidden: Arc<watch::Sender<BTreeMap<String, String>>>,
}

impl Tell {
    fn change(&self) {
        self.changed.send_modify(|count| *count += 1);
    }

    /// Whether a resource's watch is forbidden now, and what the API server says of it.
    fn forbidden(&self, resource: &str, why: Option<String>) {
        let turned = self.forbidden.send_if_modified(|forbidden| match why {
            Some(why) => forbidden.insert(resource.to_owned(), why.clone()).as_ref() != Some(&why),
            None => forbidden.remove(resource).is_some(),
        });
        if turned {
            self.change();
        }
    }
}

/// What the API server says of a watch that it forbids.
fn forbidden(error: &watcher::Error) -> Option<String> {
    let answer = match error {
        watcher::Error::InitialListFailed(kube::Error::Api(answer))
        | watcher::Error::WatchStartFailed(kube::Error::Api(answer))
        | watcher::Error::WatchFailed(kube::Error::Api(answer))
        | watcher::Error::WatchError(answer) => Some(answer),
        _ => None,
    };
    answer
        .filter(|answer| answer.code == 403)
        .map(|answer| answer.message.clone())
}

fn keep<K>(api: Api<K>, config: watcher::Config, tell: &Tell, watching: &mut JoinSet<()>) -> Store<K>
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
    K::DynamicType: Eq + Hash + Clone + Default,
{
    let (store, writer) = reflector::store();
    let resource = K::plural(&K::DynamicType::default()).into_owned();
    let tell = tell.clone();
    watching.spawn(async move {
        let events = watcher(api, config.page_size(PAGE)).default_backoff();
        // Who wrote which field is much of an object, and nobody here asks for it.
        let events = events.modify(|object: &mut K| object.meta_mut().managed_fields = None);
        let stream = reflector::reflector(writer, events);
        tokio::pin!(stream);
        let mut quiet = None;
        loop {
            let granted = async {
                match quiet {
                    Some(at) => sleep_until(at).await,
                    None => pending().await,
                }
            };
            let event = tokio::select! {
                event = stream.next() => event,
                () = granted => {
                    quiet = None;
                    tell.forbidden(&resource, None);
                    continue;
                }
            };
            match event {
                Some(Ok(event)) => {
                    if matches!(event, watcher::Event::InitDone) {
                        quiet = None;
                        tell.forbidden(&resource, None);
                    }
                    tell.change();
                }
                Some(Err(error)) => {
                    tracing::warn!(%error, resource, "a watch was interrupted and goes on");
                    if let Some(why) = forbidden(&error) {
                        quiet = Some(Instant::now() + QUIET);
                        tell.forbidden(&resource, Some(why));
                    }
                }
                None => return,
            }
        }
    });
    store
}
