//! How a failed wave goes back where the new release may have changed the data.

#![allow(clippy::unwrap_used, reason = "test code")]

use crate::begun;

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use stagger_core::model::{
    Budgets, ClusterName, Code, Condition, ConditionName, Gate, GoingBack, Kind, OnFailure, Part, PartName,
    Phase, Policy, Reason, Revision, Snapshot, StageSpec, Unit, UnitId, UnitState, Verdict, Width,
};
use stagger_core::run::{
    Action, Answer, Command, Decision, Effect, Ending, Entry, Event, Outcome, Run, TimedObservation,
};

const OLD: &str = "16.2.15";
const NEW: &str = "18.2.7";

fn osd(id: u32) -> UnitId {
    UnitId::new(format!("osd.{id}")).unwrap()
}

fn revision(text: &str) -> Revision {
    Revision::new(text).unwrap()
}

/// osd.0 as told and osd.1 on the new release, seen so many seconds after the start.
fn seen(second: i64, first: (UnitState, &str), health: Verdict) -> Snapshot {
    let unit = |id: u32, (state, runs): (UnitState, &str)| Unit {
        id: osd(id),
        kind: Kind::new("osd").unwrap(),
        state,
        revision: Some(revision(runs)),
        domains: BTreeMap::new(),
        precedence: 0,
        untouchable: None,
    };
    let health = Condition::new(
        ConditionName::new("health").unwrap(),
        health,
        "six placement groups do not serve",
    );
    Snapshot::new(
        ClusterName::new("lab").unwrap(),
        Timestamp::from_second(second).unwrap(),
        "1".to_owned(),
        vec![unit(0, first), unit(1, (UnitState::Serving, NEW))],
        Budgets::default(),
        vec![health],
        BTreeMap::new(),
    )
    .unwrap()
}

/// A run whose wave of osd.0 and osd.1 has failed, and what was gathered.
struct Failed {
    run: Run,
    snapshot: Snapshot,
}

impl Failed {
    /// osd.0 did not start on the new release; osd.1 serves on it.
    fn new(rebuild_to_go_back: bool, on_failure: OnFailure) -> Self {
        let stage = StageSpec {
            name: PartName::new("osd").unwrap(),
            kind: Kind::new("osd").unwrap(),
            revision: revision(NEW),
            width: Width::Policy,
            phases: vec![Phase::Change],
            guards: Vec::new(),
            gates: vec![Gate {
                condition: ConditionName::new("health").unwrap(),
                hold: SignedDuration::ZERO,
                timeout: SignedDuration::from_secs(60),
            }],
            door_before_last: None,
            may_be_left: false,
            going_back: GoingBack::Rebuild {
                cost: "filling it anew".to_owned(),
            },
            maintenance: None,
        };
        let start = begun::start(
            vec![Part::Stage(stage)],
            Policy {
                rebuild_to_go_back,
                on_failure,
                ..Policy::default()
            },
        );
        let mut failed = Self {
            run: begun::run(start),
            snapshot: seen(0, (UnitState::Down, OLD), Verdict::Yes),
        };
        let units = vec![osd(0), osd(1)];
        let stage = PartName::new("osd").unwrap();
        failed.write(Event::WaveOpened {
            stage,
            units: units.iter().map(|unit| (unit.clone(), revision(OLD))).collect(),
            not_serving: Vec::new(),
        });
        failed.write(Event::Judged {
            units,
            ours: Answer::Yes,
            theirs: Answer::Yes,
            facts: None,
        });
        for (id, outcome) in [(0, "it does not start"), (1, "")] {
            failed.done(
                Action::Visit {
                    unit: osd(id),
                    phase: Phase::Change,
                    revision: revision(NEW),
                    moves: Vec::new(),
                },
                outcome,
            );
        }
        failed.done(Action::Restart { unit: osd(0) }, "it does not start");
        failed.write(Event::WaveFailed {
            units: vec![osd(0)],
            reason: Reason::new(Code::VisitFailed, "osd.0"),
            alone: false,
        });
        failed.done(
            Action::Collect {
                units: vec![osd(0), osd(1)],
            },
            "",
        );
        failed
    }

    fn write(&mut self, event: Event) -> u64 {
        let seq = self.run.seq() + 1;
        let at = self.snapshot.observed_at();
        self.run.apply(Entry { seq, at, event }).unwrap();
        seq
    }

    /// Announces and settles an effect; it failed if there is a why.
    fn done(&mut self, action: Action, why: &str) {
        let intent = self.write(Effect::from(action).into());
        let outcome = if why.is_empty() {
            Outcome::Done { note: String::new() }
        } else {
            Outcome::Failed { why: why.to_owned() }
        };
        self.write(Event::Settled { intent, outcome });
    }

    fn next(&self) -> Decision {
        self.run.next(
            self.snapshot.observed_at(),
            Some(TimedObservation {
                snapshot: &self.snapshot,
                as_of: self.run.seq(),
            }),
        )
    }

    /// The units that go back now, and whether by a rebuild.
    fn goes_back(&self) -> Vec<(UnitId, bool)> {
        let Decision::Act { fresh, .. } = self.next() else {
            panic!("nothing goes back: {:?}", self.next());
        };
        fresh
            .into_iter()
            .map(|effect| match effect.action {
                Action::GoBack { unit, rebuild, .. } => (unit, rebuild),
                other => panic!("{other:?}"),
            })
            .collect()
    }

    fn back(&mut self, unit: u32, rebuild: bool, why: &str) {
        let action = Action::GoBack {
            unit: osd(unit),
            revision: revision(OLD),
            rebuild,
        };
        self.done(action, why);
    }

