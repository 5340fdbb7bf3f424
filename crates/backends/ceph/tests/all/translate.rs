//! From the recorded clusters to snapshots.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use stagger_ceph::facts::CephFacts;
use stagger_ceph::facts::health::{Crash, HealthCheck};
use stagger_ceph::facts::pg::PgMap;
use stagger_ceph::facts::rgw::Gateway;
use stagger_ceph::translate::{Baseline, HealthPolicy, Permitted, translate, units};
use stagger_core::model::{ClusterName, ConditionName, Fact, Snapshot, UnitId, Verdict};

use crate::cluster::{VERSIONS, fixture, recorded};

fn snapshot(facts: &CephFacts, policy: &HealthPolicy, baseline: Option<&Baseline>) -> Snapshot {
    translate(
        &ClusterName::new("c").unwrap(),
        facts,
        policy,
        baseline,
        BTreeMap::new(),
        &Permitted::default(),
    )
    .unwrap()
}

fn verdict(snapshot: &Snapshot, name: &str) -> Verdict {
    snapshot.condition(&ConditionName::new(name).unwrap()).verdict
}

fn before(facts: &CephFacts) -> Baseline {
    Baseline::of(facts, &units(facts, None).unwrap())
}

#[test]
fn the_recorded_clusters_as_snapshots() {
    for version in VERSIONS {
        let snapshot = snapshot(&recorded(version), &HealthPolicy::default(), None);
        let mut text = format!("{} of {}\n\n", snapshot.cluster(), snapshot.generation());
        for unit in snapshot.units() {
            let revision = unit.revision.as_ref().map_or("?", |revision| revision.as_str());
            let _ = writeln!(
                text,
                "{} {:?} {revision} {:?} {}",
                unit.id, unit.state, unit.domains, unit.precedence
            );
        }
        let budgets = snapshot.budgets();
        let _ = writeln!(text, "\n{} budgets", budgets.len());
        let Fact::Yes(groups) = recorded(version).pgs else {
            panic!("{version}: the placement groups are known");
        };
        assert_eq!(
            budgets.shares(),
            groups.len() as u64,
            "{version}: they stand for each placement group once"
        );
        for budget in (0..budgets.len()).filter(|b| b % 10 == 0 || !budgets.group(*b).contains("placement")) {
            let members: Vec<_> = budgets
                .members(budget)
                .map(|(at, _)| snapshot.unit(at).id.to_string())
                .collect();
            let _ = writeln!(
                text,
                "{} {}: {} of {}",
                budgets.group(budget),
                budgets.name(budget),
                budgets.limit(budget),
                members.join(" ")
            );
        }
        text.push('\n');
        for condition in snapshot.conditions() {
            let _ = writeln!(
                text,
                "{}: {} ({})",
                condition.name, condition.verdict, condition.why
            );
        }
        insta::assert_snapshot!(format!("snapshot-{version}"), text);
    }
}

#[test]
fn a_cluster_in_trouble_says_so() {
    let mut facts = recorded("20.2.4");
    let after = fixture("20.2.4/bug/pgs_brief_after.json");
    facts.pgs = Fact::Yes(PgMap::read(std::fs::File::open(after).unwrap(), "after").unwrap());
    for osd in [1, 6] {
        facts.osds.osds.get_mut(&osd).unwrap().up = false;
    }
    facts.mons.in_quorum = vec!["m0".to_owned(), "m2".to_owned()];
    let snapshot = snapshot(&facts, &HealthPolicy::default(), None);
    for name in [
        "daemons-running",
        "osds-up-in",
        "pgs-clean",
        "pgs-not-degraded",
        "quorum",
    ] {
        assert_eq!(verdict(&snapshot, name), Verdict::No, "{name}");
    }
    assert_eq!(
        verdict(&snapshot, "pg-stats-fresh"),
        Verdict::Unknown,
        "the brief list has no epochs"
    );
    // What has stopped serving spares nobody.
    let set: Vec<_> = ["osd.9", "osd.10"]
        .iter()
        .map(|id| snapshot.find(&UnitId::new(*id).unwrap()).unwrap())
        .collect();
    for osd in set {
        assert!(snapshot.budgets().permit(&snapshot.down(), &[osd]).is_err());
    }
}

#[test]
fn a_report_from_before_the_osd_came_up_does_not_count() {
    let mut facts = recorded("18.2.7");
    assert_eq!(
        verdict(&snapshot(&facts, &HealthPolicy::default(), None), "pgs-clean"),
        Verdict::Yes
    );
    facts.osds.osds.get_mut(&3).unwrap().up_from = facts.osds.epoch + 1;
    let snapshot = snapshot(&facts, &HealthPolicy::default(), None);
    assert_eq!(verdict(&snapshot, "pg-stats-fresh"), Verdict::Unknown);
    assert_eq!(verdict(&snapshot, "pgs-clean"), Verdict::Unknown);
    assert_eq!(verdict(&snapshot, "pgs-not-degraded"), Verdict::Unknown);
}

#[test]
fn without_placement_groups_no_osd_may_stop() {
    let mut facts = recorded("18.2.7");
    facts.pgs = Fact::No("no manager is active".to_owned());
    let snapshot = snapshot(&facts, &HealthPolicy::default(), None);
    for (at, _) in snapshot.of_kind(&stagger_core::model::Kind::new("osd").unwrap()) {
        assert!(snapshot.budgets().permit(&snapshot.down(), &[at]).is_err());
    }
    assert_eq!(verdict(&snapshot, "pgs-known"), Verdict::Unknown);
}

