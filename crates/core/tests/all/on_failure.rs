//! What policy says of a wave of which one did not start, and who goes back.

#![allow(clippy::unwrap_used, reason = "test code")]

use crate::scripted;

use scripted::{World, at_once, stage};
use stagger_core::model::{
    Code, GoingBack, Growth, Limit, OnFailure, Part, Phase, Policy, Reason, Retry, Width,
};
use stagger_core::run::{Command, Decision, Ending};

/// Two waves of two, of which osd.1, in the first, does not start on the new release.
fn run(on_failure: OnFailure, going_back: GoingBack) -> World {
    let policy = Policy {
        growth: Growth::None,
        max_in_parallel: Limit::Count(2),
        on_failure,
        ..at_once()
    };
    let mut part = stage("osd", Width::Policy, Vec::new());
    if let Part::Stage(stage) = &mut part {
        stage.going_back = going_back;
    }
    let units = ["osd.0", "osd.1", "osd.2", "osd.3"];
    let mut world = World::new(&units, vec![part], policy);
    world.broken = vec!["osd.1"];
    world
}

fn impossible() -> GoingBack {
    GoingBack::Impossible {
        why: "16 cannot read it".to_owned(),
    }
}

fn held(world: &mut World) -> Reason {
    match world.drive(|_| false) {
        Decision::Hold(reason) => reason,
        other => panic!("it should hold: {other:?}"),
    }
}

/// What is down goes back first, for nothing is lost by it.
const BACK: [&str; 2] = ["osd.1 to 16", "osd.0 to 16"];

/// It was tried once more, and what tells why was collected, before anything else.
const BEFORE: [&str; 4] = [
    "osd.0 to 18",
    "osd.1 to 18",
    "restart osd.1",
    "collect of osd.0 osd.1",
];

#[test]
fn rollback_takes_the_wave_back_and_then_the_run() {
    let mut world = run(OnFailure::Rollback, GoingBack::Restart);
    let Decision::Over(Ending::RolledBack { reason }) = world.drive(|_| false) else {
        panic!("it should end")
    };
    assert!(reason.detail.contains("osd.1"), "{reason}");
    assert_eq!(world.done[..4], BEFORE);
    assert_eq!(world.done[4..], BACK);
    assert_eq!(world.on_new(), "");
}

#[test]
fn continue_takes_the_one_back_and_goes_on_without_it() {
    let mut world = run(OnFailure::Continue, GoingBack::Restart);
    let Decision::Over(Ending::Incomplete { left }) = world.drive(|_| false) else {
        panic!("it should end")
    };
    let left: Vec<_> = left
        .iter()
        .map(|(unit, why)| (unit.as_str(), &why.code))
        .collect();
    assert_eq!(left, [("osd.1", &Code::WentBack)]);
    assert_eq!(world.done[..4], BEFORE);
    assert_eq!(world.done[4..], ["osd.1 to 16", "osd.2 to 18", "osd.3 to 18"]);
    assert_eq!(world.on_new(), "osd.0 osd.2 osd.3");
}

#[test]
fn stop_touches_nothing_until_a_person_says_so() {
    let mut world = run(OnFailure::Stop, GoingBack::Restart);
    let reason = held(&mut world);
    assert_eq!(reason.code, Code::WaveFailed);
    assert_eq!(world.done, BEFORE);

    world.asks(Command::Rollback);
    assert!(matches!(
        world.drive(|_| false),
        Decision::Over(Ending::RolledBack { .. })
    ));
    assert_eq!(world.done[4..], BACK);
    assert_eq!(world.on_new(), "");
}

#[test]
fn an_abort_leaves_the_failed_wave_as_it_is() {
    let mut world = run(OnFailure::Stop, GoingBack::Restart);
    held(&mut world);
    world.asks(Command::Abort);
    assert_eq!(world.drive(|_| false), Decision::Over(Ending::Aborted));
    assert_eq!(world.done, BEFORE);
    assert_eq!(world.run.changed(), 1, "of osd.1 nobody knows");
}

#[test]
fn who_serves_where_there_is_no_way_back_stays_and_who_does_not_is_a_persons_business() {
    for on_failure in [OnFailure::Rollback, OnFailure::Continue] {
        let mut world = run(on_failure, impossible());
        let reason = held(&mut world);
        assert_eq!(reason.code, Code::GoingBackIsImpossible, "{on_failure:?}");
        assert!(reason.detail.contains("16 cannot read it"), "{reason}");
        assert_eq!(world.done, BEFORE);
    }
}

#[test]
fn who_does_not_start_on_what_it_ran_before_either_is_a_persons_business() {
    let mut world = run(OnFailure::Rollback, GoingBack::Restart);
    world.lost = vec!["osd.1"];
    let reason = held(&mut world);
    assert_eq!(reason.code, Code::RollbackFailed);
    assert!(reason.detail.contains("osd.1: it does not start"), "{reason}");
    assert_eq!(world.done[4..], BACK);
}

#[test]
fn that_its_host_was_off_is_no_try_of_a_unit() {
    let mut part = stage("osd", Width::Policy, Vec::new());
    if let Part::Stage(stage) = &mut part {
        stage.phases = Phase::all();
    }
    let policy = Policy {
        on_failure: OnFailure::Continue,
        retry: Retry {
            first: 5,
            longest: 40,
            tries: 2,
        },
        ..at_once()
    };
    let mut world = World::new(&["osd.0"], vec![part], policy);
    world.fails = vec!["enter osd.0"];
    // It could not be entered as often as policy says, and it falls in the last of its turns.
    let turns = |world: &World| world.done.iter().filter(|done| *done == "leave osd.0").count();
    while turns(&world) < 3 {
        if let Decision::Wait {
            until: Some(until), ..
        } = world.drive(|world| turns(world) == 3)
        {
            world.second = until.as_second();
        }
    }
    world.down = vec!["osd.0"];
    world.hangs = vec!["restart osd.0"];
    world.drive(|_| false);
    world.second += 60;
    world.drive(|world| world.run.open().count() == 1);
    let ended = world.run.open().map(|(seq, _)| seq).collect();
    let host = "h0".parse().unwrap();
    world.asks(Command::Confirm { host, ended });
    world.down.clear();
    world.fails.clear();
    let Decision::Wait { why, .. } = world.drive(|_| false) else {
        panic!("it should wait for osd.0, whose host is back")
    };
    assert_eq!(why.code, Code::UnitsSetAside);
    world.second += 5;
    assert_eq!(world.drive(|_| false), Decision::Over(Ending::Done));
    assert_eq!(world.on_new(), "osd.0");
}
