//! Without barriers: while the last of a wave is waited for, others join it.
#![allow(missing_docs, clippy::unwrap_used, reason = "test code")]

use crate::begun;

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use stagger_core::model::{
    Budgets, ClusterName, Code, Condition, ConditionName, Gate, GoingBack, Growth, HostName, Kind, Limit,
    OnFailure, Part, PartName, Phase, Policy, Revision, Snapshot, StageSpec, Unit, UnitId, UnitState,
    Verdict, Width, Window,
};
use stagger_core::run::{
    Action, Answer, Command, Decision, Effect, Ending, Entry, Event, Outcome, Run, TimedObservation,
};

/// Six OSDs, of which two may be down at once. Each is up again after 10 s, one of them later.
struct World {
    run: Run,
    now: Timestamp,
    runs: [&'static str; 6],
    /// When each is up again.
    up_at: [Timestamp; 6],
    /// Which takes longer, and how long, in seconds.
    slow: (usize, i64),
    /// Whose software cannot be laid out, once.
    unprepared: Option<usize>,
    /// Whose host a person says is off once it is to change.
    off: Option<usize>,
    /// So many seconds pass while the slow one is on its way down.
    passes: i64,
    /// Which is up again on the old release.
    stays: Option<usize>,
    /// What the monitor runs, if there is one. Somebody takes it back to 18 while the slow one is on its way down.
    mon: Option<&'static str>,
    /// How long data recovers after a start, in seconds.
    recovers: i64,
    /// What a person asks for once the slow one is on its way down.
    asks: Option<Command>,
    /// Each start, in seconds since the beginning.
    started: Vec<(usize, i64)>,
    journal: Vec<Event>,
}

fn mon() -> UnitId {
    UnitId::new("mon.0").unwrap()
}

fn osd(at: usize) -> UnitId {
    UnitId::new(format!("osd.{at}")).unwrap()
}

impl World {
    fn new(barrier: bool) -> Self {
        Self::inside(barrier, Vec::new())
    }

    fn inside(barrier: bool, windows: Vec<Window>) -> Self {
        let stage = StageSpec {
            name: PartName::new("osd").unwrap(),
            kind: Kind::new("osd").unwrap(),
            revision: Revision::new("20").unwrap(),
            width: Width::Policy,
            phases: vec![Phase::Prepare, Phase::Change],
            guards: Vec::new(),
            gates: vec![Gate {
                condition: ConditionName::new("pgs-clean").unwrap(),
                hold: SignedDuration::from_secs(5),
                timeout: SignedDuration::from_secs(600),
            }],
            door_before_last: None,
            may_be_left: false,
            going_back: GoingBack::Restart,
            maintenance: None,
        };
        let mons = StageSpec {
            name: PartName::new("mon").unwrap(),
            kind: Kind::new("mon").unwrap(),
            ..stage.clone()
        };
        let start = begun::start(
            vec![Part::Stage(mons), Part::Stage(stage)],
            Policy {
                barrier,
                windows,
                canary_soak: 0,
                growth: Growth::None,
                max_in_parallel: Limit::Count(2),
                on_failure: OnFailure::Rollback,
                ..Policy::default()
            },
        );
        let mut world = Self {
            run: begun::run(start),
            now: Timestamp::UNIX_EPOCH,
            runs: ["18"; 6],
            up_at: [Timestamp::UNIX_EPOCH; 6],
            // Of the second wave.
            slow: (3, 300),
            unprepared: None,
            off: None,
            passes: 0,
            stays: None,
            mon: None,
            recovers: 0,
            asks: None,
            started: Vec::new(),
            journal: Vec::new(),
        };
        world.write(Event::LeaseTaken {
            fence: 1,
            holder: "me".to_owned(),
        });
        world
    }

