//! A run of three OSDs at once, and then a metadata server, in a world that is as it is told.
#![allow(
    dead_code,
    missing_docs,
    unreachable_pub,
    clippy::unwrap_used,
    reason = "each test uses a part of it, and it is test code"
)]

use crate::begun;

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use stagger_core::model::{
    Budgets, BudgetsBuilder, ClusterName, Condition, ConditionName, Gate, GoingBack, Ix, Kind, OnFailure,
    Part, PartName, Phase, Policy, Reason, Revision, Snapshot, StageSpec, Unit, UnitId, UnitState, Verdict,
    Width,
};
use stagger_core::run::{Action, Answer, Decision, Effect, Entry, Event, Outcome, Run, TimedObservation};

/// How long an approval counts, in seconds.
pub const AGE: i64 = 20;

pub fn unit(id: &str) -> UnitId {
    UnitId::new(id).unwrap()
}

fn revision(text: &str) -> Revision {
    Revision::new(text).unwrap()
}

pub fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn stage(kind: &str, may_be_left: bool) -> Part {
    Part::Stage(StageSpec {
        name: PartName::new(kind).unwrap(),
        kind: Kind::new(kind).unwrap(),
        revision: revision("20"),
        width: Width::Policy,
        phases: vec![Phase::Prepare, Phase::Change],
        guards: Vec::new(),
        gates: vec![Gate {
            condition: ConditionName::new("healthy").unwrap(),
            hold: SignedDuration::ZERO,
            timeout: SignedDuration::from_secs(60),
        }],
        door_before_last: None,
        may_be_left,
        going_back: GoingBack::Restart,
        maintenance: None,
    })
}

/// A run of three OSDs at once, and then a metadata server, in a world that is as it is told.
pub struct Story {
    pub run: Run,
    pub now: i64,
    pub units: BTreeMap<UnitId, (UnitState, &'static str)>,
    pub healthy: bool,
    /// Its OSDs may not go now, and may once it has recovered.
    pub recovers: bool,
    pub generation: u32,
}

impl Story {
    pub fn new(may_be_left: bool) -> Self {
        let start = begun::start(
            vec![stage("osd", may_be_left), stage("mds", false)],
            Policy {
                max_in_parallel: "100%".parse().unwrap(),
                growth: stagger_core::model::Growth::None,
                canary_soak: 0,
                gate_hold: 0,
                approval_age: u32::try_from(AGE).unwrap(),
                on_failure: OnFailure::Rollback,
                ..Policy::default()
            },
        );
        let names = ["osd.0", "osd.1", "osd.2", "mds.a"];
        Self {
            run: begun::run(start),
            now: 0,
            units: names.map(|id| (unit(id), (UnitState::Serving, "18"))).into(),
            healthy: true,
            recovers: false,
            generation: 1,
        }
    }

    pub fn snapshot(&self) -> Snapshot {
        let units = self.units.iter().map(|(id, (state, runs))| Unit {
            id: id.clone(),
            kind: Kind::new(id.as_str().split('.').next().unwrap()).unwrap(),
            state: *state,
            revision: Some(revision(runs)),
            domains: BTreeMap::new(),
            precedence: 0,
            untouchable: None,
        });
        let condition = Condition::new(
            ConditionName::new("healthy").unwrap(),
            if self.healthy { Verdict::Yes } else { Verdict::No },
            "PG_NOT_DEEP_SCRUBBED",
        );
        let mut now = BudgetsBuilder::default();
        if self.recovers {
            now.add("placement group", "1.0", 0, &[(Ix(1), 1), (Ix(2), 1), (Ix(3), 1)]);
        }
        let snapshot = Snapshot::new(
            ClusterName::new("lab").unwrap(),
            at(self.now),
            self.generation.to_string(),
            units.collect(),
            now.build(),
            vec![condition],
            BTreeMap::new(),
        )
        .unwrap();
        if self.recovers {
            snapshot.with_recovered(Budgets::default()).unwrap()
        } else {
            snapshot
        }
    }

