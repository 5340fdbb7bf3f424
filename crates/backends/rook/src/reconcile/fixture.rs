//! Shared fixtures of the reconcilers' tests.

use std::path::PathBuf;
use std::sync::Arc;

use jiff::SignedDuration;
use kube::{Client, Resource as _};
use semver::Version;
use stagger_gates::GateSettings;
use tokio::sync::watch;

use super::{OperatorOptions, Shared};
use crate::agent::daemon_set::AgentRollout;
use crate::api::access::Programs;
use crate::api::maintenance::CephMaintenance;
use crate::observability::events::EventPublisher;
use crate::observability::health::LoopHealth;
use crate::observability::metrics::{ClusterMetrics, Metrics};
use crate::observability::writer::{StatusWriter, Watchers};

/// What tasks share, with that client.
pub(super) fn shared(client: &Client) -> Shared {
    let options = OperatorOptions {
        identity: "one".to_owned(),
        namespace: "n".to_owned(),
        watch_namespaces: Vec::new(),
        folder: PathBuf::new(),
        programs: Programs::default(),
        image: None,
        program: "stagger".to_owned(),
        prepare_timeout: SignedDuration::from_mins(1),
        lock_expires: 30,
        poll: 1,
        metrics: None,
        agents: false,
        gates: GateSettings::default(),
        version: Version::new(0, 1, 0),
    };
    Shared {
        client: client.clone(),
        options: Arc::new(options),
        metrics: Arc::new(Metrics::new()),
        health: Arc::new(LoopHealth::default()),
        agents: Arc::new(watch::channel(AgentRollout::default()).0),
        provisions: Arc::new(watch::channel(false).0),
        evictions: Arc::default(),
        connections: Arc::default(),
        nodes: Arc::default(),
    }
}

/// Who tells of a CephMaintenance.
pub(super) fn writer(shared: &Shared, of: &CephMaintenance) -> (Arc<StatusWriter>, Arc<ClusterMetrics>) {
    let metrics = Arc::new(shared.metrics.cluster("n", "c"));
    let watchers = Watchers {
        events: EventPublisher::new(&shared.client, "one", of.object_ref(&())),
        metrics: Arc::clone(&metrics),
    };
    (Arc::new(StatusWriter::new(&shared.client, of, watchers)), metrics)
}
