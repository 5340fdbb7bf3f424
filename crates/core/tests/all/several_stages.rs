//! A unit in several stages of one target: first new code, later new settings.

#![allow(clippy::unwrap_used, reason = "test code")]

use crate::begun;

use std::collections::BTreeMap;

use jiff::Timestamp;
use stagger_core::check::check;
use stagger_core::model::{
    Budgets, GoingBack, Part, Phase, Policy, Snapshot, StageSpec, Target, Unit, UnitState, Width,
};
use stagger_core::plan::{Plan, PlanningInput, Selection, plan};
use stagger_core::run::{
    Action, Answer, Command, Decision, Effect, Ending, Entry, Event, Outcome, Run, TimedObservation,
};

const STAGES: [(&str, &str); 2] = [("code", "new-pinned"), ("settings", "new")];

fn target() -> Target {
    let stage = |(name, revision): (&str, &str)| {
        Part::Stage(StageSpec {
            name: name.parse().unwrap(),
            kind: "service".parse().unwrap(),
            revision: revision.parse().unwrap(),
            width: Width::Single,
            phases: vec![Phase::Change],
            guards: Vec::new(),
            gates: Vec::new(),
            door_before_last: None,
            may_be_left: false,
            going_back: match name {
                "code" => GoingBack::Restart,
                _ => GoingBack::Impossible {
                    why: "what it writes cannot be read".to_owned(),
                },
            },
            maintenance: None,
        })
    };
    Target {
        title: "old to new".to_owned(),
        parts: STAGES.map(stage).into(),
        only: None,
    }
}

fn snapshot(runs: [&str; 2]) -> Snapshot {
    let unit = |(at, runs): (usize, &str)| Unit {
        id: format!("s{at}").parse().unwrap(),
        kind: "service".parse().unwrap(),
        state: UnitState::Serving,
        revision: Some(runs.parse().unwrap()),
        domains: BTreeMap::new(),
        precedence: 0,
        untouchable: None,
    };
    Snapshot::new(
        "lab".parse().unwrap(),
        Timestamp::UNIX_EPOCH,
        runs.join(" "),
        runs.into_iter().enumerate().map(unit).collect(),
        Budgets::default(),
        Vec::new(),
        BTreeMap::new(),
    )
    .unwrap()
}

fn policy() -> Policy {
    Policy {
        soak: 0,
        canary_soak: 0,
        gate_hold: 0,
        ..Policy::default()
    }
}

fn planned(runs: [&str; 2]) -> Plan {
    let (snapshot, target, policy) = (snapshot(runs), target(), policy());
    let ask = PlanningInput {
        snapshot: &snapshot,
        target: &target,
        policy: &policy,
        aside: &BTreeMap::new(),
        earned: &BTreeMap::new(),
        parent: None,
    };
    let plan = plan(&ask);
    assert_eq!(check(&ask, &plan), []);
    plan
}

fn units(plan: &Plan) -> Vec<String> {
    let stages = plan.stages().flat_map(|stage| {
        let units = stage.waves.iter().flat_map(|wave| &wave.units);
        units.map(|unit| format!("{} {unit}", stage.name))
    });
    stages.collect()
}

#[test]
fn what_a_later_stage_has_done_no_earlier_one_does_again() {
    for (runs, wanted) in [
        (
            ["old", "old"],
            vec!["code s0", "code s1", "settings s0", "settings s1"],
        ),
        (
            ["new-pinned", "old"],
            vec!["code s1", "settings s0", "settings s1"],
        ),
        (["new-pinned", "new-pinned"], vec!["settings s0", "settings s1"]),
        (["new", "new-pinned"], vec!["settings s1"]),
        (["new", "new"], vec![]),
    ] {
        assert_eq!(units(&planned(runs)), wanted, "{runs:?}");
    }
}

/// Its later stage is cut off, and is what it runs all the same.
#[test]
fn a_selection_takes_no_unit_back_to_an_earlier_stage() {
    let (snapshot, whole, policy) = (snapshot(["new", "old"]), target(), policy());
    let (aside, earned) = (BTreeMap::new(), BTreeMap::new());
    let ask = |target| PlanningInput {
        snapshot: &snapshot,
        target,
        policy: &policy,
        aside: &aside,
        earned: &earned,
        parent: None,
    };
    let selection = Selection {
        units: vec!["s0".parse().unwrap()],
        ..Selection::default()
    };
    let cut = selection.of(&ask(&whole)).unwrap();
    assert!(plan(&ask(&cut)).is_empty());
}

