//! A run on a world in which what is announced comes to pass, step by step.
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
    BudgetsBuilder, Condition, Door, Gate, GoingBack, GuardSpec, Ix, Part, Phase, Policy, Reason, Revision,
    Snapshot, StageSpec, StepSpec, Unit, UnitId, UnitState, Verdict, Width,
};
use stagger_core::run::{
    Action, Answer, Command, Decision, Effect, Entry, Event, Outcome, Run, TimedObservation,
};

pub const OLD: &str = "16";
pub const NEW: &str = "18";

/// A run on a world that does what it is told, but for `refuses`, `broken` and `lost`.
pub struct World {
    pub run: Run,
    /// Each unit with what it runs.
    pub units: BTreeMap<UnitId, Revision>,
    pub second: i64,
    pub health: Verdict,
    /// Why it is so.
    pub why: &'static str,
    /// Guards that cannot be given back.
    pub refuses: Vec<&'static str>,
    /// What fails, as it stands in `done`.
    pub fails: Vec<&'static str>,
    /// What is too late to begin, once, as it stands in `done`.
    pub late: Vec<&'static str>,
    /// What is announced and comes to no end, as it stands in `done`.
    pub hangs: Vec<&'static str>,
    /// Units that are down, whatever they run.
    pub down: Vec<&'static str>,
    /// Units of which nobody can tell whether they serve.
    pub unknown: Vec<&'static str>,
    /// Units that must be left alone, as long as they are here.
    pub untouchable: Vec<&'static str>,
    /// No two of them may be down together.
    pub apart: Vec<&'static str>,
    /// Steps of which nobody sees that they were done.
    pub idle: Vec<&'static str>,
    /// Something else in the world changes with it.
    pub generation: u32,
    /// Units that do not start on [`NEW`], however often that is tried.
    pub broken: Vec<&'static str>,
    /// Those of them that do not start on what they ran before either.
    pub lost: Vec<&'static str>,
    /// What the oracle says of a set.
    pub oracle: fn(&[UnitId]) -> Answer,
    /// Each set that it was asked about: `osd.0 osd.1`.
    pub asked: Vec<String>,
    /// What was done: `osd.0 to 18`, `osd.0 to 16 anew`, `enter osd.0`, `take noout`, `drop silence of osd.0`.
    pub done: Vec<String>,
}

impl World {
    /// Each unit runs [`OLD`]. Its kind is its name without the number.
    pub fn new(units: &[&str], parts: Vec<Part>, policy: Policy) -> Self {
        let start = begun::start(parts, policy);
        Self {
            run: begun::run(start),
            units: units
                .iter()
                .map(|id| (id.parse().unwrap(), OLD.parse().unwrap()))
                .collect(),
            second: 0,
            health: Verdict::Yes,
            why: "a clock is off",
            refuses: Vec::new(),
            fails: Vec::new(),
            late: Vec::new(),
            hangs: Vec::new(),
            down: Vec::new(),
            unknown: Vec::new(),
            untouchable: Vec::new(),
            apart: Vec::new(),
            idle: Vec::new(),
            generation: 0,
            broken: Vec::new(),
            lost: Vec::new(),
            oracle: |_| Answer::Yes,
            asked: Vec::new(),
            done: Vec::new(),
        }
    }

