//! The operator: one leader, and for each CephMaintenance a task that sees to the CephCluster that it names.
//!
//! What it does for a cluster is in [`cluster`]: a pass decides whether anything is to be done, and where it
//! is, a run is carried out by the engine, as from the command line. Between passes nothing is asked of
//! anybody: watches tell of changes.

mod agents;
mod blocked;
mod cluster;
mod commands;
mod conditions;
mod drains;
mod events;
mod evictions;
mod finalizer;
mod handback;
mod health;
mod image;
mod instrumented_client;
mod last_run;
mod metrics;
mod owner;
mod pairs;
mod provision;
mod release;
mod removal;
mod serve;
mod status;
mod webhook;

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::BoxStream;
use jiff::SignedDuration;
use kube::client::ClientBuilder;
use kube::runtime::reflector::{self, Store};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client, Config};
use kube_lease_manager::{LeaseManagerBuilder, LeaseManagerError};
use semver::Version;
use serde::de::DeserializeOwned;
use stagger_ceph::api::session::Session;
use stagger_ceph::api::{Access, CephApi};
use stagger_engine::backend::BackendError;
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

use crate::agent::agents::AgentRollout;
use crate::api::access::{AccessError, Programs, access};
use crate::api::cluster::CephCluster;
use crate::api::maintenance::{CephMaintenance, Desired, Manage};
use crate::api::names::LEASE;
use evictions::EvictionReviewer;
use health::Health;
use instrumented_client::{InstrumentedCephApi, Requests};
use metrics::{ClusterMetrics, Metrics};
use pairs::{Key, Pairs, is_same};
use serve::Server;
pub use webhook::{Reached, Webhook};

/// How the operator is run.
#[derive(Debug, Clone)]
pub struct Options {
    /// What the Lease says of its holder; each operator has one of its own.
    pub identity: String,
    /// The namespace of the operator itself, where its Lease is.
    pub namespace: String,
    /// The namespaces of the clusters that it sees to; all, if there are none.
    pub watch_namespaces: Vec<String>,
    /// Where it keeps artifacts and how Ceph is reached; it may be lost.
    pub folder: PathBuf,
    /// How the programs that speak to Ceph are called.
    pub programs: Programs,
    /// The image that the operator itself runs from, if it is not that of its pod; without one there are no agents,
    /// and no devices are prepared.
    pub image: Option<String>,
    /// The path of `stagger` in that image.
    pub program: String,
    /// A Job that prepares devices and shows no progress for so long is named.
    pub prepare_timeout: SignedDuration,
    /// A lock or Lease not renewed for so many seconds may be taken over.
    pub lock_expires: u32,
    /// Seconds between two observations while something is waited for.
    pub poll: u64,
    /// Where metrics and health are served, if at all.
    pub metrics: Option<SocketAddr>,
    /// Where evictions are answered, if at all.
    pub webhook: Option<Webhook>,
    /// Whether there are to be agents.
    pub agents: bool,
    /// Its own release.
    pub version: Version,
}

