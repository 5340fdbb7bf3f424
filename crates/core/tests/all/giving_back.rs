//! Who drains gives back: what a visit of this run keeps out of service and no wave has in hand.
#![allow(missing_docs, clippy::unwrap_used, reason = "test code")]

use crate::begun;

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use stagger_core::model::{
    Budgets, ClusterName, Code, Drained, GoingBack, Kind, Part, PartName, Phase, Policy, Reason, Revision,
    RunId, Snapshot, StageSpec, Unit, UnitId, UnitState, Width,
};
use stagger_core::run::{
    Action, Answer, Command, Decision, Effect, Ending, Entry, Event, Outcome, Run, TimedObservation,
};

/// One node, which a run is to reboot.
struct World {
    run: Run,
    now: Timestamp,
    /// Whose visit drains it, as it is noted there; `Err`: nothing is noted.
    drained: Option<Result<&'static str, ()>>,
    runs: &'static str,
    /// Whether a *leave* does something.
    leaves: bool,
    /// What the oracle says.
    oracle: Answer,
    /// Each phase that was begun.
    begun: Vec<(Phase, SignedDuration)>,
    asked: u32,
}

fn node() -> UnitId {
    UnitId::new("node-1").unwrap()
}

impl World {
    fn new() -> Self {
        let stage = StageSpec {
            name: PartName::new("reboot").unwrap(),
            kind: Kind::new("node").unwrap(),
            revision: Revision::new("rebooted").unwrap(),
            width: Width::Policy,
            phases: Phase::all(),
            guards: Vec::new(),
            gates: Vec::new(),
            door_before_last: None,
            may_be_left: false,
            going_back: GoingBack::Restart,
            maintenance: None,
        };
        let start = begun::start(
            vec![Part::Stage(stage)],
            Policy {
                canary_soak: 0,
                gate_hold: 0,
                ..Policy::default()
            },
        );
        let mut world = Self {
            run: begun::run(start),
            now: Timestamp::UNIX_EPOCH,
            drained: None,
            runs: "boot-1",
            leaves: true,
            oracle: Answer::NoOracle,
            begun: Vec::new(),
            asked: 0,
        };
        world.taken_over(1);
        world
    }

    fn taken_over(&mut self, fence: u64) {
        let holder = format!("process {fence}");
        self.write(Event::LeaseTaken { fence, holder });
    }

    fn snapshot(&self) -> Snapshot {
        let serves = self.drained.is_none();
        let unit = Unit {
            id: node(),
            kind: Kind::new("node").unwrap(),
            state: if serves {
                UnitState::Serving
            } else {
                UnitState::Down
            },
            revision: Some(Revision::new(self.runs).unwrap()),
            domains: BTreeMap::new(),
            precedence: 0,
            untouchable: None,
        };
        let snapshot = Snapshot::new(
            ClusterName::new("lab").unwrap(),
            self.now,
            format!("{:?} {}", self.drained, self.runs),
            vec![unit],
            Budgets::default(),
            Vec::new(),
            BTreeMap::new(),
        );
        let drained = self.drained.map(|by| Drained {
            unit: node(),
            by: by.ok().map(|run| RunId::new(run).unwrap()),
        });
        snapshot.unwrap().with_drained(drained)
    }

    fn write(&mut self, event: Event) -> u64 {
        let (seq, at) = (self.run.seq() + 1, self.now);
        self.run.apply(Entry { seq, at, event }).unwrap();
        seq
    }

    fn passed(&self) -> SignedDuration {
        self.now.duration_since(Timestamp::UNIX_EPOCH)
    }

