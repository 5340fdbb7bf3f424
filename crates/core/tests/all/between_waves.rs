//! What comes between waves: who is left, for how long is waited, and what a word of a person changes.

#![allow(clippy::unwrap_used, reason = "test code")]

use crate::scripted;

use jiff::{SignedDuration, Timestamp};
use scripted::{NEW, World, at_once, stage, step};
use stagger_core::model::{
    Code, Door, Growth, Limit, OnFailure, Part, Phase, Policy, Reason, UnitId, Verdict, Width, Window,
};
use stagger_core::run::{Command, Decision, Ending, Event, Outcome};

fn osds(count: usize) -> Vec<String> {
    (0..count).map(|at| format!("osd.{at}")).collect()
}

/// So many OSDs, as policy has them.
fn world(count: usize, parts: Vec<Part>, policy: Policy) -> World {
    let names = osds(count);
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    World::new(&names, parts, policy)
}

fn stages() -> Vec<Part> {
    vec![stage("osd", Width::Policy, Vec::new())]
}

fn waits(world: &mut World) -> (Option<i64>, Reason) {
    match world.drive(|_| false) {
        Decision::Wait { until, why } => (until.map(Timestamp::as_second), why),
        other => panic!("it should wait: {other:?}"),
    }
}

fn held(world: &mut World) -> Reason {
    match world.drive(|_| false) {
        Decision::Hold(reason) => reason,
        other => panic!("it should hold: {other:?}"),
    }
}

fn wide(count: u32) -> Policy {
    Policy {
        growth: Growth::None,
        max_in_parallel: Limit::Count(count),
        ..at_once()
    }
}

#[test]
fn the_first_of_a_kind_proves_itself_longer_than_the_waves_after_it() {
    let policy = Policy {
        soak: 10,
        canary_soak: 30,
        ..wide(1)
    };
    let mut world = world(3, stages(), policy);
    let (until, why) = waits(&mut world);
    assert_eq!((until, &why.code), (Some(30), &Code::Soaking));
    assert!(why.detail.contains("the canary"), "{why}");
    world.second = 30;
    let (until, why) = waits(&mut world);
    assert_eq!((until, &why.code), (Some(40), &Code::Soaking));
    assert!(why.detail.contains("the last wave"), "{why}");
    world.second = 40;
    assert_eq!(world.drive(|_| false), Decision::Over(Ending::Done));
}

#[test]
fn a_wave_runs_inside_a_window_and_outside_it_waits_for_the_next() {
    let window = serde_json::json!({ "from": "22:00", "until": "23:00", "zone": "UTC" });
    let window: Window = serde_json::from_value(window).unwrap();
    let policy = Policy {
        windows: vec![window],
        ..wide(1)
    };
    let mut world = world(1, stages(), policy);
    let (until, why) = waits(&mut world);
    assert_eq!((until, why.code), (Some(22 * 3600), Code::OutsideWindow));
    // The clock was set back since the run began, and a window is a time of day.
    world.run.time_of_day_is_behind(SignedDuration::from_hours(1));
    assert_eq!(waits(&mut world).0, Some(23 * 3600));
    world.second = 22 * 3600;
    assert_eq!(waits(&mut world).0, Some(23 * 3600));
    world.second = 23 * 3600;
    assert_eq!(world.drive(|_| false), Decision::Over(Ending::Done));
}

/// Seen: beside Rook all daemons were kept from it on Monday, for waves that began on Saturday.
#[test]
fn a_run_begins_inside_a_window_also_with_a_step_and_then_ends_what_it_has_begun() {
    let window = serde_json::json!({ "from": "22:00", "until": "23:00", "zone": "UTC" });
    let window: Window = serde_json::from_value(window).unwrap();
    let policy = Policy {
        windows: vec![window],
        ..wide(1)
    };
    let parts = vec![
        step("hold", None),
        stage("osd", Width::Policy, Vec::new()),
        step("give", None),
    ];
    let mut world = world(1, parts, policy);
    let (until, why) = waits(&mut world);
    assert_eq!((until, &why.code), (Some(22 * 3600), &Code::OutsideWindow));
    assert!(why.detail.starts_with("the step hold must start inside"), "{why}");
    world.second = 22 * 3600;
    let opened = |world: &mut World| world.drive(|world| world.run.wave().is_some());
    opened(&mut world);
    // The last step is after the window, and does not wait a day.
    world.second = 23 * 3600 + 1;
    assert_eq!(world.drive(|_| false), Decision::Over(Ending::Done));
}

#[test]
fn what_was_down_before_a_wave_is_written_down_with_it() {
    let mut world = world(4, stages(), wide(2));
    world.down = vec!["osd.3"];
    world.drive(|world| world.run.wave().is_some());
    let before: Vec<_> = world.run.wave().unwrap().not_serving.clone();
    assert_eq!(before, ["osd.3".parse::<UnitId>().unwrap()]);
}

