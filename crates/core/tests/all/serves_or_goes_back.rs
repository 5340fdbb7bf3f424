//! What is waited for after a wave's visits, and what becomes of a wave that goes back.

#![allow(clippy::unwrap_used, reason = "test code")]

use crate::scripted;

use jiff::Timestamp;
use scripted::{NEW, OLD, World, at_once, stage};
use stagger_core::model::{
    Code, GoingBack, Growth, Limit, OnFailure, Part, Phase, Policy, Reason, UnitId, Verdict, Width,
};
use stagger_core::run::{Answer, Command, Decision, Ending, Event};

fn policy(on_failure: OnFailure) -> Policy {
    Policy {
        growth: Growth::None,
        max_in_parallel: Limit::Count(2),
        on_failure,
        rebuild_to_go_back: true,
        ..at_once()
    }
}

fn world(on_failure: OnFailure, change: impl FnOnce(&mut stagger_core::model::StageSpec)) -> World {
    let mut part = stage("osd", Width::Policy, Vec::new());
    let Part::Stage(stage) = &mut part else {
        panic!("it is a stage")
    };
    change(stage);
    World::new(&["osd.0", "osd.1"], vec![part], policy(on_failure))
}

fn rebuilt() -> GoingBack {
    GoingBack::Rebuild {
        cost: "filling it anew".to_owned(),
    }
}

/// Both were changed at once. osd.1 did not start, and osd.0 serves.
fn failed(on_failure: OnFailure, going_back: GoingBack) -> World {
    let mut world = world(on_failure, |stage| stage.going_back = going_back);
    world.broken = vec!["osd.1"];
    world.drive(|world| world.done.iter().any(|done| done.starts_with("collect")));
    assert_eq!(world.done[..3], ["osd.0 to 18", "osd.1 to 18", "restart osd.1"]);
    world
}

/// Until when it waits, and for what.
fn waits(world: &mut World) -> (Option<i64>, Code) {
    match world.drive(|_| false) {
        Decision::Wait { until, why } => (until.map(Timestamp::as_second), why.code),
        other => panic!("it should wait: {other:?}"),
    }
}

fn held(world: &mut World) -> Reason {
    match world.drive(|_| false) {
        Decision::Hold(reason) => reason,
        other => panic!("it should hold: {other:?}"),
    }
}

fn goes_back(world: &World) -> &[String] {
    let collected = world.done.iter().position(|done| done.starts_with("collect"));
    &world.done[collected.unwrap() + 1..]
}

#[test]
fn who_was_started_and_does_not_serve_is_started_once_more_before_its_wave_fails() {
    let mut world = world(OnFailure::Stop, |_| {});
    world.drive_to(2);
    world.down = vec!["osd.0"];
    assert_eq!(waits(&mut world), (Some(60), Code::GatesShut));
    world.second = 60;
    assert_eq!(waits(&mut world), (Some(120), Code::GatesShut));
    world.second = 119;
    assert_eq!(waits(&mut world), (Some(120), Code::GatesShut));
    world.second = 120;
    let reason = held(&mut world);
    assert_eq!(reason.code, Code::WaveFailed);
    assert!(reason.detail.contains("osd.0: it is down"), "{reason}");
    let all = [
        "osd.0 to 18",
        "osd.1 to 18",
        "restart osd.0",
        "collect of osd.0 osd.1",
    ];
    assert_eq!(world.done, all);
}

#[test]
fn while_recovery_makes_progress_it_gets_its_time_three_times_more() {
    let mut world = world(OnFailure::Rollback, |_| {});
    world.drive_to(2);
    world.health = Verdict::No;
    world.why = "10 of 99 are clean";
    assert_eq!(waits(&mut world), (Some(60), Code::GatesShut));
    for (second, why) in [(60, "20 of 99"), (120, "30 of 99"), (180, "40 of 99")] {
        world.second = second;
        world.why = why;
        assert_eq!(waits(&mut world), (Some(second + 60), Code::GatesShut), "{why}");
    }
    world.why = "50 of 99";
    world.second = 239;
    assert_eq!(waits(&mut world), (Some(240), Code::GatesShut));
    world.second = 240;
    // Every unit of the wave serves: it does not go back for it, and goes on when the gate opens.
    assert_eq!(waits(&mut world), (None, Code::GatesShut));
    assert_eq!(world.run.held().unwrap().0.code, Code::GatesShut);
    world.health = Verdict::Yes;
    assert_eq!(world.drive(|_| false), Decision::Over(Ending::Done));
    assert_eq!(world.done, ["osd.0 to 18", "osd.1 to 18"]);
}

