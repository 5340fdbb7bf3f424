//! The simulated cluster has the laws of every cluster, so that what is shown on it says something of real ones.
#![allow(clippy::unwrap_used, reason = "test code")]

use std::time::Duration;

use stagger_conformance::executor::{an_older_holder_is_refused, performed_twice_is_performed_once};
use stagger_conformance::lock::{self, claim};
use stagger_core::model::{Phase, RunId};
use stagger_core::run::Action;
use stagger_engine::clock::Clock as _;
use stagger_engine::cluster::{Call, Lock, LockError};
use stagger_sim::{ClockSpeed, Scenario, Sim};

const SMALL: &str = r#"
[cluster]
name = "small"
release = "18.2.7"
racks = 1
hosts_per_rack = 3
osds_per_host = 1
mons = 3
mgrs = 2
[target]
to = "18.2.8"
"#;

fn sim() -> Sim {
    Sim::new(Scenario::parse(SMALL).unwrap().cluster, Vec::new()).unwrap()
}

fn call(fence: u64) -> Call {
    Call {
        run: RunId::new("run-1").unwrap(),
        seq: 7,
        announced: 1,
        fence,
        deadline: None,
    }
}

fn actions() -> Vec<Action> {
    let unit = || "osd.1".parse().unwrap();
    let enter = Action::Visit {
        unit: unit(),
        phase: Phase::Enter,
        revision: "18.2.8".parse().unwrap(),
        moves: Vec::new(),
    };
    vec![enter, Action::Restart { unit: unit() }]
}

/// Each unit, what it runs and whether it is up, and how often it was started and stopped.
fn now(sim: &Sim) -> String {
    let world = sim.world();
    let units: Vec<_> = world
        .units()
        .map(|(id, runs, up)| (id.to_string(), runs.to_string(), up))
        .collect();
    format!("{units:?} {:?}", world.truth().visits)
}

#[test]
fn its_executor_has_the_laws_of_every_executor() {
    let (older, newer) = (call(1), call(2));
    for action in actions() {
        let cluster = sim();
        let other = cluster.clone();
        let world = async || now(&cluster);
        let twice = performed_twice_is_performed_once([&cluster, &other], &older, &action, world);
        cluster.carry_out(ClockSpeed::Fast, twice).unwrap();

        let cluster = sim();
        let world = async || now(&cluster);
        let overtaken = an_older_holder_is_refused(&cluster, &older, &newer, &action, world);
        cluster.carry_out(ClockSpeed::Fast, overtaken).unwrap();
    }
}

#[tokio::test]
async fn its_lock_has_the_laws_of_every_lock() {
    let cluster = sim();
    lock::the_anchor_outlives_the_lock(&cluster).await;
    lock::one_writer_at_a_time(&cluster, &cluster.clone()).await;
    let crowd = vec![cluster; 8];
    let crowd: Vec<&dyn Lock> = crowd.iter().map(|sim| sim as &dyn Lock).collect();
    lock::of_a_crowd_one_has_it(&crowd, Duration::from_secs(20)).await;
}

/// By its own clock, so it does not wait as other locks do: whoever wants it asks again.
#[test]
fn a_silent_holder_is_followed_when_its_lock_has_expired() {
    let cluster = sim();
    let clock = cluster.clock();
    let moment = Duration::from_millis(1);
    let story = async {
        let token = cluster.lock(&claim("dead"), 0).await.unwrap();
        clock.pause(cluster.lock_expires().saturating_sub(moment)).await;
        let refused = cluster.lock(&claim("heir"), 0).await;
        assert!(matches!(&refused, Err(LockError::Held(by)) if **by == claim("dead")));
        clock.pause(moment).await;
        let newer = cluster.lock(&claim("heir"), 0).await.unwrap();
        assert!(newer > token, "{newer} after {token}");
        let late = cluster.renew(&claim("dead"), token).await;
        assert!(matches!(late, Err(LockError::Lost(_))), "{late:?}");
        cluster.renew(&claim("heir"), newer).await.unwrap();
    };
    cluster.carry_out(ClockSpeed::Fast, story).unwrap();
}
