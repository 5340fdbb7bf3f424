//! The operator: one leader, and for each CephMaintenance a task that reconciles its CephCluster.
//!
//! [`cluster`] is the work for one cluster: a pass decides whether there is something to do; if so, the
//! engine carries a run out, as from the command line. Between passes no requests are made: watches signal
//! changes.

mod image;
mod pairs;
mod serve;
pub mod uninstall;
mod webhook;

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::BoxStream;
use kube::client::ClientBuilder;
use kube::runtime::reflector::{self, Store};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client, Config};
use kube_lease_manager::{LeaseManagerBuilder, LeaseManagerError};
use serde::de::DeserializeOwned;
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

use crate::agent::daemon_set::AgentRollout;
use crate::api::cluster::CephCluster;
use crate::api::low_memory_client::sparing_client;
use crate::api::maintenance::{CephMaintenance, Desired, Manage};
use crate::api::names::LEASE;
use crate::observability::health::LoopHealth;
use crate::observability::instrumented_client::Requests;
use crate::observability::metrics::Metrics;
use crate::observability::writer;
pub use crate::reconcile::OperatorOptions;
use crate::reconcile::{Shared, agents, cluster, finalizer};
use pairs::{Key, Pairs, is_same};
use serve::Server;
use uninstall::Holding;
pub use webhook::{Reached, Webhook};

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

/// Waits until this is the leader, then sees to all clusters until it is not, or `stop` is over. Meanwhile
/// metrics and health are served.
///
/// # Errors
/// The Lease is lost, or CephClusters cannot be watched, or the address is taken.
pub async fn run(
    config: Config,
    mut options: OperatorOptions,
    webhook: Option<Webhook>,
    stop: impl Future<Output = ()>,
) -> Result<(), OperatorError> {
    let (metrics, health) = (Arc::new(Metrics::new()), Arc::new(LoopHealth::default()));
    let server = match options.metrics {
        Some(address) => Some(Server::begin(address, Arc::clone(&metrics), Arc::clone(&health)).await?),
        None => None,
    };
    let counted = Requests {
        metrics: Arc::clone(&metrics),
        health: Arc::clone(&health),
    };
    let client = if config.proxy_url.is_none() {
        let sparing = sparing_client(&config).map_err(OperatorError::Client)?;
        sparing.with_layer(&counted).build()
    } else {
        let proxied = ClientBuilder::try_from(config).map_err(OperatorError::Client)?;
        proxied.with_layer(&counted).build()
    };
    if options.image.is_none() {
        options.image = image::own_image(&client, &options.namespace).await;
    }
    let shared = Shared {
        client,
        options: Arc::new(options),
        metrics,
        health,
        agents: Arc::new(watch::channel(AgentRollout::default()).0),
        provisions: Arc::new(watch::channel(false).0),
        evictions: Arc::default(),
        connections: Arc::default(),
        nodes: Arc::default(),
    };
    let ended = lead(shared, webhook, stop).await;
    if let Some(server) = server {
        server.end().await;
    }
    ended
}

async fn lead(
    shared: Shared,
    webhook: Option<Webhook>,
    stop: impl Future<Output = ()>,
) -> Result<(), OperatorError> {
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
    if let Some(webhook) = webhook {
        beside.spawn(webhook::serve(shared.clone(), webhook));
    }
    let ended = tokio::select! {
        _ = leads.wait_for(|leads| !*leads) => {
            tracing::warn!("the Lease is lost: it ends here");
            Err(OperatorError::NotLeader)
        }
        ended = run_controllers(shared.clone()) => ended,
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

/// Tells of what was held in a namespace that is watched no more: nobody gives it back.
async fn report_unwatched(shared: &Shared) {
    let watched = &shared.options.watch_namespaces;
    if watched.is_empty() {
        return;
    }
    match uninstall::holding(&shared.client, watched).await {
        Err(error) => tracing::debug!(%error, "CephMaintenances are not looked for elsewhere"),
        Ok(all) => {
            for Holding { namespace, name, .. } in all.into_iter().filter(|of| !of.is_watched) {
                tracing::warn!(
                    namespace,
                    name,
                    "budgets, noout and labels may be held for this CephMaintenance, and its namespace is not watched: watch it again until \
                     it is deleted"
                );
            }
        }
    }
}

/// Follows CephMaintenances and CephClusters, with a task for each pair.
async fn run_controllers(shared: Shared) -> Result<(), OperatorError> {
    report_unwatched(&shared).await;
    let one = kube::api::ListParams::default().limit(1);
    let (mut all, mut unseen, mut pairs) = (Vec::new(), Vec::new(), Pairs::default());
    for namespace in watched_namespaces(&shared.options.watch_namespaces) {
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
            unseen.push(Some(shared.health.require(format!("{what}{of}"))));
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
                tracing::warn!(%error, "the watch of CephMaintenances and CephClusters was interrupted and continues");
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        }
        // What is not seen yet is not missing.
        if unseen.iter().all(Option::is_none) {
            update_tasks(&shared, &pairs, &mut tasks).await;
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
fn watched_namespaces(namespaces: &[String]) -> Vec<Option<&str>> {
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
async fn update_tasks(shared: &Shared, pairs: &Pairs, tasks: &mut BTreeMap<Key, Task>) {
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
            writer::report_unused(&shared.client, &of, unused.reason, &unused.why).await;
        }
    }
}
