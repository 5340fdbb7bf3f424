//! When guards are taken and given back, what is waited for between waves, and how long.

#![allow(clippy::unwrap_used, reason = "test code")]

use crate::scripted;

use jiff::{SignedDuration, Timestamp};
use scripted::{NEW, OLD, World, at_once, stage};
use stagger_core::model::{
    Code, Door, Doors, GuardScope, GuardSpec, OnFailure, Part, Policy, Revision, Verdict, Width,
};
use stagger_core::run::{Command, Decision, Ending};

const UNITS: [&str; 3] = ["mon.0", "osd.0", "osd.1"];

fn guard(name: &str, scope: GuardScope) -> GuardSpec {
    GuardSpec {
        name: name.parse().unwrap(),
        scope,
        expiry: SignedDuration::from_secs(100),
        why: "while its units restart".to_owned(),
    }
}

/// A monitor without guards, then OSDs with one of their stage and one of each wave.
fn usual() -> Vec<Part> {
    let of_osds = vec![
        guard("noout", GuardScope::Stage),
        guard("silence", GuardScope::Wave),
    ];
    vec![
        stage("mon", Width::Single, Vec::new()),
        stage("osd", Width::Single, of_osds),
    ]
}

fn run(parts: Vec<Part>) -> World {
    World::new(&UNITS, parts, at_once())
}

/// What each runs, in the order of [`UNITS`].
fn runs(world: &World) -> Vec<&str> {
    world.units.values().map(Revision::as_str).collect()
}

const WHOLE: [&str; 9] = [
    "mon.0 to 18",
    "take noout",
    "take silence of osd.0",
    "osd.0 to 18",
    "drop silence of osd.0",
    "take silence of osd.1",
    "osd.1 to 18",
    "drop silence of osd.1",
    "drop noout",
];

#[test]
fn a_guard_of_a_stage_stays_over_its_waves_and_one_of_a_wave_does_not() {
    let mut world = run(usual());
    assert_eq!(world.drive(|_| false), Decision::Over(Ending::Done));
    assert_eq!(world.done, WHOLE);
    assert_eq!(world.run.guards(), 0);
}

#[test]
fn a_guard_that_the_next_stage_wants_too_is_kept_until_that_is_over() {
    let noout = || vec![guard("noout", GuardScope::Stage)];
    let mut world = run(vec![
        stage("mon", Width::Single, noout()),
        stage("osd", Width::Single, noout()),
    ]);
    assert_eq!(world.drive(|_| false), Decision::Over(Ending::Done));
    let all = [
        "take noout",
        "mon.0 to 18",
        "osd.0 to 18",
        "osd.1 to 18",
        "drop noout",
    ];
    assert_eq!(world.done, all);
}

#[test]
fn who_aborts_or_goes_back_gets_every_guard_back_and_takes_none_twice() {
    // After the first OSD, whose wave has passed or not yet.
    for at in [4, 5] {
        let mut world = run(usual());
        world.drive_to(at);
        world.asks(Command::Abort);
        assert_eq!(world.drive(|_| false), Decision::Over(Ending::Aborted));
        let mut given: Vec<_> = world.done[4..].to_vec();
        given.sort();
        assert_eq!(given, ["drop noout", "drop silence of osd.0"], "asked after {at}");

        let mut world = run(usual());
        world.drive_to(at);
        world.asks(Command::Rollback);
        assert!(matches!(
            world.drive(|_| false),
            Decision::Over(Ending::RolledBack { .. })
        ));
        assert_eq!(runs(&world), [OLD; 3]);
        assert_eq!(world.run.guards(), 0);
        for guard in ["noout", "silence of osd.0"] {
            let count = |what: &str| {
                let told = format!("{what} {guard}");
                world.done.iter().filter(|done| **done == told).count()
            };
            assert_eq!(count("take"), count("drop"), "{guard}: {:?}", world.done);
        }
    }
}

