use serde_json::{Value, json};

use super::*;

fn of<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

fn pod(name: &str, labels: &Value, node: &str, ready: bool) -> Pod {
    let ready = if ready { "True" } else { "False" };
    of(json!({
        "metadata": { "name": name, "labels": labels },
        "spec": { "nodeName": node, "containers": [] },
        "status": { "phase": "Running", "conditions": [{ "type": "Ready", "status": ready }] },
    }))
}

fn osd(id: u32, node: &str, ready: bool) -> Pod {
    let labels = json!({ "app": "rook-ceph-osd", "ceph-osd-id": id.to_string(), "host": node });
    pod(&format!("rook-ceph-osd-{id}-x"), &labels, node, ready)
}

/// Three OSDs are over it, of which so many may go.
fn budget(name: &str, labels: &Value, allowed: i32) -> PodDisruptionBudget {
    of(json!({
        "metadata": { "name": name, "generation": 2 },
        "spec": { "selector": { "matchLabels": labels }, "maxUnavailable": 0 },
        "status": {
            "disruptionsAllowed": allowed, "observedGeneration": 2,
            "currentHealthy": 3, "desiredHealthy": 3 - allowed, "expectedPods": 3,
        },
    }))
}

fn why(pod: &Pod, budgets: &[PodDisruptionBudget]) -> String {
    may_be_evicted(pod, budgets).unwrap_err()
}

/// As Rook has it while host `a` drains.
#[test]
fn the_pods_of_cordoned_nodes_are_told_with_the_budget_that_holds_them() {
    let nodes = ["a", "b", "c"].map(|name| {
        of::<Node>(json!({ "metadata": { "name": name }, "spec": { "unschedulable": name != "c" } }))
    });
    let gateway = json!({ "app": "rook-ceph-rgw", "ceph_daemon_id": "store", "rook_object_store": "store" });
    let mut on_every_node = pod("exporter", &json!({}), "b", true);
    on_every_node.metadata.owner_references = Some(vec![of(json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet", "name": "exporter", "uid": "1",
    }))]);
    let pods = [
        osd(0, "a", true),
        osd(1, "b", true),
        osd(2, "c", true),
        pod("rook-ceph-rgw-store-a-y", &gateway, "b", true),
        on_every_node,
    ];
    let budgets = [budget(
        "rook-ceph-osd-host-b",
        &json!({ "host": "b", "app": "rook-ceph-osd" }),
        0,
    )];
    let seen = cordoned(&nodes, &pods, &budgets);
    assert_eq!(seen.len(), 2);
    assert_eq!(
        (seen[0].node.as_str(), &seen[0].may_go[..]),
        ("a", &["osd.0".to_owned()][..])
    );
    assert!(seen[0].blocked.is_empty());
    assert_eq!(seen[1].may_go, ["rook-ceph-rgw-store-a-y"]);
    let blocked: Vec<_> = seen[1].blocked.iter().collect();
    let why =
        "PodDisruptionBudget rook-ceph-osd-host-b lets none go: 3 of 3 pods are ready, and 3 have to be";
    assert_eq!(blocked, [(&"osd.1".to_owned(), &why.to_owned())]);
}

#[test]
fn it_is_answered_as_the_eviction_api_does() {
    let all = json!({ "app": "rook-ceph-osd" });
    let closed = budget("closed", &all, 0);
    let open = budget("open", &all, 1);
    let (ready, unready) = (osd(0, "a", true), osd(1, "a", false));
    assert_eq!(may_be_evicted(&ready, &[]), Ok(()));
    assert_eq!(may_be_evicted(&ready, std::slice::from_ref(&open)), Ok(()));
    assert!(why(&ready, &[closed.clone(), open.clone()]).contains("closed and open are all over it"));
    // Who is not ready goes where all that have to be are.
    assert_eq!(may_be_evicted(&unready, std::slice::from_ref(&closed)), Ok(()));
    let mut short = closed.clone();
    short.status.as_mut().unwrap().current_healthy = Some(2);
    assert!(why(&unready, std::slice::from_ref(&short)).contains("2 of 3 pods are ready, and 3 have to be"));
    short.spec.as_mut().unwrap().unhealthy_pod_eviction_policy = Some("AlwaysAllow".to_owned());
    assert_eq!(may_be_evicted(&unready, &[short]), Ok(()));
    let mut stale = open;
    stale.metadata.generation = Some(3);
    assert!(why(&ready, &[stale]).contains("not counted anew yet"));
    let mut pending = ready;
    pending.status.as_mut().unwrap().phase = Some("Pending".to_owned());
    assert_eq!(may_be_evicted(&pending, &[closed]), Ok(()));
}

#[test]
fn what_rook_tells_of_the_cluster_is_taken_from_it() {
    let found: DynamicObject = of(json!({
        "apiVersion": "ceph.rook.io/v1", "kind": "CephCluster", "metadata": { "name": "main" },
        "spec": { "cephVersion": { "image": "quay.io/ceph/ceph:v20.2.4" } },
        "status": {
            "phase": "Ready", "message": "Cluster created successfully",
            "ceph": { "health": "HEALTH_WARN", "details": {
                "PG_DEGRADED": { "message": "8 pgs undersized", "severity": "HEALTH_WARN" },
            } },
        },
    }));
    let mut seen = Unmanaged::of_cluster("rook-ceph", &found);
    assert_eq!(seen.image.as_deref(), Some("quay.io/ceph/ceph:v20.2.4"));
    assert_eq!(
        (seen.phase.as_deref(), seen.health.as_deref()),
        (Some("Ready"), Some("HEALTH_WARN"))
    );
    assert_eq!(seen.warnings["PG_DEGRADED"], "8 pgs undersized");
    let mut over = osd(7, "a", false);
    over.status.as_mut().unwrap().phase = Some("Succeeded".to_owned());
    seen.of_pods(&[osd(0, "a", true), osd(1, "a", false), over]);
    assert_eq!((seen.pods, &seen.not_ready[..]), (2, &["osd.1".to_owned()][..]));
    assert!(!seen.is_blocked());
    let nothing: DynamicObject = of(json!({ "metadata": { "name": "main" }, "spec": {} }));
    let seen = Unmanaged::of_cluster("rook-ceph", &nothing);
    assert!(seen.phase.is_none() && seen.warnings.is_empty());
}