/// Why the operator ends.
#[derive(Debug, thiserror::Error)]
pub enum OperatorError {
    /// Metrics and health.
    #[error("metrics and health cannot be served on {address}")]
    Listen {
        /// Where.
        address: SocketAddr,
        /// Why not.
        source: std::io::Error,
    },
    /// The way to Kubernetes.
    #[error("no client of Kubernetes can be made")]
    Client(#[source] kube::Error),
    /// The Lease.
    #[error("the operator's Lease cannot be held")]
    Lease(#[from] LeaseManagerError),
    /// It was the leader, and is no more: another goes on.
    #[error("another operator leads now")]
    NotLeader,
    /// The resource definition of ours is not there, or is not what it should be.
    #[error("CephMaintenances cannot be listed: {0}; apply deploy/crds.yaml and deploy/operator/rbac.yaml")]
    NoMaintenances(#[source] kube::Error),
    /// That of Rook is not there.
    #[error(
        "CephClusters cannot be listed: {0}; Rook's own crds.yaml defines them, and deploy/operator/rbac.yaml lets us"
    )]
    NoClusters(#[source] kube::Error),
}

/// What all tasks share.
#[derive(Clone)]
pub(crate) struct Shared {
    client: Client,
    options: Arc<Options>,
    metrics: Arc<Metrics>,
    health: Arc<Health>,
    /// How the agents stand.
    agents: Arc<watch::Sender<AgentRollout>>,
    /// Whether new OSDs are made for any cluster: only then there are agents.
    provisions: Arc<watch::Sender<bool>>,
    /// What is answered to who would evict a pod.
    evictions: Arc<EvictionReviewer>,
}

impl Shared {
    /// How the Ceph of a cluster is reached.
    async fn access(&self, namespace: &str, name: &str) -> Result<Access, AccessError> {
        let folder = self.options.folder.join(namespace).join(name);
        access(&self.client, namespace, &folder, &self.options.programs).await
    }

    /// A connection of its own to the Ceph of a cluster, for what goes on beside its runs; what it asks is
    /// counted.
    async fn ceph(
        &self,
        namespace: &str,
        name: &str,
        metrics: &Arc<ClusterMetrics>,
    ) -> Result<Arc<dyn CephApi>, BackendError> {
        let access = self
            .access(namespace, name)
            .await
            .map_err(|error| BackendError::transient("reach Ceph", error.to_string()))?;
        Ok(Arc::new(InstrumentedCephApi {
            api: Arc::new(Session::new(access)),
            metrics: Arc::clone(metrics),
        }))
    }
}

/// Waits until this is the leader, then sees to all clusters until it is not, or `stop` is over. Meanwhile
/// metrics and health are served.
///
/// # Errors
/// The Lease is lost, or CephClusters cannot be watched, or the address is taken.
pub async fn run(
    config: Config,
    mut options: Options,
    stop: impl Future<Output = ()>,
) -> Result<(), OperatorError> {
    let (metrics, health) = (Arc::new(Metrics::new()), Arc::new(Health::default()));
    let server = match options.metrics {
        Some(address) => Some(Server::begin(address, Arc::clone(&metrics), Arc::clone(&health)).await?),
        None => None,
    };
    let counted = Requests {
        metrics: Arc::clone(&metrics),
        health: Arc::clone(&health),
    };
    let client = ClientBuilder::try_from(config)
        .map_err(OperatorError::Client)?
        .with_layer(&counted)
        .build();
    if options.image.is_none() {
        options.image = image::of_this_pod(&client, &options.namespace).await;
    }
    let shared = Shared {
        client,
        options: Arc::new(options),
        metrics,
        health,
        agents: Arc::new(watch::channel(AgentRollout::default()).0),
        provisions: Arc::new(watch::channel(false).0),
        evictions: Arc::default(),
    };
    let ended = lead(shared, stop).await;
    if let Some(server) = server {
        server.end().await;
    }
    ended
}

async fn lead(shared: Shared, stop: impl Future<Output = ()>) -> Result<(), OperatorError> {
    let options = &shared.options;
    let lasts = u64::from(options.lock_expires.max(6));
    let manager = LeaseManagerBuilder::new(shared.client.clone(), LEASE)
        .with_namespace(&options.namespace)
        .with_identity(&options.identity)
        .with_duration(lasts)
        .with_grace(lasts / 3)
        .build()
        .await?;
    let (mut leads, task) = manager.watch().await;
    tokio::pin!(stop);
    tokio::select! {
        led = leads.wait_for(|leads| *leads) => {
            if led.is_err() {
                return Err(OperatorError::NotLeader);
            }
        }
        () = &mut stop => return Ok(()),
    }
    tracing::info!("leading");
    shared.metrics.leads(true);
    // Ends with this.
    let mut beside = JoinSet::new();
    beside.spawn(agents::run(shared.clone()));
    if let Some(webhook) = options.webhook.clone() {
        beside.spawn(webhook::serve(shared.clone(), webhook));
    }
    let ended = tokio::select! {
        _ = leads.wait_for(|leads| !*leads) => {
            tracing::warn!("the Lease is lost: it ends here");
            Err(OperatorError::NotLeader)
        }
        ended = see_to_all(shared.clone()) => ended,
        () = &mut stop => Ok(()),
    };
    shared.metrics.leads(false);
    drop(beside);
    // The Lease is given back, so that another need not wait for its end.
    drop(leads);
    if let Ok(Ok(manager)) = task.await {
        manager.release().await.ok();
    }
    ended
}

/// Follows CephMaintenances and CephClusters, with a task for each pair.
async fn see_to_all(shared: Shared) -> Result<(), OperatorError> {
    let one = kube::api::ListParams::default().limit(1);
    let (mut all, mut unseen, mut pairs) = (Vec::new(), Vec::new(), Pairs::default());
    for namespace in places(&shared.options.watch_namespaces) {
        let maintenances: Api<CephMaintenance> = api(&shared.client, namespace);
        let clusters: Api<CephCluster> = api(&shared.client, namespace);
        maintenances
            .list(&one)
            .await
            .map_err(OperatorError::NoMaintenances)?;
        clusters.list(&one).await.map_err(OperatorError::NoClusters)?;
        let of = namespace.map_or_else(String::new, |namespace| format!(" of namespace {namespace}"));
        // Each is seen by itself: one that is listed twice does not stand for another.
        for (what, followed) in [
            ("CephMaintenances", follow(maintenances, &mut pairs.maintenances)),
            ("CephClusters", follow(clusters, &mut pairs.clusters)),
        ] {
            let which = unseen.len();
            unseen.push(Some(shared.health.not_ready_without(format!("{what}{of}"))));
            all.push(followed.map(move |listed| (which, listed)));
        }
    }
    let mut events = futures::stream::select_all(all);
    let mut tasks: BTreeMap<Key, Task> = BTreeMap::new();
    while let Some((which, listed)) = events.next().await {
        match listed {
            Ok(true) => drop(unseen.get_mut(which).and_then(Option::take)),
            Ok(false) => {}
            Err(error) => {
                tracing::warn!(%error, "the watch of CephMaintenances and CephClusters was interrupted and goes on");
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        }
        // What is not seen yet is not missing.
        if unseen.iter().all(Option::is_none) {
            bring_about(&shared, &pairs, &mut tasks).await;
        }
    }
    Ok(())
}

/// What a watch tells: whether all that is there was listed just now, after which what was not listed is gone.
type Followed = BoxStream<'static, Result<bool, watcher::Error>>;

/// Follows all objects of a kind, and has them in one more store.
fn follow<K>(api: Api<K>, stores: &mut Vec<Store<K>>) -> Followed
where
    K: kube::Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
{
    let (store, writer) = reflector::store();
    stores.push(store);
    let events = watcher(api, watcher::Config::default()).default_backoff();
    reflector::reflector(writer, events)
        .map(|event| event.map(|event| matches!(event, watcher::Event::InitDone)))
        .boxed()
}

/// Each namespace, or all of them at once.
fn places(namespaces: &[String]) -> Vec<Option<&str>> {
    if namespaces.is_empty() {
        return vec![None];
    }
    namespaces
        .iter()
        .map(|namespace| Some(namespace.as_str()))
        .collect()
}

fn api<K>(client: &Client, namespace: Option<&str>) -> Api<K>
where
    K: kube::Resource<Scope = kube::core::NamespaceResourceScope>,
    K::DynamicType: Default,
{
    match namespace {
        Some(namespace) => Api::namespaced(client.clone(), namespace),
        None => Api::all(client.clone()),
    }
}

/// A task, and how it is told of changes.
struct Task {
    tell: watch::Sender<Arc<Desired>>,
    task: JoinHandle<()>,
}

impl Drop for Task {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Has a task for each pair, and says of the others why there is none.
async fn bring_about(shared: &Shared, pairs: &Pairs, tasks: &mut BTreeMap<Key, Task>) {
    let sorted = pairs.sorted();
    tasks.retain(|key, _| sorted.desired.contains_key(key));
    shared.provisions.send_if_modified(|is| {
        let provisions = sorted
            .desired
            .values()
            .any(|one| one.manages(Manage::Provisioning));
        std::mem::replace(is, provisions) != provisions
    });
    for (key, desired) in sorted.desired {
        if let Some(known) = tasks.get(&key) {
            // Its own status is no change.
            known.tell.send_if_modified(|now| {
                let differs = !is_same(now, &desired);
                *now = Arc::new(desired);
                differs
            });
        } else {
            let (tell, told) = watch::channel(Arc::new(desired));
            let task = tokio::spawn(cluster::run(shared.clone(), told));
            tasks.insert(key, Task { tell, task });
        }
    }
    for (of, unused) in sorted.unused {
        if of.metadata.deletion_timestamp.is_some() {
            // Nothing is held for it.
            finalizer::drop_it(&shared.client, &of).await;
        } else {
            status::tell_unused(&shared.client, &of, unused.reason, &unused.why).await;
        }
    }
}
