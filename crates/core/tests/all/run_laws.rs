//! The laws of a run, on random walks: whatever the world does and people ask.
#![allow(missing_docs, clippy::unwrap_used, reason = "test code")]

mod world;

use crate::random;

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use random::{Facts, HEALTH, NEW, Rng};
use stagger_core::check::may_stop;
use stagger_core::model::{Ix, Phase, Snapshot, UnitId, UnitState, Verdict};
use stagger_core::run::{
    Action, Answer, Command, Decision, Effect, Ending, Entry, Event, Outcome, Run, Seq, Start,
    TimedObservation, VERSION, VisitState,
};

/// The unit that is entered by it, if one is.
fn enters(event: &Event) -> Option<&UnitId> {
    match event {
        Event::Intent {
            action:
                Action::Visit {
                    unit,
                    phase: Phase::Enter,
                    ..
                },
            ..
        } => Some(unit),
        _ => None,
    }
}

/// A world in which everything goes at once, with whatever goes wrong.
struct Walk {
    rng: Rng,
    facts: Facts,
    run: Run,
    now: Timestamp,
    journal: Vec<Entry>,
    seen: Option<(Snapshot, Seq)>,
    /// Guards taken and not given back.
    guards: BTreeSet<String>,
    reached: BTreeMap<&'static str, u32>,
    /// How much goes wrong, in percent.
    trouble: u64,
    /// Whether something went wrong at any time.
    was_troubled: bool,
}

impl Walk {
    fn new(seed: u64) -> Self {
        let mut rng = Rng(seed);
        let facts = if rng.percent(50) {
            random::healthy(&mut rng)
        } else {
            random::facts(&mut rng)
        };
        let start = Start {
            version: VERSION,
            run: "walk".parse().unwrap(),
            cluster: "random".parse().unwrap(),
            target: facts.target.clone(),
            policy: facts.policy.clone(),
            baseline: serde_json::Value::Null,
            topology: stagger_core::model::Topology::default(),
            identity: None,
        };
        let now = Timestamp::from_second(1_000_000).unwrap();
        let first = Entry {
            seq: 1,
            at: now,
            event: Event::Started(Box::new(start)),
        };
        let trouble = *rng.pick(&[0, 3, 10]);
        let mut walk = Self {
            run: Run::begin(first.clone()).unwrap(),
            trouble,
            was_troubled: trouble > 0,
            rng,
            facts,
            now,
            journal: vec![first],
            seen: None,
            guards: BTreeSet::new(),
            reached: BTreeMap::new(),
        };
        walk.append(vec![Event::LeaseTaken {
            fence: 1,
            holder: "walk".to_owned(),
        }]);
        walk
    }

    fn append(&mut self, events: Vec<Event>) -> Vec<Seq> {
        let mut places = Vec::new();
        for event in events {
            let entry = Entry {
                seq: self.run.seq() + 1,
                at: self.now,
                event,
            };
            self.run.apply(entry.clone()).unwrap();
            // What is stored comes back.
            let text = serde_json::to_string(&entry.event).unwrap();
            assert_eq!(serde_json::from_str::<Event>(&text).unwrap(), entry.event);
            places.push(entry.seq);
            self.journal.push(entry);
        }
        places
    }

    fn reach(&mut self, what: &'static str) {
        *self.reached.entry(what).or_insert(0) += 1;
    }

    fn places(snapshot: &Snapshot, units: &[UnitId]) -> Vec<Ix> {
        units.iter().filter_map(|unit| snapshot.find(unit)).collect()
    }