#[test]
fn where_nothing_moves_the_time_is_not_prolonged_and_another_gate_that_shuts_is_no_progress() {
    let mut world = world(OnFailure::Rollback, |_| {});
    world.drive_to(2);
    world.health = Verdict::No;
    world.second = 5;
    assert_eq!(waits(&mut world), (Some(65), Code::GatesShut));
    world.down = vec!["osd.0"];
    world.second = 20;
    assert_eq!(waits(&mut world), (Some(65), Code::GatesShut));
    world.down.clear();
    world.second = 30;
    assert_eq!(waits(&mut world), (Some(65), Code::GatesShut));
    world.second = 65;
    assert_eq!(waits(&mut world), (None, Code::GatesShut));
}

#[test]
fn who_is_back_and_does_not_serve_has_its_data_made_anew_where_that_is_how_it_goes_back() {
    let mut world = failed(OnFailure::Rollback, rebuilt());
    world.drive(|world| goes_back(world).len() == 2);
    // The old release was tried on the data of what had not started; what had, needs a rebuild.
    assert_eq!(goes_back(&world), ["osd.1 to 16", "osd.0 to 16 anew"]);
    world.down = vec!["osd.1"];
    assert_eq!(waits(&mut world), (Some(60), Code::GatesShut));
    world.second = 60;
    assert_eq!(waits(&mut world), (Some(120), Code::GatesShut));
    assert_eq!(goes_back(&world)[2..], ["osd.1 to 16 anew"]);
    world.second = 120;
    assert_eq!(held(&mut world).code, Code::RollbackFailed);
    assert_eq!(goes_back(&world).len(), 3, "once is enough");
}

#[test]
fn who_is_back_and_does_not_serve_is_a_persons_business_where_nothing_is_made_anew() {
    let mut world = failed(OnFailure::Rollback, GoingBack::Restart);
    world.drive(|world| goes_back(world).len() == 2);
    world.down = vec!["osd.1"];
    assert_eq!(waits(&mut world), (Some(60), Code::GatesShut));
    world.second = 60;
    assert_eq!(held(&mut world).code, Code::RollbackFailed);
    assert_eq!(goes_back(&world), ["osd.1 to 16", "osd.0 to 16"]);
}

#[test]
fn who_is_back_and_serves_is_not_stopped_when_a_person_resumes_for_one_who_does_not() {
    let mut world = failed(OnFailure::Rollback, GoingBack::Restart);
    world.drive(|world| goes_back(world).len() == 2);
    world.down = vec!["osd.1"];
    let back = world.done.len();
    waits(&mut world);
    world.second = 60;
    assert_eq!(held(&mut world).code, Code::RollbackFailed);
    world.asks(Command::Resume);
    for second in [60, 120, 180, 240] {
        world.second = second;
        world.drive(|_| false);
    }
    assert_eq!(
        world.done[back..],
        ["restart osd.1", "collect of osd.0 osd.1"],
        "osd.0 is on what it ran before already"
    );
    world.down.clear();
    assert!(matches!(
        world.drive(|_| false),
        Decision::Over(Ending::RolledBack { .. })
    ));
}

#[test]
fn who_stays_on_the_new_release_is_not_made_anew_when_it_falls() {
    let mut world = failed(OnFailure::Continue, rebuilt());
    world.drive(|world| goes_back(world).len() == 1);
    world.down = vec!["osd.0"];
    assert_eq!(waits(&mut world), (Some(60), Code::GatesShut));
    world.second = 60;
    assert_eq!(held(&mut world).code, Code::RollbackFailed);
    assert_eq!(goes_back(&world), ["osd.1 to 16"]);
}

