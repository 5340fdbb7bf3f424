//! What a run tells of itself, to drivers and to people.

#![allow(clippy::unwrap_used, reason = "test code")]

use crate::begun;

use jiff::Timestamp;
use stagger_core::model::{Code, GoingBack, Part, Phase, Policy, Reason, Revision, StageSpec, UnitId, Width};
use stagger_core::run::{Action, Answer, Command, Ending, Entry, Event, Outcome, Run, Seq, VERSION};

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn osd() -> UnitId {
    "osd.0".parse().unwrap()
}

fn revision(text: &str) -> Revision {
    text.parse().unwrap()
}

fn begun() -> Run {
    let stage = StageSpec {
        name: "osd".parse().unwrap(),
        kind: "osd".parse().unwrap(),
        revision: revision("18"),
        width: Width::Policy,
        phases: vec![Phase::Change],
        guards: Vec::new(),
        gates: Vec::new(),
        door_before_last: None,
        may_be_left: false,
        going_back: GoingBack::Restart,
        maintenance: None,
    };
    begun::run(begun::start(vec![Part::Stage(stage)], Policy::default()))
}

/// One event more, in as many seconds as it has places.
fn write(run: &mut Run, event: Event) -> Seq {
    let seq = run.seq() + 1;
    let at = at(i64::try_from(seq).unwrap());
    run.apply(Entry { seq, at, event }).unwrap();
    seq
}

fn take(run: &mut Run, fence: u64, holder: &str) {
    let holder = holder.to_owned();
    write(run, Event::LeaseTaken { fence, holder });
}

fn asks(run: &mut Run, command: Command) {
    let by = "anna@ops1".to_owned();
    write(run, Event::Asked { command, by });
}

/// A wave of osd.0 to which both judges agreed, and the intent to change it.
fn changes(run: &mut Run) -> Seq {
    write(
        run,
        Event::WaveOpened {
            stage: "osd".parse().unwrap(),
            units: vec![(osd(), revision("16"))],
            not_serving: Vec::new(),
        },
    );
    write(
        run,
        Event::Judged {
            units: vec![osd()],
            ours: Answer::Yes,
            theirs: Answer::Yes,
            facts: None,
        },
    );
    let action = Action::Visit {
        unit: osd(),
        phase: Phase::Change,
        revision: revision("18"),
        moves: Vec::new(),
    };
    let before = Some(at(60));
    write(run, Event::Intent { action, before })
}

fn settles(run: &mut Run, intent: Seq) {
    let outcome = Outcome::Done { note: String::new() };
    write(run, Event::Settled { intent, outcome });
}

#[test]
fn who_holds_it_and_whose_calls_are_ruled_out() {
    let mut run = begun();
    assert_eq!((run.holder(), run.ruled_out()), ((0, ""), 0));
    take(&mut run, 3, "anna");
    take(&mut run, 5, "bert");
    assert_eq!(run.holder(), (5, "bert"));
    // Whoever only took the lock, and a person, have ruled out nothing.
    asks(&mut run, Command::Pause);
    assert_eq!(run.ruled_out(), 0);
    assert!(run.takeover_tokens().iter().eq(&[3, 5]));
    write(
        &mut run,
        Event::Held {
            reason: Reason::new(Code::Paused, ""),
        },
    );
    assert_eq!(run.ruled_out(), 5);
    assert!(run.takeover_tokens().is_empty());
}

#[test]
fn under_which_token_and_until_when_something_was_announced_while_it_is_open() {
    let mut run = begun();
    take(&mut run, 7, "anna");
    let intent = changes(&mut run);
    take(&mut run, 8, "bert");
    assert_eq!(run.announced_under(intent), Some(7), "not that of who came after");
    assert_eq!(
        run.begins_before(intent),
        Some(Timestamp::MIN),
        "the deadline was of another clock: it is not begun any more"
    );
    settles(&mut run, intent);
    assert_eq!(
        (run.announced_under(intent), run.begins_before(intent)),
        (None, None)
    );
}

#[test]
fn a_host_is_off_by_a_persons_word_until_another_process_carries_it_on() {
    let mut run = begun();
    take(&mut run, 1, "anna");
    let confirm = Command::Confirm {
        host: "h1".parse().unwrap(),
        ended: Vec::new(),
    };
    asks(&mut run, confirm);
    assert!(run.is_host_off("h1") && !run.is_host_off("h2"));
    take(&mut run, 2, "bert");
    assert!(!run.is_host_off("h1"), "it may have been started since");
}

#[test]
fn how_far_it_has_come() {
    let mut run = begun();
    assert_eq!(run.started_at(), at(0));
    take(&mut run, 1, "anna");
    let intent = changes(&mut run);
    assert_eq!((run.changed(), run.waves_passed()), (0, 0));
    settles(&mut run, intent);
    let shut = vec![("health".parse().unwrap(), "no: a clock is off".to_owned())];
    let turned = write(&mut run, Event::GatesTurned { shut: shut.clone() });
    let since = at(i64::try_from(turned).unwrap());
    assert_eq!(run.gates(), Some((shut.as_slice(), since)));
    write(&mut run, Event::GatesTurned { shut: Vec::new() });
    write(&mut run, Event::WavePassed);
    assert_eq!((run.gates(), run.changed(), run.waves_passed()), (None, 1, 1));
    write(
        &mut run,
        Event::StepPassed {
            step: "require".parse().unwrap(),
        },
    );
    assert_eq!(
        run.steps().map(ToString::to_string).collect::<Vec<_>>(),
        ["require"]
    );
    let reason = Reason::new(Code::OracleSaysNo, "not now");
    let aside = Event::SetAside {
        unit: osd(),
        reason: reason.clone(),
        until: Some(at(99)),
    };
    write(&mut run, aside);
    assert_eq!(
        run.set_aside_units().collect::<Vec<_>>(),
        [(&osd(), &reason, Some(at(99)))]
    );
    assert_eq!(
        (run.rollback_reason(), run.ended(), run.ended_at()),
        (None, None, None)
    );
    asks(&mut run, Command::Rollback);
    let why = run.rollback_reason().unwrap();
    assert_eq!(why.code, Code::AskedToGoBack);
    assert!(why.detail.contains("anna@ops1"), "{why}");
    let outcome = Ending::Aborted;
    let ended = write(&mut run, Event::Ended { outcome });
    assert_eq!(run.ended(), Some(&Ending::Aborted));
    assert_eq!(run.ended_at(), Some(at(i64::try_from(ended).unwrap())));
}

#[test]
fn a_journal_of_a_later_release_is_not_read_and_one_of_an_earlier_release_is() {
    for (version, is_read) in [(VERSION + 1, false), (VERSION, true), (VERSION - 1, true)] {
        let mut start = begun::start(Vec::new(), Policy::default());
        start.version = version;
        let first = Entry {
            seq: 1,
            at: at(9),
            event: Event::Started(Box::new(start)),
        };
        let begun = Run::begin(first);
        assert_eq!(begun.is_ok(), is_read, "version {version}");
        assert!(begun.is_ok_and(|run| run.started_at() == at(9)) == is_read);
    }
}