    pub fn snapshot(&self) -> Snapshot {
        let units = self.units.iter().map(|(id, runs)| Unit {
            id: id.clone(),
            kind: id.as_str().split('.').next().unwrap().parse().unwrap(),
            state: if self.does_not_start(id, runs) || self.down.contains(&id.as_str()) {
                UnitState::Down
            } else if self.unknown.contains(&id.as_str()) {
                UnitState::Unknown
            } else {
                UnitState::Serving
            },
            revision: Some(runs.clone()),
            domains: BTreeMap::new(),
            precedence: 0,
            untouchable: self
                .untouchable
                .contains(&id.as_str())
                .then(|| Reason::of_backend("taken-out", "somebody else is at it")),
        });
        let health = Condition::new("health".parse().unwrap(), self.health, self.why);
        let mut conditions = vec![health];
        for part in &self.run.start().target.parts {
            let Part::Step(step) = part else { continue };
            let name = step.name.as_str();
            let was_done = self.done.iter().any(|done| *done == format!("step {name}"));
            let is_so = was_done && !self.idle.contains(&name);
            let verdict = if is_so { Verdict::Yes } else { Verdict::No };
            conditions.push(Condition::new(step.done_when.clone(), verdict, "it says so"));
        }
        let mut budgets = BudgetsBuilder::default();
        let apart: Vec<_> = (0..)
            .zip(self.units.keys())
            .filter(|(_, id)| self.apart.contains(&id.as_str()))
            .map(|(at, _)| (Ix(at), 1))
            .collect();
        if !apart.is_empty() {
            budgets.add("placement group", "1.0", 1, &apart);
        }
        Snapshot::new(
            "lab".parse().unwrap(),
            self.now(),
            format!(
                "{:?} {:?} {:?} {}",
                self.units, self.down, self.apart, self.generation
            ),
            units.collect(),
            budgets.build(),
            conditions,
            BTreeMap::new(),
        )
        .unwrap()
    }

    pub fn now(&self) -> Timestamp {
        Timestamp::from_second(self.second).unwrap()
    }

    pub fn append(&mut self, event: Event) {
        let entry = Entry {
            seq: self.run.seq() + 1,
            at: self.now(),
            event,
        };
        self.run.apply(entry).unwrap();
    }

    pub fn asks(&mut self, command: Command) {
        let by = "test".to_owned();
        self.append(Event::Asked { command, by });
    }

    fn does_not_start(&self, unit: &UnitId, runs: &Revision) -> bool {
        let one_of = |units: &[&str]| units.contains(&unit.as_str());
        match runs.as_str() {
            NEW => one_of(&self.broken),
            // It was down, and stays so.
            _ => one_of(&self.lost) && self.done.iter().any(|done| *done == format!("{unit} to {NEW}")),
        }
    }

    fn carry_out(&mut self, action: Action, before: Option<Timestamp>) {
        let of = |units: &[UnitId]| match units {
            [] => String::new(),
            units => format!(" of {}", names(units)),
        };
        let mut outcome = Outcome::Done { note: String::new() };
        let mut fails = |why: &str| outcome = Outcome::Failed { why: why.to_owned() };
        let told = match &action {
            Action::TakeGuard { guard, units, .. } => format!("take {guard}{}", of(units)),
            Action::DropGuard { guard, units } => {
                if self.refuses.contains(&guard.as_str()) {
                    fails("no quorum");
                }
                format!("drop {guard}{}", of(units))
            }
            Action::Visit { unit, phase, .. } if *phase != Phase::Change => {
                format!("{phase:?} {unit}").to_lowercase()
            }
            Action::Visit { unit, revision, .. } | Action::GoBack { unit, revision, .. } => {
                let told = format!("{unit} to {revision}");
                if !self.hangs.contains(&told.as_str()) && !self.late.contains(&told.as_str()) {
                    self.units.insert(unit.clone(), revision.clone());
                }
                if self.does_not_start(unit, revision) {
                    fails("it does not start");
                }
                let is_anew = matches!(&action, Action::GoBack { rebuild: true, .. });
                if is_anew { format!("{told} anew") } else { told }
            }
            Action::Restart { unit } => {
                if self.does_not_start(unit, &self.units[unit]) {
                    fails("it does not start");
                }
                format!("restart {unit}")
            }
            Action::Collect { units } => format!("collect{}", of(units)),
            Action::Step { step } => format!("step {step}"),
        };
        if self.fails.contains(&told.as_str()) {
            fails("it ended with 1");
        }
        if self.late.contains(&told.as_str()) {
            let at = self.late.iter().position(|late| *late == told);
            self.late.remove(at.unwrap());
            let why = "it waited for others".to_owned();
            outcome = Outcome::NotBegun { why };
        }
        let hangs = self.hangs.contains(&told.as_str());
        self.done.push(told);
        self.append(Event::Intent { action, before });
        if !hangs {
            let intent = self.run.seq();
            self.append(Event::Settled { intent, outcome });
        }
    }

