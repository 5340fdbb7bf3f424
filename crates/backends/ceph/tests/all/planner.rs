//! The planner has the laws of every planner.

use stagger_ceph::config::Reboot;
use stagger_ceph::planner::{CephGoal, CephPlanner};
use stagger_ceph::reboot::CephRebootGoal;
use stagger_ceph::target::PgGate;
use stagger_conformance::planner::{planned_twice_is_the_same, what_is_reached_leaves_nothing_to_do};
use stagger_core::model::Policy;

use crate::cluster::{VERSIONS, recorded};
use crate::hosts::{on_hosts, settings};

#[test]
fn its_planner_has_the_laws_of_every_planner() {
    let policy = Policy::default();
    let planner = CephPlanner::new(settings(Reboot::default()), PgGate::Clean);
    let mut planned = 0;
    for from in VERSIONS {
        let facts = on_hosts(from);
        let upgrades = VERSIONS
            .into_iter()
            .chain(["18.2.8", "19.2.3", "reef", "no release"]);
        let goals = upgrades.map(|to| CephGoal::Upgrade(to.to_owned()));
        for goal in goals.chain([CephGoal::Reboot(CephRebootGoal::default())]) {
            planned += u32::from(planned_twice_is_the_same(&planner, &facts, &goal, &policy).is_ok());
        }
    }
    assert!(planned > 5, "only {planned} ways were begun");
}

#[test]
fn a_release_that_runs_leaves_nothing_to_do() {
    for version in VERSIONS {
        let mut of_it = settings(Reboot::default());
        of_it.health.accept = recorded(version).health.checks.into_keys().collect();
        let planner = CephPlanner::new(of_it, PgGate::Clean);
        let (goal, policy) = (CephGoal::Upgrade(version.to_owned()), Policy::default());
        let planned = planned_twice_is_the_same(&planner, &recorded(version), &goal, &policy).unwrap();
        what_is_reached_leaves_nothing_to_do(&planned.snapshot, &planned.target, &policy);
    }
}
