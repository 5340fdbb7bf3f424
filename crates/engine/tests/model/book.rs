//! The journal, folded by the real [`Run`], and the real [`Run::next`]: both are pure, so each fold and
//! each decision is made once and looked up afterwards.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use sha2::{Digest as _, Sha256};
use stagger_core::model::{
    BudgetsBuilder, ClusterName, GoingBack, Growth, GuardName, GuardScope, GuardSpec, Ix, Kind, Limit, Part,
    PartName, Phase, Policy, Retry, Revision, RunId, Snapshot, StageSpec, Target, Unit, UnitId, UnitState,
    Width,
};
use stagger_core::run::{Action, Decision, Entry, Event, Run, Start, TimedObservation};

use super::world::{LAST_TICK, UNITS, What};

/// What a journal has come to.
#[derive(Debug)]
pub(crate) struct Fold {
    pub(crate) run: Run,
    /// The token of the last row.
    pub(crate) token: u8,
    /// Units whose wave has passed.
    pub(crate) passed: [bool; UNITS],
    in_wave: [bool; UNITS],
    /// A unit has two open intents.
    pub(crate) twice_open: bool,
}

/// A fold, by its place in the book.
pub(crate) type FoldIx = u32;

type Digest = [u8; 32];

#[derive(Debug)]
pub(crate) struct Book {
    folds: Vec<Fold>,
    by_content: BTreeMap<Digest, FoldIx>,
    appended: BTreeMap<(FoldIx, u8, u8, Digest), Option<FoldIx>>,
    decided: BTreeMap<(FoldIx, u8, Option<Sight>), Decision>,
    snapshots: BTreeMap<(u8, u8), Snapshot>,
}

/// What was observed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Sight {
    /// As [`World::view`](super::world::World::view) has it.
    pub(crate) view: u8,
    /// Where the journal stood then.
    pub(crate) as_of: u8,
    /// At which tick.
    pub(crate) tick: u8,
}

/// When a tick is: an approval does not last until the next.
pub(crate) fn time(tick: u8) -> Timestamp {
    let age = i64::from(Policy::default().approval_age) + 1;
    Timestamp::UNIX_EPOCH + SignedDuration::from_secs(age * i64::from(tick))
}

fn digest(text: &str) -> Digest {
    Sha256::digest(text).into()
}

impl Book {
    /// The journal of another machine, as it begins.
    pub(crate) const ELSEWHERE: FoldIx = 1;

    /// A book with two journals in it, on two machines: a run that has just begun in each. Only the first
    /// is written until a stranger comes.
    pub(crate) fn new(guard: bool) -> Self {
        // The effects of two runs have different keys.
        let begun = |seq: u64| {
            let entry = Entry {
                seq,
                at: Timestamp::UNIX_EPOCH,
                event: Event::Started(Box::new(start(guard))),
            };
            Fold {
                run: Run::begin(entry).unwrap(),
                token: 0,
                passed: [false; UNITS],
                in_wave: [false; UNITS],
                twice_open: false,
            }
        };
        Self {
            folds: vec![begun(1), begun(120)],
            by_content: BTreeMap::new(),
            appended: BTreeMap::new(),
            decided: BTreeMap::new(),
            snapshots: BTreeMap::new(),
        }
    }

    /// How many different journals it has met.
    pub(crate) fn len(&self) -> usize {
        self.folds.len()
    }

    pub(crate) fn fold(&self, at: FoldIx) -> &Fold {
        &self.folds[at as usize]
    }

    pub(crate) fn seq(&self, at: FoldIx) -> u8 {
        u8::try_from(self.fold(at).run.seq()).unwrap()
    }

    /// The journal with these events more; `None`: they cannot follow.
    pub(crate) fn append(&mut self, at: FoldIx, token: u8, tick: u8, events: &[Event]) -> Option<FoldIx> {
        let key = (at, token, tick, digest(&serde_json::to_string(events).unwrap()));
        if let Some(known) = self.appended.get(&key) {
            return *known;
        }
        let after = self.applied(at, token, tick, events);
        self.appended.insert(key, after);
        after
    }

    fn applied(&mut self, at: FoldIx, token: u8, tick: u8, events: &[Event]) -> Option<FoldIx> {
        let fold = self.fold(at);
        let (mut run, mut passed, mut in_wave) = (fold.run.clone(), fold.passed, fold.in_wave);
        for event in events {
            match event {
                Event::WaveOpened { units, .. } => {
                    in_wave = std::array::from_fn(|at| units.iter().any(|(unit, _)| *unit == name(at)));
                }
                Event::WavePassed => {
                    passed = std::array::from_fn(|at| passed[at] || in_wave[at]);
                }
                _ => {}
            }
            let entry = Entry {
                seq: run.seq() + 1,
                at: time(tick),
                event: event.clone(),
            };
            run.apply(entry).ok()?;
        }
        let mut open: Vec<usize> = run.open().map(|(_, action)| what(action).unit()).collect();
        open.sort_unstable();
        let twice_open = open.windows(2).any(|pair| pair[0] == pair[1]);
        let content = digest(&format!("{run:?} {token} {passed:?}"));
        let next = self.folds.len() as FoldIx;
        let known = *self.by_content.entry(content).or_insert(next);
        if known == next {
            self.folds.push(Fold {
                run,
                token,
                passed,
                in_wave,
                twice_open,
            });
        }
        Some(known)
    }