#[test]
fn many_that_do_not_serve_are_told_of_in_few_words() {
    for (count, more) in [(8, None), (9, Some("and 1 more")), (11, Some("and 3 more"))] {
        let mut world = world(count, stages(), wide(20));
        world.drive_to(count);
        let names = osds(count);
        world.down = names.iter().map(|name| &*name.clone().leak()).collect();
        let (_, why) = waits(&mut world);
        assert_eq!(why.detail.contains(" more"), more.is_some(), "{why}");
        assert!(more.is_none_or(|more| why.detail.contains(more)), "{why}");
    }
}

#[test]
fn another_process_asks_anew_and_gives_gates_their_whole_time() {
    let taken = |world: &mut World| {
        world.append(Event::LeaseTaken {
            fence: world.run.holder().0 + 1,
            holder: "next".to_owned(),
        });
    };
    let mut world = world(2, stages(), wide(2));
    world.drive(|world| world.asked.len() == 1);
    taken(&mut world);
    world.drive_to(2);
    assert_eq!(world.asked.len(), 2, "what was agreed to before was of another");
    world.health = Verdict::No;
    assert_eq!(waits(&mut world).0, Some(60));
    world.second = 50;
    taken(&mut world);
    assert_eq!(waits(&mut world).0, Some(110));
}

#[test]
fn a_door_that_was_passed_is_named_on_the_way_back_and_asked_for_nowhere() {
    let parts = || {
        let mut parts = vec![stage("osd", Width::Single, Vec::new())];
        if let Part::Stage(stage) = &mut parts[0] {
            stage.door_before_last = Some(Door {
                name: "last-osd".parse().unwrap(),
                why: "there is no way back from 18".to_owned(),
            });
        }
        parts.push(stage("mds", Width::Single, Vec::new()));
        parts
    };
    for (passed, stay) in [(2, false), (3, true)] {
        let mut world = World::new(&["mds.0", "osd.0", "osd.1", "osd.2"], parts(), at_once());
        let door = "last-osd".parse().unwrap();
        world.asks(Command::Approve { door });
        world.drive(|world| world.run.waves_passed() == passed);
        world.asks(Command::Rollback);
        let Decision::Over(Ending::RolledBack { reason }) = world.drive(|_| false) else {
            panic!("it should end")
        };
        let told = "; 3 of stage osd stay as they are: behind-a-one-way-door: the point of no return last-osd was passed";
        assert_eq!(reason.detail.contains(told), stay, "{reason}");
        assert_eq!(world.on_new().is_empty(), !stay);
    }
}

#[test]
fn on_the_way_back_waves_grow_as_they_did_before() {
    let policy = Policy {
        max_in_parallel: Limit::Count(4),
        growth: Growth::Double,
        ..at_once()
    };
    let mut world = world(8, stages(), policy);
    world.drive(|world| world.run.waves_passed() == 3);
    let asked = world.asked.len();
    let there: Vec<_> = world.asked.iter().map(|set| set.split(' ').count()).collect();
    assert_eq!(there, [1, 1, 2]);
    world.asks(Command::Rollback);
    world.drive(|_| false);
    let back: Vec<_> = world.asked[asked..]
        .iter()
        .map(|set| set.split(' ').count())
        .collect();
    assert_eq!(back, there);
}

#[test]
fn what_could_not_be_prepared_is_prepared_again() {
    let mut parts = stages();
    if let Part::Stage(stage) = &mut parts[0] {
        stage.phases = vec![Phase::Prepare, Phase::Change];
    }
    let mut world = world(1, parts, wide(1));
    world.fails = vec!["prepare osd.0"];
    let (until, why) = waits(&mut world);
    assert_eq!((until, why.code), (Some(15), Code::UnitsSetAside));
    world.fails.clear();
    world.second = 15;
    assert_eq!(world.drive(|_| false), Decision::Over(Ending::Done));
    assert_eq!(world.done, ["prepare osd.0", "prepare osd.0", "osd.0 to 18"]);
}

#[test]
fn who_has_begun_one_at_each_time_has_not_agreed_in_vain() {
    let mut world = world(8, stages(), wide(8));
    // Of each set that may go one is begun in time.
    for (at, times) in (1..8).zip(1..8) {
        let name: &str = format!("osd.{at} to 18").leak();
        world.late.extend(std::iter::repeat_n(name, times));
    }
    assert_eq!(world.drive(|_| false), Decision::Over(Ending::Done));
    assert_eq!(world.asked.len(), 8);
    assert_eq!(world.run.waves_passed(), 1);
}