#[test]
fn who_ends_because_what_failed_is_back_keeps_no_guard() {
    for on_failure in [OnFailure::Rollback, OnFailure::Continue] {
        let policy = Policy {
            on_failure,
            ..at_once()
        };
        let mut world = World::new(&UNITS, usual(), policy);
        world.broken = vec!["osd.0"];
        assert!(matches!(world.drive(|_| false), Decision::Over(_)));
        assert_eq!(world.run.guards(), 0, "{on_failure:?}: {:?}", world.done);
        assert!(world.done.iter().any(|done| done == "drop noout"));
    }
}

#[test]
fn a_guard_that_cannot_be_given_back_is_tried_three_times_and_left_to_its_expiry() {
    let mut world = run(usual());
    world.refuses = vec!["noout", "silence"];
    world.drive(|world| world.done.iter().any(|done| done == "drop silence of osd.0"));
    assert!(
        world.run.has_uncleared_guards(),
        "that of a wave is given back before the next one"
    );
    assert_eq!(world.drive(|_| false), Decision::Over(Ending::Done));
    for guard in ["noout", "silence of osd.0", "silence of osd.1"] {
        let drops = world.done.iter().filter(|done| **done == format!("drop {guard}"));
        assert_eq!(drops.count(), 3, "{guard}: {:?}", world.done);
    }
    assert_eq!(world.run.guards(), 3, "they are still there");
    assert!(!world.run.has_uncleared_guards(), "and nobody tries any more");
}

#[test]
fn a_guard_that_soon_goes_by_itself_is_taken_again_before_the_next_wave() {
    // It lasts 100 s. With more than half of that left it does; with half it does not.
    for (second, takes) in [(49, 1), (50, 2)] {
        let mut world = run(usual());
        world.drive(|world| world.done.last().is_some_and(|done| done == "osd.0 to 18"));
        world.second = second;
        world.drive(|_| false);
        let taken = world.done.iter().filter(|done| *done == "take noout");
        assert_eq!(taken.count(), takes, "at {second} s: {:?}", world.done);
    }
}

fn with_door(doors: Doors) -> World {
    let mut parts = usual();
    let Part::Stage(stage) = &mut parts[1] else {
        panic!("it is a stage")
    };
    stage.door_before_last = Some(Door {
        name: "last-osd".parse().unwrap(),
        why: "there is no way back from 18".to_owned(),
    });
    let policy = Policy { doors, ..at_once() };
    World::new(&UNITS, parts, policy)
}

#[test]
fn a_door_waits_for_a_word_and_for_that_one_alone() {
    let mut world = with_door(Doors::Ask);
    let Decision::Hold(reason) = world.drive(|_| false) else {
        panic!("it should ask")
    };
    assert_eq!(reason.code, Code::OneWayDoor);
    assert!(
        reason.detail.contains("`stagger approve r1 last-osd` passes it"),
        "{reason}"
    );
    assert_eq!(runs(&world), [NEW, NEW, OLD], "only the last is behind it");
    world.asks(Command::Approve {
        door: "last-osd".parse().unwrap(),
    });
    assert_eq!(world.drive(|_| false), Decision::Over(Ending::Done));
}

#[test]
fn a_door_that_opens_by_itself_does_so_after_its_time_since_the_last_wave() {
    let mut world = with_door(Doors::AutoAfter(30));
    world.drive(|world| runs(world) == [NEW, NEW, OLD]);
    world.second = 100;
    let Decision::Wait { until, why } = world.drive(|_| false) else {
        panic!("it should wait")
    };
    assert_eq!(
        (until, why.code),
        (Timestamp::from_second(130).ok(), Code::DoorSoaking)
    );
    world.second = 129;
    assert!(matches!(world.drive(|_| false), Decision::Wait { .. }));
    world.second = 130;
    assert_eq!(world.drive(|_| false), Decision::Over(Ending::Done));
}

#[test]
fn a_gate_that_stays_shut_between_waves_holds_the_run_and_releases_it() {
    let mut world = run(usual());
    world.drive(|world| world.run.waves_passed() == 1);
    world.health = Verdict::No;
    let Decision::Wait { until, why } = world.drive(|_| false) else {
        panic!("it should wait")
    };
    assert_eq!(
        (until, why.code),
        (Timestamp::from_second(60).ok(), Code::GatesShut)
    );
    world.second = 59;
    assert!(matches!(
        world.drive(|_| false),
        Decision::Wait { until: Some(_), .. }
    ));
    world.second = 60;
    // From here on nobody knows when: it is held, and says so.
    assert!(matches!(
        world.drive(|_| false),
        Decision::Wait { until: None, .. }
    ));
    assert!(world.run.held().is_some());
    assert_eq!(runs(&world), [NEW, OLD, OLD]);
    world.health = Verdict::Yes;
    assert_eq!(world.drive(|_| false), Decision::Over(Ending::Done));
    assert_eq!(world.done, WHOLE);
}