    /// One decision carried out; the ending, if there is one.
    fn step(&mut self) -> Option<Ending> {
        let seen = self.seen.as_ref().map(|(snapshot, as_of)| TimedObservation {
            snapshot,
            as_of: *as_of,
        });
        let decision = self.run.next(self.now, seen);
        // The same again: it depends on nothing else.
        let again = self.run.next(
            self.now,
            self.seen.as_ref().map(|(s, as_of)| TimedObservation {
                snapshot: s,
                as_of: *as_of,
            }),
        );
        assert_eq!(decision, again);
        match decision {
            Decision::Over(ending) => return Some(ending),
            Decision::Observe => self.seen = Some((self.facts.snapshot(self.now), self.run.seq())),
            Decision::Record(events) => {
                for event in &events {
                    self.judge_record(event);
                }
                self.append(events);
            }
            Decision::Judge(sets) => self.judge(sets),
            Decision::Act { fresh, again } => self.act(fresh, &again),
            Decision::Wait { until, .. } => {
                self.reach("wait");
                self.seen = None;
                let poll = self.now.checked_add(SignedDuration::from_secs(3)).unwrap();
                self.now = until.map_or(poll, |until| until.min(poll)).max(self.now);
                self.world_goes_on();
            }
            Decision::Hold(_) => {
                self.reach("hold");
                self.seen = None;
                self.now = self.now.checked_add(SignedDuration::from_secs(60)).unwrap();
                self.world_goes_on();
                self.person();
            }
        }
        None
    }

    /// What happened in the open wave.
    fn of_the_wave(&self) -> impl Iterator<Item = &Event> {
        let opened = |entry: &&Entry| !matches!(entry.event, Event::WaveOpened { .. });
        let entries = self.journal.iter().rev().take_while(opened);
        entries.map(|entry| &entry.event)
    }

    /// Whether a person wants no wave to begin that has not begun.
    fn is_asked_to_stop(&self) -> bool {
        let (mut aborted, mut paused) = (false, false);
        for entry in &self.journal {
            if let Event::Asked { command, .. } = &entry.event {
                match command {
                    Command::Abort => (aborted, paused) = (true, false),
                    Command::Pause => paused = true,
                    Command::Resume | Command::Rollback => paused = false,
                    Command::Approve { .. } | Command::Confirm { .. } | Command::Settle { .. } => {}
                }
            }
        }
        aborted || paused
    }

    fn judge_record(&mut self, event: &Event) {
        let Event::WaveOpened { stage, units, .. } = event else {
            return;
        };
        let (snapshot, _) = self.seen.as_ref().unwrap();
        let ids: Vec<UnitId> = units.iter().map(|(unit, _)| unit.clone()).collect();
        may_stop(snapshot, &Self::places(snapshot, &ids)).unwrap();
        assert!(
            !units.is_empty() && (stage.as_str() != "mon" || units.len() == 1),
            "{units:?}"
        );
        if self.run.rollback_reason().is_none() {
            let unknown = HEALTH
                .iter()
                .find(|name| snapshot.condition(&name.parse().unwrap()).verdict != Verdict::Yes);
            assert_eq!(unknown, None, "a wave was opened while a condition is not yes");
        }
        self.reach("wave");
    }

    fn judge(&mut self, sets: Vec<Vec<UnitId>>) {
        let (snapshot, _) = self.seen.clone().unwrap();
        let mut events = Vec::new();
        for units in sets {
            let ours = match may_stop(&snapshot, &Self::places(&snapshot, &units)) {
                Ok(()) => Answer::Yes,
                Err(why) => Answer::No { why },
            };
            let why = "it was drawn".to_owned();
            let theirs = match self.rng.below(100) {
                n if n < self.trouble => Answer::No { why },
                n if n < 2 * self.trouble => Answer::Unknown { why },
                n if n < 3 * self.trouble => Answer::NoOracle,
                _ => Answer::Yes,
            };
            let facts = Some(snapshot.observed_at());
            events.push(Event::Judged {
                units,
                ours,
                theirs,
                facts,
            });
        }
        self.append(events);
    }

