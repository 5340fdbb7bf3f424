//! The backend has the laws of executors and of locks. The laws of sources, planners and guards are Ceph's to pass: Rook's operator
//! looks at facts, plans and takes guards through Ceph's backend, and what it plans by it asks for on the way (`reconcile`).

use std::collections::BTreeMap;

use stagger_ceph::api::{CephAnswer, CephApi, CephApiError, QueryTarget};
use stagger_ceph::config::{CephSettings, Reboot};
use stagger_ceph::translate::{Baseline, HealthPolicy};
use stagger_conformance::executor::{an_older_holder_is_refused, performed_twice_is_performed_once};
use stagger_conformance::lock;
use stagger_core::model::RunId;
use stagger_engine::hosts::Hosts;

use super::*;
use crate::api::fake::FakeApi;
use crate::api::maintenance::desired;
use crate::api::nodes::NodeCache;
use crate::executor::goal::Goal;

const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/n/deployments";
const NAME: &str = "rook-ceph-osd-3";

/// Ceph's monitors, as far as the lock goes.
#[derive(Default)]
struct ConfigKeys(Mutex<BTreeMap<String, String>>);

#[async_trait]
impl CephApi for ConfigKeys {
    async fn command(&self, _: QueryTarget, command: Value) -> Result<CephAnswer, CephApiError> {
        let mut keys = self.0.lock().unwrap();
        let word = |name: &str| command[name].as_str().unwrap_or_default().to_owned();
        let out = match word("prefix").as_str() {
            "config-key set" => {
                keys.insert(word("key"), word("val"));
                Value::Null
            }
            "config-key rm" => {
                keys.remove(&word("key"));
                Value::Null
            }
            "config-key dump" => {
                let below = keys.iter().filter(|(key, _)| key.starts_with(&word("key")));
                json!(below.collect::<BTreeMap<_, _>>())
            }
            other => panic!("{other}"),
        };
        Ok(CephAnswer {
            rc: 0,
            out: out.to_string().into_bytes(),
            err: String::new(),
        })
    }
}

fn wanted() -> Desired {
    desired(json!({}), json!({ "manage": ["updates"], "image": "ceph:20" }))
}

/// What the run makes of daemons.
fn made() -> PodRevision {
    Goal::of(&wanted(), true).unwrap().pod_revision("osd", "20.2.4")
}

/// A process with a run, and a watch of its own.
async fn process(api: &FakeApi, monitors: &Arc<ConfigKeys>) -> RookBackend {
    let client = api.client();
    let nodes = Arc::new(NodeCache::begin(&client));
    let watched = Arc::new(ObjectCache::begin(&client, "n", nodes));
    watched.wait_until_synced().await;
    let settings = CephSettings {
        cluster: serde_json::from_value(json!({ "name": "c", "lock_expires": 1 })).unwrap(),
        hosts: Hosts::default(),
        software: serde_json::from_value(json!({})).unwrap(),
        health: HealthPolicy::default(),
        reboot: Reboot::default(),
    };
    let memory = RookMemory {
        baseline: Baseline {
            at: Timestamp::UNIX_EPOCH,
            fsid: String::new(),
            health: BTreeMap::new(),
            mgr_standbys: 0,
            osds_in: BTreeSet::new(),
            crashes: BTreeSet::new(),
            daemons: BTreeMap::new(),
        },
        book: [(made().revision().unwrap(), made())].into(),
        wish: Goal::of(&wanted(), true).unwrap(),
        beside: None,
    };
    RookBackend::new(RookBackendParts {
        ceph: CephBackend::new(Arc::clone(monitors) as Arc<dyn CephApi>, settings, None),
        client,
        namespace: "n".to_owned(),
        cluster: ClusterName::new("c").unwrap(),
        watched,
        desired: watch::channel(Arc::new(wanted())).1,
        memory,
        exposed: Arc::default(),
        unchecked: Box::new(|_| ()),
    })
}

/// One OSD, which runs `ceph:19`.
fn osd() -> FakeApi {
    let api = FakeApi::default();
    let labels = json!({ "app": "rook-ceph-osd", "ceph_daemon_type": "osd", "ceph_daemon_id": "3", "ceph-osd-id": "3" });
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": { "name": NAME, "namespace": "n", "uid": "u", "labels": labels, "generation": 1 },
        "spec": {
            "replicas": 1,
            "selector": { "matchLabels": { "ceph-osd-id": "3" } },
            "template": { "spec": { "containers": [{ "name": "osd", "image": "ceph:19" }] } },
        },
        "status": { "observedGeneration": 1, "replicas": 1, "updatedReplicas": 1, "readyReplicas": 1 },
    });
    api.keeps(DEPLOYMENTS, vec![deployment]);
    api
}

fn call(fence: u64) -> Call {
    Call {
        run: RunId::new("run-1").unwrap(),
        seq: 7,
        announced: 1,
        fence,
        deadline: None,
    }
}

#[tokio::test]
async fn its_executor_has_the_laws_of_every_executor() {
    let unit = || UnitId::new("osd.3").unwrap();
    let change = Action::Visit {
        unit: unit(),
        phase: Phase::Change,
        revision: made().revision().unwrap(),
        moves: Vec::new(),
    };
    let actions = [
        (change, "ceph:20"),
        (Action::Restart { unit: unit() }, "restarted"),
    ];
    let monitors = Arc::default();
    for (action, word) in actions {
        let api = osd();
        // The token is noted beside it.
        let pods = async || api.object(DEPLOYMENTS, NAME).unwrap()["spec"].clone();
        let [one, other] = [process(&api, &monitors).await, process(&api, &monitors).await];
        let said = performed_twice_is_performed_once([&one, &other], &call(1), &action, pods).await;
        assert!(said.contains(word), "{said}");

        let api = osd();
        let pods = async || api.object(DEPLOYMENTS, NAME).unwrap()["spec"].clone();
        let one = process(&api, &monitors).await;
        an_older_holder_is_refused(&one, &call(1), &call(2), &action, pods).await;
    }
}

#[tokio::test]
async fn its_lock_has_the_laws_of_every_lock() {
    let (api, monitors) = (FakeApi::default(), Arc::default());
    let mut all = Vec::new();
    for _ in 0..8 {
        all.push(process(&api, &monitors).await);
    }
    lock::the_anchor_outlives_the_lock(&all[0]).await;
    lock::one_writer_at_a_time(&all[0], &all[1]).await;
    lock::a_silent_holder_is_waited_out(&all[0], &all[1]).await;
    let crowd: Vec<&dyn Lock> = all.iter().map(|backend| backend as &dyn Lock).collect();
    lock::of_a_crowd_one_has_it(&crowd, Duration::from_secs(20)).await;
}
