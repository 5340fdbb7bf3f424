//! Requests and their failures.

use serde_json::json;
use stagger_engine::cluster::Retryability;
use stagger_ganeti::config::Visits;
use stagger_ganeti::rapi::client::{HttpMethod, Rapi, RapiClientError};

use crate::common::{settings, setup};
use crate::double::{Fault, World};

/// An address where nobody listens.
async fn nobody() -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    format!("http://{}", listener.local_addr().unwrap())
}

#[tokio::test]
async fn the_master_is_found_among_candidates_that_are_away() {
    let setup = setup(World::with_nodes(2)).await;
    let (away, there) = (nobody().await, setup.settings.cluster.addresses[0].clone());
    let settings = settings(&[&away, &there], setup.folder.path(), Visits::default());
    let rapi = Rapi::new(&settings).unwrap();
    assert_eq!(rapi.get("/2/info").await.unwrap()["master"], "n1");

    let alone = crate::common::settings(&[&away], setup.folder.path(), Visits::default());
    let error = Rapi::new(&alone).unwrap().get("/2/info").await.unwrap_err();
    assert!(matches!(error, RapiClientError::Unreachable(_)), "{error}");
    let error = error.of("look", true);
    assert!(!error.outcome_unknown, "nothing was sent");
    assert_eq!(error.retryability, Retryability::Transient);
}

#[tokio::test]
async fn two_that_think_they_are_master_are_not_believed() {
    let (one, other) = (
        setup(World::with_nodes(2)).await,
        setup(World::with_nodes(2)).await,
    );
    other.world().fail_over("n2");
    let addresses = [
        one.settings.cluster.addresses[0].as_str(),
        other.settings.cluster.addresses[0].as_str(),
    ];
    let settings = settings(&addresses, one.folder.path(), Visits::default());
    let error = Rapi::new(&settings).unwrap().get("/2/info").await.unwrap_err();
    let RapiClientError::TwoMasters(why) = &error else {
        panic!("{error}")
    };
    assert!(why.contains("n1") && why.contains("n2"), "{why}");
}

#[tokio::test]
async fn a_wrong_password_is_a_permanent_error_that_says_where_it_comes_from() {
    let setup = setup(World::with_nodes(2)).await;
    std::fs::write(setup.folder.path().join("password"), "falsch\n").unwrap();
    let rapi = setup.rapi();
    let error = rapi.facts().await.unwrap_err();
    assert_eq!(error.retryability, Retryability::Permanent);
    assert!(error.why.contains("401"), "{error}");
    assert!(error.hint.as_ref().unwrap().contains("password_file"));
    assert!(!format!("{rapi:?} {error:?}").contains("falsch"));
}

#[tokio::test]
async fn reads_are_tried_again_and_errors_are_told_apart() {
    let setup = setup(World::with_nodes(2)).await;
    let rapi = setup.rapi();
    for fault in [Fault::LoseAnswer, Fault::Status(503), Fault::Status(504)] {
        setup.world().fault("GET /2/groups", fault);
        assert!(rapi.get("/2/groups?bulk=1").await.is_ok());
    }
    for _ in 0..3 {
        setup.world().fault("GET /2/groups", Fault::Status(503));
    }
    let error = rapi.get("/2/groups?bulk=1").await.unwrap_err();
    assert_eq!(
        error,
        RapiClientError::Refused {
            code: 503,
            why: "the test said so".to_owned()
        }
    );
    setup.world().fault("GET /2/groups", Fault::Garbage);
    let error = rapi.get("/2/groups?bulk=1").await.unwrap_err();
    assert!(matches!(error, RapiClientError::Unreadable(_)), "{error}");
    let error = rapi.get("/2/nodes/n9").await.unwrap_err();
    assert!(
        matches!(error, RapiClientError::Refused { code: 404, .. }),
        "{error}"
    );
}

#[tokio::test]
async fn a_write_is_sent_once_even_if_its_answer_is_lost() {
    let setup = setup(World::with_nodes(2)).await;
    let rapi = setup.rapi();
    rapi.get("/2/info").await.unwrap();
    setup.world().fault("PUT /2/nodes/n2/role", Fault::LoseAnswer);
    let error = rapi
        .write(
            HttpMethod::Put,
            "/2/nodes/n2/role?force=1",
            Some(&json!("drained")),
        )
        .await
        .unwrap_err();
    assert!(matches!(error, RapiClientError::Lost(_)), "{error}");
    assert!(error.of("drain n2", true).outcome_unknown);
    assert_eq!(setup.world().jobs.len(), 1);
}

#[test]
fn settings_that_do_not_fit_together_are_refused_by_their_names() {
    let folder = tempfile::tempdir().unwrap();
    let visits = Visits {
        failover: Some("true".to_owned()),
        failover_timeout: 200,
        ..Visits::default()
    };
    let settings = settings(&["gnt.example.org"], folder.path(), visits);
    let error = Rapi::new(&settings).unwrap_err();
    assert!(error.why.contains("`lock_expires` is 300"), "{error}");
    let none = crate::common::settings(&[], folder.path(), Visits::default());
    assert!(Rapi::new(&none).unwrap_err().why.contains("`addresses`"));
    let unknown = toml::from_str::<stagger_ganeti::config::RapiConfig>(
        "name = \"lab\"\naddresses = [\"a\"]\nuser = \"u\"\npassword_file = \"p\"\npasword = \"x\"",
    );
    assert!(unknown.unwrap_err().to_string().contains("pasword"));
}

/// What the guide shows is taken, and shows every setting.
#[test]
fn the_guides_configuration_is_taken() {
    let guide = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs/reference/ganeti.md");
    let guide = std::fs::read_to_string(guide).unwrap();
    let shown = guide
        .split("```toml\n")
        .nth(1)
        .unwrap()
        .split("```")
        .next()
        .unwrap();
    let mut whole: toml::Table = toml::from_str(shown).unwrap();
    let cluster = whole["cluster"].as_table_mut().unwrap();
    assert_eq!(cluster.remove("kind").unwrap().as_str(), Some("ganeti"));
    let config: stagger_ganeti::config::RapiConfig = whole["cluster"].clone().try_into().unwrap();
    let document = serde_json::to_value(&config).unwrap();
    let visits = document["visits"].as_object().unwrap();
    let watcher = visits["watcher"].as_object().unwrap();
    for key in document
        .as_object()
        .unwrap()
        .keys()
        .chain(visits.keys())
        .chain(watcher.keys())
    {
        let words = [format!("{key} ="), format!("[{key}]"), format!(".{key}]")];
        assert!(
            words.iter().any(|word| shown.contains(word)),
            "the guide lacks {key}"
        );
    }
    let defaults = Visits {
        failover: config.visits.failover.clone(),
        watcher: config.visits.watcher.clone(),
        ..Visits::default()
    };
    assert_eq!(config.visits, defaults, "it shows the defaults");
}

/// `gnt-cluster upgrade` drains the queue, and its daemons go soon after.
#[tokio::test]
async fn a_queue_that_is_drained_is_named_before_a_run() {
    let setup = setup(World::with_nodes(2)).await;
    let rapi = setup.rapi();
    assert_eq!(stagger_ganeti::preflight::drained(&rapi).await, None);
    for (fault, said) in [
        (Fault::Status(503), "503, the test said so"),
        (Fault::QueueDrained, "500, Queue drained"),
    ] {
        setup.world().fault("PUT /2/tags", fault);
        let why = stagger_ganeti::preflight::drained(&rapi).await.unwrap();
        assert!(why.contains(said) && why.contains("gnt-cluster upgrade"), "{why}");
    }
}
