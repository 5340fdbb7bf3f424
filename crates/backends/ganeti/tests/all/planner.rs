//! The planner has the laws of every planner.

use stagger_conformance::planner::{planned_twice_is_the_same, what_is_reached_leaves_nothing_to_do};
use stagger_core::model::{ClusterName, Policy};
use stagger_core::run::Ending;
use stagger_engine::cluster::{Executor as _, Source as _};
use stagger_ganeti::goal::{MaintenanceGoal, Task};
use stagger_ganeti::planner::GanetiPlanner;
use stagger_ganeti::source::{LiveGaneti, RecordedGaneti};

use crate::common::{by_powercycle, policy, setup};
use crate::lives::{End, Lives, mixed};
use crate::seam::recorded_bodies;

fn planner() -> GanetiPlanner {
    GanetiPlanner::new(ClusterName::new("lab").unwrap(), by_powercycle())
}

#[tokio::test]
async fn its_planner_has_the_laws_of_every_planner() {
    let setup = setup(mixed()).await;
    let live = LiveGaneti::new(&setup.settings).unwrap().facts().await.unwrap();
    let lab = ClusterName::new("lab").unwrap();
    let recorded = RecordedGaneti::bodies(lab, recorded_bodies()).unwrap();
    let reboot = MaintenanceGoal::default();
    let mut wrong = MaintenanceGoal::default();
    wrong.reboot.selection.groups.push("north".to_owned());
    let command = MaintenanceGoal {
        task: Task::Command("flash {node}".to_owned()),
        ..MaintenanceGoal::default()
    };
    for facts in [live, recorded.facts().await.unwrap()] {
        let planned = |goal| planned_twice_is_the_same(&planner(), &facts, goal, &Policy::default());
        planned(&reboot).unwrap();
        planned(&command).unwrap();
        planned(&wrong).unwrap_err();
    }
}

/// Facts alone do not tell which nodes have had their turn: what a run remembers does.
#[tokio::test]
async fn a_run_that_is_done_leaves_nothing_to_do() {
    let setup = setup(mixed()).await;
    let facts = LiveGaneti::new(&setup.settings).unwrap().facts().await.unwrap();
    let goal = MaintenanceGoal::default();
    let planned = planned_twice_is_the_same(&planner(), &facts, &goal, &policy()).unwrap();
    let end = Lives::new(&setup).live().await;
    assert!(
        matches!(end, End::Over(Ending::Done | Ending::Incomplete { .. })),
        "{end:?}"
    );
    let left = setup.backend(Some(planned.memory)).observe().await.unwrap();
    what_is_reached_leaves_nothing_to_do(&left, &planned.target, &policy());
}
