//! The twelve defects that were reproduced in Ironic 26.1 to 32.0, each by its number, and what ours does instead.
//!
//! What happens there is told first. The table is in `docs/guides/versioned.md`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use serde_json::{Value, json};
use stagger_versioned::store::migrate::{Batch, End, Failed, Limits, Migration, Migrations};
use stagger_versioned::store::{Objects, RaiseRows, Store, StoreError};
use stagger_versioned::{Held, Manifest, Pin, Pins, Registry, Version};
use stagger_versioned_rpc::{
    CallError, Client, ClientSettings, Handler, Interface, Method, Refusal, Request, Server, anyone, code,
};

use crate::calls::{Conductor, block_on, body, client, node, old_client, raw, serve, update_by_old};
use crate::ironic::{declared, full, manifest, nodes, nodes_1_14, registry};
use crate::stores::{
    key, limits, new_nodes, old_nodes, old_row, on_sqlite, raise, settings, sql, table, version_of,
};

fn pin(release: &str) -> Pin {
    Pin::read(manifest(), release).unwrap()
}

fn v(text: &str) -> Version {
    text.parse().unwrap()
}

/// A pinned conductor answered with a node of the old version and a list of traits of the new one in it: the old API
/// answered 500 to every PATCH, and the write had been done.
#[test]
fn d1_what_is_inside_goes_out_in_the_version_that_the_release_lists() {
    let mut new = full();
    new.traits[0].note = Some("new".to_owned());
    let sent = nodes().send(&Held::new(new), &pin("newton"), None).unwrap();
    let text: Value = serde_json::from_str(&sent.text).unwrap();
    assert_eq!(text["version"], "1.14");
    assert_eq!(text["data"]["traits"], json!([{"name": "GPU"}]));
    assert_eq!(sent.lost[0].at, "/traits/0/note");
    block_on(async {
        for release in ["newton", ""] {
            let running = serve(&Conductor::default(), release).await;
            let held = update_by_old(&old_client(&running)).await;
            assert_eq!(
                (held.stored_version(), held.value.extra["seen"].as_str()),
                (Some(v("1.14")), "yes")
            );
            running.stop().await;
        }
    });
    // And a release whose objects carry what it does not list does not come to be.
    let mut declared = declared();
    declared.releases[1]
        .objects
        .insert("Trait".to_owned(), v("1.1").into());
    let wrong = Manifest::new(declared).map_err(|faults| faults.to_string());
    let told = wrong.and_then(|manifest| registry().check(&manifest).map_err(|faults| faults.to_string()));
    let told = told.unwrap_err();
    assert!(
        told.contains("Node 1.14 of newton carries Trait 1.0, which newton does not list"),
        "{told}"
    );
}

/// An unpinned conductor saved a description; a patch of something else by a pinned one made it NULL, and the answer
/// was 200.
#[test]
fn d2_a_pinned_writer_keeps_what_an_unpinned_one_has_saved() {
    on_sqlite(|store| {
        Box::pin(async move {
            let objects = new_nodes();
            old_row(&store, "n1", Some("1.14")).await;
            let (n1, free, newton) = (key("n1"), pin(""), pin("newton"));
            let unpinned = objects.change(&store, &n1, &free, |node| {
                node.traits[0].note = Some("precious".to_owned());
            });
            unpinned.await.unwrap();
            let pinned = objects.change(&store, &n1, &newton, |node| {
                node.labels.insert("by".to_owned(), "pinned".to_owned());
            });
            pinned.await.unwrap();
            let now = objects.get(&store, &n1).await.unwrap().unwrap();
            assert_eq!(now.row().version, Some(v("1.16")));
            assert_eq!(now.held.value.traits[0].note.as_deref(), Some("precious"));
            assert_eq!(now.held.value.labels["by"], "pinned");
        })
    });
}

/// Writes what it is sent into a store, under the pin of its service.
struct Writer(Store);

#[async_trait]
impl Handler for Writer {
    async fn handle(&self, request: Request) -> Result<Value, Refusal> {
        let sent = request.object("node", &nodes())?;
        let key = key(&sent.value.uuid);
        let objects = new_nodes();
        let stored = objects.get(&self.0, &key).await.map_err(Refusal::failed)?;
        let mut stored = stored.ok_or_else(|| Refusal::new("there is no such node"))?;
        stored.held.value = sent.value;
        match objects.save(&self.0, &mut stored, &request.pin).await {
            Ok(_) => request.answer(&stored.held, &nodes()),
            Err(StoreError::Unsaved(why)) => Err(why.into()),
            Err(other) => Err(Refusal::failed(other)),
        }
    }
}

