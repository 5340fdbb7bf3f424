//! Calls between services of several releases, over real sockets.

mod objects;

use std::future::Future;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use http::{HeaderMap, HeaderValue, header};
use serde_json::{Map, Value, json};
use stagger_versioned::{Held, Pin, Pins, Registry, Version};
use stagger_versioned_rpc::{
    Authenticate, CallError, Caller, Client, ClientSettings, Denied, Handler, Interface, Method,
    NotInterface, OrElse, Refusal, Request, Running, Server, anyone, code,
};

use crate::ironic::{Node1_14, manifest, nodes, nodes_1_14, registry};

fn v(text: &str) -> Version {
    text.parse().unwrap()
}

/// The interface of the newest code, in the manner of Ironic's. 1.33 is that of newton.
fn methods() -> Vec<Method> {
    vec![
        Method::since("update_node", v("1.1"))
            .argument("node")
            .argument_since("reset_interfaces", v("1.38"), OrElse::Refuse),
        Method::since("destroy_node", v("1.9")).argument("node"),
        Method::since("heartbeat", v("1.33"))
            .argument("node_id")
            .argument_since("agent_version", v("1.36"), OrElse::LeaveOut)
            .argument_since("agent_token", v("1.40"), OrElse::Refuse),
        Method::since("get_nodes", v("1.39"))
            .argument("limit")
            .fallback("list_nodes"),
        Method::since("list_nodes", v("1.20")).argument("limit"),
        Method::since("inject_nmi", v("1.40")).argument("node_id"),
    ]
}

fn interface() -> Interface {
    Interface::new(v("1.40"), methods()).unwrap()
}

/// That of code of newton.
fn interface_1_33() -> Interface {
    let known = ["update_node", "destroy_node", "heartbeat", "list_nodes"];
    let methods = [
        Method::since(known[0], v("1.1")).argument("node"),
        Method::since(known[1], v("1.9")).argument("node"),
        Method::since(known[2], v("1.33")).argument("node_id"),
        Method::since(known[3], v("1.20")).argument("limit"),
    ];
    Interface::new(v("1.33"), methods).unwrap()
}

/// Answers with a node, and remembers what it was asked.
#[derive(Clone, Default)]
pub(crate) struct Conductor {
    pub(crate) asked: Arc<Mutex<Vec<String>>>,
    pub(crate) old: bool,
}

#[async_trait]
impl Handler for Conductor {
    async fn handle(&self, request: Request) -> Result<Value, Refusal> {
        let args: Vec<&String> = request.args.keys().collect();
        let line = format!(
            "{} {} {} {args:?}",
            request.caller.name, request.method, request.version
        );
        self.asked.lock().unwrap().push(line);
        match (request.method.as_str(), self.old) {
            ("update_node", false) => {
                let mut held = request.object("node", &nodes())?;
                // A service that is pinned says so where something is new to its pin.
                nodes().send_whole(&Held::new(held.value.clone()), &request.pin, None)?;
                held.value.labels.insert("seen".to_owned(), "yes".to_owned());
                request.answer(&held, &nodes())
            }
            ("update_node", true) => {
                let mut held = request.object("node", &nodes_1_14())?;
                held.value.extra.insert("seen".to_owned(), "yes".to_owned());
                request.answer(&held, &nodes_1_14())
            }
            ("destroy_node", _) => {
                let key = request.fields_of_any_version("node", "Node", &["uuid"])?;
                Ok(key["uuid"].clone())
            }
            ("inject_nmi", _) => Err(Refusal::new("node n1 is off: switch it on first")),
            _ => Ok(json!("done")),
        }
    }
}

fn pins(release: &str) -> Arc<Pins> {
    Arc::new(Pins::new(manifest(), release).unwrap())
}

fn pin(release: &str) -> Pin {
    Pin::read(manifest(), release).unwrap()
}

fn old_registry() -> Registry {
    Registry::new().with(Arc::new(nodes_1_14()))
}

pub(crate) async fn serve(conductor: &Conductor, release: &str) -> Running {
    serve_for(conductor, release, anyone()).await
}

async fn serve_for(conductor: &Conductor, release: &str, authenticate: Authenticate) -> Running {
    let (interface, registry) = if conductor.old {
        (interface_1_33(), old_registry())
    } else {
        (interface(), registry())
    };
    let server = Server::new(
        interface,
        registry,
        pins(release),
        authenticate,
        conductor.clone(),
    );
    server.start("127.0.0.1:0".parse().unwrap()).await.unwrap()
}