    fn snapshot(&self) -> Snapshot {
        let units = (0..6).map(|at| Unit {
            id: osd(at),
            kind: Kind::new("osd").unwrap(),
            state: if self.up_at[at] <= self.now {
                UnitState::Serving
            } else {
                UnitState::Down
            },
            revision: Some(Revision::new(self.runs[at]).unwrap()),
            domains: BTreeMap::new(),
            precedence: 0,
            untouchable: None,
        });
        let mon = self.mon.map(|runs| Unit {
            id: mon(),
            kind: Kind::new("mon").unwrap(),
            state: UnitState::Serving,
            revision: Some(Revision::new(runs).unwrap()),
            domains: BTreeMap::new(),
            precedence: 0,
            untouchable: None,
        });
        let units: Vec<Unit> = units.chain(mon).collect();
        let recovers = SignedDuration::from_secs(self.recovers);
        let is_recovering = |up_at: &Timestamp| {
            *up_at <= self.now && self.now < *up_at + recovers && *up_at > Timestamp::UNIX_EPOCH
        };
        let down: Vec<UnitId> = units
            .iter()
            .filter(|unit| unit.state == UnitState::Down)
            .map(|unit| unit.id.clone())
            .collect();
        let recovering = self.up_at.iter().any(is_recovering);
        let clean = down.is_empty() && !recovering;
        let verdict = if clean { Verdict::Yes } else { Verdict::No };
        let condition = Condition {
            but_for: if recovering { Vec::new() } else { down },
            ..Condition::new(ConditionName::new("pgs-clean").unwrap(), verdict, "as it is")
        };
        Snapshot::new(
            ClusterName::new("lab").unwrap(),
            self.now,
            format!("{:?} {:?}", self.up_at, self.mon),
            units,
            Budgets::default(),
            vec![condition],
            BTreeMap::new(),
        )
        .unwrap()
    }

    fn write(&mut self, event: Event) -> u64 {
        let (seq, at) = (self.run.seq() + 1, self.now);
        self.journal.push(event.clone());
        self.run.apply(Entry { seq, at, event }).unwrap();
        seq
    }

    fn seconds(&self) -> i64 {
        self.now.duration_since(Timestamp::UNIX_EPOCH).as_secs()
    }

    fn carry_out(&mut self, action: &Action) -> Outcome {
        let unit = |unit: &UnitId| unit.as_str()[4..].parse::<usize>().unwrap();
        match action {
            Action::Visit { unit, phase, .. } if *unit == mon() => {
                if *phase == Phase::Change {
                    self.mon = Some("20");
                }
            }
            Action::Visit {
                unit: id,
                phase: Phase::Change,
                ..
            } => {
                let at = unit(id);
                let down = self.up_at.iter().filter(|up_at| **up_at > self.now).count();
                assert!(down < 2, "three are down at {} s", self.seconds());
                self.started.push((at, self.seconds()));
                let takes = if at == self.slow.0 { self.slow.1 } else { 10 };
                self.up_at[at] = self.now + SignedDuration::from_secs(takes);
                if self.stays != Some(at) {
                    self.runs[at] = "20";
                }
            }
            Action::GoBack { unit: id, .. } => {
                let at = unit(id);
                self.up_at[at] = self.now + SignedDuration::from_secs(10);
                self.runs[at] = "18";
            }
            Action::Visit {
                unit: id,
                phase: Phase::Prepare,
                ..
            } if self.unprepared == Some(unit(id)) => {
                self.unprepared = None;
                return Outcome::Failed {
                    why: "the package is not there".to_owned(),
                };
            }
            Action::Visit { .. } | Action::Restart { .. } | Action::Collect { .. } => {}
            other => panic!("{other:?}"),
        }
        Outcome::Done { note: String::new() }
    }

    fn drive_on(&mut self) -> Ending {
        self.drive_on_to(|_| false).unwrap()
    }

