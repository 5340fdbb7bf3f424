//! What nothing is begun on, each with its reason, and all reasons at once.

use stagger_conformance::lock::claim;
use stagger_core::model::Fact;
use stagger_engine::hosts::Ran;
use stagger_ironic::conditions;
use stagger_ironic::goal::UpgradeGoal;

use crate::common::{call, goal, setup};
use crate::lives::{End, Lives};

#[tokio::test]
async fn releases_that_do_not_follow_each_other() {
    let setup = setup("26.1.6");
    for (to, slug) in [
        ("32.0.1", "upgrade-not-supported"),
        ("24.1.5", "upgrade-not-supported"),
        ("29.0", "release-without-patch"),
        ("33.0.0", "unknown-release"),
        ("dalmatien", "unknown-release"),
    ] {
        assert_eq!(setup.refused(to).await, [slug], "{to}");
    }
    let backend = setup.backend(None);
    let facts = backend.collect_facts().await;
    let refusal = setup
        .upgrade(&facts, "32.0.1", &crate::common::policy())
        .unwrap_err();
    let text = refusal.0[0].to_string();
    assert!(text.contains("first to 2025.1"), "{text}");
}

#[tokio::test]
async fn d6_rows_without_a_version_are_named_before_anything_begins() {
    let setup = setup("26.1.6");
    setup.lab.now().null.insert("nodes".to_owned(), 3);
    let backend = setup.backend(None);
    let facts = backend.collect_facts().await;
    let refusal = setup
        .upgrade(&facts, "29.0.6", &crate::common::policy())
        .unwrap_err();
    let text = refusal.0[0].to_string();
    assert!(
        text.starts_with("rows-without-version: rows without a version: 3 of nodes"),
        "{text}"
    );
    let snapshot = backend.snapshot(&facts, None).unwrap();
    let condition = snapshot.condition(&conditions::ROWS_HAVE_VERSIONS.parse().unwrap());
    assert!(condition.why.contains("3 of nodes"), "{condition:?}");
}

#[tokio::test]
async fn d12_rows_of_a_newer_release_are_called_that() {
    let setup = setup("26.1.6");
    let future = std::collections::BTreeMap::from([("1.42".to_owned(), 1), ("1.40".to_owned(), 11)]);
    setup.lab.now().rows.insert("nodes".to_owned(), future);
    let backend = setup.backend(None);
    let facts = backend.collect_facts().await;
    let refusal = setup
        .upgrade(&facts, "29.0.6", &crate::common::policy())
        .unwrap_err();
    let text = refusal.0[0].to_string();
    assert!(text.contains("1 of nodes of version 1.42"), "{text}");
    assert!(text.contains("a newer release wrote them"), "{text}");
    let snapshot = backend.snapshot(&facts, None).unwrap();
    let readable = snapshot.condition(&conditions::ROWS_READABLE.parse().unwrap());
    assert!(
        readable.why.contains("answers every list with an error"),
        "{readable:?}"
    );
}

#[tokio::test]
async fn what_cannot_be_seen_is_no_reason_to_begin() {
    let setup = setup("26.1.6");
    setup.lab.now().away = u32::MAX;
    assert!(
        setup
            .refused("29.0.6")
            .await
            .contains(&"database-unknown".to_owned())
    );
    setup.lab.now().away = 0;
    setup.lab.now().strangers.push("old-host".to_owned());
    assert!(
        setup
            .refused("29.0.6")
            .await
            .contains(&"unknown-conductor".to_owned())
    );
    setup.lab.now().strangers.clear();
    let place = ("b".to_owned(), "a3".to_owned());
    {
        let mut inner = setup.lab.now();
        let third = inner.services["a1"].clone();
        inner.services.insert("a3".to_owned(), third);
        inner.servers.insert(place.clone(), false);
    }
    assert_eq!(setup.refused("29.0.6").await, ["unknown-api"]);
    let backend = setup.backend(Some(goal()));
    let snapshot = backend.snapshot(&backend.collect_facts().await, None).unwrap();
    let serve = snapshot.condition(&conditions::APIS_SERVE.parse().unwrap());
    assert!(serve.why.contains("b/a3 (UP)"), "{serve:?}");
    {
        let mut inner = setup.lab.now();
        inner.services.remove("a3");
        inner.servers.remove(&place);
    }
    setup.lab.now().services.get_mut("a1").unwrap().runs = None;
    assert!(setup.refused("29.0.6").await.contains(&"service-down".to_owned()));
    for api in ["a1", "a2"] {
        setup.lab.now().services.get_mut(api).unwrap().runs = None;
    }
    let refused = setup.refused("29.0.6").await;
    for slug in ["service-down", "service-unknown", "conductors-unknown"] {
        assert!(refused.contains(&slug.to_owned()), "{slug}: {refused:?}");
    }
}