/// The API was unpinned before the conductor: a description was taken, dropped in silence, and the answer was 200.
#[test]
fn d3_what_a_pinned_service_does_not_know_is_refused_and_not_dropped() {
    on_sqlite(|store| {
        Box::pin(async move {
            old_row(&store, "n1", Some("1.14")).await;
            let interface = Interface::new(
                v("1.40"),
                [Method::since("update_node", v("1.1")).argument("node")],
            );
            let interface = interface.unwrap();
            let pins = Arc::new(Pins::new(manifest(), "newton").unwrap());
            let writer = Writer(store.clone());
            let server = Server::new(interface.clone(), registry(), pins, anyone(), writer);
            let running = server.start("127.0.0.1:0".parse().unwrap()).await.unwrap();
            let url = format!("http://{}", running.address());
            let api = Client::new(&url, interface, &registry(), ClientSettings::default()).unwrap();
            let mut held = new_nodes().get(&store, &key("n1")).await.unwrap().unwrap().held;
            held.value.traits[0].note = Some("new".to_owned());
            let sent = nodes().send(&held, &pin(""), None).unwrap();
            let refused = api
                .call(&pin(""), "update_node", &node(&sent.text))
                .await
                .unwrap_err();
            assert!(
                matches!(
                    &refused,
                    CallError::Refused {
                        code: code::NOT_WHILE_PINNED,
                        ..
                    }
                ),
                "{refused}"
            );
            let said = refused.to_string();
            assert!(
                said.contains("/traits/0/note: \"new\"") && said.contains("nothing was stored"),
                "{said}"
            );
            assert_eq!(version_of(&store, "n1").await.as_deref(), Some("1.14"));
            let old = old_nodes()
                .get(&store, &key("n1"))
                .await
                .unwrap()
                .unwrap()
                .held
                .value;
            assert_eq!((old.extra["rack"].as_str(), old.traits.len()), ("r7", 1));
            running.stop().await;
        })
    });
}

/// Takes its time, and counts what it has done.
#[derive(Clone, Default)]
struct Slow {
    begun: Arc<AtomicU32>,
    done: Arc<AtomicU32>,
}

#[async_trait]
impl Handler for Slow {
    async fn handle(&self, _: Request) -> Result<Value, Refusal> {
        self.begun.fetch_add(1, Ordering::SeqCst);
        tokio::time::sleep(Duration::from_millis(50)).await;
        Ok(json!(self.done.fetch_add(1, Ordering::SeqCst)))
    }
}

