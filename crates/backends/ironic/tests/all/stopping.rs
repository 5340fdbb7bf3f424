//! The ways of stopping a conductor.

use std::collections::BTreeSet;

use stagger_core::run::Answer;
use stagger_engine::cluster::Executor;
use stagger_ironic::config::{IronicSettings, RabbitMq, StopMode};

use crate::common::{Setup, setup, setup_of_two_groups};
use crate::crash::stride;
use crate::double::Dies;
use crate::lives::{Lives, all_is_well};

#[tokio::test]
async fn d4_muted_conductors_are_asked_nothing_when_they_stop() {
    let mut setup = setup("26.1.6");
    let stopping = &mut setup.settings.cluster.stopping;
    stopping.way = StopMode::Mute;
    assert!(
        setup
            .refused("29.0.6")
            .await
            .contains(&"mute-not-permitted".to_owned())
    );
    let stopping = &mut setup.settings.cluster.stopping;
    stopping.writes_into_ironic = true;
    stopping.database = Some("sqlite:///nowhere".to_owned());
    setup.lab.now().other_way = true;
    Lives::new(&setup).until_done("mute").await;
    all_is_well(&setup.lab.now(), "29.0.6", 2);
    assert!(setup.lab.log().iter().any(|command| command == "halt"));
}

#[tokio::test]
async fn requests_are_held_only_while_a_conductor_is_away() {
    let mut setup = setup("26.1.6");
    let stopping = &mut setup.settings.cluster.stopping;
    stopping.way = StopMode::Hold;
    assert!(setup.refused("29.0.6").await.contains(&"not-prepared".to_owned()));
    let stopping = &mut setup.settings.cluster.stopping;
    stopping.hold = Some("hold".to_owned());
    stopping.let_go = Some("let-go".to_owned());
    setup.lab.now().other_way = true;
    Lives::new(&setup).until_done("hold").await;
    all_is_well(&setup.lab.now(), "29.0.6", 2);
    let log = setup.lab.log();
    let held = log.iter().filter(|command| *command == "hold").count();
    assert_eq!(held, 4, "{log:#?}");
    assert!(!setup.lab.now().held);
}

/// An Ironic whose services call each other over RabbitMQ.
fn over_rabbitmq(mut setup: Setup) -> Setup {
    setup.lab.with_rabbitmq();
    let mut config = setup.settings.cluster.clone();
    config.rabbitmq = Some(RabbitMq {
        url: "http://127.0.0.1:1".to_owned(),
        user: "stagger".to_owned(),
        password_file: "/nowhere".into(),
        vhost: "/".to_owned(),
        exchange: "ironic".to_owned(),
    });
    let pace = setup.settings.pace;
    setup.settings = IronicSettings::new(config, setup.settings.hosts);
    setup.settings.pace = pace;
    setup
}

/// Everything is routed as it was, and nothing is left in the alternate exchange.
fn is_routed_as_before(setup: &Setup) {
    let inner = setup.lab.now();
    let routing = inner.routing.as_ref().unwrap();
    assert!(routing.queues.values().all(|queue| queue.is_bound), "{routing:?}");
    assert!(routing.stand_ins.values().all(BTreeSet::is_empty), "{routing:?}");
}

#[tokio::test]
async fn d4_over_rabbitmq_calls_go_to_a_stand_in_while_a_conductor_is_away() {
    for setup in [setup("26.1.6"), setup_of_two_groups("26.1.6")] {
        let setup = over_rabbitmq(setup);
        Lives::new(&setup).until_done("RabbitMQ").await;
        all_is_well(&setup.lab.now(), "29.0.6", 2);
        is_routed_as_before(&setup);
    }
}

#[tokio::test]
async fn killed_between_any_two_changes_to_the_routing_no_call_is_lost() {
    for changes in 0..20 {
        let setup = over_rabbitmq(setup("26.1.6"));
        setup.lab.now().changes_left = Some(changes);
        Lives::new(&setup)
            .until_done(&format!("killed after {changes}"))
            .await;
        all_is_well(&setup.lab.now(), "29.0.6", 2);
        is_routed_as_before(&setup);
    }
}

#[tokio::test]
async fn a_change_to_the_routing_that_is_refused_is_tried_again() {
    let setup = over_rabbitmq(setup("26.1.6"));
    setup.lab.now().refusals = 2;
    Lives::new(&setup).until_done("refused twice").await;
    all_is_well(&setup.lab.now(), "29.0.6", 2);
    is_routed_as_before(&setup);
}

#[tokio::test]
async fn a_conductor_whose_stand_in_takes_no_calls_stays() {
    let setup = over_rabbitmq(setup("26.1.6"));
    {
        let mut inner = setup.lab.now();
        let routing = inner.routing.as_mut().unwrap();
        routing.queues.get_mut("c2:8089").unwrap().consumers = 0;
    }
    let reasons = setup.refused("29.0.6").await;
    assert!(reasons.contains(&"service-down".to_owned()), "{reasons:?}");
    let backend = setup.backend(None);
    let answer = Executor::check_stop(&backend, &["conductor.c1".parse().unwrap()])
        .await
        .unwrap();
    assert!(matches!(answer, Answer::No { .. }), "{answer:?}");
}