#[test]
fn who_stays_on_the_new_release_must_serve_on_it() {
    let mut world = failed(OnFailure::Continue, GoingBack::Restart);
    world.drive(|world| goes_back(world).len() == 1);
    // Somebody else has taken it back by hand.
    world.units.insert("osd.0".parse().unwrap(), OLD.parse().unwrap());
    assert_eq!(waits(&mut world), (Some(60), Code::GatesShut));
    world.units.insert("osd.0".parse().unwrap(), NEW.parse().unwrap());
    assert!(matches!(
        world.drive(|_| false),
        Decision::Over(Ending::Incomplete { .. })
    ));
}

#[test]
fn a_gate_that_stays_shut_when_all_are_back_and_serve_holds_it_until_it_opens() {
    for going_back in [GoingBack::Restart, rebuilt()] {
        let mut world = failed(OnFailure::Rollback, going_back);
        world.drive(|world| goes_back(world).len() == 2);
        world.health = Verdict::No;
        assert_eq!(waits(&mut world), (Some(60), Code::GatesShut));
        world.second = 60;
        assert_eq!(waits(&mut world), (None, Code::GatesShut));
        assert_eq!(goes_back(&world).len(), 2);
        world.health = Verdict::Yes;
        assert!(matches!(
            world.drive(|_| false),
            Decision::Over(Ending::RolledBack { .. })
        ));
    }
}

#[test]
fn a_gate_that_stays_shut_on_the_way_back_is_a_rollback_that_failed() {
    // Of a failed wave, and of a run that had passed one.
    for has_failed in [true, false] {
        let mut world = if has_failed {
            failed(OnFailure::Stop, GoingBack::Restart)
        } else {
            let mut world = world(OnFailure::Stop, |_| {});
            world.units.insert("osd.2".parse().unwrap(), OLD.parse().unwrap());
            world.drive(|world| world.run.waves_passed() == 1);
            world
        };
        world.asks(Command::Rollback);
        world.drive(|world| world.on_new().is_empty());
        world.health = Verdict::No;
        assert_eq!(waits(&mut world), (Some(60), Code::GatesShut));
        world.second = 60;
        assert_eq!(
            held(&mut world).code,
            Code::RollbackFailed,
            "failed: {has_failed}"
        );
        // A person need not wait for it.
        world.asks(Command::Abort);
        let ended = world.drive(|_| false);
        assert_eq!(ended, Decision::Over(Ending::Aborted), "failed: {has_failed}");
    }
}

#[test]
fn what_was_never_stopped_has_nowhere_to_go_back_to() {
    let mut world = world(OnFailure::Rollback, |stage| stage.phases = Phase::all());
    world.fails = vec!["enter osd.0"];
    world.broken = vec!["osd.1"];
    assert!(matches!(
        world.drive(|_| false),
        Decision::Over(Ending::RolledBack { .. })
    ));
    assert_eq!(goes_back(&world), ["osd.1 to 16"]);
    assert!(world.done.iter().any(|done| done == "leave osd.0"));
    assert_eq!(world.on_new(), "");
}

#[test]
fn nobody_goes_back_for_one_that_is_as_it_was_and_dies() {
    let mut world = world(OnFailure::Rollback, |stage| stage.phases = Phase::all());
    world.fails = vec!["enter osd.0"];
    world.drive(|world| world.done.iter().any(|done| done == "leave osd.1"));
    world.down = vec!["osd.0"];
    while world.run.held().is_none() {
        world.drive(|_| false);
        world.second += 60;
    }
    let (reason, _) = world.run.held().unwrap();
    assert_eq!(reason.code, Code::WaveFailed);
    assert!(reason.detail.contains("osd.0: it is down"), "{reason}");
    assert!(
        world.done.iter().any(|done| done == "restart osd.0"),
        "{:?}",
        world.done
    );
    assert!(goes_back(&world).is_empty(), "{:?}", world.done);
    assert_eq!(world.on_new(), "osd.1");
}

/// A unit that could be neither entered nor left, so that its wave failed and a person is waited for.
fn stuck() -> World {
    let mut world = world(OnFailure::Stop, |stage| stage.phases = Phase::all());
    world.units.remove(&"osd.1".parse::<UnitId>().unwrap());
    world.fails = vec!["enter osd.0", "leave osd.0"];
    assert_eq!(waits(&mut world), (Some(30), Code::WaveFailed));
    assert_eq!(world.run.held().unwrap().0.code, Code::WaveFailed);
    let tried = ["enter osd.0", "leave osd.0", "leave osd.0", "collect of osd.0"];
    assert_eq!(world.done, tried);
    world
}