pub(crate) fn client(running: &Running) -> Client {
    let url = format!("http://{}", running.address());
    Client::new(&url, interface(), &registry(), ClientSettings::default()).unwrap()
}

pub(crate) fn old_client(running: &Running) -> Client {
    let url = format!("http://{}", running.address());
    Client::new(&url, interface_1_33(), &old_registry(), ClientSettings::default()).unwrap()
}

fn args(args: Value) -> Map<String, Value> {
    let Value::Object(args) = args else {
        panic!("{args}")
    };
    args
}

pub(crate) fn node(text: &str) -> Map<String, Value> {
    args(json!({"node": serde_json::from_str::<Value>(text).unwrap()}))
}

pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap()
        .block_on(future)
}

#[test]
fn a_client_asks_for_the_lowest_version_that_has_it_and_for_no_more_than_its_cap() {
    block_on(async {
        let conductor = Conductor::default();
        let running = serve(&conductor, "").await;
        let client = client(&running);
        let beat = |more: Value| {
            let mut all = args(json!({"node_id": 5}));
            all.extend(args(more));
            all
        };
        let (free, newton, ocata) = (pin(""), pin("newton"), pin("ocata"));
        client.call(&free, "heartbeat", &beat(json!({}))).await.unwrap();
        client
            .call(&free, "heartbeat", &beat(json!({"agent_version": "9"})))
            .await
            .unwrap();
        client
            .call(&free, "heartbeat", &beat(json!({"agent_token": "t"})))
            .await
            .unwrap();
        client
            .call(&free, "heartbeat", &beat(json!({"agent_token": null})))
            .await
            .unwrap();
        // Under a cap: left out, refused, called by its older name.
        client
            .call(&newton, "heartbeat", &beat(json!({"agent_version": "9"})))
            .await
            .unwrap();
        client
            .call(&ocata, "heartbeat", &beat(json!({"agent_version": "9"})))
            .await
            .unwrap();
        client
            .call(&free, "get_nodes", &args(json!({"limit": 5})))
            .await
            .unwrap();
        client
            .call(&ocata, "get_nodes", &args(json!({"limit": 5})))
            .await
            .unwrap();
        for (what, method, args, said) in [
            (
                &newton,
                "heartbeat",
                beat(json!({"agent_token": "t"})),
                "agent_token of heartbeat came with version 1.40 of the RPC, and no more than 1.33 may be asked for while services \
                 of an older release work; nothing was asked for: try again when the upgrade is done",
            ),
            (
                &ocata,
                "inject_nmi",
                args(json!({"node_id": 5})),
                "inject_nmi came with version 1.40",
            ),
            (
                &newton,
                "get_nodes",
                args(json!({"marker": 5})),
                "marker of list_nodes came with version 1.39",
            ),
            (&free, "reboot", Map::new(), "reboot came with version 1.41"),
        ] {
            let error = client.call(what, method, &args).await.unwrap_err();
            assert!(matches!(error, CallError::TooNew(_)), "{error}");
            assert!(error.to_string().starts_with(said), "{error}");
        }
        assert_eq!(
            *conductor.asked.lock().unwrap(),
            [
                r#"anybody heartbeat 1.33 ["node_id"]"#,
                r#"anybody heartbeat 1.36 ["agent_version", "node_id"]"#,
                r#"anybody heartbeat 1.40 ["agent_token", "node_id"]"#,
                r#"anybody heartbeat 1.33 ["node_id"]"#,
                r#"anybody heartbeat 1.33 ["node_id"]"#,
                r#"anybody heartbeat 1.36 ["agent_version", "node_id"]"#,
                r#"anybody get_nodes 1.39 ["limit"]"#,
                r#"anybody list_nodes 1.20 ["limit"]"#,
            ]
        );
        running.stop().await;
    });
}

