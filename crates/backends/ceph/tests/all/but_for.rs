//! For whom alone a condition is not so.

use std::collections::BTreeMap;

use serde_json::Value;
use stagger_ceph::facts::CephFacts;
use stagger_ceph::facts::pg::PgMap;
use stagger_ceph::target::{TargetPolicy, target};
use stagger_ceph::translate::{Baseline, HealthPolicy, Permitted, translate, units};
use stagger_core::model::{ClusterName, ConditionName, Fact, Policy, Snapshot, Verdict};
use stagger_core::plan::{PlanningInput, plan};

use crate::cluster::{recorded, text};

const DOWN: u32 = 3;

/// The recorded cluster with one OSD down, and its groups in these states in turn.
fn without_one(states: &[&str]) -> CephFacts {
    let mut facts = recorded("18.2.7");
    facts.osds.osds.get_mut(&DOWN).unwrap().up = false;
    let mut dump: Value = serde_json::from_str(&text("18.2.7/pg_dump.json")).unwrap();
    let mut states = states.iter().cycle();
    for pg in dump["pg_map"]["pg_stats"].as_array_mut().unwrap() {
        let mut acting = pg["acting"].as_array().unwrap().clone();
        let before = acting.len();
        acting.retain(|osd| osd.as_u64() != Some(u64::from(DOWN)));
        if acting.len() < before {
            pg["state"] = (*states.next().unwrap()).into();
            pg["acting"] = acting.into();
        }
    }
    facts.pgs = Fact::Yes(PgMap::read_slice(dump.to_string().as_bytes(), "pg dump").unwrap());
    facts
}

fn seen(facts: &CephFacts) -> Snapshot {
    let before = recorded("18.2.7");
    let baseline = Baseline::of(&before, &units(&before, None).unwrap());
    let (health, none) = (HealthPolicy::default(), Permitted::default());
    let name = ClusterName::new("c").unwrap();
    translate(&name, facts, &health, Some(&baseline), BTreeMap::new(), &none).unwrap()
}

/// Whether it is so, and for whom alone it is not.
fn condition(facts: &CephFacts, name: &str) -> (Verdict, Vec<String>) {
    let condition = seen(facts).condition(&ConditionName::new(name).unwrap());
    let but_for = condition.but_for.iter().map(ToString::to_string).collect();
    (condition.verdict, but_for)
}

fn alone() -> (Verdict, Vec<String>) {
    (Verdict::No, vec![format!("osd.{DOWN}")])
}

#[test]
fn groups_that_lack_only_what_is_down_are_told_so() {
    let facts = without_one(&["active+undersized+degraded", "active+undersized"]);
    for name in ["pgs-clean", "osds-up-in", "daemons-running"] {
        assert_eq!(condition(&facts, name), alone(), "{name}");
    }
    let well = recorded("18.2.7");
    assert_eq!(condition(&well, "pgs-clean"), (Verdict::Yes, vec![]));
}

#[test]
fn nothing_else_that_ails_a_group_is_excused() {
    for ill in [
        "active+recovering+undersized+degraded",
        "active+recovery_wait+degraded",
        "active+undersized+degraded+remapped+backfilling",
        "peering",
        "undersized+peered",
        "stale+active+undersized+degraded",
    ] {
        let facts = without_one(&["active+undersized+degraded", ill]);
        let (verdict, but_for) = condition(&facts, "pgs-clean");
        assert!(but_for.is_empty(), "{ill}: {verdict:?} but for {but_for:?}");
    }
}

#[test]
fn an_osd_that_is_out_meanwhile_is_not_waited_for() {
    let mut facts = without_one(&["active+undersized+degraded"]);
    facts.osds.osds.get_mut(&DOWN).unwrap().inside = false;
    let (_, but_for) = condition(&facts, "osds-up-in");
    assert_eq!(but_for, [""; 0]);
}

#[test]
fn a_plan_without_barriers_has_the_forecast_of_both() {
    let facts = recorded("18.2.7");
    let snapshot = seen(&facts);
    let target = target(&facts, "20.2.2", &TargetPolicy::default()).unwrap();
    let (none, earned) = (BTreeMap::new(), BTreeMap::new());
    let of = |barrier: bool| {
        plan(&PlanningInput {
            snapshot: &snapshot,
            target: &target,
            policy: &Policy {
                barrier,
                ..Policy::default()
            },
            aside: &none,
            earned: &earned,
            parent: None,
        })
    };
    assert!(of(true).stages().all(|stage| stage.schedule.is_none()));
    let flowing = of(false);
    assert!(flowing.stages().count() > 2);
    for stage in flowing.stages() {
        let schedule = stage.schedule.as_ref().unwrap();
        let waves: u32 = stage.waves.iter().map(|wave| wave.seconds).sum();
        let visits: usize = stage.waves.iter().map(|wave| wave.units.len()).sum();
        assert_eq!(schedule.turns.len(), visits, "{}", stage.name);
        assert!(
            schedule.seconds <= waves,
            "{}: {} s and {waves} s",
            stage.name,
            schedule.seconds
        );
    }
}
