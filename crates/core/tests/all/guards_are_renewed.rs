//! A guard outlasts what it guards, however long that takes.

#![allow(clippy::unwrap_used, reason = "test code")]

use crate::begun;

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use stagger_core::model::{
    Budgets, ClusterName, GoingBack, GuardName, GuardScope, GuardSpec, Kind, Part, PartName, Phase, Policy,
    Revision, Snapshot, StageSpec, Unit, UnitId, UnitState, Width,
};
use stagger_core::run::{
    Action, Answer, Decision, Effect, Entry, Event, Outcome, Run, Start, TimedObservation,
};

/// How long a guard lasts, in seconds.
const EXPIRY: i64 = 60;

fn node(id: u32) -> UnitId {
    UnitId::new(format!("node{id}")).unwrap()
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn start(scope: GuardScope) -> Start {
    let stage = StageSpec {
        name: PartName::new("reboot").unwrap(),
        kind: Kind::new("node").unwrap(),
        revision: Revision::new("rebooted").unwrap(),
        width: Width::Policy,
        phases: vec![Phase::Enter, Phase::Change, Phase::Leave],
        guards: vec![GuardSpec {
            name: GuardName::new("drain").unwrap(),
            scope,
            expiry: SignedDuration::from_secs(EXPIRY),
            why: "jobs of others wait".to_owned(),
        }],
        gates: Vec::new(),
        door_before_last: None,
        may_be_left: false,
        going_back: GoingBack::Restart,
        maintenance: None,
    };
    begun::start(
        vec![Part::Stage(stage)],
        Policy {
            canary_soak: 0,
            soak: 0,
            ..Policy::default()
        },
    )
}

fn seen(second: i64) -> Snapshot {
    let unit = |id: u32| Unit {
        id: node(id),
        kind: Kind::new("node").unwrap(),
        state: UnitState::Serving,
        revision: Some(Revision::new("not-yet").unwrap()),
        domains: BTreeMap::new(),
        precedence: 0,
        untouchable: None,
    };
    Snapshot::new(
        ClusterName::new("lab").unwrap(),
        at(second),
        "1".to_owned(),
        vec![unit(0), unit(1)],
        Budgets::default(),
        Vec::new(),
        BTreeMap::new(),
    )
    .unwrap()
}

/// A run whose effects take a time, carried out as the driver does.
struct Slow {
    run: Run,
    /// Intents under way, with when they end.
    under_way: BTreeMap<u64, i64>,
    /// Until when the guard holds, in the world.
    until: Option<i64>,
    /// Renewals that fail from now on.
    fails: u32,
}

impl Slow {
    fn write(&mut self, second: i64, event: Event) -> u64 {
        let seq = self.run.seq() + 1;
        let at = at(second);
        self.run.apply(Entry { seq, at, event }).unwrap();
        seq
    }

    fn step(&mut self, second: i64) {
        let ended: Vec<u64> = self
            .under_way
            .iter()
            .filter(|(_, end)| **end <= second)
            .map(|(seq, _)| *seq)
            .collect();
        for intent in ended {
            self.under_way.remove(&intent);
            let outcome = Outcome::Done { note: String::new() };
            self.write(second, Event::Settled { intent, outcome });
        }
        for _ in 0..20 {
            let snapshot = seen(second);
            let as_of = self.run.seq();
            match self.run.next(
                at(second),
                Some(TimedObservation {
                    snapshot: &snapshot,
                    as_of,
                }),
            ) {
                Decision::Record(events) => {
                    for event in events {
                        self.write(second, event);
                    }
                }
                Decision::Judge(sets) => {
                    for units in sets {
                        let (ours, theirs) = (Answer::Yes, Answer::NoOracle);
                        let facts = None;
                        self.write(
                            second,
                            Event::Judged {
                                units,
                                ours,
                                theirs,
                                facts,
                            },
                        );
                    }
                }
                Decision::Act { fresh, .. } if fresh.is_empty() => return,
                Decision::Act { fresh, .. } => {
                    for Effect { action, before } in fresh {
                        let until = match action {
                            Action::TakeGuard { .. } => Some(Some(second + EXPIRY)),
                            Action::DropGuard { .. } => Some(None),
                            _ => None,
                        };
                        let intent = self.write(second, Event::Intent { action, before });
                        let fails = until.flatten().is_some() && self.until.is_some() && self.fails > 0;
                        match until {
                            Some(_) if fails => {
                                self.fails -= 1;
                                let why = "nobody answered".to_owned();
                                let outcome = Outcome::Failed { why };
                                self.write(second, Event::Settled { intent, outcome });
                            }
                            Some(until) => {
                                self.until = until;
                                let outcome = Outcome::Done { note: String::new() };
                                self.write(second, Event::Settled { intent, outcome });
                            }
                            // Each phase takes longer than a guard lasts.
                            None => drop(self.under_way.insert(intent, second + 2 * EXPIRY + 7)),
                        }
                    }
                }
                Decision::Observe | Decision::Wait { .. } | Decision::Hold(_) | Decision::Over(_) => return,
            }
        }
    }
}

impl Slow {
    fn new(scope: GuardScope, fails: u32) -> Self {
        Self {
            run: begun::run(start(scope)),
            under_way: BTreeMap::new(),
            until: None,
            fails,
        }
    }

    /// Carries it out, and looks every three seconds whether the guard is there while anything is under way.
    fn guarded_throughout(&mut self, words: &str) {
        let mut busy = 0;
        for second in (0..1000).step_by(3) {
            self.step(second);
            if self.under_way.is_empty() {
                continue;
            }
            busy += 1;
            let until = self.until.unwrap();
            assert!(
                second < until,
                "at {second} s the guard was gone since {until} s ({words})"
            );
        }
        assert!(busy > 100, "{busy}");
    }
}

#[test]
fn while_effects_are_under_way_that_take_longer_than_a_guard_lasts() {
    for scope in [GuardScope::Stage, GuardScope::Wave, GuardScope::WorkingWave] {
        Slow::new(scope, 0).guarded_throughout(&format!("{scope:?}"));
    }
}

/// A renewal that fails leaves the guard as it was: it is tried again before it goes by itself.
#[test]
fn while_renewals_fail_for_a_while() {
    for scope in [GuardScope::Stage, GuardScope::Wave, GuardScope::WorkingWave] {
        let mut slow = Slow::new(scope, 4);
        slow.guarded_throughout(&format!("{scope:?}, the first renewals fail"));
        assert_eq!(slow.fails, 0, "no renewal has failed");
        assert!(slow.run.held().is_none(), "{:?}", slow.run.held());
    }
}
