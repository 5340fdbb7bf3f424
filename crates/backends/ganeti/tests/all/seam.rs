//! A Ganeti behind the traits of the engine: what answers, what was recorded, and what plans are made of.

use std::collections::BTreeMap;
use std::path::PathBuf;

use jiff::{SignedDuration, Timestamp};
use serde_json::value::RawValue;
use stagger_conformance::source::what_is_saved_is_read_back;
use stagger_core::model::{ClusterName, Kind, Policy};
use stagger_engine::cluster::{Planner as _, PlannerError, Source};
use stagger_engine::inventory::Inventory;
use stagger_ganeti::config::Visits;
use stagger_ganeti::goal::MaintenanceGoal;
use stagger_ganeti::loaders::rapi::FILES;
use stagger_ganeti::loaders::text;
use stagger_ganeti::planner::GanetiPlanner;
use stagger_ganeti::source::{ClusterFacts, LiveGaneti, RecordedError, RecordedGaneti};

use crate::common::{by_powercycle, setup};
use crate::double::World;
use crate::double::queue::Op;

fn lab() -> ClusterName {
    ClusterName::new("lab").unwrap()
}

fn planner() -> GanetiPlanner {
    GanetiPlanner::new(lab(), by_powercycle())
}

fn takes(seconds: i64) -> SignedDuration {
    SignedDuration::from_secs(seconds)
}

fn migrate() -> Kind {
    Kind::new("migrate").unwrap()
}

async fn saved_and_read(source: &dyn Source<Facts = ClusterFacts>) -> ClusterFacts {
    let read = |inventory: &Inventory| {
        let recorded = RecordedGaneti::read(inventory).unwrap();
        assert_eq!(recorded.name(), &inventory.cluster);
        recorded
    };
    what_is_saved_is_read_back(source, read).await
}

fn world() -> World {
    let mut world = World::with_nodes(3);
    world.add("web", "drbd", "n2", Some("n3"));
    world.add("db", "drbd", "n3", Some("n1"));
    world
}

/// Recorded answers of RAPI.
pub fn recorded_bodies() -> BTreeMap<String, Box<RawValue>> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/rapi");
    FILES
        .into_iter()
        .map(|file| {
            let body = std::fs::read_to_string(folder.join(file)).unwrap();
            let body: serde_json::Value = serde_json::from_str(&body).unwrap();
            (file.to_owned(), serde_json::value::to_raw_value(&body).unwrap())
        })
        .collect()
}

#[tokio::test]
async fn every_recorded_form_is_read_as_it_was_saved() {
    let setup = setup(world()).await;
    let live = LiveGaneti::new(&setup.settings).unwrap();
    let saved = saved_and_read(&live).await;
    let now = live.facts().await.unwrap();
    assert_eq!((&saved.cluster, &saved.jobs), (&now.cluster, &now.jobs));
    assert_eq!(saved.live.unwrap().nodes, now.live.unwrap().nodes);

    let bodies = recorded_bodies();
    let described = saved_and_read(&RecordedGaneti::bodies(lab(), bodies).unwrap()).await;
    assert!(described.live.is_none() && described.at == Timestamp::UNIX_EPOCH);

    let written = text::write(&described.cluster);
    let text = saved_and_read(&RecordedGaneti::text(lab(), written).unwrap()).await;
    assert_eq!(text.cluster.nodes.len(), described.cluster.nodes.len());
    let none = RecordedGaneti::text(lab(), "no cluster".to_owned()).unwrap_err();
    assert!(matches!(none, RecordedError::Text(_)), "{none}");
}

/// What the cluster's own jobs took is expected again; what flags or earlier runs say comes before that.
#[tokio::test]
async fn the_clusters_own_jobs_tell_how_long_moves_take() {
    let setup = setup(world()).await;
    let live = LiveGaneti::new(&setup.settings).unwrap();
    let planner = planner();
    let duration = async |goal: &MaintenanceGoal| {
        let facts = live.facts().await.unwrap();
        let planned = planner.plan(&facts, goal, &Policy::default()).unwrap();
        assert_eq!(
            planned.memory.goal.durations,
            [migrate(), Kind::new("node").unwrap()]
                .into_iter()
                .filter_map(|kind| Some((kind.clone(), planned.snapshot.duration(&kind)?)))
                .collect(),
            "a run remembers what its plan rests upon"
        );
        planned.snapshot.duration(&migrate())
    };
    let goal = MaintenanceGoal::default();
    assert_eq!(duration(&goal).await, None, "nobody has migrated anything");
    {
        let mut world = setup.world();
        for instance in ["web", "web"] {
            let instance = instance.to_owned();
            world.submit(
                Op::Migrate {
                    instance,
                    target: None,
                },
                None,
            );
            for _ in 0..10 {
                world.tick();
            }
        }
    }
    // The double's jobs take 6.5 s.
    assert_eq!(duration(&goal).await, Some(takes(7)));
    let told = MaintenanceGoal {
        durations: BTreeMap::from([(migrate(), takes(20)), (Kind::new("node").unwrap(), takes(300))]),
        ..MaintenanceGoal::default()
    };
    assert_eq!(duration(&told).await, Some(takes(20)));
    // An inventory keeps what tells it.
    let saved = saved_and_read(&live).await;
    let planned = planner.plan(&saved, &goal, &Policy::default()).unwrap();
    assert_eq!(planned.snapshot.duration(&migrate()), Some(takes(7)));
}

#[tokio::test]
async fn two_masters_are_a_refusal_and_a_wrong_name_is_a_mistake() {
    let setup = setup(world()).await;
    let live = LiveGaneti::new(&setup.settings).unwrap();
    let mut facts = live.facts().await.unwrap();
    let mut goal = MaintenanceGoal::default();
    goal.reboot.selection.groups.push("north".to_owned());
    let wrong = planner().plan(&facts, &goal, &Policy::default()).unwrap_err();
    assert!(
        matches!(&wrong, PlannerError::Goal(why) if why.contains("there is no node group")),
        "{wrong}"
    );
    let policy: Policy = toml::from_str("order = { by-domain = \"rack\" }").unwrap();
    let unknown = GanetiPlanner::new(lab(), Visits::default())
        .plan(&facts, &MaintenanceGoal::default(), &policy)
        .unwrap_err();
    assert!(matches!(unknown, PlannerError::Name(_)), "{unknown}");
    facts.cluster.nodes[1].master = true;
    let refused = planner()
        .plan(&facts, &MaintenanceGoal::default(), &Policy::default())
        .unwrap_err();
    let PlannerError::Refused(refusal) = refused else {
        panic!("{refused}")
    };
    assert_eq!(refusal.0[0].code.code(), "not-one-master");
}
