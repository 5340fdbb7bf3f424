//! RabbitMQ's management API: what is asked and told, on answers that RabbitMQ 3.10.8 gave.

use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use axum::http::{Method, StatusCode, Uri};
use axum::response::IntoResponse as _;
use percent_encoding::percent_decode_str;
use serde_json::{Value, json};
use stagger_core::model::Fact;
use stagger_ironic::balancer::ServerState;
use stagger_ironic::client::{IronicClient as _, RemoteIronic};
use stagger_ironic::config::{IronicSettings, RabbitMq};
use stagger_ironic::rabbitmq::{Exchange, RoutingChange};

use crate::common::setup;

/// What it was told: method, path and body.
type Told = Arc<Mutex<Vec<(String, Value)>>>;

const OWN: &str = "ironic.conductor_manager.c1:8089";

fn binding(exchange: &str, key: &str, queue: &str) -> Value {
    json!({ "source": exchange, "vhost": "/", "destination": queue, "destination_type": "queue",
            "routing_key": key, "arguments": {}, "properties_key": key })
}

/// `c1` is bound and taken from; nobody takes from the queue of `c2`, and its calls go to `c1`.
fn answer(path: &str, tag: &str) -> Option<Value> {
    let other = "ironic.conductor_manager.c2:8089";
    let queue = |consumers: Value, messages: u32| json!({ "consumer_details": consumers, "messages": messages, "durable": false, "auto_delete": false });
    Some(match path {
        "whoami" => json!({ "name": "stagger", "tags": [tag] }),
        "exchanges|/|ironic" => {
            json!({ "name": "ironic", "type": "topic", "durable": false, "policy": "stagger.ironic" })
        }
        "exchanges|/|stagger.ironic" => {
            json!({ "name": "stagger.ironic", "type": "direct", "durable": true })
        }
        "exchanges|/|ironic|bindings|source" => json!([
            binding("ironic", "ironic.conductor_manager", "ironic.conductor_manager"),
            binding("ironic", OWN, OWN),
        ]),
        "exchanges|/|stagger.ironic|bindings|source" => json!([binding("stagger.ironic", other, OWN)]),
        "queues|/|ironic.conductor_manager.c1:8089" => queue(json!([{ "consumer_tag": "1" }]), 2),
        "queues|/|ironic.conductor_manager.c2:8089" => queue(json!([]), 0),
        _ => return None,
    })
}

/// One whose user has that tag, and an Ironic that is configured to be called over it.
async fn broker(tag: &'static str) -> (RemoteIronic, Told) {
    let told: Told = Arc::default();
    let heard = Arc::clone(&told);
    let app = Router::new().fallback(async move |method: Method, uri: Uri, body: Bytes| {
        let parts = uri.path().trim_start_matches("/api/").split('/');
        let parts: Vec<String> = parts
            .map(|part| percent_decode_str(part).decode_utf8().unwrap().into_owned())
            .collect();
        if method == Method::GET {
            return match answer(&parts.join("|"), tag) {
                Some(found) => axum::Json(found).into_response(),
                None => (
                    StatusCode::NOT_FOUND,
                    axum::Json(json!({ "reason": "Not Found" })),
                )
                    .into_response(),
            };
        }
        let body = serde_json::from_slice(&body).unwrap_or(Value::Null);
        heard
            .lock()
            .unwrap()
            .push((format!("{method} {}", parts.join("|")), body));
        StatusCode::CREATED.into_response()
    });
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
    let setup = setup("26.1.6");
    let password_file = setup.folder.path().join("password");
    std::fs::write(&password_file, "secret").unwrap();
    let mut permissions = std::fs::metadata(&password_file).unwrap().permissions();
    std::os::unix::fs::PermissionsExt::set_mode(&mut permissions, 0o600);
    std::fs::set_permissions(&password_file, permissions).unwrap();
    let mut config = setup.settings.cluster.clone();
    config.rabbitmq = Some(RabbitMq {
        url,
        user: "stagger".to_owned(),
        password_file,
        vhost: "/".to_owned(),
        exchange: "ironic".to_owned(),
    });
    let client = RemoteIronic::new(IronicSettings::new(config, setup.settings.hosts.clone())).unwrap();
    (client, told)
}

#[tokio::test]
async fn how_calls_are_routed_is_read_from_exchanges_bindings_and_queues() {
    let (client, _) = broker("policymaker").await;
    let Some(Fact::Yes(routing)) = client.routing().await else {
        panic!()
    };
    assert!(routing.diverts && routing.policy_of_others.is_none());
    assert_eq!(routing.state("c1:8089").0, ServerState::Up);
    assert_eq!(routing.calls("c1:8089"), 2);
    assert_eq!(
        routing.state("c2:8089"),
        (ServerState::Down, "without consumers".to_owned())
    );
    assert!(routing.stand_ins["c2:8089"].contains("c1:8089"));
    assert!(!routing.stand_ins.contains_key("c1:8089"));
}

#[tokio::test]
async fn who_may_set_no_policy_is_told_so_before_anything_begins() {
    let (client, _) = broker("monitoring").await;
    let Some(Fact::No(why)) = client.routing().await else {
        panic!()
    };
    assert!(why.contains("stagger has not the tag `policymaker`"), "{why}");
    let (client, _) = broker("administrator").await;
    assert!(matches!(client.routing().await, Some(Fact::Yes(_))));
}

#[tokio::test]
async fn a_change_is_told_by_names_that_may_have_any_letter() {
    let (client, told) = broker("policymaker").await;
    let names = || ("c1:8089".to_owned(), "c2:8089".to_owned());
    let (conductor, queue) = names();
    let bind = RoutingChange::Bind {
        exchange: Exchange::Alternate,
        conductor,
        queue,
    };
    let (conductor, _) = names();
    let unbind = RoutingChange::Unbind {
        exchange: Exchange::Ironic,
        queue: conductor.clone(),
        conductor,
    };
    for change in [RoutingChange::Prepare, bind, unbind] {
        client.reroute(&change).await.unwrap();
    }
    let told = told.lock().unwrap().clone();
    let lines: Vec<&str> = told.iter().map(|(line, _)| line.as_str()).collect();
    assert_eq!(
        lines,
        [
            "PUT exchanges|/|stagger.ironic",
            "PUT policies|/|stagger.ironic",
            "POST bindings|/|e|stagger.ironic|q|ironic.conductor_manager.c2:8089",
            "DELETE bindings|/|e|ironic|q|ironic.conductor_manager.c1:8089|ironic.conductor_manager.c1:8089",
        ]
    );
    assert_eq!(
        told[1].1["definition"],
        json!({ "alternate-exchange": "stagger.ironic" })
    );
    assert_eq!(told[1].1["pattern"], "^ironic$");
    assert_eq!(told[2].1, json!({ "routing_key": OWN }));
}
