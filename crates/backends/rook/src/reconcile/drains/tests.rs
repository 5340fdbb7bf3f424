use serde_json::Value;

use super::*;
use crate::api::fake::FakeApi;
use crate::api::maintenance;
use crate::api::names;
use crate::reconcile::fixture::{shared, writer};

const PODS: &str = "/api/v1/namespaces/n/pods";
const BUDGETS: &str = "/apis/policy/v1/namespaces/n/poddisruptionbudgets";

/// With Rook's budgets, as it is where `updates` alone is managed.
fn desired() -> Desired {
    let mut desired = maintenance::desired(json!({}), json!({ "manage": ["updates"] }));
    desired.maintenance.metadata.namespace = Some("n".to_owned());
    desired.cluster.metadata.namespace = Some("n".to_owned());
    desired
}

async fn drains(api: &FakeApi, desired: &Desired) -> DrainReconciler {
    let client = api.client();
    let shared = shared(&client);
    let (writer, metrics) = writer(&shared, &desired.maintenance);
    let watched = Arc::new(ObjectCache::begin(&client, "n", shared.nodes()));
    watched.wait_until_synced().await;
    DrainReconciler::new(shared, "n", "c", watched, writer, metrics)
}

fn pod(id: u32, goes: bool) -> Value {
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": format!("rook-ceph-osd-{id}-x"), "namespace": "n", "uid": format!("uid-{id}"), "resourceVersion": "1",
            "labels": { "app": "rook-ceph-osd", "rook_cluster": "n", "ceph-osd-id": id.to_string() },
        },
        "spec": { "containers": [{ "name": "osd" }] },
    });
    if goes {
        pod["metadata"]["deletionTimestamp"] = json!("2026-11-29T10:00:00Z");
    }
    pod
}

/// The webhook keeps all others from the moment at which the wave is open. Who was let go just before is seen to go first, or
/// both judges would be asked about a wave beside an OSD that is not there any more.
#[tokio::test]
async fn where_drains_are_somebody_else_s_a_wave_waits_until_all_are_seen_to_go_that_were_let_go() {
    let api = FakeApi::default();
    api.has(PODS, vec![pod(0, false), pod(1, false)]);
    let desired = desired();
    let mut drains = drains(&api, &desired).await;
    let wave = Some(BTreeSet::from([0]));
    let waits = |drains: &DrainReconciler| drains.writer.wave_exposure().is_unconfirmed(&wave);

    // The webhook is off, or the API server could not be told of it.
    let next = drains.pass(&desired, wave.clone()).await.unwrap();
    assert_eq!((next, waits(&drains)), (None, true));
    drains.shared.evictions.set_registered(true);

    // It was deleted, and the watch is behind.
    api.set_list(PODS, vec![pod(0, false), pod(1, true)]);
    let next = drains.pass(&desired, wave.clone()).await.unwrap();
    assert_eq!((next, waits(&drains)), (Some(Duration::ZERO), true));
    let mut changes = drains.watched.changes();
    changes.borrow_and_update();
    api.send_modified(PODS, &pod(1, true));
    changes.changed().await.unwrap();

    // Another's eviction was granted, and its pod is not yet deleted.
    let granted = json!({
        "metadata": { "name": names::DEFAULT_BUDGET },
        "status": {
            "currentHealthy": 1, "desiredHealthy": 1, "disruptionsAllowed": 0, "expectedPods": 2,
            "disruptedPods": { "rook-ceph-osd-0-x": "2026-11-29T10:00:00Z" },
        },
    });
    api.set_list(BUDGETS, vec![granted]);
    let next = drains.pass(&desired, wave.clone()).await.unwrap();
    assert_eq!((next, waits(&drains)), (Some(Duration::ZERO), true));

    api.set_list(BUDGETS, Vec::new());
    let next = drains.pass(&desired, wave.clone()).await.unwrap();
    assert_eq!((next, waits(&drains)), (None, false));

    // What was closed is open again where nobody is asked any more.
    drains.shared.evictions.set_registered(false);
    drains.pass(&desired, wave.clone()).await.unwrap();
    assert!(waits(&drains));
}