/// A conductor that was stopped closed its workers first and went on taking requests, which all failed.
#[test]
fn d4_a_service_that_stops_answers_all_that_it_has_taken() {
    block_on(async {
        let slow = Slow::default();
        let interface = Interface::new(v("1.1"), [Method::since("work", v("1.1"))]).unwrap();
        let pins = Arc::new(Pins::new(manifest(), "").unwrap());
        let server = Server::new(interface.clone(), Registry::new(), pins, anyone(), slow.clone());
        let running = server.start("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let url = format!("http://{}", running.address());
        let mut clients = Vec::new();
        for _ in 0..6 {
            let (url, interface) = (url.clone(), interface.clone());
            clients.push(tokio::spawn(async move {
                let client =
                    Client::new(&url, interface, &Registry::new(), ClientSettings::default()).unwrap();
                let mut answered = 0_u32;
                loop {
                    match client.call(&pin(""), "work", &serde_json::Map::new()).await {
                        Ok(_) => answered += 1,
                        // Nobody listens any more: it was never asked.
                        Err(CallError::NoAnswer { .. }) => return answered,
                        Err(other) => panic!("{other}"),
                    }
                }
            }));
        }
        while slow.begun.load(Ordering::SeqCst) < 20 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        running.stop().await;
        let mut answered = 0;
        for client in clients {
            answered += client.await.unwrap();
        }
        let (begun, done) = (
            slow.begun.load(Ordering::SeqCst),
            slow.done.load(Ordering::SeqCst),
        );
        assert_eq!((begun, done), (answered, answered), "begun, done; answered");
    });
}

/// An API of the old release answered 500 to each list as soon as one row was of the new one.
#[test]
fn d5_one_row_from_the_future_hides_no_other() {
    on_sqlite(|store| {
        Box::pin(async move {
            for uuid in ["a", "b", "c"] {
                old_row(&store, uuid, Some("1.14")).await;
            }
            let (b, free) = (key("b"), pin(""));
            new_nodes().change(&store, &b, &free, |_| {}).await.unwrap();
            let list = old_nodes().list(&store, None, 10).await.unwrap();
            let read: Vec<bool> = list.iter().map(|row| row.object.is_ok()).collect();
            assert_eq!(read, [true, false, true]);
            let why = list[1].object.as_ref().unwrap_err().to_string();
            assert_eq!(
                (list[1].key.as_slice(), why.as_str()),
                (
                    &key("b")[..],
                    "Node 1.16 comes from a later release: this code knows Node up to 1.14"
                )
            );
        })
    });
}

/// A row without a version could neither be read nor listed, and no tool repaired it.
#[test]
fn d6_a_row_without_a_version_is_read_and_repaired() {
    on_sqlite(|store| {
        Box::pin(async move {
            old_row(&store, "a", None).await;
            old_row(&store, "b", Some("1.14")).await;
            let read = new_nodes().get(&store, &key("a")).await.unwrap().unwrap();
            assert_eq!(read.held.value.labels["rack"], "r7");
            let list = new_nodes().list(&store, None, 10).await.unwrap();
            assert!(list.iter().all(|row| row.object.is_ok()), "{list:?}");
            let report = raise()
                .run(&store, &pin(""), Limits::default(), |_| {})
                .await
                .unwrap();
            assert_eq!((report.end, report.each[0].done), (End::Done, 2));
            assert_eq!(version_of(&store, "a").await.as_deref(), Some("1.16"));
        })
    });
}

/// 1 was "more to do" and every error too; and when a limit was just enough, it was 1 as well.
#[test]
fn d7_done_more_and_out_of_reach_end_with_codes_of_their_own() {
    on_sqlite(|store| {
        Box::pin(async move {
            for at in 0..5 {
                old_row(&store, &format!("n{at}"), Some("1.14")).await;
            }
            let migrations = raise();
            let some = async |max| {
                let report = migrations
                    .run(&store, &pin(""), limits(Some(max), 50), |_| {})
                    .await;
                report.unwrap().end.code()
            };
            assert_eq!(some(2).await, 6);
            // Just enough, and nobody has to call again to know.
            assert_eq!(some(3).await, 0);
            store.pool().close().await;
            let away = migrations
                .run(&store, &pin(""), limits(Some(2), 50), |_| {})
                .await
                .unwrap_err();
            assert!(matches!(away, Failed::Store { .. }), "{away}");
            assert_eq!(away.code(), 4);
        })
    });
}

/// Finds work for ever, and never does any.
struct Idle;

#[async_trait]
impl Migration for Idle {
    fn name(&self) -> &'static str {
        "idle"
    }
    async fn remaining(&self, _: &Store) -> Result<u64, StoreError> {
        Ok(50)
    }
    async fn batch(
        &self,
        _: &Store,
        _: Option<&[Value]>,
        _: std::num::NonZeroU64,
    ) -> Result<Batch, StoreError> {
        Ok(Batch::default())
    }
}

/// `--max-count 1` migrated six rows where the key has two parts; and what was never done was tried for ever.
#[test]
fn d8_a_limit_is_exact_and_no_progress_comes_to_an_end() {
    on_sqlite(|store| {
        Box::pin(async move {
            for name in ["a", "b", "c", "d", "e", "f"] {
                let insert =
                    format!("INSERT INTO settings (node, name, version) VALUES (1, '{name}', '1.0')");
                sql(&store, &insert).await;
            }
            let rows = RaiseRows::new("settings", settings(), &pin(""));
            let migrations = Migrations::new().then(rows).unwrap();
            let report = migrations
                .run(&store, &pin(""), limits(Some(1), 50), |_| {})
                .await
                .unwrap();
            assert_eq!((report.each[0].done, report.each[0].left), (1, 5));
            let idle = Migrations::new().then(Idle).unwrap();
            let report = idle
                .run(&store, &pin(""), Limits::default(), |_| {})
                .await
                .unwrap();
            assert_eq!((report.end, report.end.code()), (End::NoProgress, 3));
        })
    });
}

