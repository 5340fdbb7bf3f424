//! Whoever could not begin in time, while others of its wave are under way or after them: who is asked about it, and when
//! nobody is.

#![allow(clippy::unwrap_used, reason = "test code")]

use crate::scripted;

use scripted::{World, at_once, stage};
use stagger_core::model::{Code, Growth, Limit, Policy, UnitId, Width};
use stagger_core::run::{Answer, Command, Decision, Ending, Event, Outcome};

const WHOLE: &str = "osd.0 osd.1 osd.2";

fn no(_: &[UnitId]) -> Answer {
    Answer::No {
        why: "a group has no other copy".to_owned(),
    }
}

fn done() -> Outcome {
    Outcome::Done { note: String::new() }
}

fn three() -> World {
    let policy = Policy {
        growth: Growth::None,
        max_in_parallel: Limit::Count(3),
        approval_age: 20,
        ..at_once()
    };
    let units = ["osd.0", "osd.1", "osd.2"];
    World::new(&units, vec![stage("osd", Width::Policy, Vec::new())], policy)
}

/// All three may go. osd.0 is on its way down and takes long; the others were not begun in time.
fn parted() -> World {
    let mut world = three();
    world.hangs = vec!["osd.0 to 18"];
    world.late = vec!["osd.1 to 18", "osd.2 to 18"];
    world.drive_to(3);
    assert_eq!(world.asked, [WHOLE]);
    world
}

/// Nothing new is begun.
fn waits(decision: &Decision) -> bool {
    matches!(decision, Decision::Act { fresh, again } if fresh.is_empty() && !again.is_empty())
}

#[test]
fn while_all_of_a_wave_are_under_way_nobody_is_asked_about_them() {
    let mut world = three();
    world.hangs = vec!["osd.0 to 18", "osd.1 to 18", "osd.2 to 18"];
    assert!(waits(&world.drive(|_| false)));
    assert_eq!(world.asked, [WHOLE]);
}

#[test]
fn the_rest_is_asked_about_together_with_who_may_still_go_down() {
    let mut world = parted();
    assert!(waits(&world.drive(|_| false)));
    assert_eq!(world.asked, [WHOLE, WHOLE]);
    assert_eq!(world.on_new(), "osd.1 osd.2");
    world.settles(done());
    assert_eq!(world.drive(|_| false), Decision::Over(Ending::Done));
}

#[test]
fn what_was_agreed_to_counts_for_its_time_and_not_a_second_more() {
    for (second, counts) in [(19, true), (20, false)] {
        let mut world = parted();
        world.drive(|world| world.asked.len() == 2);
        world.second = second;
        assert_eq!(
            matches!(world.next(), Decision::Act { fresh, .. } if fresh.len() == 2),
            counts
        );
        assert_eq!(
            matches!(world.next(), Decision::Judge(_)),
            !counts,
            "it is asked anew"
        );
        world.drive(|_| false);
        assert_eq!(world.on_new(), "osd.1 osd.2");
    }
}

#[test]
fn after_a_no_the_rest_waits_until_the_others_are_done() {
    let mut world = parted();
    world.oracle = no;
    assert!(waits(&world.drive(|_| false)));
    world.second = 100;
    assert!(waits(&world.drive(|_| false)));
    assert_eq!(world.asked, [WHOLE, WHOLE], "the world has not changed since");
    world.oracle = |_| Answer::Yes;
    world.settles(done());
    assert_eq!(world.drive(|_| false), Decision::Over(Ending::Done));
    assert_eq!(world.asked[2], "osd.1 osd.2");
}

