//! A real cluster in stretch mode, recorded while it was whole, without the OSDs of a site, without that site's monitors
//! too, and while it recovered.

use std::collections::{BTreeMap, BTreeSet};

use stagger_ceph::facts::CephFacts;
use stagger_ceph::facts::mon::Quorum;
use stagger_ceph::facts::osd::{Stretch, StretchMode};
use stagger_ceph::facts::pg_state::PgState;
use stagger_ceph::oktostop::{Agreement, OkToStopAnswer, Oracle, compare};
use stagger_ceph::target::{TargetPolicy, target};
use stagger_ceph::translate::{HealthPolicy, Permitted, translate};
use stagger_core::model::{ClusterName, Fact, Ix, Part, Snapshot, UnitId, Verdict};

use crate::cluster::{recorded, text};

const WHOLE: &str = "stretch/whole";
const OSDS_GONE: &str = "stretch/osds-gone";
const DEGRADED: &str = "stretch/degraded";
const RECOVERING: &str = "stretch/recovering";
/// The OSDs of the first of the two sites.
const SITE: [u32; 6] = [0, 1, 2, 3, 4, 5];

fn snapshot(facts: &CephFacts) -> Snapshot {
    translate(
        &ClusterName::new("c").unwrap(),
        facts,
        &HealthPolicy::default(),
        None,
        BTreeMap::new(),
        &Permitted::default(),
    )
    .unwrap()
}

fn permits(snapshot: &Snapshot, units: &[&str]) -> bool {
    let at = |unit: &&str| snapshot.find(&UnitId::new(*unit).unwrap()).unwrap();
    let set: Vec<Ix> = units.iter().map(at).collect();
    snapshot.budgets().permit(&snapshot.down(), &set).is_ok()
}

fn groups(facts: &CephFacts) -> &stagger_ceph::facts::pg::PgMap {
    match &facts.pgs {
        Fact::Yes(pgs) => pgs,
        Fact::No(why) => panic!("{why}"),
    }
}

fn refused(facts: &CephFacts) -> Vec<String> {
    let refusal = target(facts, "20.2.4", &TargetPolicy::default()).unwrap_err();
    refusal
        .0
        .iter()
        .map(|reason| reason.code.code().to_string())
        .collect()
}

#[test]
fn what_the_maps_say_is_read() {
    let whole = recorded(WHOLE);
    let mode = StretchMode {
        sites: 2,
        level: 8,
        degraded: false,
        recovering: false,
    };
    assert_eq!(whole.osds.stretch_mode, Some(mode));
    assert_eq!(whole.mons.tiebreaker.as_deref(), Some("e"));
    let site = |mon: &str| whole.mons.places[mon]["datacenter"].as_str();
    assert_eq!(
        ["a", "b", "c", "d", "e"].map(site),
        ["dc0", "dc1", "dc0", "dc1", "dc2"]
    );
    let stretch = Stretch {
        buckets: 2,
        barrier: 8,
        mandatory: None,
    };
    assert!(
        whole
            .osds
            .pools
            .values()
            .all(|pool| pool.stretch == Some(stretch) && pool.size == 4)
    );

    let degraded = recorded(DEGRADED);
    assert!(degraded.osds.stretch_mode.unwrap().degraded);
    let alone = |stretch: Stretch| stretch.buckets == 1 && stretch.mandatory.is_some();
    assert!(
        degraded
            .osds
            .pools
            .values()
            .all(|pool| pool.stretch.is_some_and(alone) && pool.min_size == 1)
    );
    let mode = recorded(RECOVERING).osds.stretch_mode.unwrap();
    assert!(mode.degraded && mode.recovering);
}

/// Release 20 writes a list of pairs where those before write a text. Monitors of both lead while they are upgraded.
#[test]
fn where_monitors_stand_is_read_of_all_releases() {
    let of_20 = text("stretch/whole-20.2.4/quorum_status.json");
    let of_20 = Quorum::read(of_20.as_bytes(), "quorum_status").unwrap();
    let of_18 = recorded(WHOLE).mons;
    assert_eq!((of_20.places, of_20.tiebreaker), (of_18.places, of_18.tiebreaker));
}

