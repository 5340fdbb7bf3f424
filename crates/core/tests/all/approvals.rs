//! How long what both judges said counts, and who asks them again.

#![allow(clippy::unwrap_used, reason = "test code")]

use crate::story;

use stagger_core::model::{Code, UnitId};
use stagger_core::run::{Answer, Command, Decision, Event, Outcome, TimedObservation};
use story::{AGE, NEW, Story, at, done, phases, unit};

#[test]
fn what_stops_a_unit_carries_the_end_of_its_approval_and_is_judged_after_the_software_is_laid_out() {
    let mut story = Story::prepared(false);
    // The installation took its time: nobody was asked before it.
    story.now = 600;
    assert_eq!(
        story.next(),
        Decision::Judge(vec![vec![unit("osd.0"), unit("osd.1"), unit("osd.2")]])
    );
    let changes = story.announced();
    assert_eq!(phases(&changes), ["change osd.0", "change osd.1", "change osd.2"]);
    for (seq, effect) in changes {
        assert_eq!(effect.before, Some(at(600 + AGE)));
        assert_eq!(story.run.begins_before(seq), Some(at(600 + AGE)));
    }
}

#[test]
fn a_unit_lost_during_the_installation_is_seen_before_anything_is_stopped() {
    let mut story = Story::prepared(false);
    story.healthy = false;
    let Decision::Record(events) = story.next() else {
        panic!("{:?}", story.next());
    };
    let [Event::WaveDropped { reason }] = &events[..] else {
        panic!("{events:?}");
    };
    assert_eq!(reason.code, Code::GatesShut);
}

#[test]
fn an_approval_that_nobody_used_in_time_is_asked_for_again() {
    let mut story = Story::prepared(false);
    let all = vec![unit("osd.0"), unit("osd.1"), unit("osd.2")];
    story.write(Event::Judged {
        units: all.clone(),
        ours: Answer::Yes,
        theirs: Answer::Yes,
        facts: None,
    });
    story.now = AGE;
    assert_eq!(story.next(), Decision::Judge(vec![all]));
}

/// Found by the simulator: after a dropped wave the next was judged by facts from before it, and a monitor that had crashed
/// since was not missed.
#[test]
fn an_approval_is_as_old_as_the_facts_by_which_we_judged() {
    let mut story = Story::prepared(false);
    let all = vec![unit("osd.0"), unit("osd.1"), unit("osd.2")];
    story.now = 100;
    story.write(Event::Judged {
        units: all.clone(),
        ours: Answer::Yes,
        theirs: Answer::Yes,
        facts: Some(at(85)),
    });
    story.now = 85 + AGE;
    assert_eq!(story.next(), Decision::Judge(vec![all]));
    story.now -= 1;
    for (seq, effect) in story.announced() {
        assert_eq!(effect.before, Some(at(85 + AGE)));
        assert_eq!(story.run.begins_before(seq), Some(at(85 + AGE)));
    }
}

/// Found by the simulator: a monitor was refused since two others had gone down with their host, and the next to be asked about
/// was one of these. The oracle agreed, since it was down already; by what we had observed before, it served. It was stopped
/// when its host was back, before the other one was up.
#[test]
fn after_a_refusal_nobody_goes_by_what_was_observed_before_it() {
    let mut story = Story::prepared(false);
    let all = vec![unit("osd.0"), unit("osd.1"), unit("osd.2")];
    let before = story.run.seq();
    story.write(Event::Judged {
        units: all,
        ours: Answer::Yes,
        theirs: Answer::No {
            why: "placement group 1.0 would have 1 left".to_owned(),
        },
        facts: Some(at(0)),
    });
    let snapshot = story.snapshot();
    let seen = |as_of| TimedObservation {
        snapshot: &snapshot,
        as_of,
    };
    assert_eq!(story.run.next(at(0), Some(seen(before))), Decision::Observe);
    // What was said is remembered: the same is not asked once more.
    let Decision::Judge(sets) = story.run.next(at(0), Some(seen(story.run.seq()))) else {
        panic!("{:?}", story.next());
    };
    assert!(sets.iter().all(|set| set.len() < 3), "{sets:?}");
}

#[test]
fn approvals_that_are_always_too_old_are_told_and_not_asked_for_without_an_end() {
    let mut story = Story::prepared(false);
    for _ in 0..5 {
        for (intent, _) in story.announced() {
            story.settle(intent, Outcome::NotBegun { why: String::new() });
        }
    }
    assert_eq!(story.waits().code, Code::ApprovalTooShort);
    story.write(Event::Asked {
        command: Command::Resume,
        by: "anna".to_owned(),
    });
    assert_eq!(story.announced().len(), 3, "whoever resumes has it tried again");
}

#[test]
fn the_rest_of_a_wide_wave_is_judged_together_with_what_is_on_its_way_down() {
    let mut story = Story::prepared(false);
    let changes = story.announced();
    // The first is under way; the others could not be begun in time.
    let late = || Outcome::NotBegun {
        why: "too late".to_owned(),
    };
    story.now = AGE + 1;
    story.settle(changes[1].0, late());
    story.settle(changes[2].0, late());
    assert_eq!(
        story.next(),
        Decision::Judge(vec![vec![unit("osd.0"), unit("osd.1"), unit("osd.2")]])
    );
    let rest = story.announced();
    assert_eq!(phases(&rest), ["change osd.1", "change osd.2"]);
    assert_eq!(rest[0].1.before, Some(at(AGE + 1 + AGE)));
}

#[test]
fn the_rest_waits_while_it_may_not_join_and_is_left_for_another_wave_when_the_first_are_done() {
    let mut story = Story::prepared(false);
    let changes = story.announced();
    story.now = AGE + 1;
    for (intent, _) in &changes[1..] {
        story.settle(*intent, Outcome::NotBegun { why: String::new() });
    }
    let no = |units: Vec<UnitId>| Event::Judged {
        units,
        ours: Answer::Yes,
        theirs: Answer::No {
            why: "1.7 would stop".to_owned(),
        },
        facts: None,
    };
    story.write(no(vec![unit("osd.0"), unit("osd.1"), unit("osd.2")]));
    let Decision::Act { fresh, again } = story.next() else {
        panic!("{:?}", story.next());
    };
    assert_eq!(
        (fresh.len(), again),
        (0, vec![changes[0].0]),
        "it waits for osd.0"
    );
    story.units.insert(unit("osd.0"), NEW);
    story.settle(changes[0].0, done());
    let rest = vec![unit("osd.1"), unit("osd.2")];
    assert_eq!(story.next(), Decision::Judge(vec![rest.clone()]));
    story.write(no(rest));
    let Decision::Record(events) = story.next() else {
        panic!("{:?}", story.next());
    };
    assert!(
        events.iter().all(|event| matches!(event, Event::SetAside { reason, until: Some(_), .. } if reason.code == Code::OracleSaysNo)),
        "{events:?}"
    );
    for event in events {
        story.write(event);
    }
    assert_eq!(
        story.run.wave().unwrap().units.len(),
        1,
        "the wave ends with what was begun"
    );
}

/// Seen: the clock of the next holder was 40 s behind, and an approval of 47 s ago counted as fresh.
#[test]
fn who_takes_over_does_not_go_by_another_machines_clock() {
    let mut story = Story::prepared(false);
    let (open, effect) = story.announced().remove(0);
    assert_eq!(story.run.begins_before(open), effect.before);
    story.write(Event::LeaseTaken {
        fence: 9,
        holder: "another".to_owned(),
    });
    story.now -= 40;
    assert!(story.run.begins_before(open).unwrap() < at(story.now));
}
