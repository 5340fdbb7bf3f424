//! Conductors that stand in for each other, and those for which nobody does.

use std::collections::BTreeSet;

use stagger_conformance::lock::claim;
use stagger_core::model::{Code, Limit, Phase, Policy};
use stagger_core::run::{Action, Answer};
use stagger_engine::cluster::{Executor as _, Lock as _};
use stagger_ironic::facts::NodeCount;
use stagger_ironic::goal::UpgradeGoal;

use crate::common::{Setup, call, goal, policy, setup, setup_of_two_groups};
use crate::lives::{Lives, all_is_well};
use crate::plans::planned_by;

fn nodes(group: &str, driver: &str, nodes: u64) -> NodeCount {
    NodeCount {
        group: group.to_owned(),
        driver: driver.to_owned(),
        nodes,
    }
}

fn drivers(setup: &Setup, conductor: &str, drivers: &[&str]) {
    let drivers: BTreeSet<String> = drivers.iter().map(|driver| (*driver).to_owned()).collect();
    setup.lab.now().drivers.insert(conductor.to_owned(), drivers);
}

fn permitting(name: &str) -> Policy {
    Policy {
        interruptions: BTreeSet::from([name.to_owned()]),
        ..policy()
    }
}

/// The waves of the conductors' first stage.
async fn waves(setup: &Setup, policy: &Policy) -> Vec<Vec<String>> {
    let (_, _, plan) = planned_by(setup, "29.0.6", policy).await;
    let stage = plan.stage(&"conductors".parse().unwrap()).unwrap();
    let names = |wave: &stagger_core::plan::Wave| wave.units.iter().map(ToString::to_string).collect();
    stage.waves.iter().map(names).collect()
}

/// What is gone in an upgrade, and whether a person permits it.
async fn without(setup: &Setup, policy: &Policy) -> Vec<(String, String, bool)> {
    let (snapshot, _, _) = planned_by(setup, "29.0.6", policy).await;
    let all = snapshot.interruptions().iter();
    all.map(|one| (one.name.clone(), one.what.clone(), one.permitted))
        .collect()
}

#[tokio::test]
async fn one_of_each_group_goes_and_several_groups_go_together() {
    let setup = setup_of_two_groups("26.1.6");
    let wide = Policy {
        max_in_parallel: Limit::Percent(100),
        ..policy()
    };
    let two = [["conductor.c1", "conductor.c3"], ["conductor.c2", "conductor.c4"]];
    assert_eq!(waves(&setup, &wide).await, two);
    assert_eq!(
        waves(&setup, &policy()).await.len(),
        4,
        "as many as the policy says"
    );
    let mut lives = Lives::new(&setup);
    lives.policy = wide;
    lives.until_done("two groups").await;
    let inner = setup.lab.now();
    all_is_well(&inner, "29.0.6", 2);
    assert_eq!(inner.drained_at_once, 2);
}

#[tokio::test]
async fn drivers_that_no_node_has_matter_to_nobody() {
    let setup = setup_of_two_groups("26.1.6");
    for conductor in ["c1", "c2", "c3", "c4"] {
        drivers(&setup, conductor, &["ipmi"]);
    }
    drivers(&setup, "c1", &["ipmi", "redfish"]);
    setup.lab.now().nodes = vec![nodes("rack1", "ipmi", 9), nodes("rack2", "ipmi", 3)];
    assert_eq!(without(&setup, &policy()).await, []);
    setup.lab.now().nodes.push(nodes("rack1", "redfish", 4));
    assert_eq!(
        without(&setup, &policy()).await,
        [(
            "conductor.c1".to_owned(),
            "while c1 restarts no conductor serves its nodes: it is the only one of group rack1, driver redfish: 4 nodes"
                .to_owned(),
            false
        )]
    );
}

#[tokio::test]
async fn a_conductor_without_a_stand_in_is_not_stopped_unless_that_is_permitted() {
    let setup = setup("26.1.6");
    setup.lab.now().groups.insert("c2".to_owned(), "rack2".to_owned());
    let (_, _, plan) = planned_by(&setup, "29.0.6", &policy()).await;
    let left: Vec<Code> = plan
        .left_alone
        .iter()
        .map(|left| left.reason.code.clone())
        .collect();
    assert!(left.contains(&Code::InterruptionNotPermitted), "{left:?}");
    for word in ["conductor", "conductor.c1"] {
        let told = without(&setup, &permitting(word)).await;
        let permitted: Vec<bool> = told.iter().map(|(_, _, permitted)| *permitted).collect();
        assert_eq!(permitted, [true, word == "conductor"], "{told:?}");
    }
    let mut lives = Lives::new(&setup);
    lives.policy = permitting("conductor");
    lives.until_done("no stand-in").await;
    let inner = setup.lab.now();
    assert_eq!(inner.services["c2"].runs.clone().unwrap().0, "29.0.6");
    let other = |said: &&String| !said.contains("the last of its kind") && !said.contains("nobody in rpc");
    assert_eq!(inner.violations.iter().find(other), None);
}

/// A word for a conductor that stands alone is none for one whose stand-in is away just now.
#[tokio::test]
async fn a_word_permits_nothing_of_who_has_a_stand_in() {
    let setup = setup("26.1.6");
    let goal = UpgradeGoal {
        interruptions: BTreeSet::from(["conductor".to_owned()]),
        ..goal()
    };
    let backend = setup.backend(Some(goal));
    let token = backend.lock(&claim("one"), 0).await.unwrap();
    let enter = |unit: &str| Action::Visit {
        unit: unit.parse().unwrap(),
        phase: Phase::Enter,
        revision: "29.0.6-pinned-2024.2".parse().unwrap(),
        moves: Vec::new(),
    };
    backend
        .perform(&call(token, 1), &enter("conductor.c1"))
        .await
        .unwrap();
    let other = ["conductor.c2".parse().unwrap()];
    let answer = backend.check_stop(&other).await.unwrap();
    assert!(matches!(answer, Answer::No { .. }), "{answer:?}");
    let refused = backend.perform(&call(token, 2), &enter("conductor.c2")).await;
    assert!(refused.unwrap_err().why.contains("no other server in rpc1"));
    assert_eq!(setup.lab.now().violations, [""; 0]);
}

#[tokio::test]
async fn the_only_api_goes_by_a_word() {
    let mut setup = setup("26.1.6");
    setup.settings.cluster.apis.pop();
    // The other one is gone from the balancer too.
    setup.lab.now().services.remove("a2");
    setup.lab.now().servers.retain(|(_, server), _| server != "a2");
    let told = without(&setup, &policy()).await;
    assert_eq!(told[0].0, "api.a1");
    assert!(told[0].1.contains("no API answers"), "{told:?}");
    let mut lives = Lives::new(&setup);
    lives.policy = permitting("api.a1");
    lives.until_done("one API").await;
    assert_eq!(setup.lab.now().services["a1"].runs.clone().unwrap().0, "29.0.6");
}

/// A stand-in of another group cannot reach the nodes, and one without the driver cannot work on them.
#[tokio::test]
async fn a_peer_at_the_balancer_is_a_stand_in_or_none() {
    let mut setup = setup_of_two_groups("26.1.6");
    let conductors = &mut setup.settings.cluster.conductors;
    let swapped = conductors[1].servers.clone();
    conductors[1].servers = conductors[2].servers.clone();
    conductors[2].servers = swapped;
    // c2 stands beside c4 at the balancer, and c3 beside c1.
    assert!(setup.refused("29.0.6").await.contains(&"not-prepared".to_owned()));
}
