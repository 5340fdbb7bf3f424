//! OSDs that the map names and nothing counts on.

use std::collections::BTreeMap;

use stagger_ceph::facts::CephFacts;
use stagger_ceph::facts::pg::PgMap;
use stagger_ceph::target::{TargetPolicy, target};
use stagger_ceph::translate::{Baseline, HealthPolicy, Permitted, translate, units};
use stagger_core::check::check;
use stagger_core::model::{
    ClusterName, ConditionName, Fact, Growth, Limit, Policy, Snapshot, Terms, UnitId, UnitState, Verdict,
};
use stagger_core::plan::{Plan, PlanningInput, blocking_reasons, plan};

use crate::cluster::{recorded, text};

/// The recorded cluster after osd.5 died: down, and out unless somebody holds that up; its groups are whole again
/// on its neighbours.
fn dead(inside: bool) -> CephFacts {
    let mut facts = recorded("18.2.7");
    let osd = facts.osds.osds.get_mut(&5).unwrap();
    (osd.up, osd.inside) = (false, inside);
    facts.tree.up.insert(5, false);
    let mut dump: serde_json::Value = serde_json::from_str(&text("18.2.7/pg_dump.json")).unwrap();
    for pg in dump["pg_map"]["pg_stats"].as_array_mut().unwrap() {
        let acting: Vec<u64> = pg["acting"]
            .as_array()
            .unwrap()
            .iter()
            .map(|osd| osd.as_u64().unwrap())
            .collect();
        let spare = [4, 6, 7].into_iter().find(|osd| !acting.contains(osd)).unwrap();
        let moved: Vec<u64> = acting
            .into_iter()
            .map(|osd| if osd == 5 { spare } else { osd })
            .collect();
        pg["acting"] = moved.clone().into();
        pg["up"] = moved.into();
    }
    facts.pgs = Fact::Yes(PgMap::read_slice(dump.to_string().as_bytes(), "pg dump").unwrap());
    facts
}

fn destroyed() -> CephFacts {
    let mut facts = dead(false);
    facts.osds.osds.get_mut(&5).unwrap().destroyed = true;
    // What Ceph answers for one: its number and nothing else.
    let metadata = facts.osd_metadata.iter_mut().find(|osd| osd.id == 5).unwrap();
    (metadata.version, metadata.host, metadata.store) = (None, None, None);
    facts
}

fn never_started() -> CephFacts {
    let mut facts = destroyed();
    let osd = facts.osds.osds.get_mut(&5).unwrap();
    (osd.destroyed, osd.up_from) = (false, 0);
    facts
}

fn snapshot(facts: &CephFacts, baseline: Option<&Baseline>) -> Snapshot {
    let cluster = ClusterName::new("c").unwrap();
    translate(
        &cluster,
        facts,
        &HealthPolicy::default(),
        baseline,
        BTreeMap::new(),
        &Permitted::default(),
    )
    .unwrap()
}

fn planned(facts: &CephFacts, release: &str, policy: &Policy) -> Plan {
    let (none, earned) = (BTreeMap::new(), BTreeMap::new());
    let snapshot = snapshot(facts, None);
    let target = target(facts, release, &TargetPolicy::default()).unwrap();
    let ask = PlanningInput {
        snapshot: &snapshot,
        target: &target,
        policy,
        aside: &none,
        earned: &earned,
        parent: None,
    };
    let made = plan(&ask);
    assert_eq!(check(&ask, &made), []);
    made
}

fn narrow() -> Policy {
    Policy {
        max_in_parallel: Limit::Count(1),
        growth: Growth::None,
        ..Policy::default()
    }
}

