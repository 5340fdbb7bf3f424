//! The laws of a planner.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use stagger_core::model::{Policy, Snapshot, Target};
use stagger_core::plan::{Plan, PlanningInput, plan};
use stagger_engine::cluster::{Planned, Planner, PlannerError};

/// The same facts, goal and policy give the same, be that the way or why there is none. Gives what came of it.
///
/// # Panics
/// The law is broken.
pub fn planned_twice_is_the_same<P: Planner>(
    planner: &P,
    facts: &P::Facts,
    goal: &P::Goal,
    policy: &Policy,
) -> Result<Planned<P::Memory>, PlannerError> {
    let seen = || match planner.snapshot(facts) {
        Ok(snapshot) => json!(snapshot),
        Err(error) => json!(error.to_string()),
    };
    assert_eq!(seen(), seen(), "the snapshot is another");
    let planned = planner.plan(facts, goal, policy);
    let again = planner.plan(facts, goal, policy);
    assert_eq!(
        written::<P>(&planned, policy),
        written::<P>(&again, policy),
        "it is another"
    );
    planned
}

/// All that came of planning, with the plan itself.
fn written<P: Planner>(planned: &Result<Planned<P::Memory>, PlannerError>, policy: &Policy) -> Value {
    match planned {
        Ok(Planned {
            snapshot,
            target,
            memory,
        }) => json!([snapshot, target, memory, waves(snapshot, target, policy)]),
        Err(error) => json!(format!("{error:?}")),
    }
}

/// Where all is as it is wanted, there is nothing to do.
///
/// # Panics
/// The law is broken.
pub fn what_is_reached_leaves_nothing_to_do(snapshot: &Snapshot, target: &Target, policy: &Policy) {
    let made = waves(snapshot, target, policy);
    assert!(made.is_empty(), "{}: {made:#?}", target.title);
}

fn waves(snapshot: &Snapshot, target: &Target, policy: &Policy) -> Plan {
    let (aside, earned) = (BTreeMap::new(), BTreeMap::new());
    plan(&PlanningInput {
        snapshot,
        target,
        policy,
        aside: &aside,
        earned: &earned,
        parent: None,
    })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use jiff::Timestamp;
    use stagger_core::model::{
        BudgetsBuilder, ClusterName, GoingBack, Kind, Part, PartName, Phase, Revision, StageSpec, Unit,
        UnitId, UnitState, Width,
    };
    use stagger_engine::cluster::BackendError;

    use super::*;

    /// Of one unit, which runs `1`.
    #[derive(Default)]
    struct OfOne {
        /// It remembers how often it was asked.
        counts: bool,
        asked: AtomicU32,
    }

    impl Planner for OfOne {
        type Facts = ();
        type Goal = &'static str;
        type Memory = u32;

        fn snapshot(&self, (): &()) -> Result<Snapshot, BackendError> {
            let unit = Unit {
                id: UnitId::new("u.1").unwrap(),
                kind: Kind::new("u").unwrap(),
                state: UnitState::Serving,
                revision: Some(Revision::new("1").unwrap()),
                domains: BTreeMap::new(),
                precedence: 0,
                untouchable: None,
            };
            let (name, none) = (ClusterName::new("c").unwrap(), BudgetsBuilder::default().build());
            let (at, durations) = (Timestamp::UNIX_EPOCH, BTreeMap::new());
            let snapshot = Snapshot::new(name, at, String::new(), vec![unit], none, Vec::new(), durations);
            Ok(snapshot.unwrap())
        }

        fn plan(&self, facts: &(), goal: &&'static str, _: &Policy) -> Result<Planned<u32>, PlannerError> {
            let stage = StageSpec {
                name: PartName::new("units").unwrap(),
                kind: Kind::new("u").unwrap(),
                revision: Revision::new(*goal).unwrap(),
                width: Width::Policy,
                phases: Phase::all(),
                guards: Vec::new(),
                gates: Vec::new(),
                door_before_last: None,
                may_be_left: false,
                going_back: GoingBack::Restart,
                maintenance: None,
            };
            Ok(Planned {
                snapshot: self.snapshot(facts)?,
                target: Target {
                    title: format!("to {goal}"),
                    parts: vec![Part::Stage(stage)],
                    only: None,
                },
                memory: if self.counts {
                    self.asked.fetch_add(1, Ordering::Relaxed)
                } else {
                    0
                },
            })
        }
    }

    fn to(goal: &'static str) -> Planned<u32> {
        planned_twice_is_the_same(&OfOne::default(), &(), &goal, &Policy::default()).unwrap()
    }

    #[test]
    fn one_that_is_pure_has_all_laws() {
        let Planned { snapshot, target, .. } = to("1");
        what_is_reached_leaves_nothing_to_do(&snapshot, &target, &Policy::default());
    }

    #[test]
    #[should_panic(expected = "to 2")]
    fn what_is_left_to_do_is_found() {
        let Planned { snapshot, target, .. } = to("2");
        what_is_reached_leaves_nothing_to_do(&snapshot, &target, &Policy::default());
    }

    #[test]
    #[should_panic(expected = "it is another")]
    fn one_that_remembers_is_found() {
        let counts = OfOne {
            counts: true,
            ..OfOne::default()
        };
        drop(planned_twice_is_the_same(&counts, &(), &"2", &Policy::default()));
    }
}
