//! Asks and grants over HTTP: who may, what cannot be meant, and `FleetLock` with forty clients beside a run.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use stagger_asks::gate::{AskGate, GatePolicy};
use stagger_asks::{AskLedger, ClaimingBackend, LedgerLocation};
use stagger_core::model::{ClusterName, Phase, Revision, RunId};
use stagger_core::run::{Action, Answer as Judged};
use stagger_engine::clock::SystemClock;
use stagger_engine::cluster::{Call, Executor as _};

use crate::server::Served;
use crate::toy::Toy;

const ASKS: &str = "/v1/asks";

async fn ledger(folder: &Path) -> AskLedger {
    let at = LedgerLocation::File(folder.join("asks.db"));
    let ledger = at.open().await.unwrap();
    let name = ClusterName::new("toy").unwrap();
    ledger.register(&Toy::identity(), &name).await.unwrap();
    ledger
}

/// A gate that answers until it is dropped.
struct Answering(tokio::task::JoinHandle<()>);

impl Drop for Answering {
    fn drop(&mut self) {
        self.0.abort();
    }
}

async fn answering(toy: &Arc<Toy>, ledger: &AskLedger) -> Answering {
    let name = ClusterName::new("toy").unwrap();
    let policy = GatePolicy {
        facts_age: Duration::ZERO,
        patience: SignedDuration::from_secs(2),
        ..GatePolicy::default()
    };
    let clock = Arc::new(SystemClock);
    let backend = Arc::clone(toy);
    let cluster = Toy::identity();
    let taken = AskGate::take(backend, ledger.clone(), &cluster, &name, "test", clock, policy);
    let mut gate = taken.await.unwrap().unwrap();
    Answering(tokio::spawn(async move {
        loop {
            gate.step().await.unwrap();
            tokio::time::sleep(Duration::from_millis(3)).await;
        }
    }))
}

fn body(host: &str) -> String {
    json!({ "hosts": [host], "for": 600, "why": "kernel" }).to_string()
}