    /// The same, or until then.
    fn drive_on_to(&mut self, until: impl Fn(&Self) -> bool) -> Option<Ending> {
        for _ in 0..2_000 {
            if until(self) {
                return None;
            }
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
                        let ours = match self.run.may_stop(&snapshot, &units) {
                            Ok(()) => Answer::Yes,
                            Err(why) => Answer::No { why },
                        };
                        self.write(Event::Judged {
                            units,
                            ours,
                            theirs: Answer::Yes,
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
                        let is_off = |at: usize| {
                            let changes = matches!(
                                &action,
                                Action::Visit {
                                    phase: Phase::Change,
                                    ..
                                }
                            );
                            changes && action.unit() == Some(&osd(at))
                        };
                        if self.off.is_some_and(is_off) {
                            self.off = None;
                            self.ask(Command::Confirm {
                                host: HostName::new("h1").unwrap(),
                                ended: vec![intent],
                            });
                            continue;
                        }
                        self.write(Event::Settled { intent, outcome });
                    }
                    let slow_started = self.started.iter().any(|(at, _)| *at == self.slow.0);
                    if slow_started {
                        self.mon = self.mon.map(|_| "18");
                        self.now += SignedDuration::from_secs(std::mem::take(&mut self.passes));
                    }
                    if slow_started && let Some(command) = self.asks.take() {
                        self.ask(command);
                    }
                }
                Decision::Wait { until, why } if why.code == Code::OutsideWindow => {
                    self.now = until.unwrap();
                }
                // As often as a driver looks.
                Decision::Wait { until, .. } => {
                    let soon = self.now + SignedDuration::from_secs(5);
                    self.now = until.map_or(soon, |until| until.min(soon));
                }
                Decision::Hold(why) if why.code == Code::Paused => self.ask(Command::Resume),
                Decision::Hold(why) => panic!("{why}"),
                Decision::Over(ending) => return Some(ending),
            }
        }
        panic!("it never ends: {:?}", self.started);
    }

    fn ask(&mut self, command: Command) {
        let by = "anna@ops1".to_owned();
        self.write(Event::Asked { command, by });
    }

    fn joined(&self) -> Vec<(usize, usize)> {
        let joined = self.journal.iter().filter_map(|event| match event {
            Event::WaveJoined { units, passed } => Some((units.len(), passed.len())),
            _ => None,
        });
        joined.collect()
    }

    fn started_at(&self, osd: usize) -> i64 {
        self.started.iter().find(|(at, _)| *at == osd).unwrap().1
    }
}

/// In what order the planner takes them: the slow one is of the second wave.
fn slow(world: &mut World) -> usize {
    let mut trial = World::new(true);
    trial.slow = (6, 0);
    assert_eq!(trial.drive_on(), Ending::Done);
    let slow = trial.started[2].0;
    world.slow.0 = slow;
    slow
}

#[test]
fn while_the_last_of_a_wave_is_waited_for_others_join_it() {
    let mut world = World::new(false);
    let slow = slow(&mut world);
    assert_eq!(world.drive_on(), Ending::Done);
    assert_eq!(world.runs, ["20"; 6]);
    assert_eq!(
        world.joined(),
        [(1, 1), (1, 1)],
        "one beside the one that is late, twice"
    );
    let second = world.started_at(slow);
    let next = world.started.iter().map(|(_, at)| *at).filter(|at| *at > second);
    assert_eq!(
        next.min(),
        Some(second + 10 + 5),
        "once the others are up and all gates have held"
    );
    let late = second + 300;
    assert!(
        world.started.iter().all(|(_, at)| *at < late),
        "{:?}",
        world.started
    );
    assert!(world.seconds() < late + 60, "{} s", world.seconds());
}

#[test]
fn with_a_barrier_all_wait_for_the_last() {
    let mut world = World::new(true);
    let slow = slow(&mut world);
    assert_eq!(world.drive_on(), Ending::Done);
    assert_eq!(world.joined(), []);
    let late = world.started_at(slow) + 300;
    assert_eq!(world.started.iter().filter(|(_, at)| *at >= late).count(), 2);
}

#[test]
fn nobody_joins_while_data_recovers() {
    let mut world = World::new(false);
    let slow = slow(&mut world);
    world.recovers = 120;
    assert_eq!(world.drive_on(), Ending::Done);
    let second = world.started_at(slow);
    let next = world
        .started
        .iter()
        .map(|(_, at)| *at)
        .filter(|at| *at > second)
        .min();
    assert!(next.unwrap() >= second + 10 + 120, "{:?}", world.started);
}

#[test]
fn nobody_joins_once_a_person_has_asked_for_an_end() {
    for command in [Command::Pause, Command::Abort, Command::Rollback] {
        let mut world = World::new(false);
        let slow = slow(&mut world);
        world.asks = Some(command.clone());
        let ending = world.drive_on();
        assert_eq!(world.joined(), [], "{command:?}");
        let late = world.started_at(slow) + 300;
        assert!(world.seconds() >= late, "it is waited for: {ending:?}");
    }
}