#[test]
fn without_its_guards_no_wave_begins_and_a_person_has_it_tried_again() {
    for (guard, of) in [("take noout", "noout"), ("take silence of osd.0", "silence")] {
        let mut world = run(usual());
        world.fails = vec![guard];
        let Decision::Hold(reason) = world.drive(|_| false) else {
            panic!("it should hold")
        };
        assert_eq!(reason.code, Code::GuardFailed);
        assert!(
            reason.detail.contains(&format!("{of}: it ended with 1")),
            "{reason}"
        );
        assert_eq!(runs(&world), [NEW, OLD, OLD]);
        let tried = |world: &World| world.done.iter().filter(|done| *done == guard).count();
        assert_eq!(tried(&world), 1, "not without an end: {:?}", world.done);
        // It may have been taken all the same: what is of the wave that was not begun is given back.
        let given = world
            .done
            .iter()
            .any(|done| *done == guard.replace("take", "drop"));
        assert_eq!(given, of == "silence", "{:?}", world.done);
        world.asks(Command::Resume);
        let Decision::Hold(_) = world.drive(|_| false) else {
            panic!("it should hold again")
        };
        assert_eq!(tried(&world), 2);
        world.fails.clear();
        world.asks(Command::Resume);
        assert_eq!(world.drive(|_| false), Decision::Over(Ending::Done));
        assert_eq!(world.run.guards(), 0);
    }
}

#[test]
fn a_stage_with_one_guard_does_not_begin_without_it() {
    let of_osds = vec![guard("noout", GuardScope::Stage)];
    let mut world = World::new(&UNITS, vec![stage("osd", Width::Single, of_osds)], at_once());
    world.fails = vec!["take noout"];
    let Decision::Hold(reason) = world.drive(|_| false) else {
        panic!("it should hold")
    };
    assert_eq!(reason.code, Code::GuardFailed);
    assert_eq!(world.done, ["take noout"]);
}

#[test]
fn on_the_way_back_no_door_is_asked_for() {
    let mut world = with_door(Doors::Ask);
    assert!(matches!(world.drive(|_| false), Decision::Hold(_)));
    assert_eq!(runs(&world), [NEW, NEW, OLD]);
    world.asks(Command::Rollback);
    assert!(matches!(
        world.drive(|_| false),
        Decision::Over(Ending::RolledBack { .. })
    ));
    assert_eq!(runs(&world), [OLD; 3]);
}

#[test]
fn a_guard_of_a_stage_that_is_over_does_not_stop_the_next_stage() {
    let mut world = World::new(
        &UNITS,
        vec![
            stage("mon", Width::Single, vec![guard("noout", GuardScope::Stage)]),
            stage("osd", Width::Single, vec![guard("silence", GuardScope::Wave)]),
        ],
        at_once(),
    );
    // It can be neither taken nor given back: a person accepts that, and what is left goes at its expiry.
    world.fails = vec!["take noout"];
    world.refuses = vec!["noout"];
    assert!(matches!(world.drive(|_| false), Decision::Hold(_)));
    world.units.insert("mon.0".parse().unwrap(), NEW.parse().unwrap());
    world.asks(Command::Resume);
    assert_eq!(world.drive(|_| false), Decision::Over(Ending::Done));
    assert_eq!(runs(&world), [NEW; 3]);
}

#[test]
fn a_guard_of_a_stage_alone_is_not_owed_between_waves() {
    let mut world = run(usual());
    world.drive(|world| world.done.iter().any(|done| done == "drop silence of osd.0"));
    assert_eq!(world.run.guards(), 1, "noout stays over the stage");
    assert!(!world.run.has_uncleared_guards());
}