#[test]
fn who_asks_for_an_end_has_nobody_more_begun() {
    for command in [Command::Pause, Command::Abort, Command::Rollback] {
        let mut world = parted();
        world.asks(command.clone());
        assert!(waits(&world.drive(|_| false)), "{command:?}");
        assert_eq!(
            world.asked,
            [WHOLE],
            "{command:?}: nobody is asked about the rest"
        );
        world.settles(done());
        let decision = world.drive(|_| false);
        let told = match &decision {
            Decision::Hold(reason) => reason.code.to_string(),
            Decision::Over(Ending::Aborted) => "aborted".to_owned(),
            Decision::Over(Ending::RolledBack { .. }) => "rolled back".to_owned(),
            other => panic!("{command:?}: {other:?}"),
        };
        let (wanted, on_new) = match command {
            Command::Pause => ("paused", "osd.0"),
            Command::Abort => ("aborted", "osd.0"),
            _ => ("rolled back", ""),
        };
        assert_eq!((told.as_str(), world.on_new().as_str()), (wanted, on_new));
    }
}

#[test]
fn a_process_that_stops_begins_nobody_more_and_the_next_one_does() {
    let mut world = parted();
    world.run.close();
    assert!(waits(&world.drive(|_| false)));
    assert_eq!(world.asked, [WHOLE]);
    world.settles(done());
    let Decision::Record(events) = world.next() else {
        panic!("the rest should leave the wave: {:?}", world.next())
    };
    let left = events.iter().map(|event| match event {
        Event::SetAside { unit, reason, .. } => (unit.as_str(), reason.code.clone()),
        other => panic!("{other:?}"),
    });
    let wanted = [("osd.1", Code::AskedToStop), ("osd.2", Code::AskedToStop)];
    assert_eq!(left.collect::<Vec<_>>(), wanted);
}

#[test]
fn a_wave_of_which_nothing_was_begun_is_dropped_by_who_stops_pauses_or_ends_it() {
    type Stop = fn(&mut World);
    let stops: [Stop; 4] = [
        |world| world.run.close(),
        |world| world.asks(Command::Pause),
        |world| world.asks(Command::Abort),
        |world| world.asks(Command::Rollback),
    ];
    for stop in stops {
        let mut world = three();
        world.drive(|world| world.asked.len() == 1);
        stop(&mut world);
        let Decision::Record(events) = world.next() else {
            panic!("it should be dropped: {:?}", world.next())
        };
        let is_dropped = |event: &Event| matches!(event, Event::WaveDropped { reason } if reason.code == Code::AskedToStop);
        assert!(events.iter().any(is_dropped), "{events:?}");
        assert_eq!(world.done, [""; 0]);
    }
}

#[test]
fn a_wave_of_which_nothing_was_begun_in_time_is_judged_as_a_whole_again() {
    let mut world = three();
    world.drive(|world| world.asked.len() == 1);
    world.second = 20;
    world.oracle = |units| match units {
        [_] => Answer::Yes,
        all => no(all),
    };
    world.drive(|_| false);
    let all = [WHOLE, WHOLE, "osd.0", "osd.1", "osd.2"];
    assert_eq!(world.asked[..5], all, "together once more, and then each alone");
}

#[test]
fn a_wave_that_may_not_go_any_more_is_dropped_before_anybody_is_asked() {
    let mut world = three();
    world.drive(|world| world.run.wave().is_some());
    // A placement group lost its third copy.
    world.apart = vec!["osd.0", "osd.1"];
    assert!(
        world
            .run
            .may_stop(&world.snapshot(), &["osd.0".parse().unwrap()])
            .is_ok(),
        "one alone may go"
    );
    let both = ["osd.0", "osd.1"].map(|osd| osd.parse().unwrap());
    assert!(world.run.may_stop(&world.snapshot(), &both).is_err());
    let Decision::Record(events) = world.next() else {
        panic!("it should be dropped: {:?}", world.next())
    };
    assert!(
        matches!(events.as_slice(), [Event::WaveDropped { reason }] if reason.code == Code::WorldHasMoved),
        "{events:?}"
    );
    assert_eq!(world.drive(|_| false), Decision::Over(Ending::Done));
    assert!(
        !world.asked.iter().any(|set| set.contains("osd.0 osd.1")),
        "{:?}",
        world.asked
    );
}
