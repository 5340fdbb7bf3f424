//! Which event may follow which state of a run: every pair, and what cannot follow is refused.
#![allow(missing_docs, clippy::unwrap_used, reason = "test code")]

use crate::begun;

use std::collections::BTreeMap;
use std::fmt::Write as _;

use jiff::{SignedDuration, Timestamp};
use stagger_core::model::{
    Code, GoingBack, HostName, Kind, Part, PartName, Phase, Policy, Reason, Revision, StageSpec, UnitId,
    Width,
};
use stagger_core::run::{Action, Answer, Command, Ending, Entry, Event, Outcome, Run, Seq};

fn unit(id: &str) -> UnitId {
    UnitId::new(id).unwrap()
}

fn revision(text: &str) -> Revision {
    Revision::new(text).unwrap()
}

fn name(text: &str) -> PartName {
    PartName::new(text).unwrap()
}

fn started() -> Event {
    let mut phases = vec![Phase::Prepare];
    phases.extend(Phase::all());
    Event::Started(Box::new(begun::start(
        vec![Part::Stage(StageSpec {
            name: name("osd"),
            kind: Kind::new("osd").unwrap(),
            revision: revision("20"),
            width: Width::Policy,
            phases,
            guards: Vec::new(),
            gates: Vec::new(),
            door_before_last: None,
            may_be_left: false,
            going_back: GoingBack::Restart,
            maintenance: None,
        })],
        Policy::default(),
    )))
}

fn lease(fence: u64) -> Event {
    Event::LeaseTaken {
        fence,
        holder: "p".to_owned(),
    }
}

fn why() -> Reason {
    Reason::new(Code::Paused, "")
}

fn opened(units: &[&str]) -> Event {
    Event::WaveOpened {
        stage: name("osd"),
        units: units.iter().map(|id| (unit(id), revision("18"))).collect(),
        not_serving: Vec::new(),
    }
}

fn judged() -> Event {
    Event::Judged {
        units: vec![unit("osd.0"), unit("osd.1")],
        ours: Answer::Yes,
        theirs: Answer::Yes,
        facts: None,
    }
}

fn intent(action: Action) -> Event {
    Event::Intent { action, before: None }
}

fn visit(phase: Phase) -> Event {
    intent(Action::Visit {
        unit: unit("osd.0"),
        phase,
        revision: revision("20"),
        moves: Vec::new(),
    })
}

fn settled(intent: Seq, done: bool) -> Event {
    let outcome = if done {
        Outcome::Done { note: String::new() }
    } else {
        Outcome::Failed { why: String::new() }
    };
    Event::Settled { intent, outcome }
}

fn restart() -> Event {
    intent(Action::Restart { unit: unit("osd.0") })
}

fn asked(command: Command) -> Event {
    Event::Asked {
        command,
        by: "anna@ops1".to_owned(),
    }
}

fn aside(id: &str) -> Event {
    Event::SetAside {
        unit: unit(id),
        reason: why(),
        until: None,
    }
}

fn failed() -> Event {
    Event::WaveFailed {
        units: vec![unit("osd.0")],
        reason: why(),
        alone: false,
    }
}

fn is_off(intent: Seq) -> Event {
    asked(Command::Confirm {
        host: HostName::new("h0").unwrap(),
        ended: vec![intent],
    })
}

/// A run with these events after its start.
fn run(events: Vec<Event>) -> Run {
    let all = [started(), lease(1)].into_iter().chain(events);
    let entries = all.zip(1..).map(|(event, seq)| entry(seq, event));
    Run::replay(entries).unwrap().unwrap()
}

fn entry(seq: Seq, event: Event) -> Entry {
    let at = Timestamp::UNIX_EPOCH + SignedDuration::from_secs(i64::try_from(seq).unwrap());
    Entry { seq, at, event }
}