/// The bug: two of four copies are left, which is `min_size`, and none of them can be served.
#[test]
fn a_whole_site_stops_every_group_and_ceph_approves_it() {
    let whole = recorded(WHOLE);
    let theirs = text("stretch/whole/osd_ok_to_stop_site.json");
    let theirs = OkToStopAnswer::read(theirs.as_bytes(), "ok-to-stop").unwrap();
    assert!(theirs.ok, "Ceph counts sites by now");
    let oracle = Oracle::new(groups(&whole), &whole.osds, &whole.tree);
    let ours = oracle.ask(&SITE).unwrap();
    assert!(!ours.ok() && ours.ok_by_ceph_rules());
    assert_eq!(ours.also_unsafe.len(), groups(&whole).len());
    let Agreement::TheyApprove { proofs } = compare(&oracle, &ours, &theirs) else {
        panic!("they agree");
    };
    let proof = proofs[0].to_string();
    assert!(
        proof.ends_with("it has OSDs in 1 of 2 sites that it needs"),
        "{proof}"
    );

    let all: Vec<String> = SITE.iter().map(|osd| format!("osd.{osd}")).collect();
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    assert!(!permits(&snapshot(&whole), &all));

    // And so it was, when they were stopped.
    let gone = recorded(OSDS_GONE);
    assert!(groups(&gone).iter().all(|pg| !pg.state.has(PgState::ACTIVE)));
    assert!(
        !gone.osds.stretch_mode.unwrap().degraded,
        "its monitors were there"
    );
}

#[test]
fn the_largest_set_keeps_both_sites() {
    let whole = recorded(WHOLE);
    let oracle = Oracle::new(groups(&whole), &whole.osds, &whole.tree);
    let largest = oracle.largest(&[0], 12).unwrap();
    assert!(largest.verdict.ok());
    let set: BTreeSet<u32> = largest.verdict.osds.iter().copied().collect();
    for pg in groups(&whole).iter() {
        let sites: BTreeSet<bool> = pg
            .live()
            .filter(|osd| !set.contains(osd))
            .map(|osd| SITE.contains(&osd))
            .collect();
        assert_eq!(sites.len(), 2, "{} beside {set:?}", pg.id);
    }
}

#[test]
fn monitors_of_a_site_stop_one_at_a_time_and_the_tiebreaker_counts_alone() {
    let whole = snapshot(&recorded(WHOLE));
    assert!(permits(&whole, &["mon.a"]) && permits(&whole, &["mon.e"]));
    assert!(permits(&whole, &["mon.a", "mon.b"]) && permits(&whole, &["mon.d", "mon.e"]));
    assert!(!permits(&whole, &["mon.a", "mon.c"]), "the site dc0 has no other");
    assert!(!permits(&whole, &["mon.a", "mon.b", "mon.e"]), "no quorum");
}

#[test]
fn a_monitor_that_stands_nowhere_counts_at_each_site() {
    let mut facts = recorded(WHOLE);
    facts.mons.places.remove("c");
    let odd = snapshot(&facts);
    assert!(!permits(&odd, &["mon.a", "mon.c"]) && !permits(&odd, &["mon.b", "mon.c"]));
    assert_eq!(refused(&facts), ["stretch-cluster"]);
}

#[test]
fn while_a_site_is_missing_no_osd_stops_and_no_gate_opens() {
    assert!(permits(&snapshot(&recorded(WHOLE)), &["osd.6"]));
    for missing in [DEGRADED, RECOVERING] {
        let snapshot = snapshot(&recorded(missing));
        assert!(!permits(&snapshot, &["osd.6"]), "{missing}");
        let found = snapshot
            .conditions()
            .find(|found| found.name.as_str() == "sites-whole");
        assert_eq!(found.unwrap().verdict, Verdict::No, "{missing}");
    }
    // Clean, every group of them; and Ceph says yes.
    let recovering = recorded(RECOVERING);
    assert!(groups(&recovering).iter().all(|pg| pg.state.clean()));
}

#[test]
fn stretch_mode_is_upgraded_whole_and_not_otherwise() {
    let whole = recorded(WHOLE);
    let found = target(&whole, "20.2.4", &TargetPolicy::default()).unwrap();
    for part in &found.parts {
        let gates = match part {
            Part::Stage(stage) => &stage.gates,
            Part::Step(step) => &step.before,
        };
        assert!(gates.iter().any(|gate| gate.condition.as_str() == "sites-whole"));
    }
    assert_eq!(refused(&recorded(DEGRADED)), ["site-missing", "unhealthy"]);
    assert_eq!(refused(&recorded(RECOVERING)), ["site-missing", "unhealthy"]);

    let mut odd = whole.clone();
    odd.osds.stretch_mode.as_mut().unwrap().sites = 3;
    assert_eq!(refused(&odd), ["stretch-cluster"]);
    let mut odd = whole.clone();
    odd.osds.pools.values_mut().next().unwrap().stretch = None;
    assert_eq!(refused(&odd), ["stretch-cluster"]);
    let mut odd = whole.clone();
    odd.mons.tiebreaker = None;
    assert_eq!(refused(&odd), ["stretch-cluster"]);
    let mut odd = whole.clone();
    odd.mons.mons.retain(|mon| mon != "c");
    assert_eq!(refused(&odd), ["stretch-cluster"], "a site with one monitor");
    let mut odd = whole;
    odd.osds.stretch_mode = None;
    assert_eq!(
        refused(&odd),
        ["stretch-cluster"],
        "pools that stretch on their own"
    );
}