#[test]
fn a_dead_osd_that_is_out_is_told_and_keeps_nobody_from_the_target() {
    for (facts, slug) in [
        (dead(false), "osd-out"),
        (destroyed(), "osd-destroyed"),
        (never_started(), "osd-never-started"),
    ] {
        for (release, policy) in [("18.2.8", Policy::default()), ("20.2.4", narrow())] {
            let made = planned(&facts, release, &policy);
            assert_eq!(made.units(), 16, "{slug}: all but one of 17");
            assert_eq!(made.left_alone, [], "{slug}");
            let told: Vec<_> = made
                .absent
                .iter()
                .map(|a| (a.unit.as_str(), a.reason.code.code()))
                .collect();
            assert_eq!(told, [("osd.5", slug)]);
            assert_eq!(
                blocking_reasons(&made, &policy, snapshot(&facts, None).terms()),
                []
            );
        }
        let snapshot = snapshot(&facts, None);
        for gate in ["daemons-running", "osds-up-in", "osds-run-18", "pgs-clean"] {
            let condition = snapshot.condition(&ConditionName::new(gate).unwrap());
            assert_eq!(
                condition.verdict,
                Verdict::Yes,
                "{slug}: {}: {}",
                condition.name,
                condition.why
            );
        }
    }
}

#[test]
fn an_osd_that_is_down_and_in_counts_as_down() {
    let facts = dead(true);
    let snapshot = snapshot(&facts, None);
    let found = snapshot.find(&UnitId::new("osd.5").unwrap()).unwrap();
    assert_eq!(snapshot.unit(found).state, UnitState::Down);
    assert_eq!(snapshot.absent(), []);
    let condition = snapshot.condition(&ConditionName::new("osds-up-in").unwrap());
    assert_eq!(condition.verdict, Verdict::No);
}

#[test]
fn a_plan_that_cannot_reach_its_target_says_so_before_anything_is_begun() {
    let facts = dead(true);
    let policy = Policy {
        max_in_parallel: Limit::Count(2),
        ..Policy::default()
    };
    let made = planned(&facts, "20.2.4", &policy);
    let terms = Terms::default();
    let refused = blocking_reasons(&made, &policy, &terms);
    assert_eq!(
        refused.iter().map(|r| r.code.code()).collect::<Vec<_>>(),
        ["target-out-of-reach"]
    );
    for word in ["osd.5", "require-osd-release-20", "unit-down", "starting it"] {
        assert!(refused[0].detail.contains(word), "{word}: {}", refused[0].detail);
    }
    let partial = Policy {
        partial: true,
        ..policy.clone()
    };
    assert_eq!(
        blocking_reasons(&made, &partial, &terms),
        [],
        "a person asked for what can be done"
    );
    // Nothing comes after the OSDs of a minor update: what can be done is all that there is.
    let minor = planned(&facts, "18.2.8", &policy);
    assert_eq!(blocking_reasons(&minor, &policy, &terms), []);
    assert_eq!(minor.left_alone.len(), 1);
}

#[test]
fn a_limit_that_is_used_up_by_what_is_down_stands_in_the_way_and_not_in_the_bound() {
    let made = planned(&dead(true), "20.2.4", &narrow());
    let osds = made
        .obstacles()
        .filter(|left| left.stage.as_str() == "osd")
        .count();
    assert_eq!(osds, 12, "11 that the limit keeps, and the one that is down");
    assert_eq!(
        made.at_least() as usize,
        made.waves(),
        "only what is planned is counted"
    );
    let causes = blocking_reasons(&made, &narrow(), snapshot(&dead(true), None).terms());
    assert_eq!(causes.len(), 2, "one reason for the eleven: {causes:?}");
}

#[test]
fn what_served_when_the_run_began_is_down_and_never_absent() {
    let before = recorded("18.2.7");
    let baseline = Baseline::of(&before, &units(&before, None).unwrap());
    let seen = snapshot(&dead(false), Some(&baseline));
    let found = seen.find(&UnitId::new("osd.5").unwrap()).unwrap();
    assert_eq!(seen.unit(found).state, UnitState::Down);
    // A person has said that it is gone.
    assert!(
        snapshot(&destroyed(), Some(&baseline))
            .find(&UnitId::new("osd.5").unwrap())
            .is_none()
    );
    let again = recorded("18.2.7");
    assert_eq!(snapshot(&again, None).absent(), []);
}

#[test]
fn a_snapshot_with_absent_units_comes_back_as_it_went() {
    let snapshot = snapshot(&dead(false), None);
    let text = serde_json::to_string(&snapshot).unwrap();
    assert_eq!(serde_json::from_str::<Snapshot>(&text).unwrap(), snapshot);
    let without = serde_json::to_string(&crate::absent::snapshot(&recorded("18.2.7"), None)).unwrap();
    assert!(!without.contains("absent"), "as it was stored before");
}