/// Every state that a run, its wave and a visit can be in, by how it comes about. The first event of each has place 3.
fn states() -> Vec<(&'static str, Run)> {
    let open = || vec![opened(&["osd.0", "osd.1"])];
    let agreed = || [open(), vec![judged()]].concat();
    let entering = || [agreed(), vec![visit(Phase::Enter)]].concat();
    let entered = || [entering(), vec![settled(5, true)]].concat();
    let not_entered = || [entering(), vec![settled(5, false)]].concat();
    let changed = || [entered(), vec![visit(Phase::Change), settled(7, true)]].concat();
    let done = || [changed(), vec![visit(Phase::Leave), settled(9, true)]].concat();
    let all_done = || [done(), vec![aside("osd.1")]].concat();
    let broken = || [entered(), vec![visit(Phase::Change), settled(7, false)]].concat();
    let wave_failed = || [broken(), vec![restart(), settled(9, false), failed()]].concat();
    let leaves = |done| [not_entered(), vec![visit(Phase::Leave), settled(7, done)]].concat();
    let prepares = |done| [open(), vec![visit(Phase::Prepare), settled(4, done)]].concat();
    let back = [vec![asked(Command::Rollback)], agreed()].concat();
    let ended = vec![Event::Ended {
        outcome: Ending::Aborted,
    }];
    let all = vec![
        ("begun", vec![]),
        ("held", vec![Event::Held { reason: why() }]),
        ("opened", open()),
        ("prepared", prepares(true)),
        ("unprepared", prepares(false)),
        ("agreed", agreed()),
        ("entering", entering()),
        ("entered", entered()),
        ("could not be entered", not_entered()),
        ("stuck", leaves(false)),
        ("left as it was", leaves(true)),
        ("changed", changed()),
        (
            "done",
            [changed(), vec![visit(Phase::Leave), settled(9, true)]].concat(),
        ),
        ("all done", all_done()),
        ("lost", [entering(), vec![is_off(5)]].concat()),
        ("broken", broken()),
        ("wave failed", wave_failed()),
        (
            "failed and aborted",
            [wave_failed(), vec![asked(Command::Abort)]].concat(),
        ),
        (
            "stuck and failed",
            [
                leaves(false),
                vec![visit(Phase::Leave), settled(9, false), failed()],
            ]
            .concat(),
        ),
        ("going back", back),
        ("just taken over", [entered(), vec![lease(2)]].concat()),
        ("over", ended),
    ];
    all.into_iter()
        .map(|(name, events)| (name, run(events)))
        .collect()
}

/// Every event that could come next. `open`: an intent that is not settled.
fn events(open: Option<Seq>) -> Vec<(&'static str, Event)> {
    let osd = || unit("osd.0");
    vec![
        ("another start", started()),
        ("lease, newer", lease(2)),
        ("lease, older", lease(1)),
        ("journal behind", Event::JournalBehind),
        ("wave opened", opened(&["osd.2"])),
        (
            "wave joined",
            Event::WaveJoined {
                units: vec![(unit("osd.2"), revision("18"))],
                passed: Vec::new(),
            },
        ),
        ("judged", judged()),
        ("wave dropped", Event::WaveDropped { reason: why() }),
        ("prepare", visit(Phase::Prepare)),
        ("enter", visit(Phase::Enter)),
        (
            "enter, other",
            intent(Action::Visit {
                unit: unit("osd.1"),
                phase: Phase::Enter,
                revision: revision("20"),
                moves: Vec::new(),
            }),
        ),
        ("change", visit(Phase::Change)),
        ("leave", visit(Phase::Leave)),
        ("restart", restart()),
        (
            "go back",
            intent(Action::GoBack {
                unit: osd(),
                revision: revision("18"),
                rebuild: false,
            }),
        ),
        ("step", intent(Action::Step { step: name("door") })),
        ("collect", intent(Action::Collect { units: vec![osd()] })),
        ("settled, open", settled(open.unwrap_or(99), true)),
        ("settled, not open", settled(99, true)),
        ("wave failed", failed()),
        ("wave recovered", Event::WaveRecovered),
        ("wave passed", Event::WavePassed),
        ("wave went back", Event::WaveWentBack),
        ("step passed", Event::StepPassed { step: name("door") }),
        ("set aside", aside("osd.0")),
        ("set aside, other", aside("osd.1")),
        ("pause", asked(Command::Pause)),
        ("held", Event::Held { reason: why() }),
        ("released", Event::Released),
        (
            "ended",
            Event::Ended {
                outcome: Ending::Aborted,
            },
        ),
    ]
}

/// A line an event, a column a state: `+` it may follow, `.` it is refused.
#[test]
fn what_cannot_follow_is_refused() {
    let states = states();
    let mut lines: BTreeMap<usize, (&str, String)> = BTreeMap::new();
    for (_, run) in &states {
        let open = run.open().map(|(seq, _)| seq).next();
        for (at, (name, event)) in events(open).into_iter().enumerate() {
            let mut after = run.clone();
            let is_legal = after.apply(entry(run.seq() + 1, event)).is_ok();
            assert!(is_legal || after == *run, "what is refused changes nothing");
            let line = &mut lines.entry(at).or_insert((name, String::new())).1;
            line.push(if is_legal { '+' } else { '.' });
        }
    }
    let mut table = String::new();
    for (name, line) in lines.values() {
        let _ = writeln!(table, "{name:18}{line}");
    }
    let named: Vec<_> = states.iter().map(|(name, _)| *name).collect();
    insta::assert_snapshot!(format!("{}\n\n{table}", named.join(", ")));
}