#[test]
fn the_judge_finds_a_unit_that_an_earlier_stage_would_take_back() {
    let (snapshot, target, policy) = (snapshot(["new", "new-pinned"]), target(), policy());
    let ask = PlanningInput {
        snapshot: &snapshot,
        target: &target,
        policy: &policy,
        aside: &BTreeMap::new(),
        earned: &BTreeMap::new(),
        parent: None,
    };
    let findings = check(&ask, &planned(["old", "old"]));
    let uncalled: Vec<_> = findings.iter().map(|found| found.detail.as_str()).collect();
    assert!(
        uncalled
            .iter()
            .any(|detail| detail.starts_with("s0") && detail.contains("already on the target")),
        "{uncalled:?}"
    );
}

/// A run on a world that does what it is told.
struct World {
    run: Run,
    runs: [String; 2],
}

impl World {
    fn new() -> Self {
        let start = begun::start(target().parts, policy());
        Self {
            run: begun::run(start),
            runs: ["old".to_owned(), "old".to_owned()],
        }
    }

    fn append(&mut self, event: Event) {
        let entry = Entry {
            seq: self.run.seq() + 1,
            at: Timestamp::UNIX_EPOCH,
            event,
        };
        self.run.apply(entry).unwrap();
    }

    /// Steps until it is over, or `until` says so.
    fn drive(&mut self, until: impl Fn(&Self) -> bool) -> Option<Ending> {
        for _ in 0..500 {
            if until(self) {
                return None;
            }
            let seen = snapshot([&self.runs[0], &self.runs[1]]);
            let as_of = self.run.seq();
            let seen = TimedObservation {
                snapshot: &seen,
                as_of,
            };
            match self.run.next(Timestamp::UNIX_EPOCH, Some(seen)) {
                Decision::Record(events) => events.into_iter().for_each(|event| self.append(event)),
                Decision::Judge(sets) => {
                    for units in sets {
                        self.append(Event::Judged {
                            units,
                            ours: Answer::Yes,
                            theirs: Answer::Yes,
                            facts: None,
                        });
                    }
                }
                Decision::Act { fresh, .. } => {
                    for Effect { action, before } in fresh {
                        if let Action::Visit { unit, revision, .. } | Action::GoBack { unit, revision, .. } =
                            &action
                        {
                            let at = usize::from(unit.as_str() == "s1");
                            self.runs[at] = revision.to_string();
                        }
                        self.append(Event::Intent { action, before });
                        let intent = self.run.seq();
                        self.append(Event::Settled {
                            intent,
                            outcome: Outcome::Done { note: String::new() },
                        });
                    }
                }
                Decision::Over(ending) => return Some(ending),
                other @ (Decision::Observe | Decision::Wait { .. } | Decision::Hold(_)) => {
                    panic!("{other:?}")
                }
            }
        }
        panic!("it does not end")
    }
}

#[test]
fn a_run_passes_both_stages_once() {
    let mut world = World::new();
    assert_eq!(world.drive(|_| false), Some(Ending::Done));
    assert_eq!(world.runs, ["new", "new"]);
    assert_eq!(world.run.waves_passed(), 4);
}

#[test]
fn on_the_way_back_a_stage_that_has_not_begun_has_changed_nothing() {
    let mut world = World::new();
    assert_eq!(world.drive(|world| world.run.waves_passed() == 2), None);
    assert_eq!(world.runs, ["new-pinned", "new-pinned"]);
    world.append(Event::Asked {
        command: Command::Rollback,
        by: "test".to_owned(),
    });
    let Some(Ending::RolledBack { reason }) = world.drive(|_| false) else {
        panic!("it should have gone back")
    };
    assert_eq!(world.runs, ["old", "old"]);
    assert!(!reason.detail.contains("settings"), "{reason}");
}

#[test]
fn a_stage_that_has_begun_says_that_it_cannot_go_back() {
    let mut world = World::new();
    assert_eq!(world.drive(|world| world.run.waves_passed() == 3), None);
    world.append(Event::Asked {
        command: Command::Rollback,
        by: "test".to_owned(),
    });
    let Some(Ending::RolledBack { reason }) = world.drive(|_| false) else {
        panic!("it should have ended")
    };
    assert!(reason.detail.contains("stage settings"), "{reason}");
    assert_eq!(
        world.runs,
        ["new", "new-pinned"],
        "none goes back past what cannot go back"
    );
}