    fn carry_out(&mut self, action: &Action) -> Outcome {
        let Action::Visit { phase, revision, .. } = action else {
            panic!("{action:?}");
        };
        self.begun.push((*phase, self.passed()));
        match phase {
            Phase::Prepare => {}
            Phase::Enter => self.drained = Some(Ok("r1")),
            Phase::Change => {
                assert!(self.drained.is_some(), "it is rebooted while it serves");
                assert_eq!(revision.as_str(), "rebooted");
                self.runs = "rebooted";
            }
            Phase::Leave if self.leaves => self.drained = None,
            Phase::Leave => {
                let why = "it does not answer".to_owned();
                return Outcome::Failed { why };
            }
        }
        Outcome::Done { note: String::new() }
    }

    /// Until it is over, or nothing comes of going on.
    fn drive_on(&mut self) -> Option<Ending> {
        for _ in 0..500 {
            let snapshot = self.snapshot();
            let seen = TimedObservation {
                snapshot: &snapshot,
                as_of: self.run.seq(),
            };
            match self.run.next(self.now, Some(seen)) {
                Decision::Observe => {}
                Decision::Record(events) => {
                    for event in events {
                        self.write(event);
                    }
                }
                Decision::Judge(sets) => {
                    for units in sets {
                        self.asked += 1;
                        self.write(Event::Judged {
                            units,
                            ours: Answer::Yes,
                            theirs: self.oracle.clone(),
                            facts: None,
                        });
                    }
                }
                Decision::Act { fresh, again } => {
                    let mut open = again;
                    for Effect { action, before } in fresh {
                        open.push(self.write(Event::Intent { action, before }));
                    }
                    for intent in open {
                        let action = self.run.intent(intent).cloned().unwrap();
                        let outcome = self.carry_out(&action);
                        self.write(Event::Settled { intent, outcome });
                    }
                }
                Decision::Wait { until, .. } => self.now = until?,
                Decision::Hold(_) => return None,
                Decision::Over(ending) => return Some(ending),
            }
        }
        panic!("it never ends: {:?}", self.begun);
    }

    fn phases(&self) -> Vec<Phase> {
        self.begun.iter().map(|(phase, _)| *phase).collect()
    }
}

#[test]
fn what_this_run_has_drained_by_a_visit_that_is_forgotten_is_left_first_and_planned_then() {
    let mut world = World::new();
    world.drained = Some(Ok("r1"));
    assert_eq!(world.drive_on(), Some(Ending::Done));
    let all = [Phase::Leave, Phase::Enter, Phase::Change, Phase::Leave];
    assert_eq!(world.phases(), all);
}

#[test]
fn what_had_its_reboot_and_is_drained_is_only_left() {
    let mut world = World::new();
    world.drained = Some(Ok("r1"));
    world.runs = "rebooted";
    assert_eq!(world.drive_on(), Some(Ending::Done));
    assert_eq!(world.phases(), [Phase::Leave]);
}

#[test]
fn what_others_have_drained_is_left_alone() {
    for drained in [Ok("r0"), Err(())] {
        let mut world = World::new();
        world.drained = Some(drained);
        let ending = world.drive_on();
        assert!(matches!(ending, Some(Ending::Incomplete { .. })), "{ending:?}");
        assert_eq!(world.phases(), []);
    }
}

#[test]
fn it_is_tried_as_often_as_policy_says_and_the_run_does_not_end_before() {
    let mut world = World::new();
    world.drained = Some(Ok("r1"));
    world.leaves = false;
    let ending = world.drive_on();
    assert!(matches!(ending, Some(Ending::Incomplete { .. })), "{ending:?}");
    let seconds: Vec<i64> = world.begun.iter().map(|(_, at)| at.as_secs()).collect();
    // 15, 30, 60, 120 and 240 seconds between them.
    assert_eq!(seconds, [0, 15, 45, 105, 225, 465]);
}

#[test]
fn an_aborted_run_gives_back_before_it_ends() {
    let mut world = World::new();
    world.drained = Some(Ok("r1"));
    world.write(Event::Asked {
        command: stagger_core::run::Command::Abort,
        by: "anna".to_owned(),
    });
    assert_eq!(world.drive_on(), Some(Ending::Aborted));
    assert_eq!(world.phases(), [Phase::Leave]);
}

