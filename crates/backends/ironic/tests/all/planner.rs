//! The planner has the laws of every planner.

use stagger_conformance::planner::{planned_twice_is_the_same, what_is_reached_leaves_nothing_to_do};
use stagger_ironic::goal::WantedRelease;
use stagger_ironic::planner::IronicPlanner;

use crate::common::{policy, setup};
use crate::lives::Lives;

fn wanted(release: &str) -> WantedRelease {
    WantedRelease {
        release: release.to_owned(),
        code: None,
    }
}

#[tokio::test]
async fn its_planner_has_the_laws_of_every_planner() {
    let setup = setup("26.1.6");
    let facts = setup.backend(None).collect_facts().await;
    let planner = IronicPlanner::new(setup.settings.cluster.clone());
    for (release, is_a_way) in [
        ("29.0.6", true),
        ("26.1.7", true),
        ("23.0.0", false),
        ("x", false),
    ] {
        let planned = planned_twice_is_the_same(&planner, &facts, &wanted(release), &policy());
        assert_eq!(planned.is_ok(), is_a_way, "{release}: {:?}", planned.err());
    }
}

#[tokio::test]
async fn a_release_that_was_reached_leaves_nothing_to_do() {
    let setup = setup("26.1.6");
    Lives::new(&setup).until_done("undisturbed").await;
    let facts = setup.backend(None).collect_facts().await;
    let planner = IronicPlanner::new(setup.settings.cluster.clone());
    let planned = planned_twice_is_the_same(&planner, &facts, &wanted("29.0.6"), &policy()).unwrap();
    what_is_reached_leaves_nothing_to_do(&planned.snapshot, &planned.target, &policy());
}