    pub fn next(&self) -> Decision {
        let snapshot = self.snapshot();
        let seen = TimedObservation {
            snapshot: &snapshot,
            as_of: self.run.seq(),
        };
        self.run.next(at(self.now), Some(seen))
    }

    pub fn write(&mut self, event: Event) -> u64 {
        let seq = self.run.seq() + 1;
        let entry = Entry {
            seq,
            at: at(self.now),
            event,
        };
        self.run.apply(entry).unwrap();
        seq
    }

    pub fn settle(&mut self, intent: u64, outcome: Outcome) {
        self.write(Event::Settled { intent, outcome });
    }

    /// Decisions are carried out, with both judges agreeing, until effects are announced: they, with their places.
    pub fn announced(&mut self) -> Vec<(u64, Effect)> {
        for _ in 0..40 {
            match self.next() {
                Decision::Record(events) => events.into_iter().for_each(|event| {
                    self.write(event);
                }),
                Decision::Judge(sets) => {
                    for units in sets {
                        self.write(Event::Judged {
                            units,
                            ours: Answer::Yes,
                            theirs: Answer::Yes,
                            facts: Some(at(self.now)),
                        });
                    }
                }
                Decision::Act { fresh, .. } if !fresh.is_empty() => {
                    let write = |effect: Effect| (self.write(effect.clone().into()), effect);
                    return fresh.into_iter().map(write).collect();
                }
                other => panic!("{other:?}"),
            }
        }
        panic!("nothing is announced");
    }

    /// The wave of all three, prepared: what is announced next takes them down.
    pub fn prepared(may_be_left: bool) -> Self {
        let mut story = Self::new(may_be_left);
        let prepares = story.announced();
        assert_eq!(
            phases(&prepares),
            ["prepare osd.0", "prepare osd.1", "prepare osd.2"]
        );
        for (intent, effect) in prepares {
            assert_eq!(effect.before, None, "it stops nothing");
            story.settle(intent, Outcome::Done { note: String::new() });
        }
        story
    }

    /// All three had their turn and are what that says.
    pub fn changed(states: [(UnitState, &'static str); 3], outcomes: [Outcome; 3]) -> Self {
        let mut story = Self::prepared(false);
        let changes = story.announced();
        for (((intent, effect), state), outcome) in changes.into_iter().zip(states).zip(outcomes) {
            story.units.insert(effect.action.unit().unwrap().clone(), state);
            story.settle(intent, outcome);
        }
        story.generation += 1;
        story
    }

    /// What it waits for or is held by in the end, while it only writes.
    pub fn waits(&mut self) -> Reason {
        for _ in 0..20 {
            match self.next() {
                Decision::Record(events) => events.into_iter().for_each(|event| {
                    self.write(event);
                }),
                Decision::Wait { why, .. } | Decision::Hold(why) => return why,
                other => panic!("{other:?}"),
            }
        }
        panic!("it only writes");
    }
}

pub fn phases(effects: &[(u64, Effect)]) -> Vec<String> {
    let told = |(_, effect): &(u64, Effect)| match &effect.action {
        Action::Visit { unit, phase, .. } => format!("{phase:?} {unit}").to_lowercase(),
        Action::Restart { unit } => format!("restart {unit}"),
        Action::GoBack { unit, .. } => format!("go back {unit}"),
        other => panic!("{other:?}"),
    };
    effects.iter().map(told).collect()
}

pub fn done() -> Outcome {
    Outcome::Done { note: String::new() }
}

pub fn failed() -> Outcome {
    Outcome::Failed {
        why: "exit 3".to_owned(),
    }
}

pub const NEW: (UnitState, &str) = (UnitState::Serving, "20");
pub const DOWN: (UnitState, &str) = (UnitState::Down, "20");
