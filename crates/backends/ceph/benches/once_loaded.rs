//! What a large map costs once it is loaded: one question to the oracle, and planning again before a wave.
//!
//! `cargo xtask bench` runs it, as `cargo bench -p stagger-ceph --bench once_loaded -- FOLDER` with a folder
//! of recorded answers. It prints one JSON object: medians in milliseconds.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a bench that cannot read its map is over, and what it prints is all that it is for"
)]

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;

use stagger_ceph::api::recorded::Recorded;
use stagger_ceph::facts::{CephFacts, CollectOptions, collect};
use stagger_ceph::oktostop::Oracle;
use stagger_ceph::target::{TargetPolicy, target};
use stagger_ceph::translate::{HealthPolicy, Permitted, translate};
use stagger_core::model::{ClusterName, Fact, Growth, Policy, Search, Snapshot, Target};
use stagger_core::plan::{Plan, PlannedPart, PlanningInput, plan};

const WANTED: &str = "20.2.4";

fn main() {
    let folder = std::env::args().nth(1).unwrap();
    let facts = read(Path::new(&folder));
    let told = serde_json::json!({
        "ok_to_stop_ms": one_question(&facts),
        "first_plan_ms": first_plan(&facts),
        "plan_again_ms": planning_again(facts),
    });
    println!("{told}");
}

fn read(folder: &Path) -> CephFacts {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let now = "2026-11-21T00:30:00Z".parse().unwrap();
    let options = CollectOptions::default();
    runtime
        .block_on(collect(&Recorded::new(folder), &options, now))
        .unwrap()
}

/// The middle of so many rounds, in milliseconds.
fn median(rounds: u32, mut what: impl FnMut(u32)) -> f64 {
    let mut took: Vec<f64> = (0..rounds)
        .map(|round| {
            let begun = Instant::now();
            what(round);
            begun.elapsed().as_secs_f64() * 1000.0
        })
        .collect();
    took.sort_by(f64::total_cmp);
    took[took.len() / 2]
}

/// Whether four OSDs of different hosts may stop.
fn one_question(facts: &CephFacts) -> f64 {
    let Fact::Yes(pgs) = &facts.pgs else {
        panic!("the placement groups are unknown");
    };
    let oracle = Oracle::new(pgs, &facts.osds, &facts.tree);
    let osds = facts.osds.osds.len() as u32;
    median(1001, |round| {
        let set = [1, 101, 211, 331].map(|step| (round * 37 + step) % osds);
        assert_eq!(oracle.ask(&set).unwrap().osds.len(), 4);
    })
}

/// From the facts to the first plan.
fn first_plan(facts: &CephFacts) -> f64 {
    let wanted = target(facts, WANTED, &TargetPolicy::default()).unwrap();
    median(5, |_| assert!(!planned(facts, &wanted, None).is_empty()))
}

/// From the facts to the next plan, after the first wave of OSDs has passed.
fn planning_again(mut facts: CephFacts) -> f64 {
    let wanted = target(&facts, WANTED, &TargetPolicy::default()).unwrap();
    let first = planned(&facts, &wanted, None);
    let waves = |plan: &Plan| {
        let stage = plan.parts.iter().find_map(|part| match part {
            PlannedPart::Stage(stage) if stage.name.as_str() == "osd" => Some(stage.waves.clone()),
            PlannedPart::Stage(_) | PlannedPart::Step(_) => None,
        });
        stage.unwrap()
    };
    let before = waves(&first);
    for osd in &mut facts.osd_metadata {
        let name = format!("osd.{}", osd.id);
        if before[0].units.iter().any(|unit| unit.as_str() == name) {
            osd.version = Some(WANTED.to_owned());
        }
    }
    median(5, |_| {
        let again = planned(&facts, &wanted, Some(&first));
        assert!(waves(&again).len() < before.len(), "one wave less is left");
    })
}

fn planned(facts: &CephFacts, target: &Target, parent: Option<&Plan>) -> Plan {
    let name = ClusterName::new("bench").unwrap();
    let health = HealthPolicy::default();
    let snapshot: Snapshot = translate(
        &name,
        facts,
        &health,
        None,
        BTreeMap::new(),
        &Permitted::default(),
    )
    .unwrap();
    let policy = Policy {
        max_in_parallel: "100%".parse().unwrap(),
        growth: Growth::None,
        search: Search {
            steps: 0,
            ..Search::default()
        },
        ..Policy::default()
    };
    plan(&PlanningInput {
        snapshot: &snapshot,
        target,
        policy: &policy,
        aside: &BTreeMap::new(),
        earned: &BTreeMap::new(),
        parent,
    })
}
