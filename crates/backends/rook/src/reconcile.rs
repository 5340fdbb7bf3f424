//! The reconcilers: the work for each CephMaintenance and its CephCluster, and the work beside its runs.
//!
//! [`cluster`] updates it, run by run; [`drains`] protects it during node drains; [`provision`] and
//! [`removal`] manage new and removed OSDs.

pub(crate) mod agents;
pub(crate) mod cluster;
mod commands;
pub(crate) mod connections;
mod drains;
pub(crate) mod finalizer;
#[cfg(test)]
mod fixture;
mod monitors;
pub(crate) mod owner;
mod provision;
mod removal;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use jiff::SignedDuration;
use kube::Client;
use semver::Version;
use stagger_ceph::api::{Access, CephApi};
use stagger_engine::cluster::BackendError;
use stagger_gates::GateSettings;
use tokio::sync::watch;

use crate::agent::daemon_set::AgentRollout;
use crate::api::access::{AccessError, Programs, access};
use crate::api::nodes::NodeCache;
use crate::disruption::evictions::EvictionReviewer;
use crate::observability::health::LoopHealth;
use crate::observability::instrumented_client::InstrumentedCephApi;
use crate::observability::metrics::{ClusterMetrics, Metrics};
use connections::Connections;

/// How the operator is run.
#[derive(Debug, Clone)]
pub struct OperatorOptions {
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
    /// Whether there are to be agents.
    pub agents: bool,
    /// What others measure of clusters, for which updates wait.
    pub gates: GateSettings,
    /// Its own release.
    pub version: Version,
}

/// What all tasks share.
#[derive(Clone)]
pub(crate) struct Shared {
    pub(crate) client: Client,
    pub(crate) options: Arc<OperatorOptions>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) health: Arc<LoopHealth>,
    /// How the agents stand.
    pub(crate) agents: Arc<watch::Sender<AgentRollout>>,
    /// Whether new OSDs are made for any cluster: only then there are agents.
    pub(crate) provisions: Arc<watch::Sender<bool>>,
    /// What is answered to who would evict a pod.
    pub(crate) evictions: Arc<EvictionReviewer>,
    pub(crate) connections: Arc<Connections>,
    /// The nodes, once anybody asks for them.
    pub(crate) nodes: Arc<OnceLock<Arc<NodeCache>>>,
}

impl Shared {
    /// The nodes: one watch for all who ask.
    fn nodes(&self) -> Arc<NodeCache> {
        let begun = || Arc::new(NodeCache::begin(&self.client));
        Arc::clone(self.nodes.get_or_init(begun))
    }

    /// How the Ceph of a cluster is reached.
    async fn access(&self, namespace: &str, name: &str) -> Result<Access, AccessError> {
        let folder = self.options.folder.join(namespace).join(name);
        access(&self.client, namespace, &folder, &self.options.programs).await
    }

    /// The Ceph of a cluster; what it is asked is counted.
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
        Ok(self.ceph_by(&access, namespace, name, metrics))
    }

    fn ceph_by(
        &self,
        access: &Access,
        namespace: &str,
        name: &str,
        metrics: &Arc<ClusterMetrics>,
    ) -> Arc<dyn CephApi> {
        Arc::new(InstrumentedCephApi {
            api: self.connections.to(namespace, name, access),
            metrics: Arc::clone(metrics),
        })
    }
}
