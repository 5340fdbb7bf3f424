//! Nodes that Ironic is working on, and the backup before the schema.

use stagger_conformance::lock::claim;
use stagger_core::model::{Phase, Policy, Revision, UnitId};
use stagger_core::run::Action;
use stagger_engine::cluster::{Executor as _, Lock as _};
use stagger_ironic::conditions::{BACKED_UP, NODES_STABLE};
use stagger_ironic::config::NodesInFlight;
use stagger_ironic::in_flight::NodeInFlight;

use crate::common::{Setup, call, goal, policy, setup};
use crate::lives::Lives;

fn node(name: &str, state: &str, conductor: &str) -> NodeInFlight {
    NodeInFlight {
        node: name.to_owned(),
        state: state.to_owned(),
        since: Some("2026-11-30 00:31:05".to_owned()),
        conductor: Some(conductor.to_owned()),
    }
}

/// Nodes that stay in flight.
fn flying(setup: &Setup, nodes: &[NodeInFlight]) {
    setup.lab.now().in_flight = nodes.iter().map(|node| (node.clone(), u64::MAX)).collect();
}

async fn why_of(setup: &Setup, condition: &str) -> String {
    let backend = setup.backend(Some(goal()));
    let snapshot = backend.observe().await.unwrap();
    let condition = snapshot.condition(&condition.parse().unwrap());
    format!("{}: {}", condition.verdict, condition.why)
}

#[tokio::test]
async fn no_plan_begins_with_a_node_in_flight_where_that_is_refused() {
    let mut setup = setup("26.1.6");
    flying(&setup, &[node("lab-3", "deploying", "c1:8089")]);
    assert!(setup.may_begin("29.0.6").await, "it is waited for in the run");
    setup.settings.cluster.in_flight.nodes = NodesInFlight::Refuse;
    assert_eq!(setup.refused("29.0.6").await, ["nodes-in-flight"]);
    setup.settings.cluster.in_flight.except = vec!["lab-3".to_owned()];
    assert!(setup.may_begin("29.0.6").await);
}

#[tokio::test]
async fn both_points_of_no_return_wait_for_nodes_unless_they_are_accepted() {
    let mut setup = setup("26.1.6");
    setup.settings.cluster.in_flight.timeout = 77;
    let gates = async |setup: &Setup| {
        let facts = setup.backend(None).collect_facts().await;
        let upgrade = setup.upgrade(&facts, "29.0.6", &Policy::default()).unwrap();
        ["schema", "unpin"].map(|step| {
            let step = upgrade.target.step(&step.parse().unwrap()).unwrap();
            let gate = step
                .before
                .iter()
                .find(|gate| gate.condition.as_str() == NODES_STABLE);
            gate.map(|gate| gate.timeout.as_secs())
        })
    };
    assert_eq!(gates(&setup).await, [Some(77); 2]);
    setup.settings.cluster.in_flight.nodes = NodesInFlight::Accept;
    assert_eq!(gates(&setup).await, [None; 2]);
}

#[tokio::test]
async fn nodes_in_flight_are_named_with_their_state_and_its_time() {
    let mut setup = setup("26.1.6");
    assert_eq!(why_of(&setup, NODES_STABLE).await, "yes: no node is in flight");
    let generation = async |setup: &Setup| {
        let snapshot = setup.backend(Some(goal())).observe().await.unwrap();
        snapshot.generation().to_owned()
    };
    let before = generation(&setup).await;
    flying(&setup, &[node("lab-3", "wait call-back", "c1:8089")]);
    assert_eq!(generation(&setup).await, before, "no plan is another one for it");
    assert_eq!(
        why_of(&setup, NODES_STABLE).await,
        "no: nodes in flight: lab-3: wait call-back since 2026-11-30 00:31:05 UTC on c1:8089"
    );
    setup.settings.cluster.in_flight.nodes = NodesInFlight::Accept;
    assert_eq!(
        why_of(&setup, NODES_STABLE).await,
        "yes: nodes in flight, which is accepted: 1"
    );
}

#[tokio::test]
async fn a_run_goes_on_when_the_last_node_is_through() {
    let setup = setup("26.1.6");
    setup.lab.now().in_flight = vec![
        (node("lab-3", "deploying", "c1:8089"), 5),
        (node("lab-4", "clean wait", "c2:8089"), 9),
    ];
    Lives::new(&setup).until_done("nodes in flight").await;
    let inner = setup.lab.now();
    assert_eq!(inner.violations, [""; 0]);
    assert_eq!(inner.in_flight, []);
}