#[tokio::test]
async fn an_upgrade_that_was_not_finished_and_a_mixture_of_releases() {
    let setup = setup("26.1.6");
    let pinned = Some(("26.1.6".to_owned(), Some("24.1".to_owned())));
    for service in setup.lab.now().services.values_mut() {
        service.runs.clone_from(&pinned);
        service.pin_file = Some("24.1".to_owned());
    }
    for row in setup.lab.now().conductor_rows.values_mut() {
        row.0 = "1.3".to_owned();
    }
    let refused = setup.refused("29.0.6").await;
    assert!(refused.iter().all(|slug| slug == "still-pinned"), "{refused:?}");
    assert_eq!(refused.len(), 4);
    // A patch would take all pins away, without the door and in the wrong order.
    assert_eq!(setup.refused("26.1.7").await, ["still-pinned"; 4]);
}

#[tokio::test]
async fn conductors_that_cannot_be_drained_are_found_before() {
    let mut setup = setup("26.1.6");
    setup.settings.cluster.conductors[1].servers.clear();
    let refused = setup.refused("29.0.6").await;
    assert!(refused.contains(&"not-prepared".to_owned()), "{refused:?}");

    // Behind the balancer, and called by an address of its own.
    let setup = crate::common::setup("26.1.6");
    setup.lab.now().passed.insert("rpc2".to_owned());
    let refused = setup.refused("29.0.6").await;
    assert_eq!(refused, ["not-prepared"]);
}

#[tokio::test]
async fn commands_and_pins_that_would_fail_in_the_middle() {
    let mut setup = setup("26.1.6");
    setup.settings.cluster.commands.stop = None;
    setup.settings.cluster.pin = Some("2025.1".to_owned());
    setup.settings.cluster.hooks.ramdisk = None;
    let refused = setup.refused("29.0.6").await;
    for slug in ["command-missing", "pin-not-listed", "ramdisk-not-confirmed"] {
        assert!(refused.contains(&slug.to_owned()), "{slug}: {refused:?}");
    }
}

#[tokio::test]
async fn a_known_crash_of_the_check_is_shown_and_a_no_of_it_holds() {
    let setup = setup("26.1.6");
    let ran = |code: i32, output: &str| Ran {
        code,
        output: output.to_owned(),
    };
    let crash = "(1054, \"Unknown column 'nodes.disable_power_off'\")";
    setup.lab.now().faults.push(("check".to_owned(), ran(255, crash)));
    let mut lives = Lives::new(&setup);
    lives.until_done("crash").await;
    let notes = lives.processes.notes().await;
    assert!(
        notes.iter().any(|note| note.starts_with("unknown, known defect")),
        "{notes:?}"
    );

    let setup = crate::common::setup("26.1.6");
    setup
        .lab
        .now()
        .faults
        .push(("check".to_owned(), ran(2, "Object versions: Failure")));
    let mut lives = Lives::new(&setup);
    let End::Held(reason) = lives.live().await else {
        panic!("it should have been held")
    };
    assert!(reason.detail.contains("Object versions: Failure"), "{reason}");
    assert!(
        !setup
            .lab
            .log()
            .iter()
            .any(|command| command.starts_with("schema"))
    );
}

#[tokio::test]
async fn a_pin_that_the_new_code_does_not_list_is_found_before_the_schema() {
    let mut setup = setup("32.0.1");
    setup.settings.cluster.tools.python = Some("python-{release}".to_owned());
    let goal = UpgradeGoal {
        to: "39.0.0".to_owned(),
        from: "32.0.1".to_owned(),
        pin: "flamingo".to_owned(),
        ..goal()
    };
    let backend = setup.backend(Some(goal));
    let token = stagger_engine::cluster::Lock::lock(&backend, &claim("one"), 0)
        .await
        .unwrap();
    let schema = stagger_core::run::Action::Step {
        step: "schema".parse().unwrap(),
    };
    let error = stagger_engine::cluster::Executor::perform(&backend, &call(token, 1), &schema)
        .await
        .unwrap_err();
    assert!(error.why.contains("32.0 2025.2"), "{error}");
    assert!(
        !setup
            .lab
            .log()
            .iter()
            .any(|command| command.starts_with("schema"))
    );
    assert!(
        setup
            .lab
            .now()
            .services
            .values()
            .all(|service| service.pin_file.is_none())
    );
    let facts = backend.collect_facts().await;
    assert!(matches!(facts.pins["c1"], Fact::Yes(None)));
}
