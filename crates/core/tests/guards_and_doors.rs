//! When guards are taken and given back, what is waited for between waves, and how long.

#![allow(clippy::unwrap_used, reason = "test code")]

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use stagger_core::model::{
    Budgets, Code, Condition, Door, Doors, Gate, GoingBack, GuardScope, GuardSpec, Part, Phase, Policy,
    Snapshot, StageSpec, Target, Unit, UnitState, Verdict, Width,
};
use stagger_core::run::{
    Action, Answer, Command, Decision, Effect, Ending, Entry, Event, Outcome, Run, Seen, Start,
};

const OLD: &str = "16";
const NEW: &str = "18";

/// Units `mon.0`, `osd.0` and `osd.1`; what each runs, in this order.
type Runs = [&'static str; 3];

const UNITS: [&str; 3] = ["mon.0", "osd.0", "osd.1"];

fn guard(name: &str, scope: GuardScope) -> GuardSpec {
    GuardSpec {
        name: name.parse().unwrap(),
        scope,
        expiry: SignedDuration::from_secs(100),
        why: "while its units restart".to_owned(),
    }
}

fn stage(kind: &str, guards: Vec<GuardSpec>) -> Part {
    Part::Stage(StageSpec {
        name: kind.parse().unwrap(),
        kind: kind.parse().unwrap(),
        revision: NEW.parse().unwrap(),
        width: Width::Single,
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

/// A monitor without guards, then OSDs with one of their stage and one of each wave.
fn usual() -> Vec<Part> {
    let of_osds = vec![
        guard("noout", GuardScope::Stage),
        guard("silence", GuardScope::Wave),
    ];
    vec![stage("mon", Vec::new()), stage("osd", of_osds)]
}

/// A run on a world that does what it is told, but for guards in `refuses`.
struct World {
    run: Run,
    runs: Runs,
    second: i64,
    health: Verdict,
    /// Guards that cannot be given back.
    refuses: Vec<&'static str>,
    /// What was done: `osd.0 to 18`, `take noout`, `drop silence of osd.0`.
    done: Vec<String>,
}

impl World {
    fn new(parts: Vec<Part>, policy: Policy) -> Self {
        let start = Start {
            version: stagger_core::run::VERSION,
            run: "r1".parse().unwrap(),
            cluster: "lab".parse().unwrap(),
            target: Target {
                title: "up".to_owned(),
                parts,
            },
            policy,
            baseline: serde_json::Value::Null,
            identity: None,
        };
        let first = Entry {
            seq: 1,
            at: Timestamp::UNIX_EPOCH,
            event: Event::Started(Box::new(start)),
        };
        Self {
            run: Run::begin(first).unwrap(),
            runs: [OLD; 3],
            second: 0,
            health: Verdict::Yes,
            refuses: Vec::new(),
            done: Vec::new(),
        }
    }

    fn snapshot(&self) -> Snapshot {
        let units = UNITS.iter().zip(self.runs).map(|(id, runs)| Unit {
            id: id.parse().unwrap(),
            kind: id[..3].parse().unwrap(),
            state: UnitState::Serving,
            revision: Some(runs.parse().unwrap()),
            domains: BTreeMap::new(),
            precedence: 0,
            untouchable: None,
        });
        let health = Condition::new("health".parse().unwrap(), self.health, "a clock is off");
        Snapshot::new(
            "lab".parse().unwrap(),
            self.now(),
            self.runs.join(" "),
            units.collect(),
            Budgets::default(),
            vec![health],
            BTreeMap::new(),
        )
        .unwrap()
    }

    fn now(&self) -> Timestamp {
        Timestamp::from_second(self.second).unwrap()
    }

    fn append(&mut self, event: Event) {
        let entry = Entry {
            seq: self.run.seq() + 1,
            at: self.now(),
            event,
        };
        self.run.apply(entry).unwrap();
    }

    fn asks(&mut self, command: Command) {
        let by = "test".to_owned();
        self.append(Event::Asked { command, by });
    }

    fn carry_out(&mut self, action: Action, before: Option<Timestamp>) {
        let of = |units: &[stagger_core::model::UnitId]| -> String {
            units.iter().map(|unit| format!(" of {unit}")).collect()
        };
        let mut outcome = Outcome::Done { note: String::new() };
        self.done.push(match &action {
            Action::TakeGuard { guard, units, .. } => format!("take {guard}{}", of(units)),
            Action::DropGuard { guard, units } => {
                if self.refuses.contains(&guard.as_str()) {
                    outcome = Outcome::Failed {
                        why: "no quorum".to_owned(),
                    };
                }
                format!("drop {guard}{}", of(units))
            }
            Action::Visit { unit, revision, .. } | Action::GoBack { unit, revision, .. } => {
                let at = UNITS.iter().position(|id| unit.as_str() == *id).unwrap();
                self.runs[at] = if revision.as_str() == NEW { NEW } else { OLD };
                format!("{unit} to {revision}")
            }
            other => panic!("nobody asked for {other:?}"),
        });
        self.append(Event::Intent { action, before });
        let intent = self.run.seq();
        self.append(Event::Settled { intent, outcome });
    }

    fn next(&self) -> Decision {
        let seen = self.snapshot();
        let as_of = self.run.seq();
        self.run.next(
            self.now(),
            Some(Seen {
                snapshot: &seen,
                as_of,
            }),
        )
    }

    /// Goes on until it has to wait for something, or is over, or `until` says so.
    fn drive(&mut self, until: impl Fn(&Self) -> bool) -> Decision {
        for _ in 0..500 {
            let next = self.next();
            if until(self) {
                return next;
            }
            match next {
                Decision::Record(events) => events.into_iter().for_each(|event| self.append(event)),
                Decision::Judge(sets) => {
                    for units in sets {
                        self.append(Event::Judged {
                            units,
                            ours: Answer::Yes,
                            theirs: Answer::Yes,
                            facts: None,
                        });
                    }
                }
                Decision::Act { fresh, .. } => {
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
    fn drive_to(&mut self, count: usize) -> Decision {
        self.drive(|world| world.done.len() == count)
    }
}

fn at_once() -> Policy {
    Policy {
        soak: 0,
        canary_soak: 0,
        gate_hold: 0,
        ..Policy::default()
    }
}

const WHOLE: [&str; 9] = [
    "mon.0 to 18",
    "take noout",
    "take silence of osd.0",
    "osd.0 to 18",
    "drop silence of osd.0",
    "take silence of osd.1",
    "osd.1 to 18",
    "drop silence of osd.1",
    "drop noout",
];

#[test]
fn a_guard_of_a_stage_stays_over_its_waves_and_one_of_a_wave_does_not() {
    let mut world = World::new(usual(), at_once());
    assert_eq!(world.drive(|_| false), Decision::Over(Ending::Done));
    assert_eq!(world.done, WHOLE);
    assert_eq!(world.run.guards(), 0);
}

#[test]
fn a_guard_that_the_next_stage_wants_too_is_kept_until_that_is_over() {
    let noout = || vec![guard("noout", GuardScope::Stage)];
    let mut world = World::new(vec![stage("mon", noout()), stage("osd", noout())], at_once());
    assert_eq!(world.drive(|_| false), Decision::Over(Ending::Done));
    let all = [
        "take noout",
        "mon.0 to 18",
        "osd.0 to 18",
        "osd.1 to 18",
        "drop noout",
    ];
    assert_eq!(world.done, all);
}

#[test]
fn who_aborts_or_goes_back_gets_every_guard_back_and_takes_none_twice() {
    // After the first OSD, whose wave has passed or not yet.
    for at in [4, 5] {
        let mut world = World::new(usual(), at_once());
        world.drive_to(at);
        world.asks(Command::Abort);
        assert_eq!(world.drive(|_| false), Decision::Over(Ending::Aborted));
        let mut given: Vec<_> = world.done[4..].to_vec();
        given.sort();
        assert_eq!(given, ["drop noout", "drop silence of osd.0"], "asked after {at}");

        let mut world = World::new(usual(), at_once());
        world.drive_to(at);
        world.asks(Command::Rollback);
        assert!(matches!(
            world.drive(|_| false),
            Decision::Over(Ending::RolledBack { .. })
        ));
        assert_eq!(world.runs, [OLD; 3]);
        assert_eq!(world.run.guards(), 0);
        for guard in ["noout", "silence of osd.0"] {
            let count = |what: &str| {
                let told = format!("{what} {guard}");
                world.done.iter().filter(|done| **done == told).count()
            };
            assert_eq!(count("take"), count("drop"), "{guard}: {:?}", world.done);
        }
    }
}

#[test]
fn a_guard_that_cannot_be_given_back_is_tried_three_times_and_left_to_its_expiry() {
    let mut world = World::new(usual(), at_once());
    world.refuses = vec!["noout", "silence"];
    world.drive(|world| world.done.iter().any(|done| done == "drop silence of osd.0"));
    assert!(
        world.run.owes_guards(),
        "that of a wave is given back before the next one"
    );
    assert_eq!(world.drive(|_| false), Decision::Over(Ending::Done));
    for guard in ["noout", "silence of osd.0", "silence of osd.1"] {
        let drops = world.done.iter().filter(|done| **done == format!("drop {guard}"));
        assert_eq!(drops.count(), 3, "{guard}: {:?}", world.done);
    }
    assert_eq!(world.run.guards(), 3, "they are still there");
    assert!(!world.run.owes_guards(), "and nobody tries any more");
}

#[test]
fn a_guard_that_soon_goes_by_itself_is_taken_again_before_the_next_wave() {
    // It lasts 100 s. With more than half of that left it does; with half it does not.
    for (second, takes) in [(49, 1), (50, 2)] {
        let mut world = World::new(usual(), at_once());
        world.drive(|world| world.done.last().is_some_and(|done| done == "osd.0 to 18"));
        world.second = second;
        world.drive(|_| false);
        let taken = world.done.iter().filter(|done| *done == "take noout");
        assert_eq!(taken.count(), takes, "at {second} s: {:?}", world.done);
    }
}

fn with_door(doors: Doors) -> World {
    let mut parts = usual();
    let Part::Stage(stage) = &mut parts[1] else {
        panic!("it is a stage")
    };
    stage.door_before_last = Some(Door {
        name: "last-osd".parse().unwrap(),
        why: "there is no way back from 18".to_owned(),
    });
    let policy = Policy { doors, ..at_once() };
    World::new(parts, policy)
}

#[test]
fn a_door_waits_for_a_word_and_for_that_one_alone() {
    let mut world = with_door(Doors::Ask);
    let Decision::Hold(reason) = world.drive(|_| false) else {
        panic!("it should ask")
    };
    assert_eq!(reason.code, Code::OneWayDoor);
    assert!(
        reason.detail.contains("`stagger approve r1 last-osd` passes it"),
        "{reason}"
    );
    assert_eq!(world.runs, [NEW, NEW, OLD], "only the last is behind it");
    world.asks(Command::Approve {
        door: "last-osd".parse().unwrap(),
    });
    assert_eq!(world.drive(|_| false), Decision::Over(Ending::Done));
}

#[test]
fn a_door_that_opens_by_itself_does_so_after_its_time_since_the_last_wave() {
    let mut world = with_door(Doors::AutoAfter(30));
    world.drive(|world| world.runs == [NEW, NEW, OLD]);
    world.second = 100;
    let Decision::Wait { until, why } = world.drive(|_| false) else {
        panic!("it should wait")
    };
    assert_eq!(
        (until, why.code),
        (Timestamp::from_second(130).ok(), Code::DoorSoaking)
    );
    world.second = 129;
    assert!(matches!(world.drive(|_| false), Decision::Wait { .. }));
    world.second = 130;
    assert_eq!(world.drive(|_| false), Decision::Over(Ending::Done));
}

#[test]
fn a_gate_that_stays_shut_between_waves_holds_the_run_and_releases_it() {
    let mut world = World::new(usual(), at_once());
    world.drive(|world| world.run.waves_passed() == 1);
    world.health = Verdict::No;
    let Decision::Wait { until, why } = world.drive(|_| false) else {
        panic!("it should wait")
    };
    assert_eq!(
        (until, why.code),
        (Timestamp::from_second(60).ok(), Code::GatesShut)
    );
    world.second = 59;
    assert!(matches!(
        world.drive(|_| false),
        Decision::Wait { until: Some(_), .. }
    ));
    world.second = 60;
    // From here on nobody knows when: it is held, and says so.
    assert!(matches!(
        world.drive(|_| false),
        Decision::Wait { until: None, .. }
    ));
    assert!(world.run.held().is_some());
    assert_eq!(world.runs, [NEW, OLD, OLD]);
    world.health = Verdict::Yes;
    assert_eq!(world.drive(|_| false), Decision::Over(Ending::Done));
    assert_eq!(world.done, WHOLE);
}