/// A conductor is drained, and not stopped before its own nodes are through; those of others, and what is accepted, are not
/// waited for; nor are those of a conductor that is away, which does nothing about them.
#[tokio::test]
async fn a_conductor_is_not_stopped_while_it_works_on_nodes() {
    let enter = |unit: &str| Action::Visit {
        unit: UnitId::new(unit).unwrap(),
        phase: Phase::Enter,
        revision: Revision::new("29.0.6-pinned-2024.2").unwrap(),
        moves: Vec::new(),
    };
    let mut setup = setup("26.1.6");
    flying(&setup, &[node("lab-3", "wait call-back", "c1:8089")]);
    let backend = setup.backend(Some(goal()));
    let token = backend.lock(&claim("one"), 0).await.unwrap();
    let error = backend
        .perform(&call(token, 1), &enter("conductor.c1"))
        .await
        .unwrap_err();
    assert!(error.why.contains("lab-3: wait call-back since"), "{error}");
    let leave = Action::Visit {
        unit: UnitId::new("conductor.c1").unwrap(),
        phase: Phase::Leave,
        revision: Revision::new("26.1.6").unwrap(),
        moves: Vec::new(),
    };
    backend.perform(&call(token, 2), &leave).await.unwrap();
    backend
        .perform(&call(token, 3), &enter("conductor.c2"))
        .await
        .unwrap();
    let leave_c2 = Action::Visit {
        unit: UnitId::new("conductor.c2").unwrap(),
        phase: Phase::Leave,
        revision: Revision::new("26.1.6").unwrap(),
        moves: Vec::new(),
    };
    backend.perform(&call(token, 4), &leave_c2).await.unwrap();
    setup.lab.now().conductor_rows.get_mut("c1:8089").unwrap().1 = false;
    backend
        .perform(&call(token, 5), &enter("conductor.c1"))
        .await
        .unwrap();
    setup.lab.now().conductor_rows.get_mut("c1:8089").unwrap().1 = true;
    backend.perform(&call(token, 6), &leave).await.unwrap();
    setup.settings.cluster.in_flight.except = vec!["lab-3".to_owned()];
    let backend = setup.backend(Some(goal()));
    backend
        .perform(&call(token, 7), &enter("conductor.c1"))
        .await
        .unwrap();
}

#[tokio::test]
async fn a_schema_is_upgraded_only_with_a_word_about_its_backup() {
    let mut setup = setup("26.1.6");
    setup.settings.cluster.tools.backup = None;
    assert_eq!(setup.refused("29.0.6").await, ["backup-not-configured"]);
    assert!(
        setup.may_begin("26.1.7").await,
        "a patch has no schema of its own"
    );
    setup.settings.cluster.tools.backup = Some("none".to_owned());
    let facts = setup.backend(None).collect_facts().await;
    let upgrade = setup.upgrade(&facts, "29.0.6", &policy()).unwrap();
    assert!(upgrade.target.step(&"backup".parse().unwrap()).is_none());
}

#[tokio::test]
async fn a_backup_that_fails_is_followed_by_no_schema() {
    let setup = setup("26.1.6");
    let failed = stagger_engine::hosts::Ran {
        code: 2,
        output: "mysqldump: No space left on device".to_owned(),
    };
    setup.lab.now().faults.push(("hook backup".to_owned(), failed));
    let mut lives = Lives::new(&setup);
    let end = format!("{:?}", lives.live().await);
    assert!(end.contains("No space left on device"), "{end}");
    let log = setup.lab.log();
    assert!(
        !log.iter().any(|command| command.starts_with("schema")),
        "{log:#?}"
    );
}

/// One of a run that ended before its schema, half a day ago, is made anew.
#[tokio::test]
async fn a_backup_counts_for_half_a_day_and_is_no_matter_after_the_schema() {
    let setup = setup("26.1.6");
    assert_eq!(why_of(&setup, BACKED_UP).await, "no: it is not recorded");
    let backend = setup.backend(Some(goal()));
    let token = backend.lock(&claim("one"), 0).await.unwrap();
    let step = |step: &str| Action::Step {
        step: step.parse().unwrap(),
    };
    backend.perform(&call(token, 1), &step("backup")).await.unwrap();
    let found = why_of(&setup, BACKED_UP).await;
    assert!(
        found.starts_with("yes: saved 20") && found.ends_with("Z done"),
        "{found}"
    );
    let mut facts = backend.collect_facts().await;
    facts.at = facts
        .at
        .checked_add(jiff::SignedDuration::from_hours(13))
        .unwrap();
    let snapshot = backend.snapshot(&facts, Some(&goal())).unwrap();
    let late = snapshot.condition(&BACKED_UP.parse().unwrap());
    assert!(late.why.ends_with("a backup counts for 12 h"), "{late:?}");
    backend.perform(&call(token, 2), &step("schema")).await.unwrap();
    assert_eq!(
        why_of(&setup, BACKED_UP).await,
        "yes: the schema is upgraded already"
    );
}