#[test]
fn what_could_never_begin_in_time_is_a_persons_business_after_five_times() {
    let mut world = world(2, stages(), wide(2));
    world.late = vec![["osd.0 to 18", "osd.1 to 18"]; 9].concat();
    let reason = held(&mut world);
    assert_eq!(reason.code, Code::ApprovalTooShort);
    assert_eq!(world.asked.len(), 5);
    world.late.clear();
    world.asks(Command::Resume);
    assert_eq!(world.drive(|_| false), Decision::Over(Ending::Done));
}

#[test]
fn how_an_effect_ended_may_be_a_persons_word() {
    for is_done in [true, false] {
        let mut world = world(1, stages(), wide(1));
        world.hangs = vec!["osd.0 to 18"];
        world.drive(|_| false);
        let intent = world.run.open().next().unwrap().0;
        world.hangs.clear();
        if is_done {
            world.units.insert("osd.0".parse().unwrap(), NEW.parse().unwrap());
        } else {
            world.down = vec!["osd.0"];
            world.fails = vec!["restart osd.0"];
        }
        world.asks(Command::Settle {
            intent,
            done: is_done,
        });
        assert!(world.run.open().next().is_none());
        let decision = world.drive(|_| false);
        if is_done {
            assert_eq!(decision, Decision::Over(Ending::Done));
            assert_eq!(world.done, ["osd.0 to 18"]);
        } else {
            assert_eq!(world.done[..2], ["osd.0 to 18", "restart osd.0"]);
        }
    }
}

#[test]
fn a_renewal_that_failed_is_tried_again_after_a_while_and_the_wave_goes_on_meanwhile() {
    use jiff::SignedDuration;
    use stagger_core::model::{GuardScope, GuardSpec};
    let guard = GuardSpec {
        name: "noout".parse().unwrap(),
        scope: GuardScope::Stage,
        expiry: SignedDuration::from_secs(100),
        why: "while its units restart".to_owned(),
    };
    let mut world = world(1, vec![stage("osd", Width::Single, vec![guard])], wide(1));
    world.hangs = vec!["osd.0 to 18"];
    world.drive(|_| false);
    world.fails = vec!["take noout"];
    let mut taken = |second| {
        world.second = second;
        world.drive(|_| false);
        world.done.iter().filter(|done| *done == "take noout").count()
    };
    // It lasts for 100 s, is renewed from its half on, and each 5 s where that fails.
    let all = [(49, 1), (50, 2), (54, 2), (55, 3), (96, 4), (99, 4), (100, 5)];
    for (second, count) in all {
        assert_eq!(taken(second), count, "at {second} s");
    }
    world.fails.clear();
    world.hangs.push("take noout");
    world.second = 151;
    world.drive(|_| false);
    let open = world.run.open().count();
    world.drive(|_| false);
    assert_eq!(
        world.run.open().count(),
        open,
        "what is under way is not announced twice"
    );
    assert_eq!(open, 2);
}

#[test]
fn a_wave_that_nobody_could_begin_in_time_does_not_begin_without_its_guard_either() {
    let guard = stagger_core::model::GuardSpec {
        name: "noout".parse().unwrap(),
        scope: stagger_core::model::GuardScope::Stage,
        expiry: jiff::SignedDuration::from_secs(100),
        why: "while its units restart".to_owned(),
    };
    let parts = vec![stage("osd", Width::Policy, vec![guard])];
    let mut world = world(2, parts, wide(2));
    world.late = vec![["osd.0 to 18", "osd.1 to 18"]; 9].concat();
    assert_eq!(held(&mut world).code, Code::ApprovalTooShort);
    // Meanwhile it went by itself, and is not to be had again.
    world.second = 100;
    world.fails = vec!["take noout"];
    assert_eq!(held(&mut world).code, Code::GuardFailed);
    assert!(world.run.wave().is_none());
}

#[test]
fn what_was_left_is_looked_at_once_more_before_the_run_ends() {
    let mut world = world(2, stages(), wide(1));
    world.untouchable = vec!["osd.1"];
    let is_at_its_end = |world: &World| {
        let plan = world.run.plan().filter(|plan| plan.parts.is_empty());
        plan.is_some() && world.run.waves_passed() == 1
    };
    world.drive(is_at_its_end);
    world.untouchable.clear();
    assert_eq!(world.drive(|_| false), Decision::Over(Ending::Done));
}

#[test]
fn who_was_left_holds_what_comes_after_it_until_it_can_be_done() {
    let parts = vec![
        stage("osd", Width::Policy, Vec::new()),
        stage("mds", Width::Single, Vec::new()),
    ];
    let mut world = World::new(&["mds.0", "osd.0", "osd.1"], parts, wide(1));
    world.untouchable = vec!["osd.1"];
    let reason = held(&mut world);
    assert_eq!(reason.code, Code::UnitsLeftBehind);
    assert_eq!(world.on_new(), "osd.0");
    world.untouchable.clear();
    world.generation += 1;
    assert_eq!(world.drive(|_| false), Decision::Over(Ending::Done));
}