/// Its journal was put back from a time when the node was entered, and it has been left since.
fn entered(settled: bool) -> World {
    let mut world = World::new();
    world.write(Event::WaveOpened {
        stage: PartName::new("reboot").unwrap(),
        units: vec![(node(), Revision::new("boot-1").unwrap())],
        not_serving: Vec::new(),
    });
    world.write(Event::Judged {
        units: vec![node()],
        ours: Answer::Yes,
        theirs: Answer::NoOracle,
        facts: None,
    });
    let action = Action::Visit {
        unit: node(),
        phase: Phase::Enter,
        revision: Revision::new("rebooted").unwrap(),
        moves: Vec::new(),
    };
    let intent = world.write(Event::Intent { action, before: None });
    if settled {
        let outcome = Outcome::Done { note: String::new() };
        world.write(Event::Settled { intent, outcome });
    }
    world.taken_over(2);
    world
}

#[test]
fn nobody_relies_on_what_was_entered_by_a_journal_that_is_behind() {
    for settled in [true, false] {
        let mut world = entered(settled);
        world.write(Event::JournalBehind);
        assert_eq!(world.drive_on(), Some(Ending::Done));
        let all = [Phase::Leave, Phase::Enter, Phase::Change, Phase::Leave];
        assert_eq!(world.phases(), all);
    }
}

#[test]
fn a_journal_that_is_not_behind_is_carried_on_where_it_stands() {
    let mut world = entered(true);
    world.drained = Some(Ok("r1"));
    assert_eq!(world.drive_on(), Some(Ending::Done));
    assert_eq!(world.phases(), [Phase::Change, Phase::Leave]);
}

#[test]
fn those_that_the_oracle_refuses_are_asked_about_once_more_before_the_run_ends() {
    let mut world = World::new();
    let why = "it would stop".to_owned();
    world.oracle = Answer::No { why };
    let ending = world.drive_on();
    assert!(matches!(ending, Some(Ending::Incomplete { .. })), "{ending:?}");
    assert_eq!(world.asked, Policy::default().retry.tries + 1);
}

/// A node whose turn came to that, and that somebody drains then without a note of whom.
fn after(settled: bool, events: Vec<Event>) -> World {
    let mut world = entered(settled);
    for event in events {
        world.write(event);
    }
    world.drained = Some(Err(()));
    world
}

fn intent(phase: Phase) -> Event {
    let action = Action::Visit {
        unit: node(),
        phase,
        revision: Revision::new("rebooted").unwrap(),
        moves: Vec::new(),
    };
    Effect::from(action).into()
}

fn settled(intent: u64, is_done: bool) -> Event {
    let outcome = if is_done {
        Outcome::Done { note: String::new() }
    } else {
        Outcome::Failed {
            why: "it ended with 1".to_owned(),
        }
    };
    Event::Settled { intent, outcome }
}

/// The change of a node that was entered failed, and so did what was tried then: its wave has failed.
fn failed() -> Vec<Event> {
    vec![
        intent(Phase::Change),
        settled(8, false),
        Effect::from(Action::Restart { unit: node() }).into(),
        settled(10, false),
        Event::WaveFailed {
            units: vec![node()],
            reason: Reason::new(Code::VisitFailed, "it ended with 1"),
            alone: false,
        },
    ]
}

#[test]
fn whose_turn_is_over_may_be_drained_by_others() {
    let done = vec![
        intent(Phase::Change),
        settled(8, true),
        intent(Phase::Leave),
        settled(10, true),
        Event::WavePassed,
    ];
    let back = Effect::from(Action::GoBack {
        unit: node(),
        revision: Revision::new("boot-1").unwrap(),
        rebuild: false,
    });
    let went_back = [
        failed(),
        vec![back.into(), settled(13, true), Event::WaveWentBack],
    ]
    .concat();
    for events in [done, went_back] {
        let mut world = after(true, events);
        world.drive_on();
        assert_eq!(world.phases(), [], "it is not ours");
    }
}