/// Settings in which conductors are stopped in that way.
fn stopped_by(way: StopMode) -> Setup {
    let mut setup = setup("26.1.6");
    let stopping = &mut setup.settings.cluster.stopping;
    stopping.way = way;
    stopping.writes_into_ironic = true;
    stopping.database = Some("sqlite:///nowhere".to_owned());
    stopping.hold = Some("hold".to_owned());
    stopping.let_go = Some("let-go".to_owned());
    setup.lab.now().other_way = way != StopMode::Drain;
    setup
}

#[tokio::test]
async fn a_conductor_with_tasks_is_not_stopped_and_the_rest_goes_on() {
    for way in [StopMode::Drain, StopMode::Mute, StopMode::Hold] {
        let setup = stopped_by(way);
        setup.lab.now().reserved.insert("c1:8089".to_owned(), 2);
        let mut lives = Lives::new(&setup);
        lives.policy.retry = toml::from_str("first = 1\nlongest = 1\ntries = 2").unwrap();
        let end = lives.live().await;
        let text = format!("{end:?}");
        assert!(text.contains("it has reserved 2 nodes"), "{way:?}: {text}");
        let inner = setup.lab.now();
        assert_eq!(inner.violations, [""; 0], "{way:?}");
        assert_eq!(inner.services["c1"].runs.clone().unwrap().0, "26.1.6");
        assert_eq!(inner.services["c2"].runs.clone().unwrap().0, "29.0.6");
        assert!(
            inner.servers.values().all(|drained| !drained),
            "it was given back"
        );
    }
}

#[tokio::test]
async fn a_task_that_came_last_is_waited_for() {
    for way in [StopMode::Mute, StopMode::Hold] {
        let setup = stopped_by(way);
        setup.lab.now().one_more_task = 2;
        Lives::new(&setup).until_done("one more task").await;
        all_is_well(&setup.lab.now(), "29.0.6", 2);
    }
}

/// The door opens by itself after a while, and a command whose answer was lost may be at work behind it.
#[tokio::test]
async fn the_door_is_shut_for_each_try() {
    for lost in ["stop c1", "start c2"] {
        let setup = stopped_by(StopMode::Hold);
        setup.lab.now().lost.push(lost.to_owned());
        Lives::new(&setup).until_done(lost).await;
        all_is_well(&setup.lab.now(), "29.0.6", 2);
        let log = setup.lab.log();
        let at = |wanted: &str| log.iter().position(|command| command == wanted).unwrap();
        assert_eq!(log[at(lost) + 1], "hold", "{log:#?}");
        assert!(!setup.lab.now().held);
    }
}

#[tokio::test]
async fn killed_at_any_command_no_conductor_is_stopped_while_it_is_asked() {
    for way in [StopMode::Mute, StopMode::Hold] {
        let undisturbed = stopped_by(way);
        Lives::new(&undisturbed).until_done("undisturbed").await;
        let points = undisturbed.lab.now().commands;
        for point in (1..=points).step_by(stride(3)) {
            for dies in [Dies::Before, Dies::After] {
                let setup = stopped_by(way);
                setup.lab.now().kill = Some((point, dies));
                let what = format!("{way:?}, killed at command {point}, {dies:?}");
                Lives::new(&setup).until_done(&what).await;
                all_is_well(&setup.lab.now(), "29.0.6", 2);
            }
        }
    }
}

#[tokio::test]
async fn the_plan_says_how_conductors_stop_and_what_that_costs() {
    for (way, words) in [
        (StopMode::Drain, "drained to its peers; no request fails"),
        (StopMode::Mute, "writes into Ironic's table"),
        (StopMode::Hold, "all requests wait at the API until"),
    ] {
        let setup = stopped_by(way);
        let backend = setup.backend(None);
        let facts = backend.collect_facts().await;
        let upgrade = setup.upgrade(&facts, "29.0.6", &crate::common::policy()).unwrap();
        let pin = upgrade.target.step(&"pin".parse().unwrap()).unwrap();
        assert!(pin.why.contains(words), "{}", pin.why);
    }
}

#[tokio::test]
async fn d1_the_plan_says_which_requests_will_fail_whatever_is_done() {
    for (from, to, fails) in [("26.1.6", "29.0.6", false), ("29.0.6", "32.0.1", true)] {
        let setup = setup(from);
        let backend = setup.backend(None);
        let facts = backend.collect_facts().await;
        let upgrade = setup.upgrade(&facts, to, &crate::common::policy()).unwrap();
        let pin = upgrade.target.step(&"pin".parse().unwrap()).unwrap();
        assert_eq!(pin.why.contains("TraitList"), fails, "{}", pin.why);
    }
}