#[test]
fn a_stage_may_begin_without_who_was_left_by_a_persons_word_and_a_step_never() {
    let mut first = stage("osd", Width::Policy, Vec::new());
    if let Part::Stage(stage) = &mut first {
        stage.may_be_left = true;
    }
    let parts = vec![
        first,
        stage("mds", Width::Single, Vec::new()),
        step("convert", None),
    ];
    let mut world = World::new(&["mds.0", "osd.0", "osd.1"], parts, wide(1));
    world.untouchable = vec!["osd.1"];
    let reason = held(&mut world);
    assert!(
        reason.detail.contains("`stagger approve r1 left-behind-osd`"),
        "{reason}"
    );
    let door = "left-behind-osd".parse().unwrap();
    world.asks(Command::Approve { door });
    let reason = held(&mut world);
    assert_eq!(
        (&reason.code, world.on_new().as_str()),
        (&Code::UnitsLeftBehind, "mds.0 osd.0")
    );
    assert!(reason.detail.starts_with("convert comes after osd.1"), "{reason}");
    assert!(!reason.detail.contains("stagger approve"), "{reason}");
}

#[test]
fn a_word_that_permits_something_makes_a_new_plan_and_one_for_a_door_does_not() {
    for (word, is_planned) in [("mds.a", true), ("require", false)] {
        let parts = vec![
            stage("osd", Width::Single, Vec::new()),
            step("convert", Some("require")),
        ];
        let mut world = world(2, parts, wide(1));
        world.drive(|world| world.run.plan().is_some());
        let door = word.parse().unwrap();
        world.asks(Command::Approve { door });
        let Decision::Record(events) = world.next() else {
            panic!("{:?}", world.next())
        };
        let planned = events.iter().any(|event| matches!(event, Event::Planned { .. }));
        assert_eq!(planned, is_planned, "{word}: {events:?}");
    }
}

#[test]
fn where_the_world_has_changed_since_a_plan_is_made_anew_before_its_wave() {
    let mut world = world(2, stages(), wide(1));
    world.drive(|world| world.run.plan().is_some());
    let is_planned = |world: &World| {
        let Decision::Record(events) = world.next() else {
            panic!("{:?}", world.next())
        };
        matches!(events.as_slice(), [Event::Planned { .. }])
    };
    assert!(!is_planned(&world));
    world.generation += 1;
    assert!(is_planned(&world));
}

#[test]
fn no_plan_is_made_while_a_wave_waits_for_its_judges() {
    let mut world = world(2, stages(), wide(1));
    world.drive(|world| world.run.wave().is_some());
    let plan = world.run.plan().unwrap().clone();
    let planned = |world: &World| {
        let entry = stagger_core::run::Entry {
            seq: world.run.seq() + 1,
            at: world.now(),
            event: Event::Planned {
                plan: Box::new(plan.clone()),
            },
        };
        world.run.clone().apply(entry).is_ok()
    };
    assert!(!planned(&world));
    world.drive(|world| world.asked.len() == 1);
    assert!(planned(&world), "others may join it");
}

#[test]
fn going_back_is_over_when_every_gate_of_every_stage_is_open() {
    let mut last = stage("osd", Width::Single, Vec::new());
    let mut first = stage("mon", Width::Single, Vec::new());
    if let (Part::Stage(first), Part::Stage(last)) = (&mut first, &mut last) {
        first.gates[0].condition = "aaa-done".parse().unwrap();
        last.going_back = stagger_core::model::GoingBack::Restart;
    }
    let policy = Policy {
        on_failure: OnFailure::Stop,
        ..wide(1)
    };
    let parts = vec![step("aaa", None), first, last];
    let mut world = World::new(&["mon.0", "osd.0"], parts, policy);
    world.drive(|world| world.run.waves_passed() == 2);
    world.asks(Command::Rollback);
    world.drive(|world| world.on_new().is_empty() && world.run.wave().is_none());
    world.health = Verdict::No;
    let (_, why) = waits(&mut world);
    assert_eq!(why.code, Code::GatesShut);
    world.health = Verdict::Yes;
    assert!(matches!(
        world.drive(|_| false),
        Decision::Over(Ending::RolledBack { .. })
    ));
}

#[test]
fn a_settled_outcome_that_came_late_changes_nothing() {
    let mut world = world(1, stages(), wide(1));
    world.hangs = vec!["osd.0 to 18"];
    world.drive(|_| false);
    let intent = world.run.open().next().unwrap().0;
    world.settles(Outcome::Done { note: String::new() });
    let before = world.run.seq();
    world.asks(Command::Settle { intent, done: false });
    assert_eq!(world.run.seq(), before + 1);
    assert_eq!(world.drive(|_| false), Decision::Over(Ending::Done));
}
