//! What is done once for the whole cluster, between stages: when it is begun, and what is waited for after it.

#![allow(clippy::unwrap_used, reason = "test code")]

use crate::scripted;

use jiff::{SignedDuration, Timestamp};
use scripted::{World, at_once, stage, step};
use stagger_core::model::{Code, Gate, Part, Policy, Verdict, Width};
use stagger_core::run::{Command, Decision, Ending, Event};

fn policy() -> Policy {
    Policy {
        gate_timeout: 60,
        ..at_once()
    }
}

/// OSDs, a step behind them, and a metadata server.
fn run(of: Part) -> World {
    let parts = vec![
        stage("osd", Width::Single, Vec::new()),
        of,
        stage("mds", Width::Single, Vec::new()),
    ];
    World::new(&["mds.0", "osd.0", "osd.1"], parts, policy())
}

const WHOLE: [&str; 4] = ["osd.0 to 18", "osd.1 to 18", "step convert", "mds.0 to 18"];

#[test]
fn a_step_comes_once_between_its_stages() {
    let mut world = run(step("convert", None));
    assert_eq!(world.drive(|_| false), Decision::Over(Ending::Done));
    assert_eq!(world.done, WHOLE);
    assert_eq!(world.run.steps().count(), 1);
}

#[test]
fn a_step_that_was_done_already_is_not_taken() {
    let mut world = run(step("convert", None));
    world.done.push("step convert".to_owned());
    assert_eq!(world.drive(|_| false), Decision::Over(Ending::Done));
    assert_eq!(world.done[1..], ["osd.0 to 18", "osd.1 to 18", "mds.0 to 18"]);
}

#[test]
fn what_a_step_does_is_waited_for_a_while_and_then_a_person_is_asked() {
    let mut world = run(step("convert", None));
    world.second = 5;
    world.idle = vec!["convert"];
    let Decision::Wait { until, why } = world.drive(|_| false) else {
        panic!("it should wait")
    };
    assert_eq!(until, Timestamp::from_second(65).ok());
    assert_eq!(why.code, Code::StepWithoutEffect);
    world.second = 64;
    assert!(matches!(world.drive(|_| false), Decision::Wait { .. }));
    world.second = 65;
    let Decision::Hold(reason) = world.drive(|_| false) else {
        panic!("it should hold")
    };
    assert!(reason.detail.contains("convert-done is not met yet"), "{reason}");
    assert_eq!(world.done, WHOLE[..3], "and it was not taken again");
    world.idle.clear();
    assert_eq!(world.drive(|_| false), Decision::Over(Ending::Done));
    assert_eq!(world.done, WHOLE);
}

#[test]
fn a_step_that_failed_holds_and_is_taken_again_once_a_person_resumes() {
    let mut world = run(step("convert", None));
    world.fails = vec!["step convert"];
    world.idle = vec!["convert"];
    let Decision::Hold(reason) = world.drive(|_| false) else {
        panic!("it should hold")
    };
    assert_eq!(reason.code, Code::StepFailed);
    assert!(reason.detail.contains("convert: it ended with 1"), "{reason}");
    world.fails.clear();
    world.idle.clear();
    world.done.retain(|done| done != "step convert");
    world.asks(Command::Resume);
    assert_eq!(world.drive(|_| false), Decision::Over(Ending::Done));
    assert_eq!(world.done, WHOLE);
}

#[test]
fn a_step_without_a_door_and_its_gates_have_held_before_it() {
    let mut of = step("convert", Some("require"));
    let Part::Step(spec) = &mut of else {
        panic!("it is a step")
    };
    spec.before = vec![Gate {
        condition: "health".parse().unwrap(),
        hold: SignedDuration::from_secs(10),
        timeout: SignedDuration::from_secs(60),
    }];
    let mut world = run(of);
    world.drive_to(2);
    world.drive(|world| world.run.waves_passed() == 2);
    world.second = 100;
    world.health = Verdict::No;
    let waits = |world: &mut World| match world.drive(|_| false) {
        Decision::Wait { until, why } => (until, why.code),
        other => panic!("it should wait: {other:?}"),
    };
    let at = |second| Timestamp::from_second(second).ok();
    assert_eq!(waits(&mut world), (at(160), Code::GatesShut));
    world.second = 120;
    world.health = Verdict::Yes;
    assert_eq!(waits(&mut world), (at(130), Code::GatesHolding));
    world.second = 129;
    assert_eq!(waits(&mut world), (at(130), Code::GatesHolding));
    world.second = 130;
    // They have held: now its door is what it waits for.
    let Decision::Hold(reason) = world.drive(|_| false) else {
        panic!("it should ask")
    };
    assert_eq!(reason.code, Code::OneWayDoor);
    world.asks(Command::Approve {
        door: "require".parse().unwrap(),
    });
    assert_eq!(world.drive(|_| false), Decision::Over(Ending::Done));
    assert_eq!(world.done, WHOLE);
}

#[test]
fn behind_a_step_that_is_a_door_everything_stays() {
    for (passed, stays) in [(2, false), (3, true)] {
        let mut world = run(step("convert", Some("require")));
        let door = "require".parse().unwrap();
        world.asks(Command::Approve { door });
        world.drive(|world| world.done.len() == passed && world.run.wave().is_none());
        world.drive(|world| passed == 2 || world.run.steps().count() == 1);
        world.asks(Command::Rollback);
        let Decision::Over(Ending::RolledBack { reason }) = world.drive(|_| false) else {
            panic!("it should end")
        };
        let told = "2 of stage osd stay as they are";
        assert_eq!(reason.detail.contains(told), stays, "{reason}");
        assert_eq!(world.on_new().is_empty(), !stays);
    }
}

#[test]
fn it_is_not_held_twice_for_two_things() {
    let mut world = run(step("convert", Some("require")));
    let Decision::Hold(reason) = world.drive(|_| false) else {
        panic!("it should ask")
    };
    assert_eq!(reason.code, Code::OneWayDoor);
    world.asks(Command::Pause);
    // The journal says what it is held by now.
    let Decision::Record(events) = world.next() else {
        panic!("it should say so")
    };
    assert!(
        matches!(events.as_slice(), [Event::Held { reason }] if reason.code == Code::Paused),
        "{events:?}"
    );
}

#[test]
fn gates_before_a_step_have_their_time_also_where_they_were_never_shut() {
    let mut of = step("convert", None);
    if let Part::Step(spec) = &mut of {
        spec.before = vec![Gate {
            condition: "health".parse().unwrap(),
            hold: SignedDuration::from_secs(10),
            timeout: SignedDuration::from_secs(60),
        }];
    }
    let mut world = run(of);
    let Decision::Wait { until, why } = world.drive(|_| false) else {
        panic!("it should wait")
    };
    assert_eq!(
        (until, why.code),
        (Timestamp::from_second(10).ok(), Code::GatesHolding)
    );
    world.second = 10;
    assert_eq!(world.drive(|_| false), Decision::Over(Ending::Done));
}