/// It never is: nobody joins once it is overdue, and what goes back is what is in its wave then.
#[test]
fn whoever_is_never_up_fails_the_wave_and_who_has_passed_stays() {
    let mut world = World::new(false);
    slow(&mut world);
    world.slow.1 = 1_000_000;
    let ending = world.drive_on();
    assert!(matches!(ending, Ending::RolledBack { .. }), "{ending:?}");
    assert_eq!(world.joined().len(), 2);
    let on_20 = world.runs.iter().filter(|runs| **runs == "20").count();
    assert_eq!(
        on_20, 4,
        "the first wave, and those that had passed: {:?}",
        world.runs
    );
}

/// What a canary is for.
#[test]
fn nobody_joins_the_first_wave_of_a_stage() {
    let mut world = World::new(false);
    slow(&mut world);
    world.slow.0 = {
        let mut trial = World::new(true);
        trial.slow = (6, 0);
        trial.drive_on();
        trial.started[0].0
    };
    assert_eq!(world.drive_on(), Ending::Done);
    let first = world.started[0].1;
    assert!(
        world
            .started
            .iter()
            .all(|(_, at)| *at == first || *at >= first + 300),
        "{:?}",
        world.started
    );
}

#[test]
fn a_wave_of_which_nobody_is_late_is_over_and_nobody_joins_it() {
    let mut world = World::new(false);
    world.slow = (6, 0);
    assert_eq!(world.drive_on(), Ending::Done);
    assert_eq!(world.joined(), []);
}

/// Its start was reported as done, and the old release is what serves.
#[test]
fn nobody_joins_beside_one_that_serves_on_what_it_ran_before() {
    let mut world = World::new(false);
    slow(&mut world);
    let mut trial = World::new(true);
    trial.slow = (6, 0);
    trial.drive_on();
    // Of the same wave as the one that is late.
    world.stays = Some(trial.started[3].0);
    let ending = world.drive_on();
    assert_eq!(world.joined(), [], "{ending:?}");
}

#[test]
fn nobody_joins_beside_one_whose_host_is_off() {
    let mut world = World::new(false);
    let slow = slow(&mut world);
    world.off = Some(slow);
    assert_eq!(world.drive_on(), Ending::Done);
    assert_eq!(world.joined(), []);
}

#[test]
fn nobody_joins_outside_the_windows_of_policy() {
    let window = serde_json::json!({ "from": "00:00", "until": "00:05", "zone": "UTC" });
    let window: Window = serde_json::from_value(window).unwrap();
    for (passes, joins) in [(0, true), (290, false)] {
        let mut world = World::inside(false, vec![window.clone()]);
        slow(&mut world);
        world.slow.1 = 500;
        world.passes = passes;
        assert_eq!(world.drive_on(), Ending::Done);
        assert_eq!(!world.joined().is_empty(), joins, "after {passes} s");
    }
}

#[test]
fn who_joins_and_cannot_be_prepared_is_set_aside_and_done_later() {
    let mut world = World::new(false);
    slow(&mut world);
    let mut trial = World::new(false);
    trial.slow = world.slow;
    trial.drive_on();
    // The first that joins.
    world.unprepared = Some(trial.started[4].0);
    assert_eq!(world.drive_on(), Ending::Done);
    assert_eq!(world.unprepared, None);
    let aside = |event: &Event| matches!(event, Event::SetAside { reason, .. } if reason.code == Code::CouldNotBePrepared);
    assert_eq!(world.journal.iter().filter(|event| aside(event)).count(), 1);
    assert_eq!(world.runs, ["20"; 6]);
}

#[test]
fn who_joins_is_of_the_waves_own_stage() {
    let mut world = World::new(false);
    let slow = slow(&mut world);
    world.mon = Some("20");
    world.drive_on_to(|world| !world.joined().is_empty() || world.seconds() > 100);
    let in_wave = world.run.wave().map(|wave| wave.units.contains_key(&mon()));
    assert_eq!(in_wave, Some(false), "beside osd.{slow}");
}