    /// What hangs has come to its end.
    pub fn settles(&mut self, outcome: Outcome) {
        let (intent, action) = self
            .run
            .open()
            .map(|(seq, action)| (seq, action.clone()))
            .next()
            .unwrap();
        if let (
            Action::Visit {
                unit,
                revision,
                phase: Phase::Change,
                ..
            },
            Outcome::Done { .. },
        ) = (action, &outcome)
        {
            self.units.insert(unit, revision);
        }
        self.hangs.clear();
        self.append(Event::Settled { intent, outcome });
    }

    pub fn next(&self) -> Decision {
        let seen = self.snapshot();
        let as_of = self.run.seq();
        self.run.next(
            self.now(),
            Some(TimedObservation {
                snapshot: &seen,
                as_of,
            }),
        )
    }

    /// Goes on until it has to wait for something, or is over, or `until` says so.
    pub fn drive(&mut self, until: impl Fn(&Self) -> bool) -> Decision {
        for _ in 0..500 {
            let next = self.next();
            if until(self) {
                return next;
            }
            match next {
                Decision::Record(events) => events.into_iter().for_each(|event| self.append(event)),
                Decision::Judge(sets) => {
                    for units in sets {
                        self.asked.push(names(&units));
                        let theirs = (self.oracle)(&units);
                        let ours = match self.run.may_stop(&self.snapshot(), &units) {
                            Ok(()) => Answer::Yes,
                            Err(why) => Answer::No { why },
                        };
                        self.append(Event::Judged {
                            units,
                            ours,
                            theirs,
                            facts: None,
                        });
                    }
                }
                Decision::Act { fresh, .. } if !fresh.is_empty() => {
                    for Effect { action, before } in fresh {
                        self.carry_out(action, before);
                    }
                }
                other => return other,
            }
        }
        panic!("it does not end: {:?}", self.done)
    }

    /// The same, until so many things were done.
    pub fn drive_to(&mut self, count: usize) -> Decision {
        self.drive(|world| world.done.len() == count)
    }

    /// Who is on [`NEW`]: `osd.0 osd.1`.
    pub fn on_new(&self) -> String {
        let done = self.units.iter().filter(|(_, runs)| runs.as_str() == NEW);
        names(&done.map(|(unit, _)| unit.clone()).collect::<Vec<_>>())
    }
}

/// Their names in one line.
pub fn names(units: &[UnitId]) -> String {
    let names: Vec<&str> = units.iter().map(UnitId::as_str).collect();
    names.join(" ")
}

/// A stage of all units of that kind, which is done at once and waits a minute for health.
pub fn stage(kind: &str, width: Width, guards: Vec<GuardSpec>) -> Part {
    Part::Stage(StageSpec {
        name: kind.parse().unwrap(),
        kind: kind.parse().unwrap(),
        revision: NEW.parse().unwrap(),
        width,
        phases: vec![Phase::Change],
        guards,
        gates: vec![Gate {
            condition: "health".parse().unwrap(),
            hold: SignedDuration::ZERO,
            timeout: SignedDuration::from_secs(60),
        }],
        door_before_last: None,
        may_be_left: false,
        going_back: GoingBack::Restart,
        maintenance: None,
    })
}

/// A step that is done once it was, with its door if that has a name.
pub fn step(name: &str, door: Option<&str>) -> Part {
    Part::Step(StepSpec {
        name: name.parse().unwrap(),
        done_when: format!("{name}-done").parse().unwrap(),
        before: Vec::new(),
        door: door.map(|door| Door {
            name: door.parse().unwrap(),
            why: "there is no way back".to_owned(),
        }),
        why: "after all of them".to_owned(),
    })
}

/// A policy that waits for nothing.
pub fn at_once() -> Policy {
    Policy {
        soak: 0,
        canary_soak: 0,
        gate_hold: 0,
        ..Policy::default()
    }
}
