//! Objects in calls between services of several releases.

use serde_json::json;
use stagger_versioned::{Chain, Held};
use stagger_versioned_rpc::{CallError, Refusal, code};

use super::{Conductor, args, block_on, client, node, old_client, pin, serve, update_by_old, v};
use crate::ironic::{Port1_0, full, nodes, nodes_1_14};

#[test]
fn an_older_server_is_called_under_a_pin_and_understands() {
    block_on(async {
        let conductor = Conductor {
            old: true,
            ..Conductor::default()
        };
        let running = serve(&conductor, "newton").await;
        let (client, pin) = (client(&running), pin("newton"));
        let sent = nodes().send_whole(&Held::new(full()), &pin, None).unwrap();
        let held = client
            .call_for(&pin, "update_node", &node(&sent.text), &nodes())
            .await
            .unwrap();
        assert_eq!(held.stored_version(), Some(v("1.14")));
        assert_eq!(
            (
                held.value.labels["seen"].as_str(),
                held.value.facts["cpus"].as_str()
            ),
            ("yes", "4")
        );
        // Without the pin it would not have understood, and says so.
        let free = self::pin("");
        let sent = nodes().send(&Held::new(full()), &free, None).unwrap();
        let error = client
            .call(&free, "update_node", &node(&sent.text))
            .await
            .unwrap_err();
        assert!(
            matches!(
                error,
                CallError::Refused {
                    code: code::UNREADABLE,
                    ..
                }
            ),
            "{error}"
        );
        assert_eq!(
            error.to_string(),
            "update_node: Node 1.16 is newer than this code; ask the sender for 1.14"
        );
        let error = client
            .call(
                &free,
                "heartbeat",
                &args(json!({"node_id": 1, "agent_version": "9"})),
            )
            .await;
        assert!(matches!(
            error,
            Err(CallError::Refused {
                code: code::UNSUPPORTED_VERSION,
                ..
            })
        ));
        running.stop().await;
    });
}

/// While services of the old release still work, what two pinned ones tell each other does not leave the pin.
#[test]
fn pinned_services_speak_the_version_of_their_pin() {
    block_on(async {
        let running = serve(&Conductor::default(), "newton").await;
        let (client, newton) = (client(&running), pin("newton"));
        let sent = nodes().send_whole(&Held::new(full()), &newton, None).unwrap();
        let mut held = client
            .call_for(&newton, "update_node", &node(&sent.text), &nodes())
            .await
            .unwrap();
        assert_eq!(held.stored_version(), Some(v("1.14")));
        assert_eq!(nodes().create(&held, &newton).unwrap().version, v("1.14"));
        let sent = nodes().send(&held, &newton, None).unwrap();
        let read = nodes_1_14().receive(&sent.text).unwrap();
        assert_eq!(read.value.extra["seen"], "yes");
        held.value.traits[0].note = Some("new".to_owned());
        assert!(nodes().create(&held, &newton).is_err());
        assert!(nodes().send_whole(&held, &newton, None).is_err());
        // Nor does it by way of one that is not pinned.
        let sent = nodes().send_whole(&Held::new(full()), &pin(""), None).unwrap();
        let args = node(&sent.text);
        let held = client.call_for(&pin(""), "update_node", &args, &nodes()).await;
        assert_eq!(
            nodes().create(&held.unwrap(), &newton).unwrap().version,
            v("1.14")
        );
        running.stop().await;
    });
}

/// The worker is unpinned first. What it answers a pinned service has all that it has, and goes back to it as whole.
#[test]
fn a_pinned_service_keeps_what_an_unpinned_one_answers() {
    block_on(async {
        let running = serve(&Conductor::default(), "").await;
        let (client, newton) = (client(&running), pin("newton"));
        let mut new = full();
        new.traits[0].note = Some("precious".to_owned());
        let sent = nodes().send_whole(&Held::new(new), &pin(""), None).unwrap();
        let mut args = node(&sent.text);
        for _ in 0..2 {
            let held = client
                .call_for(&newton, "update_node", &args, &nodes())
                .await
                .unwrap();
            assert_eq!(held.stored_version(), Some(v("1.16")));
            assert_eq!(held.value.traits[0].note.as_deref(), Some("precious"));
            args = node(&nodes().send_whole(&held, &newton, None).unwrap().text);
        }
        running.stop().await;
    });
}

