//! What is done with the word of a system's own oracle.

#![allow(clippy::unwrap_used, reason = "test code")]

use crate::scripted;

use jiff::Timestamp;
use scripted::{World, at_once, names, stage};
use stagger_core::model::{Code, Growth, Limit, Part, Phase, Policy, Retry, UnitId, Width};
use stagger_core::run::{Answer, Decision, Ending, Event};

/// Four OSDs that are planned in one wave.
fn run(oracle: fn(&[UnitId]) -> Answer) -> World {
    run_of(stage("osd", Width::Policy, Vec::new()), oracle)
}

fn run_of(part: Part, oracle: fn(&[UnitId]) -> Answer) -> World {
    let policy = Policy {
        growth: Growth::None,
        max_in_parallel: Limit::Count(4),
        gate_timeout: 60,
        retry: Retry {
            first: 10,
            longest: 60,
            tries: 2,
        },
        ..at_once()
    };
    let units = ["osd.0", "osd.1", "osd.2", "osd.3"];
    let mut world = World::new(&units, vec![part], policy);
    world.oracle = oracle;
    world
}

fn no(why: &str) -> Answer {
    Answer::No { why: why.to_owned() }
}

#[test]
fn a_no_to_one_of_them_keeps_that_one_back_and_nobody_else() {
    let mut world = run(|units| {
        if names(units).contains("osd.2") {
            no("a group of it has no other copy")
        } else {
            Answer::Yes
        }
    });
    let Decision::Wait { why, .. } = world.drive(|_| false) else {
        panic!("it should wait for osd.2")
    };
    assert_eq!(why.code, Code::UnitsSetAside);
    assert_eq!(world.on_new(), "osd.0 osd.1 osd.3");
    let first = ["osd.0 osd.1 osd.2 osd.3", "osd.0", "osd.1", "osd.2", "osd.3"];
    assert_eq!(world.asked[..5], first, "all together, then each alone");
}

#[test]
fn a_no_to_all_of_them_together_parts_them() {
    let mut world = run(|units| match units.len() {
        0..=2 => Answer::Yes,
        _ => no("three of a group at once"),
    });
    let Decision::Wait { .. } = world.drive(|_| false) else {
        panic!("the second half should wait")
    };
    assert_eq!(world.on_new(), "osd.0 osd.1");
    world.second = 1;
    assert_eq!(world.drive(|_| false), Decision::Over(Ending::Done));
}

#[test]
fn who_cannot_tell_is_asked_again_after_two_seconds_and_not_without_an_end() {
    let mut world = run(|_| Answer::Unknown {
        why: "no manager".to_owned(),
    });
    let told = |decision: Decision| match decision {
        Decision::Wait { until, why } => (until.unwrap(), why.code),
        other => panic!("it should wait: {other:?}"),
    };
    let at = |second| Timestamp::from_second(second).unwrap();
    assert_eq!(told(world.drive(|_| false)), (at(2), Code::OracleUnknown));
    world.second = 1;
    assert_eq!(told(world.drive(|_| false)), (at(2), Code::OracleUnknown));
    assert_eq!(world.asked.len(), 1);
    world.second = 2;
    assert_eq!(told(world.drive(|_| false)), (at(4), Code::OracleUnknown));
    assert_eq!(world.asked.len(), 2);
    assert_eq!(
        world.run.wave().unwrap().opened,
        at(0),
        "its wave stays open meanwhile"
    );
    world.second = 60;
    world.drive(|world| world.run.held().is_some());
    let (held, _) = world.run.held().unwrap();
    assert_eq!(held.code, Code::OracleUnknown);
    assert_eq!(world.on_new(), "", "and nothing was stopped");
}

/// It refuses osd.2, and osd.3 could not be entered.
fn refused_to_the_last() -> World {
    let mut part = stage("osd", Width::Policy, Vec::new());
    if let Part::Stage(stage) = &mut part {
        stage.phases = Phase::all();
    }
    let mut world = run_of(part, |units| {
        if names(units).contains("osd.2") {
            no("a group of it has no other copy")
        } else {
            Answer::Yes
        }
    });
    world.fails = vec!["enter osd.3"];
    // Twice, as policy says, and once more before the run ends; osd.3 has its last turn next.
    goes_on(&mut world, |world| refused(world) == 3);
    world
}

/// Goes on, also when it has to wait; returns how it ends, unless it comes to that before.
fn goes_on(world: &mut World, until: impl Fn(&World) -> bool) -> Option<Ending> {
    for _ in 0..100 {
        let next = world.drive(&until);
        if until(world) {
            return None;
        }
        match next {
            Decision::Wait {
                until: Some(until), ..
            } => world.second = until.as_second(),
            Decision::Over(ending) => return Some(ending),
            other => panic!("it should go on: {other:?}"),
        }
    }
    panic!("it does not end: {:?}", world.asked)
}

fn refused(world: &World) -> usize {
    world.asked.iter().filter(|set| *set == "osd.2").count()
}

#[test]
fn who_was_refused_before_another_was_changed_is_asked_about_once_more() {
    let mut world = refused_to_the_last();
    world.fails.clear();
    goes_on(&mut world, |world| world.on_new() == "osd.0 osd.1 osd.3");
    world.oracle = |_| Answer::Yes;
    assert_eq!(goes_on(&mut world, |_| false), Some(Ending::Done));
}

#[test]
fn who_is_refused_all_the_same_is_left_and_nobody_is_asked_without_an_end() {
    for is_changed in [true, false] {
        let mut world = refused_to_the_last();
        if is_changed {
            world.fails.clear();
        }
        let before = refused(&world);
        let Some(Ending::Incomplete { left }) = goes_on(&mut world, |_| false) else {
            panic!("it should end without osd.2")
        };
        assert_eq!(left[0].0, "osd.2");
        assert_eq!(left[0].1.code, Code::OracleSaysNo);
        assert_eq!(left.len(), if is_changed { 1 } else { 2 });
        assert_eq!(refused(&world) - before, usize::from(is_changed));
    }
}

/// Found by the simulator: a process gave up a unit and was paused; whoever took over a minute later ended the run by that.
#[test]
fn who_was_refused_is_asked_about_once_more_by_whoever_takes_over() {
    let mut world = refused_to_the_last();
    world.append(Event::LeaseTaken {
        fence: 2,
        holder: "another".to_owned(),
    });
    world.oracle = |_| Answer::Yes;
    let Some(Ending::Incomplete { left }) = goes_on(&mut world, |_| false) else {
        panic!("osd.3 cannot be entered")
    };
    let left: Vec<&str> = left.iter().map(|(unit, _)| unit.as_str()).collect();
    assert_eq!(left, ["osd.3"]);
}