    /// The reason for which it holds now.
    fn held(&self) -> String {
        match self.next() {
            Decision::Record(events) => match events.as_slice() {
                [Event::Held { reason }] => reason.code.to_string(),
                other => panic!("{other:?}"),
            },
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn what_did_not_start_is_tried_on_the_old_release_before_its_data_is_made_anew() {
    let mut failed = Failed::new(true, OnFailure::Continue);
    assert_eq!(failed.goes_back(), [(osd(0), false)]);
    failed.back(0, false, "unable to mount object store");
    assert_eq!(failed.goes_back(), [(osd(0), true)]);
    failed.back(0, true, "no space");
    assert_eq!(failed.held(), "rollback-failed");
}

#[test]
fn a_rebuild_that_is_not_permitted_holds_only_when_the_old_release_did_not_start() {
    let mut failed = Failed::new(false, OnFailure::Rollback);
    assert_eq!(
        failed.goes_back(),
        [(osd(0), false)],
        "osd.1 serves and cannot leave the new release: it stays"
    );
    failed.back(0, false, "unable to mount object store");
    assert_eq!(failed.held(), "going-back-needs-a-rebuild");
}

#[test]
fn a_wave_goes_back_whole_where_rebuilding_is_permitted() {
    let mut failed = Failed::new(true, OnFailure::Rollback);
    assert_eq!(failed.goes_back(), [(osd(0), false)]);
    failed.back(0, false, "");
    // osd.1 serves: it is stopped again only when both judges agree.
    assert_eq!(failed.next(), Decision::Judge(vec![vec![osd(1)]]));
    failed.write(Event::Judged {
        units: vec![osd(1)],
        ours: Answer::Yes,
        theirs: Answer::Yes,
        facts: None,
    });
    assert_eq!(failed.goes_back(), [(osd(1), true)]);
}

#[test]
fn a_rollback_is_over_when_health_has_returned_and_a_person_is_asked_where_it_does_not() {
    // osd.0 is back, osd.1 cannot leave the new release, and placement groups do not serve.
    let mut failed = Failed::new(false, OnFailure::Rollback);
    failed.back(0, false, "");
    failed.write(Event::WaveWentBack);
    let rollback = Event::Asked {
        command: Command::Rollback,
        by: "policy on_failure".to_owned(),
    };
    failed.write(rollback);
    let mut until_held = |second, health| {
        failed.snapshot = seen(second, (UnitState::Serving, OLD), health);
        for _ in 0..20 {
            match failed.next() {
                Decision::Record(events) => events.into_iter().for_each(|event| {
                    failed.write(event);
                }),
                other => return other,
            }
        }
        panic!("it only writes");
    };
    assert!(matches!(until_held(1, Verdict::No), Decision::Wait { .. }));
    let Decision::Hold(reason) = until_held(100, Verdict::No) else {
        panic!("it is not held for a person");
    };
    assert_eq!(reason.code, Code::RollbackFailed);
    assert!(reason.detail.contains("six placement groups"), "{reason}");
    let ended = until_held(200, Verdict::Yes);
    assert!(
        matches!(ended, Decision::Over(Ending::RolledBack { .. })),
        "{ended:?}"
    );
}

/// Found by the simulator: its host was off when it was to be brought back, so that was not begun; and when the host was back it
/// served on what it had run before.
#[test]
fn who_serves_on_what_it_ran_before_it_was_brought_back_takes_nobody_along() {
    let mut failed = Failed::new(true, OnFailure::Rollback);
    let brought_back = Action::GoBack {
        unit: osd(0),
        revision: revision(OLD),
        rebuild: false,
    };
    let intent = failed.write(Effect::from(brought_back).into());
    let why = "the judges were asked too long ago".to_owned();
    failed.write(Event::Settled {
        intent,
        outcome: Outcome::NotBegun { why },
    });
    failed.snapshot = seen(1, (UnitState::Serving, OLD), Verdict::Yes);
    let Decision::Record(events) = failed.next() else {
        panic!(
            "it goes by what spoke against the change before: {:?}",
            failed.next()
        );
    };
    assert!(
        matches!(events.as_slice(), [Event::WaveFailed { alone: true, .. }]),
        "{events:?}"
    );
    failed.write(events[0].clone());
    // Its next start would run the new release: it goes back all the same, when it may be stopped.
    assert_eq!(failed.next(), Decision::Judge(vec![vec![osd(0)]]));
    failed.write(Event::Judged {
        units: vec![osd(0)],
        ours: Answer::Yes,
        theirs: Answer::Yes,
        facts: None,
    });
    assert_eq!(failed.goes_back(), [(osd(0), false)]);
    failed.back(0, false, "");
    let mut written = Vec::new();
    while let Decision::Record(events) = failed.next() {
        for event in events {
            written.push(event.clone());
            failed.write(event);
        }
    }
    assert!(
        written.contains(&Event::WaveWentBack),
        "{written:?}, then {:?}",
        failed.next()
    );
}

#[test]
fn that_the_change_never_came_to_a_unit_is_not_said_of_one_that_was_brought_back() {
    let mut failed = Failed::new(true, OnFailure::Rollback);
    failed.back(0, false, "");
    let again = Event::WaveFailed {
        units: vec![osd(0)],
        reason: Reason::new(Code::VisitFailed, "osd.0"),
        alone: true,
    };
    let seq = failed.run.seq() + 1;
    let at = failed.snapshot.observed_at();
    assert!(
        failed
            .run
            .apply(Entry {
                seq,
                at,
                event: again
            })
            .is_err()
    );
}
