//! What goes back, and what does not: what could not be prepared has changed nothing, and what speaks against a wave is
//! looked at once more.

#![allow(clippy::unwrap_used, reason = "test code")]

use crate::story;

use stagger_core::model::{Code, HostName, UnitState};
use stagger_core::run::{Action, Command, Decision, Event};
use story::{DOWN, NEW, Story, done, failed, phases, unit};

#[test]
fn an_installation_that_failed_has_changed_nothing_and_nothing_is_restarted() {
    let mut story = Story::new(false);
    let prepares = story.announced();
    for ((intent, _), outcome) in prepares.into_iter().zip([done(), failed(), done()]) {
        story.settle(intent, outcome);
    }
    let Decision::Record(events) = story.next() else {
        panic!("{:?}", story.next());
    };
    let [Event::WaveDropped { reason }, Event::SetAside { unit: aside, .. }] = &events[..] else {
        panic!("{events:?}");
    };
    assert_eq!(
        (reason.code.code(), aside),
        ("could-not-be-prepared", &unit("osd.1"))
    );
    for event in events {
        story.write(event);
    }
    // The others go on, and are not prepared once more.
    assert_eq!(phases(&story.announced()), ["change osd.0", "change osd.2"]);
}

#[test]
fn healthy_work_is_not_undone_for_a_warning_that_came_meanwhile() {
    let mut story = Story::changed([NEW; 3], [done(), done(), done()]);
    story.healthy = false;
    assert_eq!(story.waits().code, Code::GatesShut);
    story.now = 10_000;
    assert_eq!(story.waits().code, Code::GatesShut);
    assert_eq!(story.run.held().unwrap().0.code, Code::GatesShut);
    story.healthy = true;
    assert_eq!(
        phases(&story.announced()),
        ["prepare mds.a"],
        "it goes on by itself"
    );
}

#[test]
fn a_start_that_was_said_to_have_failed_and_serves_after_all_is_no_reason_to_go_back() {
    let mut story = Story::changed([NEW, NEW, DOWN], [done(), done(), failed()]);
    let [(intent, restart)] = &story.announced()[..] else {
        panic!("one is restarted");
    };
    assert_eq!(restart.action, Action::Restart { unit: unit("osd.2") });
    story.settle(*intent, failed());
    let [(intent, collect)] = &story.announced()[..] else {
        panic!("what happened is collected");
    };
    assert!(matches!(collect.action, Action::Collect { .. }), "{collect:?}");
    story.settle(*intent, done());
    story.units.insert(unit("osd.2"), NEW);
    let Decision::Record(events) = story.next() else {
        panic!("{:?}", story.next());
    };
    assert_eq!(events, [Event::WaveRecovered]);
    assert_eq!(phases(&story.announced()), ["prepare mds.a"]);
}

#[test]
fn what_did_not_start_goes_back_with_its_wave() {
    let mut story = Story::changed([NEW, NEW, DOWN], [done(), done(), failed()]);
    for _ in 0..2 {
        let all = story.announced();
        for (intent, effect) in all {
            let restart = matches!(effect.action, Action::Restart { .. });
            story.settle(intent, if restart { failed() } else { done() });
        }
    }
    assert_eq!(phases(&story.announced()), ["go back osd.2"]);
}

#[test]
fn what_the_change_never_came_to_takes_nobody_back_with_it() {
    let old = (UnitState::Serving, "18");
    let mut story = Story::changed([NEW, NEW, old], [done(), done(), failed()]);
    // It serves as it did: stopped once more only as both judges agree, and then it is tried no further.
    for _ in 0..2 {
        for (intent, effect) in story.announced() {
            let restart = matches!(effect.action, Action::Restart { .. });
            story.settle(intent, if restart { failed() } else { done() });
        }
    }
    assert_eq!(phases(&story.announced()), ["go back osd.2"]);
    assert_eq!(
        story.run.wave().unwrap().failure().unwrap().blamed,
        [unit("osd.2")]
    );
}

/// Seen: a host died in its visit, a person said that it is off, and seven healthy OSDs of the wave were brought back.
#[test]
fn for_a_host_that_is_off_nobody_goes_back() {
    let mut story = Story::prepared(false);
    let changes = story.announced();
    let (lost, _) = changes[0].clone();
    for (intent, effect) in changes.into_iter().skip(1) {
        story.units.insert(effect.action.unit().unwrap().clone(), NEW);
        story.settle(intent, done());
    }
    story.units.insert(unit("osd.0"), DOWN);
    story.healthy = false;
    story.generation += 1;
    story.write(Event::Asked {
        command: Command::Confirm {
            host: HostName::new("h0").unwrap(),
            ended: vec![lost],
        },
        by: "anna@ops1".to_owned(),
    });
    assert_eq!(story.waits().code, Code::GatesShut);
    story.now += 1000;
    let held = story.waits();
    assert_eq!(held.code, Code::GatesShut, "{held}");
    assert!(
        held.detail.contains("osd.0: h0 is off, as anna@ops1 confirmed"),
        "{held}"
    );
    // Once a person resumes, as the host is back, it has its turn again, and is asked about like any other.
    let mut resumed = Story {
        units: story.units.clone(),
        run: story.run.clone(),
        ..Story::new(false)
    };
    (resumed.now, resumed.generation, resumed.healthy) = (story.now, story.generation, false);
    resumed.write(Event::Asked {
        command: Command::Resume,
        by: "anna@ops1".to_owned(),
    });
    assert_eq!(resumed.next(), Decision::Judge(vec![vec![unit("osd.0")]]));
    assert_eq!(phases(&resumed.announced()), ["change osd.0"]);
    // Or the host is back before, and its OSD runs what it ran before: the wave passes, and it has its turn again.
    story.units.insert(unit("osd.0"), (UnitState::Serving, "18"));
    story.healthy = true;
    story.generation += 1;
    assert_eq!(story.waits().code, Code::UnitsSetAside);
    story.now += 60;
    assert_eq!(phases(&story.announced()), ["change osd.0"]);
}

/// The wave would be dropped, and what was done to the unit forgotten.
#[test]
fn one_that_is_lost_alone_is_started_once_more_when_a_person_resumes() {
    let mut story = Story::prepared(false);
    let changes = story.announced();
    for (_, effect) in &changes {
        story.units.insert(effect.action.unit().unwrap().clone(), DOWN);
    }
    story.generation += 1;
    let ended = changes.iter().map(|(intent, _)| *intent).collect();
    for command in [
        Command::Confirm {
            host: HostName::new("h0").unwrap(),
            ended,
        },
        Command::Resume,
    ] {
        let by = "anna@ops1".to_owned();
        story.write(Event::Asked { command, by });
    }
    assert_eq!(
        phases(&story.announced()),
        ["restart osd.0", "restart osd.1", "restart osd.2"]
    );
}
