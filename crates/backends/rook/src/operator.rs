//! The operator: one leader, and for each CephCluster a task that sees to it.
//!
//! What it does for a cluster is in [`cluster`]: a pass decides whether anything is to be done, and where it
//! is, a run is carried out by the engine, as from the command line. Between passes nothing is asked of
//! anybody: watches tell of changes.

mod agents;
mod blocked;
mod budgets;
mod cluster;
mod counted;
mod drains;
mod events;
mod health;
mod image;
mod left;
mod metrics;
mod provision;
mod release;
mod removal;
mod serve;
mod status;
mod wishes;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures::TryStreamExt as _;
use jiff::SignedDuration;
use kube::client::ClientBuilder;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client, Config, ResourceExt as _};
use kube_lease_manager::{LeaseManagerBuilder, LeaseManagerError};
use semver::Version;
use stagger_ceph::api::session::Session;
use stagger_ceph::api::{Access, CephApi};
use stagger_engine::backend::BackendError;
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

use crate::access::{AccessError, Programs, access};
use crate::agents::Stand;
use crate::cluster::CephCluster;
use counted::{Questions, Requests};
use health::Health;
use metrics::{ClusterMetrics, Metrics};
use serve::Server;

/// The annotation of a CephCluster by which a person commands its run: `resume`, `abort`, `approve DOOR` …
pub const COMMAND: &str = "stagger.dev/command";

/// The Lease that says which of several operators leads.
pub const LEASE: &str = "stagger-operator";

/// How the operator is run.
#[derive(Debug, Clone)]
pub struct Options {
    /// What the Lease says of its holder; each operator has one of its own.
    pub identity: String,
    /// The namespace of the operator itself, where its Lease is.
    pub namespace: String,
    /// The namespace of the clusters that it sees to; all, if not given.
    pub watch_namespace: Option<String>,
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
    /// The watch of CephClusters ended.
    #[error("CephClusters cannot be watched")]
    Watch(#[from] watcher::Error),
    /// The resource definition is not there, or is not what it should be.
    #[error("CephClusters cannot be listed: {0}; apply deploy/crds.yaml and deploy/operator/rbac.yaml")]
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
    agents: Arc<watch::Sender<Stand>>,
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
        Ok(Arc::new(Questions {
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
        agents: Arc::new(watch::channel(Stand::default()).0),
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
    beside.spawn(agents::see_to(shared.clone()));
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

/// A cluster's task, and how it is told of changes.
struct Seen {
    tell: watch::Sender<Arc<CephCluster>>,
    task: JoinHandle<()>,
}

impl Drop for Seen {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn see_to_all(shared: Shared) -> Result<(), OperatorError> {
    let api: Api<CephCluster> = match &shared.options.watch_namespace {
        Some(namespace) => Api::namespaced(shared.client.clone(), namespace),
        None => Api::all(shared.client.clone()),
    };
    api.list(&kube::api::ListParams::default().limit(1))
        .await
        .map_err(OperatorError::NoClusters)?;
    let mut unseen = Some(shared.health.not_ready_without("CephClusters"));
    let events = watcher(api, watcher::Config::default()).default_backoff();
    tokio::pin!(events);
    let mut seen: BTreeMap<(String, String), Seen> = BTreeMap::new();
    loop {
        match events.try_next().await {
            Ok(Some(watcher::Event::Apply(found) | watcher::Event::InitApply(found))) => {
                let key = (found.namespace().unwrap_or_default(), found.name_any());
                let found = Arc::new(found);
                if let Some(known) = seen.get(&key) {
                    known.tell.send_replace(found);
                } else {
                    let (tell, told) = watch::channel(found);
                    let task = tokio::spawn(cluster::see_to(shared.clone(), told));
                    seen.insert(key, Seen { tell, task });
                }
            }
            Ok(Some(watcher::Event::Delete(gone))) => {
                seen.remove(&(gone.namespace().unwrap_or_default(), gone.name_any()));
            }
            Ok(Some(watcher::Event::Init)) => {}
            Ok(Some(watcher::Event::InitDone)) => drop(unseen.take()),
            Ok(None) => return Ok(()),
            Err(error) => {
                tracing::warn!(%error, "the watch of CephClusters was interrupted and goes on");
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        }
    }
}
