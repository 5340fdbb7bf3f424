//! Reports monitors that a running Rook does not manage.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use super::Shared;
use crate::api::cache::ObjectCache;
use crate::api::rook_operator;
use crate::executor::beside::unwatched;
use crate::observability::writer::StatusWriter;

/// How often it is looked; nobody is asked anything while no monitor has the label.
const LOOK: Duration = Duration::from_secs(30);
/// Whether Rook runs is asked no more often than that.
const ASK: u32 = 10;
/// What is wrong.
const REASON: &str = "RookLooksAfterNoMonitor";

/// Tells of them until its task is ended.
pub(crate) async fn run(
    shared: Shared,
    namespace: String,
    watched: Arc<ObjectCache>,
    writer: Arc<StatusWriter>,
) {
    // It runs, as far as was seen, and how many looks ago.
    let mut rook: Option<(bool, u32)> = None;
    loop {
        let (daemons, _) = watched.daemons();
        let why = unwatched(&daemons, &namespace, Timestamp::now());
        rook = match (&why, rook) {
            (None, _) => None,
            (Some(_), Some((runs, looks))) if looks < ASK => Some((runs, looks + 1)),
            (Some(_), known) => match rook_operator::running(&shared.client, &namespace, &watched).await {
                Ok(runs) => Some((runs.is_some(), 0)),
                Err(error) => {
                    tracing::warn!(%error, "whether Rook looks after monitors is not known");
                    known
                }
            },
        };
        // Where Rook does not run, it looks after nothing, and that is known.
        let why = why.filter(|_| rook.is_some_and(|(runs, _)| runs));
        let told = why.map(|why| ("monitors".to_owned(), why));
        writer.set_problems(REASON, told.into_iter().collect::<BTreeMap<_, _>>());
        tokio::time::sleep(LOOK).await;
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::api::fake::FakeApi;
    use crate::api::maintenance;
    use crate::api::names::DO_NOT_RECONCILE;
    use crate::reconcile::fixture::{shared, writer};

    const DAEMONS: &str = "/apis/apps/v1/namespaces/n/deployments";
    const ALL: &str = "/apis/apps/v1/deployments";

    fn monitor(labels: &Value) -> Value {
        let mut all = json!({ "app": "rook-ceph-mon", "rook_cluster": "n", "ceph_daemon_id": "a" });
        crate::api::names::add(&mut all, labels);
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": { "name": "rook-ceph-mon-a", "namespace": "n", "uid": "a", "resourceVersion": "1", "labels": all },
            "spec": { "selector": {}, "template": { "spec": { "containers": [{ "name": "mon" }] } } },
        })
    }

    fn rook(replicas: u32) -> Vec<Value> {
        vec![json!({
            "metadata": { "name": "rook-ceph-operator", "namespace": "rook" },
            "spec": {
                "replicas": replicas, "selector": {},
                "template": { "spec": { "containers": [{ "name": "rook-ceph-operator" }] } },
            },
        })]
    }

    /// And no more once they are back, or Rook is scaled to nothing.
    #[tokio::test(start_paused = true)]
    async fn who_is_not_looked_after_is_told_for_as_long_as_rook_runs() {
        let api = FakeApi::default();
        api.has(DAEMONS, vec![monitor(&json!({ DO_NOT_RECONCILE: "true" }))]);
        api.has(ALL, rook(1));
        let shared = shared(&api.client());
        let desired = maintenance::desired(json!({}), json!({}));
        let (writer, _) = writer(&shared, &desired.maintenance);
        let watched = Arc::new(ObjectCache::begin(&shared.client, "n", shared.nodes()));
        watched.wait_until_synced().await;
        let (of_task, told) = (Arc::clone(&watched), Arc::clone(&writer));
        let task = tokio::spawn(run(shared, "n".to_owned(), of_task, told));
        let is_told = async |looks: u32| {
            tokio::time::sleep(LOOK * looks).await;
            writer.current_status().troubles.contains_key(REASON)
        };
        assert!(is_told(1).await);
        api.has(ALL, rook(0));
        assert!(!is_told(ASK + 2).await);
        api.has(ALL, rook(1));
        assert!(is_told(ASK + 2).await);
        api.send_modified(DAEMONS, &monitor(&json!({})));
        assert!(!is_told(2).await);
        task.abort();
    }
}