    fn act(&mut self, fresh: Vec<Effect>, again: &[Seq]) {
        let entering: Vec<UnitId> = fresh
            .iter()
            .filter_map(|effect| match &effect.action {
                Action::Visit {
                    unit,
                    phase: Phase::Enter,
                    ..
                } => Some(unit.clone()),
                _ => None,
            })
            .collect();
        if !entering.is_empty() && self.of_the_wave().all(|event| enters(event).is_none()) {
            assert!(
                !self.is_asked_to_stop(),
                "a wave began that nobody wants any more"
            );
        }
        if !entering.is_empty() && again.is_empty() {
            let (snapshot, _) = self.seen.as_ref().unwrap();
            may_stop(snapshot, &Self::places(snapshot, &entering)).unwrap();
            self.reach("enter");
        }
        for effect in &fresh {
            self.judge_approval(effect);
            let Effect { action, .. } = effect;
            if let Action::Restart { unit } | Action::GoBack { unit, .. } = action {
                let (snapshot, _) = self.seen.as_ref().unwrap();
                let at = snapshot.find(unit).unwrap();
                let serves = snapshot.unit(at).state == UnitState::Serving;
                let state = &self.run.wave().unwrap().units[unit].state;
                let is_restart = matches!(action, Action::Restart { .. });
                if is_restart && self.of_the_wave().any(|event| enters(event) == Some(unit)) {
                    let never = matches!(
                        state,
                        VisitState::Failed {
                            phase: Phase::Enter,
                            ..
                        } | VisitState::Stuck { .. }
                    );
                    assert!(!never, "{unit} is restarted, and was never entered");
                }
                if serves {
                    may_stop(snapshot, &[at]).unwrap();
                }
                self.reach("back or again");
            }
            if let Action::Step { .. } = action {
                let (snapshot, _) = self.seen.as_ref().unwrap();
                let all = snapshot.units().iter().filter(|unit| unit.kind.as_str() == "osd");
                let behind = all
                    .filter(|unit| unit.revision.as_ref().is_none_or(|r| r.as_str() != NEW))
                    .count();
                assert_eq!(behind, 0, "the door was passed with {behind} OSDs behind");
                self.reach("step");
            }
        }
        let mut open = self.append(fresh.into_iter().map(Event::from).collect());
        open.extend(again);
        for intent in open {
            let Some(action) = self.run.intent(intent).cloned() else {
                continue;
            };
            // Some are still under way when the driver looks again.
            if self.rng.percent(5) {
                continue;
            }
            // Whoever has to agree did so too long ago, as far as whoever carries it out knows.
            let is_late = self
                .run
                .begins_before(intent)
                .is_some_and(|before| before <= self.now);
            let outcome = if is_late || (self.run.begins_before(intent).is_some() && self.rng.percent(10)) {
                self.reach("not begun");
                Outcome::NotBegun {
                    why: "it was drawn".to_owned(),
                }
            } else {
                self.perform(&action)
            };
            self.append(vec![Event::Settled { intent, outcome }]);
        }
        self.world_goes_on();
    }

    /// What takes a unit that serves out of service rests on a yes of both judges that is fresh, and is begun while it is.
    fn judge_approval(&self, effect: &Effect) {
        let Effect { action, before } = effect;
        let Some(unit) = action.unit() else { return };
        let serves = || {
            let (snapshot, _) = self.seen.as_ref().unwrap();
            let at = snapshot.find(unit).unwrap();
            snapshot.unit(at).state == UnitState::Serving
        };
        let stops = match action {
            Action::Visit { phase, .. } => *phase == Phase::Enter,
            _ => serves(),
        };
        if !stops {
            return;
        }
        let age = SignedDuration::from_secs(i64::from(self.facts.policy.approval_age));
        let agreed = self.journal.iter().rev().find_map(|entry| match &entry.event {
            Event::Judged {
                units,
                ours: Answer::Yes,
                theirs: Answer::Yes | Answer::NoOracle,
                ..
            } if units.contains(unit) => Some(entry.at),
            _ => None,
        });
        let until = agreed.unwrap().checked_add(age).unwrap();
        assert!(
            self.now < until,
            "{action:?} on a yes of {agreed:?}, at {}",
            self.now
        );
        assert!(before.is_some_and(|before| before <= until), "{effect:?}");
    }
}