#[tokio::test]
async fn an_ask_is_answered_with_a_grant_or_with_why_and_when() {
    let served = Served::at_address().await;
    let toy = Arc::new(Toy::ring(6));
    let token = served.token("ask", &[]);
    let as_asker = [("authorization", token.as_str())];
    // Nobody has ever answered for any cluster.
    let refused = served.post(ASKS, &as_asker, &body("host0")).await;
    assert_eq!((refused.status, refused.problem().as_str()), (404, "no-gate"));
    let ledger = ledger(served.folder()).await;
    let put = served.post(ASKS, &as_asker, &body("host0")).await;
    assert_eq!(put.status, 201, "{put:?}");
    assert_eq!(put.json()["answered_for"], false);
    let at = put.header("location").unwrap();
    let waiting = served.with(&at, &as_asker).await.json();
    assert_eq!(
        (waiting["state"].as_str(), waiting["by"].as_str()),
        (Some("waiting"), Some("token ask"))
    );

    let gate = answering(&toy, &ledger).await;
    let granted = served.with(&format!("{at}?wait=20"), &as_asker).await.json();
    assert_eq!(granted["state"], "granted", "{granted}");
    assert!(granted["fence"].as_u64().unwrap() > 0);
    let second = served.post(ASKS, &as_asker, &body("host1")).await.json();
    let path = format!("{ASKS}/{}", second["id"].as_str().unwrap());
    let told = loop {
        let told = served.with(&path, &as_asker).await.json();
        if told["reason"].is_string() {
            break told;
        }
    };
    assert_eq!(told["state"], "waiting");
    assert_eq!(told["ahead"], 0);
    let earliest: Timestamp = told["earliest"].as_str().unwrap().parse().unwrap();
    assert!(
        earliest > Timestamp::now() + SignedDuration::from_secs(500),
        "{told}"
    );

    // The page has both, without a script.
    let look = served.token("look", &[]);
    let page = served.with("/", &[("authorization", look.as_str())]).await.body;
    assert!(page.contains("Asks and grants of toy"), "{page}");
    assert!(page.contains("host0") && page.contains("host1") && page.contains("token ask"));

    let done = served.post(&format!("{at}/done"), &as_asker, "").await.json();
    assert_eq!(
        (done["state"].as_str(), done["ended"].as_str()),
        (Some("ended"), Some("done"))
    );
    let granted = served.with(&format!("{path}?wait=20"), &as_asker).await.json();
    assert_eq!(granted["state"], "granted", "{granted}");
    let gone = served.ask("DELETE", &path, &as_asker, "").await.json();
    assert_eq!(gone["ended"], "withdrawn");
    drop(gate);
    // The record stays.
    let list = served.with(ASKS, &as_asker).await.json();
    assert_eq!(list["asks"].as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn who_may_ask_may_do_nothing_else_and_who_looks_does_not_ask() {
    let served = Served::at_address().await;
    let ledger = ledger(served.folder()).await;
    let (ask, look, operate) = (
        served.token("ask", &[]),
        served.token("look", &[]),
        served.token("operate", &[]),
    );
    let foreign = served.token("approve", &["demo"]);
    for path in [
        "/",
        "/v1/runs",
        "/v1/runs/sim-demo",
        "/metrics",
        "/runs/sim-demo",
        "/parts",
    ] {
        let refused = served.with(path, &[("authorization", ask.as_str())]).await;
        assert_eq!(refused.status, 403, "{path}");
    }
    let refused = served
        .post(ASKS, &[("authorization", look.as_str())], &body("host0"))
        .await;
    assert_eq!(refused.status, 403);
    let refused = served.post(ASKS, &[], &body("host0")).await;
    assert_eq!(refused.status, 401);
    let refused = served
        .post(ASKS, &[("authorization", foreign.as_str())], &body("host0"))
        .await;
    assert_eq!(refused.problem(), "no-gate", "a token of another cluster");

    let by_operator = served
        .post(ASKS, &[("authorization", operate.as_str())], &body("host0"))
        .await;
    assert_eq!(by_operator.status, 201);
    let at = by_operator.header("location").unwrap();
    for (token, status) in [(&ask, 404), (&foreign, 404), (&look, 200)] {
        let seen = served.with(&at, &[("authorization", token.as_str())]).await;
        assert_eq!(seen.status, status);
    }
    let refused = served
        .post(&format!("{at}/done"), &[("authorization", ask.as_str())], "")
        .await;
    assert_eq!(refused.status, 404);
    let refused = served
        .post(&format!("{at}/done"), &[("authorization", look.as_str())], "")
        .await;
    assert_eq!(refused.status, 403);
    let board = ledger.board(&Toy::identity()).await.unwrap();
    assert_eq!(board.asks.len(), 1, "nothing was done by any of them");
}

#[tokio::test]
async fn what_cannot_be_meant_is_refused_and_nothing_is_reflected() {
    let served = Served::at_address().await;
    let ledger = ledger(served.folder()).await;
    let token = served.token("operate", &[]);
    let headers = [("authorization", token.as_str())];
    let many: Vec<String> = (0..101).map(|n| format!("h{n}")).collect();
    for (odd, status) in [
        (json!({}), 422),
        (json!({ "hosts": ["h"], "for": "20m" }), 422),
        (json!({ "hosts": "h", "for": 60 }), 422),
        (json!({ "hosts": ["h"], "for": -1 }), 422),
        (json!({ "hosts": ["h"], "for": 60, "force": true }), 422),
        (json!({ "hosts": ["h"], "for": 60, "until": "tomorrow" }), 422),
        (json!({ "hosts": ["<script>alert(1)</script>"], "for": 60 }), 422),
        (json!({ "hosts": ["a b"], "for": 60 }), 422),
        (json!({ "units": [""], "for": 60 }), 422),
        (json!({ "for": 60 }), 409),
        (json!({ "hosts": ["h"], "for": 0 }), 409),
        (json!({ "hosts": ["h"], "for": 4_000_000_000_u32 }), 409),
        (
            json!({ "hosts": ["h"], "for": 60, "until": "2001-01-01T00:00:00Z" }),
            409,
        ),
        (
            json!({ "hosts": ["h"], "for": 60, "until": "9999-01-01T00:00:00Z" }),
            409,
        ),
        (json!({ "hosts": ["h"], "for": 60, "why": "a\u{7}b" }), 409),
        (json!({ "hosts": ["h"], "for": 60, "why": "x".repeat(61) }), 422),
        (json!({ "hosts": many, "for": 60 }), 422),
        (json!({ "hosts": ["h"], "for": 60, "cluster": "other" }), 404),
    ] {
        let refused = served.post(ASKS, &headers, &odd.to_string()).await;
        assert_eq!(refused.status, status, "{odd}: {}", refused.body);
        refused.problem();
    }
    let large = format!(r#"{{"hosts":["h"],"for":60,"why":"{}"}}"#, "x".repeat(100_000));
    assert_eq!(served.post(ASKS, &headers, &large).await.status, 413);
    let deep = "[".repeat(50_000);
    assert_eq!(served.post(ASKS, &headers, &deep).await.status, 422);
    for path in [
        "/v1/asks/a-0",
        "/v1/asks/%3Cscript%3E",
        "/v1/asks/a-0123456789abcdef",
    ] {
        assert_eq!(served.with(path, &headers).await.status, 404, "{path}");
        assert_eq!(
            served.post(&format!("{path}/done"), &headers, "").await.status,
            404,
            "{path}"
        );
        assert_eq!(
            served.ask("DELETE", path, &headers, "").await.status,
            404,
            "{path}"
        );
    }
    let wait = served.with("/v1/asks/a-0123456789abcdef?wait=26", &headers).await;
    assert_eq!(wait.status, 422);
    // The same key is the same ask, and no other.
    let keyed = [("authorization", token.as_str()), ("idempotency-key", "k1")];
    let first = served.post(ASKS, &keyed, &body("host0")).await.json();
    let again = served.post(ASKS, &keyed, &body("host0")).await.json();
    assert_eq!(first["id"], again["id"]);
    assert_eq!(served.post(ASKS, &keyed, &body("host1")).await.status, 422);
    // Markup in a reason is text on the page.
    let markup = json!({ "hosts": ["host3"], "for": 60, "why": "<img src=x onerror=alert(1)>" });
    assert_eq!(served.post(ASKS, &headers, &markup.to_string()).await.status, 201);
    let page = served.with("/", &headers).await.body;
    assert!(!page.contains("<img src=x"), "{page}");
    assert_eq!(ledger.board(&Toy::identity()).await.unwrap().asks.len(), 2);
}

/// `fleet-lock-protocol`, and who asks.
async fn fleetlock(served: &Served, token: &str, path: &str, id: &str) -> (u16, Value) {
    let body = json!({ "client_params": { "id": id, "group": "default" } }).to_string();
    let path = format!("/fleetlock/{token}/v1/{path}");
    let answer = served
        .post(&path, &[("fleet-lock-protocol", "true")], &body)
        .await;
    (
        answer.status,
        serde_json::from_str(&answer.body).unwrap_or_default(),
    )
}

#[tokio::test]
async fn fleetlock_is_spoken_as_its_clients_do() {
    let served = Served::at_address().await;
    let (toy, ledger) = (Arc::new(Toy::ring(4)), ledger(served.folder()).await);
    let _gate = answering(&toy, &ledger).await;
    let bearer = served.token("ask", &[]);
    let token = bearer.strip_prefix("Bearer ").unwrap();
    // A client that starts is steady, whether it had anything or not.
    assert_eq!(fleetlock(&served, token, "steady-state", "host0").await.0, 200);
    assert_eq!(fleetlock(&served, token, "pre-reboot", "host0").await.0, 200);
    assert_eq!(
        fleetlock(&served, token, "pre-reboot", "host0").await.0,
        200,
        "it is recursive"
    );
    let (status, why) = fleetlock(&served, token, "pre-reboot", "host1").await;
    assert_eq!((status, why["kind"].as_str()), (409, Some("not_now")));
    assert!(
        why["value"].as_str().unwrap().contains("at the earliest"),
        "{why}"
    );
    assert_eq!(fleetlock(&served, token, "steady-state", "host0").await.0, 200);
    assert_eq!(fleetlock(&served, token, "pre-reboot", "host1").await.0, 200);
    let (status, why) = fleetlock(&served, token, "pre-reboot", "host99").await;
    assert_eq!((status, why["kind"].as_str()), (409, Some("refused")));

    let path = |token: &str| format!("/fleetlock/{token}/v1/pre-reboot");
    let meant = [("fleet-lock-protocol", "true")];
    let good = json!({ "client_params": { "id": "host2", "group": "default" } }).to_string();
    let look = served.token("look", &[]);
    let look = look.strip_prefix("Bearer ").unwrap();
    for (path, headers, body, status, kind) in [
        (path(token), &[][..], good.as_str(), 400, "malformed_request"),
        (
            path(token),
            &[("fleet-lock-protocol", "1")][..],
            &good,
            400,
            "malformed_request",
        ),
        (path("stagger_nonsense"), &meant[..], &good, 403, "forbidden"),
        (path(look), &meant[..], &good, 403, "forbidden"),
        (path(token), &meant[..], "{}", 400, "malformed_request"),
        (
            path(token),
            &meant[..],
            r#"{"client_params":{"id":"","group":"default"}}"#,
            400,
            "malformed_request",
        ),
        (
            path(token),
            &meant[..],
            r#"{"client_params":{"id":"a b","group":"default"}}"#,
            400,
            "malformed_request",
        ),
        (
            path(token),
            &meant[..],
            r#"{"client_params":{"id":"h","group":"<b>"}}"#,
            400,
            "malformed_request",
        ),
        (
            format!("/fleetlock/{token}/other/v1/pre-reboot"),
            &meant[..],
            &good,
            404,
            "no_cluster",
        ),
    ] {
        let refused = served.post(&path, headers, body).await;
        assert_eq!(
            (refused.status, refused.json()["kind"].as_str()),
            (status, Some(kind)),
            "{body}"
        );
        assert!(!refused.json()["value"].as_str().unwrap().is_empty());
        assert!(!refused.body.contains(token), "the token is not repeated");
    }
    let large = format!(
        r#"{{"client_params":{{"id":"{}","group":"default"}}}}"#,
        "x".repeat(100_000)
    );
    assert_eq!(served.post(&path(token), &meant, &large).await.status, 413);
}

/// Forty clients, each until it has rebooted, beside a run over all units, over TLS: never an unsafe moment, and everybody
/// has their turn.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn forty_fleetlock_clients_and_a_run_never_meet() {
    const HOSTS: usize = 40;
    let served = Arc::new(Served::at_address().await);
    // Three copies of everything, one of which may be away.
    let budgets = (0..HOSTS).map(|at| (vec![at, (at + 7) % HOSTS, (at + 19) % HOSTS], 1));
    let toy = Arc::new(Toy::new(HOSTS, budgets.collect()));
    let ledger = ledger(served.folder()).await;
    let _gate = answering(&toy, &ledger).await;
    let bearer = served.token("ask", &[]);
    let token = bearer.strip_prefix("Bearer ").unwrap().to_owned();
    let mut clients = Vec::new();
    for host in 0..HOSTS {
        let (served, toy, token) = (Arc::clone(&served), Arc::clone(&toy), token.clone());
        clients.push(tokio::spawn(async move {
            let id = Toy::host(host);
            while fleetlock(&served, &token, "pre-reboot", &id).await.0 != 200 {}
            toy.stop(host);
            tokio::time::sleep(Duration::from_millis(30)).await;
            toy.start(host);
            assert_eq!(fleetlock(&served, &token, "steady-state", &id).await.0, 200);
        }));
    }
    let run = ClaimingBackend::new(
        Arc::clone(&toy) as Arc<dyn stagger_engine::cluster::Backend>,
        ledger.clone(),
        Toy::identity(),
        RunId::new("r1").unwrap(),
        SignedDuration::from_secs(2),
        Arc::new(SystemClock),
    );
    let driven = tokio::spawn(async move {
        for at in 0..HOSTS {
            loop {
                run.observe().await.unwrap();
                let judged = run.check_stop(&[Toy::unit(at)]).await.unwrap();
                if judged == Judged::Yes {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            let call = Call {
                run: RunId::new("r1").unwrap(),
                seq: at as u64,
                announced: 1,
                fence: 1,
                deadline: None,
            };
            let change = Action::Visit {
                unit: Toy::unit(at),
                phase: Phase::Change,
                revision: Revision::new("2").unwrap(),
                moves: Vec::new(),
            };
            run.perform(&call, &change).await.unwrap();
        }
    });
    for client in clients {
        client.await.unwrap();
    }
    driven.await.unwrap();
    let truth = toy.truth.lock().unwrap();
    assert_eq!(truth.unsafe_moments, Vec::<String>::new());
    assert!(
        truth.most_down > 2,
        "{} at most were down at once",
        truth.most_down
    );
}