/// Version 9.99 was asked for, and a normal answer came: only the client looked at the cap.
#[test]
fn d9_a_server_refuses_a_version_that_it_does_not_offer() {
    block_on(async {
        let conductor = Conductor::default();
        let running = serve(&conductor, "").await;
        let (_, answer) = raw(&running, &body("heartbeat", "9.99", &json!({"node_id": 5})), None).await;
        assert!(
            answer.contains(&format!("\"code\":{}", code::UNSUPPORTED_VERSION)),
            "{answer}"
        );
        assert!(answer.contains("this service offers 1.0 to 1.40"), "{answer}");
        assert!(conductor.asked.lock().unwrap().is_empty());
        running.stop().await;
    });
}

/// After SIGHUP objects followed the new pin, and calls the old one.
#[test]
fn d10_a_new_pin_counts_for_api_calls_and_objects_at_once() {
    let pins = Arc::new(Pins::new(manifest(), "newton").unwrap());
    let all = |pin: &Pin| (pin.api(), pin.rpc(), pin.target("Node").unwrap());
    let held = (v("1.22"), v("1.33"), Some(v("1.14")));
    let free = (v("1.34"), v("1.40"), None);
    let begun_before = pins.now();
    std::thread::scope(|scope| {
        let changes = Arc::clone(&pins);
        scope.spawn(move || {
            for _ in 0..500 {
                changes.reload("").unwrap();
                changes.reload("newton").unwrap();
            }
            changes.reload("").unwrap();
        });
        for _ in 0..1000 {
            let now = all(&pins.now());
            assert!(now == held || now == free, "{now:?}");
        }
    });
    assert_eq!((all(&begun_before), all(&pins.now())), (held, free));
    // The client that was made under the old pin too.
    block_on(async {
        let conductor = Conductor::default();
        let running = serve(&conductor, "").await;
        let client = client(&running);
        let beat = serde_json::Map::from_iter([
            ("node_id".to_owned(), json!(5)),
            ("agent_version".to_owned(), json!("9")),
        ]);
        client.call(&begun_before, "heartbeat", &beat).await.unwrap();
        client.call(&pins.now(), "heartbeat", &beat).await.unwrap();
        let asked = conductor.asked.lock().unwrap().join("\n");
        assert!(asked.contains("1.33") && asked.contains("1.36"), "{asked}");
        running.stop().await;
    });
    // What is none leaves the one that was.
    assert!(pins.reload("newtn").is_err());
    assert_eq!(all(&pins.now()), free);
}

/// The first of a list of versions was taken for the newest: rows went back to it.
#[test]
fn d11_the_newest_version_is_the_highest_whatever_the_order() {
    for versions in [json!(["1.15", "1.14"]), json!(["1.14", "1.15"])] {
        let mut declared = declared();
        declared.releases[2]
            .objects
            .insert("Node".to_owned(), serde_json::from_value(versions).unwrap());
        let manifest = Arc::new(Manifest::new(declared).unwrap());
        let pin = Pin::read(manifest, "6.3").unwrap();
        assert_eq!(pin.target("Node").unwrap(), Some(v("1.15")));
        let sent = nodes().send(&Held::new(full()), &pin, None).unwrap();
        assert_eq!(sent.version, v("1.15"));
    }
}

/// The tool of the old release, run on rows of the new one, said that its online migrations had to be run.
#[test]
fn d12_old_code_on_newer_rows_says_that_they_are_newer_and_leaves_them() {
    on_sqlite(|store| {
        Box::pin(async move {
            old_row(&store, "n1", Some("1.14")).await;
            let (n1, free) = (key("n1"), pin(""));
            new_nodes().change(&store, &n1, &free, |_| {}).await.unwrap();
            let old = Objects::new(table(), Arc::new(nodes_1_14()));
            let rows = RaiseRows::new("nodes", old, &pin(""));
            let migrations = Migrations::new().then(rows).unwrap();
            let report = migrations
                .run(&store, &pin(""), Limits::default(), |_| {})
                .await
                .unwrap();
            assert_eq!((report.end, report.end.code()), (End::Stuck, 3));
            assert_eq!(
                report.each[0].stuck[0].to_string(),
                "nodes uuid=\"n1\": Node 1.16 comes from a later release: this code knows Node up to 1.14"
            );
            assert_eq!(version_of(&store, "n1").await.as_deref(), Some("1.16"));
        })
    });
}