#[test]
fn random_walks_keep_the_laws_and_come_to_an_end() {
    let mut reached: BTreeMap<&str, u32> = BTreeMap::new();
    let mut endings: BTreeMap<String, u32> = BTreeMap::new();
    for seed in 0..1_100 {
        let mut walk = Walk::new(seed);
        let mut ending = None;
        for step in 0..40_000 {
            if step == 3_000 {
                walk.trouble = 0;
            }
            ending = walk.step();
            if ending.is_some() {
                break;
            }
        }
        let ending = ending.unwrap_or_else(|| {
            let last: Vec<_> = walk
                .journal
                .iter()
                .rev()
                .take(6)
                .map(|entry| &entry.event)
                .collect();
            panic!(
                "walk {seed} has no end; it is held by {:?}; last {last:#?}",
                walk.run.held()
            )
        });
        // Law 8, as far as the world let it: what three tries did not give back goes at its expiry, and the run knows it.
        assert!(
            walk.guards.len() <= walk.run.guards(),
            "walk {seed}: {:?}",
            walk.guards
        );
        if !walk.was_troubled {
            assert_eq!(walk.guards, BTreeSet::new(), "walk {seed}");
        }
        if ending == Ending::Done {
            let behind = walk
                .facts
                .units
                .iter()
                .filter(|unit| unit.revision.as_ref().is_none_or(|r| r.as_str() != NEW));
            assert_eq!(behind.count(), 0, "walk {seed}");
        }
        let replayed = Run::replay(walk.journal.clone()).unwrap().unwrap();
        assert_eq!(replayed, walk.run, "walk {seed}");
        let name = format!("{ending:?}");
        *endings
            .entry(name.split([' ', '{']).next().unwrap().to_owned())
            .or_insert(0) += 1;
        for (what, times) in walk.reached {
            *reached.entry(what).or_insert(0) += times;
        }
    }
    for what in [
        "wave",
        "enter",
        "back or again",
        "step",
        "wait",
        "hold",
        "approve",
        "accepted",
        "not begun",
        "takeover",
    ] {
        assert!(
            reached.get(what).is_some_and(|times| *times > 100),
            "{what} was hardly reached: {reached:?}"
        );
    }
    for ending in ["Done", "Incomplete", "RolledBack", "Aborted"] {
        assert!(
            endings.get(ending).is_some_and(|times| *times > 10),
            "{ending}: {endings:?}"
        );
    }
}

/// The fold takes what is legal, refuses the rest, and never panics: also not on shuffled journals.
#[test]
fn a_shuffled_journal_is_refused_or_folded_but_never_panics() {
    for seed in 0..200 {
        let mut walk = Walk::new(seed);
        for _ in 0..400 {
            if walk.step().is_some() {
                break;
            }
        }
        let mut rng = Rng(seed);
        for _ in 0..20 {
            let mut journal = walk.journal.clone();
            let (a, b) = (
                rng.below(journal.len() as u64) as usize,
                rng.below(journal.len() as u64) as usize,
            );
            journal.swap(a, b);
            if rng.percent(50) {
                for (at, entry) in journal.iter_mut().enumerate() {
                    entry.seq = at as Seq + 1;
                }
            } else if a != b {
                assert!(
                    Run::replay(journal).is_err(),
                    "places that are not in order were taken"
                );
                continue;
            }
            if let Ok(Some(run)) = Run::replay(journal) {
                let snapshot = walk.facts.snapshot(walk.now);
                let as_of = run.seq();
                let _decision = run.next(
                    walk.now,
                    Some(TimedObservation {
                        snapshot: &snapshot,
                        as_of,
                    }),
                );
            }
        }
    }
}
