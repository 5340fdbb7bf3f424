//! What is said between two releases, without a network: the cores of both sides, and a function call between them.
#![allow(missing_docs, clippy::unwrap_used, reason = "test code")]

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use stagger_versioned::{Chain, Declared, Held, Manifest, Pin, Pins, Registry, Version, Versioned};
use stagger_versioned_rpc::{
    Answers, Caller, Calls, Interface, Message, Method, Opened, OrElse, Received, ServiceVersions, code,
};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Versioned)]
#[versioned(name = "Port", version = "1.0")]
struct Port1_0 {
    address: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Versioned)]
#[versioned(name = "Port", version = "1.1", before = Port1_0)]
struct Port1_1 {
    address: String,
    #[versioned(added)]
    speed: Option<u32>,
}

fn manifest() -> Arc<Manifest> {
    let releases = "
        current = '2.0'
        [[release]]
        number = '1.0'
        names = ['one']
        date = '2026-01-01'
        api = '1.0'
        rpc = '1.0'
        objects = { Port = '1.0' }
        [[release]]
        number = '2.0'
        names = ['two']
        date = '2026-06-01'
        api = '1.0'
        rpc = '1.1'
        objects = { Port = '1.1' }";
    let declared: Declared = toml::from_str(releases).unwrap();
    Arc::new(Manifest::new(declared).unwrap())
}

fn ports() -> Arc<Chain<Port1_1>> {
    Arc::new(Chain::<Port1_0>::first().then())
}

fn interface(minor: u32) -> Interface {
    let mut find = Method::since("find_port", Version::new(1, 0)).argument("address");
    let mut methods = Vec::new();
    if minor > 0 {
        find = find.argument_since("fast", Version::new(1, 1), OrElse::LeaveOut);
        methods.push(Method::since("reset_port", Version::new(1, 1)).argument("address"));
    }
    methods.push(find);
    Interface::new(Version::new(1, minor), methods).unwrap()
}

fn pin(release: &str) -> Pin {
    Pin::read(manifest(), release).unwrap()
}

/// A service of the newest release, pinned or not.
fn service(release: &str) -> Answers {
    let pins = Arc::new(Pins::new(manifest(), release).unwrap());
    Answers::new(interface(1), Registry::new().with(ports()), pins)
}

fn asked(service: &Answers, message: Message) -> Result<Value, i32> {
    let caller = Caller {
        name: "test".to_owned(),
    };
    let Message { method, params } = message;
    match service
        .open(caller, &method, params)
        .map_err(|refusal| refusal.code)?
    {
        Opened::Answered(answer) => Ok(answer),
        Opened::Request(request) => {
            let port = Port1_1 {
                address: request.arg("address").unwrap().as_str().unwrap().to_owned(),
                speed: None,
            };
            Ok(request.answer(&Held::new(port), &ports()).unwrap())
        }
    }
}

fn arguments(fast: bool) -> Map<String, Value> {
    Map::from_iter([
        ("address".to_owned(), json!("a")),
        ("fast".to_owned(), json!(fast)),
    ])
}

#[test]
fn under_a_pin_no_more_is_asked_than_it_knows() {
    let calls = Calls::new(interface(1), &Registry::new().with(ports()));
    let pinned = calls.ask(&pin("one"), "find_port", &arguments(true)).unwrap();
    assert_eq!(pinned.params.version, Version::new(1, 0));
    assert_eq!(pinned.params.args.keys().collect::<Vec<_>>(), ["address"]);
    let free = calls.ask(&pin(""), "find_port", &arguments(true)).unwrap();
    assert_eq!(free.params.version, Version::new(1, 1));
    assert!(free.params.args.contains_key("fast"));
    let too_new = calls.ask(&pin("one"), "reset_port", &Map::new()).unwrap_err();
    assert_eq!(too_new.since, Version::new(1, 1));
    // On the other side what is asked for is checked again.
    let mut wrong = pinned;
    wrong.params.version = Version::new(1, 2);
    assert_eq!(asked(&service(""), wrong), Err(code::UNSUPPORTED_VERSION));
}

#[test]
fn what_is_too_new_is_asked_for_again() {
    // A process of 1.0, which does not say what it reads, as such processes did not.
    let old = Registry::new().with(Arc::new(Chain::<Port1_0>::first()));
    let calls = Calls::new(interface(0), &old).without_read_versions();
    let args = Map::from_iter([("address".to_owned(), json!("a"))]);
    let chain = Chain::<Port1_0>::first();
    for (release, newer) in [("one", false), ("", true)] {
        let service = service(release);
        let message = calls.ask(&pin("one"), "find_port", &args).unwrap();
        let answer = asked(&service, message).unwrap();
        let held = match calls.receive(answer, &chain).unwrap() {
            Received::Object(held) => {
                assert!(!newer);
                held
            }
            Received::AskAgain(message) => {
                assert!(newer);
                let older = asked(&service, message).unwrap();
                let Received::Object(held) = calls.receive(older, &chain).unwrap() else {
                    panic!("it was asked for in a version that is read")
                };
                held
            }
        };
        assert_eq!(held.value.address, "a");
    }
    // One that says so gets no newer one.
    let telling = Calls::new(interface(0), &old);
    let message = telling.ask(&pin("one"), "find_port", &args).unwrap();
    let answer = asked(&service(""), message).unwrap();
    assert!(matches!(
        telling.receive(answer, &chain).unwrap(),
        Received::Object(_)
    ));
}

#[test]
fn a_service_tells_its_versions() {
    let calls = Calls::new(interface(1), &Registry::new().with(ports()));
    let told: ServiceVersions =
        serde_json::from_value(asked(&service("one"), calls.versions()).unwrap()).unwrap();
    assert_eq!((told.release.as_str(), told.pin.as_deref()), ("two", Some("one")));
    assert_eq!((told.rpc_cap, told.rpc), (Version::new(1, 0), Version::new(1, 1)));
    let port = |minor| BTreeMap::from([("Port".to_owned(), Version::new(1, minor))]);
    assert_eq!((told.reads, told.writes), (port(1), port(0)));
}