#[test]
fn a_group_that_no_report_speaks_of_is_unknown() {
    let mut facts = recorded("18.2.7");
    facts.osds.pools.get_mut(&2).unwrap().pg_num += 1;
    let snapshot = snapshot(&facts, &HealthPolicy::default(), None);
    assert_eq!(verdict(&snapshot, "pgs-known"), Verdict::Unknown);
    assert_eq!(verdict(&snapshot, "pgs-clean"), Verdict::Unknown);
}

fn complain(facts: &mut CephFacts, code: &str, error: bool) {
    let complaint = HealthCheck {
        error,
        muted: false,
        message: format!("{code} it is"),
    };
    facts.health.checks.insert(code.to_owned(), complaint);
    if error { "HEALTH_ERR" } else { "HEALTH_WARN" }.clone_into(&mut facts.health.status);
}

#[test]
fn only_what_is_worse_than_before_fails_the_gate() {
    let mut facts = recorded("18.2.7");
    complain(&mut facts, "POOL_NO_REDUNDANCY", false);
    let baseline = before(&facts);
    let policy = HealthPolicy::default();
    let health = |facts: &CephFacts, policy: &HealthPolicy, baseline| {
        verdict(&snapshot(facts, policy, baseline), "health")
    };
    assert_eq!(health(&facts, &policy, None), Verdict::No);
    assert_eq!(health(&facts, &policy, Some(&baseline)), Verdict::Yes);
    complain(&mut facts, "MON_DOWN", false);
    assert_eq!(
        health(&facts, &policy, Some(&baseline)),
        Verdict::Yes,
        "the run's own"
    );
    let block = HealthPolicy {
        block: ["MON_DOWN".to_owned()].into(),
        ..HealthPolicy::default()
    };
    assert_eq!(health(&facts, &block, Some(&baseline)), Verdict::No);
    complain(&mut facts, "POOL_NO_REDUNDANCY", true);
    assert_eq!(
        health(&facts, &policy, Some(&baseline)),
        Verdict::No,
        "a warning that became an error"
    );
    let accept = HealthPolicy {
        accept: ["POOL_NO_REDUNDANCY".to_owned()].into(),
        ..HealthPolicy::default()
    };
    assert_eq!(health(&facts, &accept, Some(&baseline)), Verdict::Yes);
}

#[test]
fn a_manager_that_is_stopped_is_down_and_not_forgotten() {
    let mut facts = recorded("18.2.7");
    let baseline = before(&facts);
    facts.mgrs.standbys.clear();
    let snapshot = snapshot(&facts, &HealthPolicy::default(), Some(&baseline));
    let standby = snapshot
        .units()
        .iter()
        .find(|u| u.id.as_str().starts_with("mgr.") && u.precedence == 0)
        .unwrap();
    assert_eq!(standby.state, stagger_core::model::UnitState::Down);
    assert_eq!(verdict(&snapshot, "daemons-running"), Verdict::No);
    assert_eq!(verdict(&snapshot, "mgr-active"), Verdict::No);
}

#[test]
fn crashing_again_and_again_is_seen_against_the_baseline() {
    let mut facts = recorded("18.2.7");
    let crash = |id: &str| Crash {
        id: id.to_owned(),
        daemon: "osd.3".to_owned(),
    };
    facts.crashes = Fact::Yes(vec![crash("old"), crash("older")]);
    let baseline = before(&facts);
    let policy = HealthPolicy::default();
    let look = |facts: &CephFacts| verdict(&snapshot(facts, &policy, Some(&baseline)), "no-crash-loop");
    assert_eq!(look(&facts), Verdict::Yes);
    facts.crashes = Fact::Yes(vec![crash("old"), crash("older"), crash("new")]);
    assert_eq!(look(&facts), Verdict::Yes, "once is no loop");
    facts.crashes = Fact::Yes(vec![crash("new"), crash("newer")]);
    assert_eq!(look(&facts), Verdict::No);
    facts.crashes = Fact::No("the manager is silent".to_owned());
    assert_eq!(look(&facts), Verdict::Unknown);
}

#[test]
fn the_baseline_comes_back_as_it_went_and_a_later_one_is_refused() {
    let baseline = before(&recorded("16.2.15"));
    let mut document = serde_json::to_value(&baseline).unwrap();
    assert_eq!(document["kind"], "ceph-baseline");
    assert_eq!(
        serde_json::from_value::<Baseline>(document.clone()).unwrap(),
        baseline
    );
    document["version"] = 2.into();
    assert!(serde_json::from_value::<Baseline>(document).is_err());
}

#[test]
fn a_daemon_whose_name_no_command_may_hold_is_left_alone() {
    let version = VERSIONS[0];
    let mut facts = recorded(version);
    let mut gateway = Gateway {
        name: "fine.zone-1".to_owned(),
        gid: 1,
        version: Some("18.2.7".to_owned()),
        host: Some("node3.example.org".to_owned()),
        zone: None,
        service: None,
    };
    facts.gateways = vec![gateway.clone()];
    gateway.name = "evil;touch${IFS}x".to_owned();
    facts.gateways.push(gateway.clone());
    gateway.name = "placed".to_owned();
    gateway.host = Some("-oProxyCommand=id".to_owned());
    facts.gateways.push(gateway);
    let found = units(&facts, None).unwrap();
    let left: Vec<(&str, &str)> = found
        .iter()
        .filter_map(|unit| Some((unit.id.as_str(), unit.untouchable.as_ref()?.code.code())))
        .collect();
    assert_eq!(
        left,
        [("rgw.evil;touch${IFS}x", "bad-name"), ("rgw.placed", "bad-name")],
        "and nobody else"
    );
}