/// Found by the simulator: a conductor was drained and its host went away. When it was back nobody gave it back to its
/// service before a person resumed the run.
#[test]
fn who_can_be_neither_entered_nor_left_is_given_back_while_a_person_is_waited_for() {
    let mut world = stuck();
    for again in [90, 210] {
        world.second = if again == 90 { 30 } else { 90 };
        assert_eq!(waits(&mut world), (Some(again), Code::WaveFailed));
    }
    assert_eq!(
        world.done[4..],
        ["leave osd.0", "leave osd.0"],
        "after 30 s, then after 60 s"
    );
    world.fails.clear();
    world.second = 210;
    assert_eq!(
        waits(&mut world),
        (Some(225), Code::UnitsSetAside),
        "nothing speaks against the change"
    );
    world.second = 225;
    assert_eq!(world.drive(|_| false), Decision::Over(Ending::Done));
    assert_eq!(
        world.done[6..],
        ["leave osd.0", "enter osd.0", "osd.0 to 18", "leave osd.0"]
    );
}

#[test]
fn who_can_be_neither_entered_nor_left_is_left_once_more_when_the_run_is_aborted() {
    let mut world = stuck();
    world.asks(Command::Abort);
    assert_eq!(world.drive(|_| false), Decision::Over(Ending::Aborted));
    assert_eq!(world.done[4..], ["leave osd.0"], "nobody comes back to it");
}

#[test]
fn who_goes_back_whole_after_all_takes_those_with_it_that_were_to_stay() {
    let mut world = failed(OnFailure::Continue, GoingBack::Restart);
    world.lost = vec!["osd.1"];
    assert_eq!(held(&mut world).code, Code::RollbackFailed);
    assert_eq!(goes_back(&world), ["osd.1 to 16"]);
    world.asks(Command::Rollback);
    assert_eq!(held(&mut world).code, Code::RollbackFailed);
    assert_eq!(goes_back(&world), ["osd.1 to 16", "osd.0 to 16"]);
}

#[test]
fn what_stayed_of_a_failed_wave_counts_as_changed_and_goes_back_with_the_run() {
    let mut world = failed(OnFailure::Continue, GoingBack::Restart);
    world.units.insert("osd.2".parse().unwrap(), OLD.parse().unwrap());
    world.drive(|world| world.run.set_aside_units().count() == 1);
    assert_eq!(world.run.changed(), 1, "osd.0, and not osd.1, which is back");
    world.asks(Command::Rollback);
    assert!(matches!(
        world.drive(|_| false),
        Decision::Over(Ending::RolledBack { .. })
    ));
    assert_eq!(world.on_new(), "");
}

#[test]
fn who_serves_is_stopped_again_only_once_both_judges_agree() {
    let mut world = failed(OnFailure::Rollback, GoingBack::Restart);
    world.drive(|world| goes_back(world).len() == 1);
    world.oracle = |_| Answer::No {
        why: "a group has no other copy".to_owned(),
    };
    let asked = world.asked.len();
    assert_eq!(waits(&mut world), (Some(2), Code::NotSafeToStopAgain));
    let (reason, _) = world.run.held().unwrap();
    assert_eq!(reason.code, Code::NotSafeToStopAgain);
    assert!(
        reason
            .detail
            .contains("osd.0 serves and must not be stopped now: a group has no other copy"),
        "{reason}"
    );
    assert_eq!(world.asked.len(), asked + 1);
    world.second = 2;
    assert_eq!(waits(&mut world), (Some(4), Code::NotSafeToStopAgain));
    assert_eq!(world.asked.len(), asked + 2);
    world.second = 4;
    world.oracle = |_| Answer::Yes;
    world.drive(|world| goes_back(world).len() == 2);
    assert_eq!(world.run.held(), None, "it is not held any more");
    assert!(matches!(
        world.drive(|_| false),
        Decision::Over(Ending::RolledBack { .. })
    ));
}