/// Its host is off, by a person's word.
fn is_off(intent: u64) -> Event {
    let command = Command::Confirm {
        host: "h1".parse().unwrap(),
        ended: vec![intent],
    };
    let by = "anna@ops1".to_owned();
    Event::Asked { command, by }
}

#[test]
fn whose_turn_came_again_and_is_over_may_be_drained_by_others_too() {
    let again = vec![
        is_off(5),
        Event::WavePassed,
        Event::WaveOpened {
            stage: PartName::new("reboot").unwrap(),
            units: vec![(node(), Revision::new("boot-1").unwrap())],
            not_serving: Vec::new(),
        },
        Event::Judged {
            units: vec![node()],
            ours: Answer::Yes,
            theirs: Answer::NoOracle,
            facts: None,
        },
        intent(Phase::Enter),
        settled(11, true),
        intent(Phase::Change),
        settled(13, true),
        intent(Phase::Leave),
        settled(15, true),
        Event::WavePassed,
    ];
    let mut world = after(false, again);
    world.runs = "rebooted";
    world.drive_on();
    assert_eq!(world.phases(), [], "it was ours, and is not any more");
}

/// The same, and it joined the wave of another.
#[test]
fn whose_turn_came_again_in_a_wave_that_it_joined_may_be_drained_by_others_too() {
    let other = || UnitId::new("node-2").unwrap();
    let of = |unit: UnitId, phase| {
        let action = Action::Visit {
            unit,
            phase,
            revision: Revision::new("rebooted").unwrap(),
            moves: Vec::new(),
        };
        Event::from(Effect::from(action))
    };
    let judged = |unit| Event::Judged {
        units: vec![unit],
        ours: Answer::Yes,
        theirs: Answer::NoOracle,
        facts: None,
    };
    let before = || Revision::new("boot-1").unwrap();
    let mut events = vec![
        is_off(5),
        Event::WavePassed,
        Event::WaveOpened {
            stage: PartName::new("reboot").unwrap(),
            units: vec![(other(), before())],
            not_serving: Vec::new(),
        },
        judged(other()),
        of(other(), Phase::Enter),
        settled(11, true),
        Event::WaveJoined {
            units: vec![(node(), before())],
            passed: Vec::new(),
        },
        judged(node()),
    ];
    for (unit, phase) in [
        (node(), Phase::Enter),
        (node(), Phase::Change),
        (node(), Phase::Leave),
        (other(), Phase::Change),
        (other(), Phase::Leave),
    ] {
        events.push(of(unit, phase));
        // Six stand before them in the journal.
        let intent = u64::try_from(events.len()).unwrap() + 6;
        events.push(settled(intent, true));
    }
    events.push(Event::WavePassed);
    let mut world = after(false, events);
    world.runs = "rebooted";
    world.drive_on();
    assert_eq!(world.phases(), [], "it was ours, and is not any more");
}

#[test]
fn who_was_entered_and_nothing_more_is_given_back_before_an_aborted_run_ends() {
    let abort = Event::Asked {
        command: Command::Abort,
        by: "anna@ops1".to_owned(),
    };
    let mut world = after(true, [failed(), vec![abort, Event::WaveWentBack]].concat());
    assert_eq!(world.drive_on(), Some(Ending::Aborted));
    assert_eq!(world.phases(), [Phase::Leave]);
}

#[test]
fn whose_host_was_off_is_given_back_once_it_answers_and_planned_again() {
    for is_drained in [true, false] {
        let mut world = entered(false);
        world.write(is_off(5));
        world.drained = is_drained.then_some(Err(()));
        assert_eq!(world.drive_on(), Some(Ending::Done));
        let again = [Phase::Enter, Phase::Change, Phase::Leave];
        let all = [&[Phase::Leave][..], &again].concat();
        assert_eq!(world.phases(), all[usize::from(!is_drained)..], "{is_drained}");
    }
}