    /// What the real run decides on that journal at that tick, with what was observed.
    pub(crate) fn decide(&mut self, at: FoldIx, tick: u8, seen: Option<Sight>) -> Decision {
        let key = (at, tick, seen);
        if let Some(decision) = self.decided.get(&key) {
            return decision.clone();
        }
        let snapshot = seen.map(|sight| (self.snapshot(sight).clone(), sight.as_of));
        let seen_by_run = snapshot.as_ref().map(|(snapshot, as_of)| TimedObservation {
            snapshot,
            as_of: u64::from(*as_of),
        });
        let decision = self.fold(at).run.next(time(tick), seen_by_run);
        self.decided.insert(key, decision.clone());
        decision
    }

    pub(crate) fn snapshot(&mut self, sight: Sight) -> &Snapshot {
        let key = (sight.view, sight.tick);
        self.snapshots
            .entry(key)
            .or_insert_with(|| snapshot(sight.view, time(sight.tick)))
    }

    /// The last tick at which what is announced there may begin; `None`: whenever. Before all ticks: it has to be judged.
    pub(crate) fn ends(&self, at: FoldIx, seq: u8) -> Option<i16> {
        let before = self.fold(at).run.begins_before(u64::from(seq))?;
        let in_time = (0..=LAST_TICK).filter(|tick| time(*tick) < before);
        Some(in_time.max().map_or(-1, i16::from))
    }
}

/// The name of a unit.
pub(crate) fn name(unit: usize) -> UnitId {
    UnitId::new(format!("u.{}", unit + 1)).unwrap()
}

/// The place of the unit of that name.
pub(crate) fn place(unit: &UnitId) -> usize {
    (0..UNITS).find(|at| name(*at) == *unit).unwrap()
}

/// Nothing in the model fails for good, so nothing is restarted or brought back.
pub(crate) fn is_modelled(action: &Action) -> bool {
    matches!(
        action,
        Action::TakeGuard { .. } | Action::DropGuard { .. } | Action::Visit { .. }
    )
}

/// An action as the world knows it.
pub(crate) fn what(action: &Action) -> What {
    match action {
        Action::TakeGuard { units, .. } => What::Take(place(&units[0])),
        Action::DropGuard { units, .. } => What::Drop(place(&units[0])),
        Action::Visit {
            unit,
            phase: Phase::Enter,
            ..
        } => What::Enter(place(unit)),
        Action::Visit { unit, revision, .. } if revision.as_str() == "2" => What::Leave(place(unit)),
        Action::Visit { unit, .. } => What::LeaveAgain(place(unit)),
        Action::Restart { .. } | Action::GoBack { .. } | Action::Step { .. } | Action::Collect { .. } => {
            panic!("the model has no {action:?}: see `is_modelled`")
        }
    }
}

fn kind() -> Kind {
    Kind::new("u").unwrap()
}

fn start(guard: bool) -> Start {
    let guards = GuardSpec {
        name: GuardName::new("noout").unwrap(),
        scope: GuardScope::Wave,
        expiry: SignedDuration::from_hours(1),
        why: "so that nothing moves".to_owned(),
    };
    let stage = StageSpec {
        name: PartName::new("units").unwrap(),
        kind: kind(),
        revision: Revision::new("2").unwrap(),
        width: Width::Policy,
        phases: vec![Phase::Enter, Phase::Leave],
        guards: if guard { vec![guards] } else { Vec::new() },
        gates: Vec::new(),
        door_before_last: None,
        may_be_left: false,
        going_back: GoingBack::Restart,
        maintenance: None,
    };
    Start {
        version: stagger_core::run::VERSION,
        run: RunId::new("r").unwrap(),
        cluster: ClusterName::new("c").unwrap(),
        identity: None,
        target: Target {
            title: "1 to 2".to_owned(),
            parts: vec![Part::Stage(stage)],
            only: None,
        },
        policy: Policy {
            max_in_parallel: Limit::Count(UNITS as u32),
            growth: Growth::None,
            canary_soak: 0,
            gate_hold: 0,
            // Time stands still in the model: a unit that could not be entered is left alone for good.
            retry: Retry {
                tries: 0,
                ..Retry::default()
            },
            ..Policy::default()
        },
        baseline: serde_json::Value::Null,
        topology: stagger_core::model::Topology::default(),
    }
}

fn snapshot(view: u8, at: Timestamp) -> Snapshot {
    let unit = |nth: usize| {
        let bits = view >> (2 * (UNITS - 1 - nth));
        Unit {
            id: name(nth),
            kind: kind(),
            state: if bits & 2 == 2 {
                UnitState::Serving
            } else {
                UnitState::Down
            },
            revision: Some(Revision::new(if bits & 1 == 1 { "2" } else { "1" }).unwrap()),
            domains: BTreeMap::new(),
            precedence: 0,
            untouchable: None,
        }
    };
    let mut budgets = BudgetsBuilder::default();
    budgets.add("data", "all", 1, &[(Ix(0), 1), (Ix(1), 1)]);
    Snapshot::new(
        ClusterName::new("c").unwrap(),
        at,
        format!("state {view}"),
        (0..UNITS).map(unit).collect(),
        budgets.build(),
        Vec::new(),
        BTreeMap::new(),
    )
    .unwrap()
}