#[test]
fn a_run_that_is_aborted_does_not_wait_for_a_moment_when_who_serves_may_be_stopped_again() {
    // It was reported that the change of osd.0 failed, or somebody has taken it back by hand.
    for is_reported in [true, false] {
        let mut world = world(OnFailure::Rollback, |_| {});
        if is_reported {
            world.fails = vec!["osd.0 to 18"];
        }
        world.drive_to(2);
        world.units.insert("osd.0".parse().unwrap(), OLD.parse().unwrap());
        world.oracle = |_| Answer::No {
            why: "a group has no other copy".to_owned(),
        };
        while world.run.held().is_none() {
            waits(&mut world);
            world.second += 30;
        }
        assert_eq!(world.run.held().unwrap().0.code, Code::NotSafeToStopAgain);
        world.asks(Command::Abort);
        let ended = world.drive(|_| false);
        assert_eq!(ended, Decision::Over(Ending::Aborted), "reported: {is_reported}");
        assert_eq!(world.done, ["osd.0 to 18", "osd.1 to 18"]);
    }
}

#[test]
fn a_run_that_is_aborted_does_not_wait_for_gates_while_all_that_it_changed_serve() {
    // osd.0 does not serve: it gets its time also then.
    for all_serve in [true, false] {
        let mut world = world(OnFailure::Stop, |_| {});
        world.drive_to(2);
        world.health = Verdict::No;
        if !all_serve {
            world.units.remove(&"osd.0".parse().unwrap());
        }
        assert_eq!(waits(&mut world), (Some(60), Code::GatesShut));
        world.asks(Command::Abort);
        let came = world.drive(|_| false);
        let ended = came == Decision::Over(Ending::Aborted);
        assert_eq!(ended, all_serve, "{came:?}");
        assert_eq!(world.done, ["osd.0 to 18", "osd.1 to 18"]);
    }
}

#[test]
fn who_is_down_is_started_once_more_by_a_run_that_is_aborted_too() {
    let mut world = world(OnFailure::Stop, |_| {});
    world.broken = vec!["osd.1"];
    world.drive_to(2);
    world.asks(Command::Abort);
    assert_eq!(world.drive(|_| false), Decision::Over(Ending::Aborted));
    assert_eq!(world.done, ["osd.0 to 18", "osd.1 to 18", "restart osd.1"]);
}

#[test]
fn who_may_be_down_is_not_given_up_by_a_run_that_is_aborted() {
    let mut world = world(OnFailure::Stop, |_| {});
    world.fails = vec!["osd.0 to 18"];
    world.drive_to(2);
    world.unknown = vec!["osd.0"];
    assert_eq!(waits(&mut world), (None, Code::NotSafeToStopAgain));
    world.asks(Command::Abort);
    assert_eq!(waits(&mut world), (None, Code::NotSafeToStopAgain));
    world.unknown.clear();
    world.down = vec!["osd.0"];
    world.drive_to(3);
    assert_eq!(world.done[2], "restart osd.0");
    world.down.clear();
    assert_eq!(world.drive(|_| false), Decision::Over(Ending::Aborted));
}

#[test]
fn who_serves_is_not_stopped_again_on_the_word_of_the_oracle_alone() {
    let mut world = failed(OnFailure::Rollback, GoingBack::Restart);
    world.drive(|world| goes_back(world).len() == 1);
    world.append(Event::Judged {
        units: vec!["osd.0".parse().unwrap()],
        ours: Answer::NoOracle,
        theirs: Answer::Yes,
        facts: None,
    });
    let Decision::Record(events) = world.next() else {
        panic!("it should be held: {:?}", world.next())
    };
    assert!(
        matches!(events.as_slice(), [Event::Held { reason }] if reason.detail.ends_with("stagger's own check is missing")),
        "{events:?}"
    );
}

#[test]
fn what_keeps_it_from_a_start_is_told_also_where_it_was_held_by_something_else() {
    let mut world = world(OnFailure::Rollback, |_| {});
    world.drive_to(2);
    world.health = Verdict::No;
    waits(&mut world);
    world.second = 60;
    assert_eq!(waits(&mut world), (None, Code::GatesShut));
    world.unknown = vec!["osd.0"];
    assert_eq!(waits(&mut world), (None, Code::NotSafeToStopAgain));
    assert_eq!(world.run.held().unwrap().0.code, Code::NotSafeToStopAgain);
    assert_eq!(world.done, ["osd.0 to 18", "osd.1 to 18"]);
}