/// What is sent without a client of ours.
pub(crate) async fn raw(running: &Running, body: &str, token: Option<&str>) -> (u16, String) {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let mut stream = tokio::net::TcpStream::connect(running.address()).await.unwrap();
    let token = token
        .map(|token| format!("Authorization: {token}\r\n"))
        .unwrap_or_default();
    let request = format!(
        "POST / HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nConnection: close\r\n{token}Content-Length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
    (
        status,
        answer.split("\r\n\r\n").nth(1).unwrap_or_default().to_owned(),
    )
}

pub(crate) fn body(method: &str, version: &str, args: &Value) -> String {
    json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": {"version": version, "args": args}})
        .to_string()
}

/// D9 of Ironic: version 9.99 was asked for, and a normal answer came.
#[test]
fn a_server_checks_the_version_that_is_asked_for() {
    block_on(async {
        let running = serve(&Conductor::default(), "").await;
        for (request, expected_code, said) in [
            (
                body("heartbeat", "9.99", &json!({"node_id": 5})),
                code::UNSUPPORTED_VERSION,
                "version 9.99 of the RPC is not offered; this service offers 1.0 to 1.40",
            ),
            (
                body("heartbeat", "1.41", &json!({"node_id": 5})),
                code::UNSUPPORTED_VERSION,
                "version 1.41 of the RPC is not offered; this service offers 1.0 to 1.40",
            ),
            (
                body("inject_nmi", "1.39", &json!({"node_id": 5})),
                code::UNSUPPORTED_VERSION,
                "inject_nmi came with version 1.40, and was asked for in 1.39",
            ),
            (
                body("heartbeat", "1.35", &json!({"node_id": 5, "agent_version": "9"})),
                code::INVALID_PARAMS,
                "heartbeat has no argument \\\"agent_version\\\" before version 1.36",
            ),
            (
                body("heartbeat", "1.40", &json!({"nodeid": 5})),
                code::INVALID_PARAMS,
                "heartbeat has no argument \\\"nodeid\\\"",
            ),
            (
                body("update_node", "1.40", &json!({})),
                code::INVALID_PARAMS,
                "update_node needs the argument \\\"node\\\"",
            ),
            (body("nothing", "1.40", &json!({})), -32601, "Method not found"),
            (
                json!({"jsonrpc": "2.0", "id": 1, "method": "heartbeat", "params": {"args": {}}}).to_string(),
                code::INVALID_PARAMS,
                "missing field `version`",
            ),
            ("{".to_owned(), -32700, "Parse error"),
        ] {
            let (status, answer) = raw(&running, &request, None).await;
            assert_eq!(status, 200, "{request}");
            assert!(
                answer.contains(&format!("\"code\":{expected_code}")),
                "{request}\n{answer}"
            );
            assert!(answer.contains(said), "{request}\n{answer}");
        }
        running.stop().await;
    });
}

pub(crate) async fn update_by_old(client: &Client) -> Held<Node1_14> {
    let chain = nodes_1_14();
    let sent = chain.receive(
        r#"{"kind":"Node","version":"1.14","data":{"uuid":"n1","extra":{},"description":null,"traits":[]}}"#,
    );
    let sent = chain.send(&sent.unwrap(), &pin("newton"), None).unwrap();
    client
        .call_for(&pin("newton"), "update_node", &node(&sent.text), &chain)
        .await
        .unwrap()
}

fn only_with_token() -> Authenticate {
    Arc::new(
        |headers: &HeaderMap| match headers.get(header::AUTHORIZATION).map(HeaderValue::as_bytes) {
            Some(b"secret") => Ok(Caller {
                name: "api-1".to_owned(),
            }),
            Some(_) | None => Err(Denied),
        },
    )
}

#[test]
fn no_version_is_a_way_around_the_door() {
    block_on(async {
        let conductor = Conductor::default();
        let running = serve_for(&conductor, "newton", only_with_token()).await;
        let mut bodies = vec!["{".to_owned(), "[]".to_owned(), String::new()];
        for minor in 0..=41 {
            for method in [
                "heartbeat",
                "list_nodes",
                "object_backport",
                "service_versions",
                "nothing",
            ] {
                bodies.push(body(method, &format!("1.{minor}"), &json!({})));
            }
        }
        bodies.push(format!("[{}]", body("heartbeat", "1.33", &json!({"node_id": 5}))));
        for text in &bodies {
            for token in [None, Some("wrong"), Some("")] {
                let (status, answer) = raw(&running, text, token).await;
                assert_eq!((status, answer.as_str()), (401, "who calls?\n"), "{text}");
            }
        }
        assert!(conductor.asked.lock().unwrap().is_empty());

        // A client tells who it is in every version, and hears it if it is not believed.
        let url = format!("http://{}", running.address());
        let with = |token: &'static str| {
            let headers = HeaderMap::from_iter([(header::AUTHORIZATION, HeaderValue::from_static(token))]);
            let settings = ClientSettings {
                headers,
                timeout: None,
            };
            Client::new(&url, interface(), &registry(), settings).unwrap()
        };
        for release in ["mitaka", "newton", "ocata", ""] {
            with("secret")
                .call(&pin(release), "list_nodes", &args(json!({"limit": 1})))
                .await
                .unwrap();
            let error = with("wrong")
                .call(&pin(release), "list_nodes", &args(json!({"limit": 1})))
                .await
                .unwrap_err();
            assert!(matches!(error, CallError::Denied { .. }), "{error:?}");
        }
        let asked = conductor.asked.lock().unwrap().clone();
        assert_eq!(asked.len(), 4);
        assert!(asked.iter().all(|line| line.starts_with("api-1 ")), "{asked:?}");
        running.stop().await;
    });
}

