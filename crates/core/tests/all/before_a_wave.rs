//! What is waited for before a wave or a stage begins.

#![allow(clippy::unwrap_used, reason = "test code")]

use crate::{begun, story};

use stagger_core::model::{Code, PartName, UnitState};
use stagger_core::run::{Command, Decision, Ending, Event};
use story::{DOWN, NEW, Story, done, phases, unit};

/// Found on a real Ceph whose standby manager was away for half a minute: managers do not show in the number of the OSD map, so
/// the plan was taken for one of the world as it is, and the run was held for a person.
#[test]
fn what_was_down_and_is_back_is_planned_though_the_number_of_the_map_is_the_same() {
    let mut story = Story::new(false);
    story.units.insert(unit("osd.0"), DOWN);
    for phase in ["prepare", "change"] {
        let begun = story.announced();
        assert_eq!(
            phases(&begun),
            [format!("{phase} osd.1"), format!("{phase} osd.2")]
        );
        for (intent, effect) in begun {
            if phase == "change" {
                story.units.insert(effect.action.unit().unwrap().clone(), NEW);
            }
            story.settle(intent, done());
        }
    }
    story.generation += 1;
    story.healthy = false;
    assert_eq!(story.waits().code, Code::GatesShut);
    story.healthy = true;
    assert_eq!(story.waits().code, Code::UnitsLeftBehind);
    story.units.insert(unit("osd.0"), (UnitState::Serving, "18"));
    assert_eq!(phases(&story.announced()), ["prepare osd.0"]);
}

/// Found by the simulator: the gates count only what is worse than before the run, so they were open while groups that
/// were short before recovered. Each wave was dropped as soon as it was opened, and planned again, without a pause.
#[test]
fn what_recovers_is_waited_for_before_a_wave_is_opened() {
    let mut story = Story::new(true);
    story.recovers = true;
    let why = story.waits();
    assert_eq!(why.code, Code::GatesShut);
    assert!(why.detail.contains("recovered: "), "{why}");
    assert!(story.run.wave().is_none());
    story.now = 10_000;
    assert_eq!(story.waits().code, Code::GatesShut);
    assert_eq!(story.run.held().unwrap().0.code, Code::GatesShut);
    story.recovers = false;
    story.generation += 1;
    assert_eq!(
        phases(&story.announced()),
        ["prepare osd.0", "prepare osd.1", "prepare osd.2"],
        "it goes on by itself"
    );
}

#[test]
fn a_run_that_is_to_do_what_can_be_done_ends_before_what_waits_for_the_rest() {
    let mut story = Story::new(true);
    let mut start = story.run.start().clone();
    start.policy.partial = true;
    story.run = begun::run(start);
    for osd in ["osd.0", "osd.1", "osd.2"] {
        story.units.insert(unit(osd), (UnitState::Down, "18"));
    }
    let ended = (0..20).find_map(|_| match story.next() {
        Decision::Record(events) => {
            for event in events {
                story.write(event);
            }
            None
        }
        Decision::Over(ending) => Some(ending),
        other => panic!("{other:?}"),
    });
    let Some(Ending::Incomplete { left }) = ended else {
        panic!("{ended:?}");
    };
    let names: Vec<&str> = left.iter().map(|(what, _)| what.as_str()).collect();
    assert_eq!(names, ["osd.0", "osd.1", "osd.2", "mds"]);
}

#[test]
fn a_stage_begins_only_when_the_one_before_left_nothing_or_a_person_accepts_it() {
    for permitted in [false, true] {
        let mut story = Story::new(permitted);
        story.units.insert(unit("osd.1"), (UnitState::Down, "18"));
        let prepares = story.announced();
        assert_eq!(phases(&prepares), ["prepare osd.0", "prepare osd.2"]);
        for (intent, _) in prepares {
            story.settle(intent, done());
        }
        for (intent, effect) in story.announced() {
            story.units.insert(effect.action.unit().unwrap().clone(), NEW);
            story.settle(intent, done());
        }
        let why = story.waits();
        assert_eq!(why.code, Code::UnitsLeftBehind);
        let word = "`stagger approve r1 left-behind-osd`";
        assert_eq!(why.detail.contains(word), permitted, "{why}");
        story.write(Event::Asked {
            command: Command::Approve {
                door: PartName::new("left-behind-osd").unwrap(),
            },
            by: "anna".to_owned(),
        });
        if permitted {
            assert_eq!(phases(&story.announced()), ["prepare mds.a"]);
        } else {
            assert_eq!(story.waits().code, Code::UnitsLeftBehind);
            story.units.insert(unit("osd.1"), (UnitState::Serving, "18"));
            story.generation += 1;
            assert_eq!(phases(&story.announced()), ["prepare osd.1"], "it is back");
        }
    }
}
