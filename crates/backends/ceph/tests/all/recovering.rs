//! Plans for clusters in which data is on its way.

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::Value;
use stagger_ceph::facts::CephFacts;
use stagger_ceph::facts::pg::PgMap;
use stagger_ceph::target::{TargetPolicy, target};
use stagger_ceph::translate::{HealthPolicy, Permitted, translate};
use stagger_core::check::{check, may_stop};
use stagger_core::model::{ClusterName, Fact, Policy, Snapshot, UnitId};
use stagger_core::plan::{Plan, PlanningInput, blocking_reasons, plan};

use crate::cluster::{recorded, text};

/// The recorded cluster with some of its groups changed.
fn changed(change: impl FnOnce(&mut [Value])) -> CephFacts {
    let mut facts = recorded("18.2.7");
    let mut dump: Value = serde_json::from_str(&text("18.2.7/pg_dump.json")).unwrap();
    change(dump["pg_map"]["pg_stats"].as_array_mut().unwrap());
    facts.pgs = Fact::Yes(PgMap::read_slice(dump.to_string().as_bytes(), "pg dump").unwrap());
    facts
}

/// The group as it is on its way: without the last of its OSDs, which lacks what it had.
fn without_its_last(pg: &mut Value, state: &str) {
    let mut acting = pg["acting"].as_array().unwrap().clone();
    acting.pop();
    pg["state"] = state.into();
    pg["avail_no_missing"] = acting
        .iter()
        .map(|osd| osd.to_string().into())
        .collect::<Vec<Value>>()
        .into();
    pg["acting"] = acting.into();
}

fn snapshot(facts: &CephFacts) -> Snapshot {
    let none = Permitted::default();
    let name = ClusterName::new("c").unwrap();
    translate(
        &name,
        facts,
        &HealthPolicy::default(),
        None,
        BTreeMap::new(),
        &none,
    )
    .unwrap()
}

fn planned(facts: &CephFacts) -> (Snapshot, Plan) {
    let (none, earned) = (BTreeMap::new(), BTreeMap::new());
    let snapshot = snapshot(facts);
    let target = target(facts, "20.2.2", &TargetPolicy::default()).unwrap();
    let ask = PlanningInput {
        snapshot: &snapshot,
        target: &target,
        policy: &Policy::default(),
        aside: &none,
        earned: &earned,
        parent: None,
    };
    let made = plan(&ask);
    assert_eq!(check(&ask, &made), []);
    let snapshot: Snapshot = serde_json::from_value(serde_json::to_value(&snapshot).unwrap()).unwrap();
    (snapshot, made)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Seen: while four groups peered for a second, `plan` refused the whole upgrade, for "none may be down".
    #[test]
    fn the_plan_of_a_cluster_that_recovers_is_that_of_the_cluster_once_recovered(
        groups in prop::collection::btree_map(0_usize..40, 0_usize..7, 1..12),
    ) {
        let states = [
            "peering",
            // Of a pool that was just made, and of one that the autoscaler makes smaller.
            "creating+peering",
            "creating+activating",
            "premerge+peered",
            "active+undersized+degraded+remapped+backfilling",
            "active+recovery_wait+undersized+degraded+remapped",
            "activating+undersized+degraded",
        ];
        let facts = changed(|pgs| {
            for (at, state) in &groups {
                without_its_last(&mut pgs[*at], states[*state]);
            }
        });
        let (now, made) = planned(&facts);
        let (_, once) = planned(&recorded("18.2.7"));
        prop_assert_eq!(blocking_reasons(&made, &Policy::default(), now.terms()), Vec::new());
        prop_assert_eq!(made.parts, once.parts);
        prop_assert_eq!(made.left_alone, once.left_alone);
    }
}

#[test]
fn no_unit_is_stopped_by_what_will_be() {
    let mut osd = Value::Null;
    let facts = changed(|pgs| {
        without_its_last(&mut pgs[0], "peering");
        osd = pgs[0]["acting"][0].clone();
    });
    let (now, _) = planned(&facts);
    let ix = now.find(&UnitId::new(format!("osd.{osd}")).unwrap()).unwrap();
    assert!(may_stop(&now, &[ix]).unwrap_err().contains("none may be down"));
}

#[test]
fn what_frees_a_daemon_is_said_in_words_of_ceph() {
    let (now, _) = planned(&recorded("18.2.7"));
    let words = &now.terms().remedies["never-ok-to-stop"];
    assert!(words.contains("min_size"), "{words}");
}

/// What does not heal by itself is planned as it is: its members are left alone, and that is told.
#[test]
fn what_waits_for_somebody_is_told_as_it_is() {
    for state in [
        "incomplete",
        "active+recovery_unfound+undersized+degraded",
        "stale+peering",
        "down",
    ] {
        let (now, made) = planned(&changed(|pgs| without_its_last(&mut pgs[0], state)));
        let told = blocking_reasons(&made, &Policy::default(), now.terms());
        assert!(!told.is_empty(), "{state}");
    }
    // The OSD on which it belongs is down, and nobody has said yet that it is out.
    let (now, made) = planned(&changed(|pgs| {
        without_its_last(&mut pgs[0], "active+undersized+degraded");
        pgs[0]["up"] = pgs[0]["acting"].clone();
    }));
    assert!(!blocking_reasons(&made, &Policy::default(), now.terms()).is_empty());
}