/// A pinned new service looks like an old one from outside. Ours say what they are.
#[test]
fn a_service_tells_its_release_its_pin_and_its_versions() {
    block_on(async {
        let running = serve(&Conductor::default(), "newton").await;
        let told = serde_json::to_value(client(&running).versions().await.unwrap()).unwrap();
        assert_eq!(
            told,
            json!({
                "release": "unreleased", "pin": "newton", "api": "1.22", "rpc_cap": "1.33", "rpc": "1.40",
                "reads": {"Node": "1.16", "Port": "1.0", "Trait": "1.1"},
                "writes": {"Node": "1.14", "Trait": "1.0"},
            })
        );
        running.stop().await;
    });
}

#[test]
fn a_service_that_is_not_there_gives_no_answer() {
    block_on(async {
        let running = serve(&Conductor::default(), "").await;
        let client = client(&running);
        let refused = client
            .call(&pin(""), "inject_nmi", &args(json!({"node_id": 5})))
            .await
            .unwrap_err();
        assert_eq!(
            refused.to_string(),
            "inject_nmi: node n1 is off: switch it on first"
        );
        running.stop().await;
        let error = client
            .call(&pin(""), "inject_nmi", &args(json!({"node_id": 5})))
            .await
            .unwrap_err();
        assert!(matches!(error, CallError::NoAnswer { .. }), "{error:?}");
        let error = Client::new("no url", interface(), &registry(), ClientSettings::default()).unwrap_err();
        assert!(matches!(error, CallError::NoUrl { .. }), "{error:?}");
    });
}

#[test]
fn an_interface_that_contradicts_itself_is_none() {
    let interface = |methods: Vec<Method>| Interface::new(v("1.40"), methods).map(drop);
    let twice = NotInterface::Twice { name: "a".to_owned() };
    assert_eq!(
        interface(vec![Method::since("a", v("1.1")), Method::since("a", v("1.2"))]),
        Err(twice)
    );
    for (methods, said) in [
        (
            vec![Method::since("a", v("1.41"))],
            "a came with 1.41, and 1.40 is offered",
        ),
        (
            vec![Method::since("a", v("2.0"))],
            "a came with 2.0, and 1.40 is offered",
        ),
        (
            vec![Method::since("a", v("1.1")).argument("x").argument("x")],
            "\"x of a\" stands there twice",
        ),
        (
            vec![Method::since("a", v("1.1")).argument_since("x", v("1.50"), OrElse::Refuse)],
            "x of a came with 1.50, and 1.40 is offered",
        ),
        (
            vec![Method::since("a", v("1.1")).fallback("b")],
            "a has b instead, which is not an older method",
        ),
        (
            vec![
                Method::since("a", v("1.1")).fallback("b"),
                Method::since("b", v("1.1")),
            ],
            "a has b instead, which is not an older method",
        ),
    ] {
        assert_eq!(interface(methods).unwrap_err().to_string(), said);
    }
}

/// D10 of Ironic: the cap of a client was frozen when it was made.
#[test]
fn a_cap_follows_the_pin_at_once() {
    block_on(async {
        let conductor = Conductor::default();
        let running = serve(&conductor, "").await;
        let (client, pins) = (client(&running), pins("newton"));
        let beat = args(json!({"node_id": 5, "agent_version": "9"}));
        client.call(&pins.now(), "heartbeat", &beat).await.unwrap();
        pins.reload("").unwrap();
        client.call(&pins.now(), "heartbeat", &beat).await.unwrap();
        let asked = conductor.asked.lock().unwrap().clone();
        assert_eq!(
            asked,
            [
                r#"anybody heartbeat 1.33 ["node_id"]"#,
                r#"anybody heartbeat 1.36 ["agent_version", "node_id"]"#
            ]
        );
        running.stop().await;
    });
}