#[test]
fn an_older_client_gets_what_it_reads_from_pinned_and_unpinned_servers() {
    block_on(async {
        for release in ["newton", ""] {
            let conductor = Conductor::default();
            let running = serve(&conductor, release).await;
            let held = update_by_old(&old_client(&running)).await;
            assert_eq!(
                (held.stored_version(), held.value.extra["seen"].as_str()),
                (Some(v("1.14")), "yes")
            );
            running.stop().await;
        }
    });
}

/// The dance of the design: an unpinned conductor answers in 1.16, the old API raises an eyebrow and asks again for 1.14.
#[test]
fn a_client_that_gets_what_it_cannot_read_asks_for_it_again() {
    block_on(async {
        let conductor = Conductor::default();
        let running = serve(&conductor, "").await;
        let silent = old_client(&running).without_read_versions();
        let held = update_by_old(&silent).await;
        assert_eq!(
            (held.stored_version(), held.value.extra["seen"].as_str()),
            (Some(v("1.14")), "yes")
        );
        // It was done once.
        assert_eq!(conductor.asked.lock().unwrap().len(), 1);
        running.stop().await;
    });
}

/// D3 of Ironic: the API is unpinned before the conductor. The conductor refuses what its pin does not know.
#[test]
fn a_pinned_server_refuses_what_its_pin_does_not_know() {
    block_on(async {
        let running = serve(&Conductor::default(), "newton").await;
        let client = client(&running);
        let mut new = full();
        new.traits[0].note = Some("new".to_owned());
        let sent = nodes().send(&Held::new(new), &pin(""), None).unwrap();
        let error = client
            .call(&pin(""), "update_node", &node(&sent.text))
            .await
            .unwrap_err();
        assert!(
            matches!(
                error,
                CallError::Refused {
                    code: code::NOT_WHILE_PINNED,
                    ..
                }
            ),
            "{error}"
        );
        assert!(error.to_string().contains("/traits/0/note: \"new\""), "{error}");
        running.stop().await;
    });
}

#[test]
fn a_method_that_only_deletes_takes_every_version() {
    block_on(async {
        let conductor = Conductor {
            old: true,
            ..Conductor::default()
        };
        let running = serve(&conductor, "").await;
        let client = client(&running);
        for version in ["1.2", "1.14", "1.16", "1.99"] {
            let object =
                format!(r#"{{"kind":"Node","version":"{version}","data":{{"uuid":"n1","other":[]}}}}"#);
            let answer = client
                .call(&pin("newton"), "destroy_node", &node(&object))
                .await
                .unwrap();
            assert_eq!(answer, json!("n1"));
        }
        for (object, said) in [
            (
                r#"{"kind":"Port","version":"1.0","data":{}}"#,
                "Node was expected, and Port was received",
            ),
            (
                r#"{"kind":"Node","version":"1.0","data":{}}"#,
                "Node has no field \"uuid\"",
            ),
        ] {
            let error = client
                .call(&pin(""), "destroy_node", &node(object))
                .await
                .unwrap_err()
                .to_string();
            assert!(error.contains(said), "{error}");
        }
        running.stop().await;
    });
}

#[test]
fn an_object_that_the_pin_does_not_know_does_not_travel() {
    let ports = Chain::<Port1_0>::first();
    let port = Held::new(Port1_0 {
        address: "52:54:00:00:00:01".to_owned(),
    });
    let refusal = Refusal::from(ports.send_whole(&port, &pin("newton"), None).unwrap_err());
    assert_eq!(refusal.code, code::NOT_WHILE_PINNED);
}
