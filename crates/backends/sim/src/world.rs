//! What is true of the simulated cluster, and how it goes on by itself.
//!
//! [`build`] makes it, from a specification or as the copy of a real one, of [`daemons`]. [`data`] lies on its OSDs,
//! [`faults`] befall it, [`copied_state`] says what a copy shows of itself, [`pg_availability`] counts what it comes to
//! for its placement groups, and [`monitor`] judges each second of it. Units that are drained before they are changed are
//! in [`drain`], guests in [`guests`].

mod answers;
mod budgets;
mod build;
mod copied_state;
mod daemons;
mod data;
mod drain;
mod error;
mod faults;
mod ground_truth;
mod guests;
mod monitor;
mod pg_availability;
mod placement;
mod restored_journal;

pub(crate) use monitor::Tolerance;
pub use pg_availability::{PgExposure, WaveName};

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Waker;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use stagger_core::model::{GuardName, PartName, Phase, Revision, RunId, Snapshot, UnitId};
use stagger_core::run::Action;
use stagger_engine::cluster::{Anchor, BackendError, Call, LockRecord};
use tokio::sync::oneshot;

use crate::rng::hash;
use crate::scenario::{InjectedFault, SimSpec};
pub(crate) use copied_state::CopiedState;
pub(crate) use daemons::SimDaemon;
pub(crate) use error::ObserveError;
pub use ground_truth::GroundTruth;
use guests::GuestHosts;
pub use guests::GuestsMoved;
use placement::PlacedPg;
use restored_journal::JournalState;

/// When every simulation begins.
pub const EPOCH: i64 = 1_767_225_600;

/// Where something stands among all that is due: when, then what the seed says, then which was first.
pub(crate) type EventOrder = (u64, u64, u64);

/// What a call came to.
pub(crate) type CallResult = Result<String, BackendError>;

/// What happened when everybody waited.
pub(crate) enum Advance {
    /// Something of the world's own, which nobody waits for.
    World,
    /// It is the time that somebody waited for.
    Wake(Waker),
    /// A call was answered.
    Answered,
}

/// What happens at a time.
#[derive(Debug)]
enum ScheduledEvent {
    Up {
        unit: usize,
        turn: u64,
    },
    Crash {
        unit: usize,
        turn: u64,
        again: u32,
    },
    Start {
        unit: usize,
        turn: u64,
    },
    Recovered {
        unit: usize,
        turn: u64,
    },
    FaultOn(usize),
    FaultOff(usize),
    Late(Call, Action),
    /// A call comes to where it is carried out, and its answer takes so much longer.
    Arrives(Call, Action, oneshot::Sender<CallResult>, u64),
    Answers(oneshot::Sender<CallResult>, CallResult),
}

/// A fault, and how it stands.
#[derive(Debug, Clone)]
pub(crate) struct FaultState {
    pub(crate) fault: InjectedFault,
    /// It is there now (of those that have a time).
    pub(crate) on: bool,
    armed: bool,
    pub(crate) used: u32,
    hit: Vec<usize>,
}

/// What an observation depends on: the generation, what changes without one, and why placement groups are unknown.
pub(crate) type ObservationKey = (u64, u64, Option<&'static str>);

/// The cluster.
#[derive(Debug)]
pub struct SimulatedCluster {
    pub(crate) spec: SimSpec,
    /// Milliseconds since the beginning.
    now: u64,
    /// The same, for clocks that are looked at while something happens.
    shown: Arc<AtomicU64>,
    pub(crate) daemons: Vec<SimDaemon>,
    pub(crate) by_id: BTreeMap<UnitId, usize>,
    /// What hosts of guests carry.
    pub(crate) carried: Option<GuestHosts>,
    /// What a host that was rebooted is said to run.
    pub(crate) wanted: Option<Revision>,
    /// The steps that were taken, where there is no storage.
    pub(crate) steps: BTreeSet<PartName>,
    pub(crate) pgs: Vec<PlacedPg>,
    /// The placement groups of each OSD, with its shard there.
    pub(crate) on_osd: Vec<Vec<(u32, u32)>>,
    agenda: BTreeMap<EventOrder, ScheduledEvent>,
    count: u64,
    /// Who waits for a time.
    pub(crate) sleepers: BTreeMap<EventOrder, Waker>,
    /// Whoever tells the story, to be told when nothing more can happen.
    teller: Option<Waker>,
    stuck: bool,
    pub(crate) watched: monitor::MonitorState,
    pub(crate) grace: monitor::Tolerance,
    healed: bool,
    pub(crate) faults: Vec<FaultState>,
    pub(crate) guards: BTreeMap<(GuardName, Vec<UnitId>), u64>,
    pub(crate) lock: Option<(LockRecord, u64)>,
    pub(crate) fence: u64,
    pub(crate) host_fence: BTreeMap<u32, u64>,
    /// Guards that were taken by what the journal has lost: nobody knows of them, and they go at their expiry.
    pub(crate) orphans: BTreeSet<(GuardName, Vec<UnitId>)>,
    /// Hosts that a person has said to be off: nothing there is touched until they say otherwise.
    pub(crate) said_off: BTreeSet<String>,
    /// How often the journal was put back: under which fence that was, and the last event that was left.
    pub(crate) lost: Vec<(u64, u64)>,
    /// Guests that somebody has started since it began.
    pub(crate) started_by_others: BTreeSet<String>,
    /// Who calls.
    pub(crate) caller: Option<RunId>,
    /// Whether the journal knows of all that was begun.
    pub(crate) begun: JournalState,
    /// Of each guard, by which event it was taken.
    pub(crate) taken_by: BTreeMap<(GuardName, Vec<UnitId>), u64>,
    /// What the cluster was last told of the journal.
    pub(crate) anchor: Option<Anchor>,
    pub(crate) effects: BTreeSet<String>,
    /// The calls that were carried out in part, and why they failed.
    pub(crate) failed: BTreeMap<String, String>,
    pub(crate) require: Option<Revision>,
    pub(crate) generation: u64,
    /// Counts what changes the cluster's words and not its generation.
    pub(crate) changes: u64,
    /// What was last observed, and of which state.
    pub(crate) shown_last: Option<(ObservationKey, Snapshot)>,
    pub(crate) blind_until: u64,
    pub(crate) active_mgr: Option<usize>,
    /// Which objects the placement groups' states say are missing, while those states are old.
    pub(crate) frozen: Option<Vec<Vec<bool>>>,
    osd_stops: u32,
    pub(crate) truth: GroundTruth,
    begin: Timestamp,
    /// What it is a copy of, if it is one.
    pub(crate) copy: Option<CopiedState>,
}

/// So many milliseconds after that.
pub(crate) fn after(begin: Timestamp, millis: u64) -> Timestamp {
    begin
        .saturating_add(SignedDuration::from_millis(millis.cast_signed()))
        .unwrap_or(Timestamp::MAX)
}

impl SimulatedCluster {
    /// Now.
    pub fn time(&self) -> Timestamp {
        after(self.begin, self.now)
    }

    /// When it began, and what shows how many milliseconds have passed since.
    pub(crate) fn hands(&self) -> (Timestamp, Arc<AtomicU64>) {
        (self.begin, Arc::clone(&self.shown))
    }

    /// Milliseconds since the beginning.
    pub fn elapsed(&self) -> u64 {
        self.now
    }

    /// What came of it by the truth.
    pub fn truth(&self) -> &GroundTruth {
        &self.truth
    }

    /// Whether anything is still due to happen.
    pub fn is_quiet(&self) -> bool {
        self.agenda.is_empty()
    }

    /// When an observation can first show anything else than one made now: the first look after
    /// something has happened, where the cluster is looked at again and again from now on. `None`:
    /// nothing more happens by itself.
    pub fn next_look(&self) -> Option<Timestamp> {
        let due = self.agenda.keys().next().map(|(at, ..)| *at);
        let sees = Some(self.blind_until).filter(|until| *until > self.now);
        let next = due.into_iter().chain(sees).min()?;
        let poll = u64::from(self.spec.seconds.poll.max(1)) * 1000;
        let looks = next.saturating_sub(self.now).div_ceil(poll).max(1);
        let after = SignedDuration::from_millis((looks * poll).cast_signed());
        self.time().checked_add(after).ok()
    }

    /// The guards that are set now.
    pub fn guards(&self) -> impl Iterator<Item = &GuardName> {
        let now = self.now;
        self.guards
            .iter()
            .filter(move |(_, until)| **until > now)
            .map(|((guard, _), _)| guard)
    }

    /// What each unit runs, and whether it is up.
    pub fn units(&self) -> impl Iterator<Item = (&UnitId, &Revision, bool)> {
        self.daemons.iter().map(|d| (&d.id, &d.runs, d.up))
    }

    fn due(&mut self, after: u64, what: ScheduledEvent) {
        self.count += 1;
        self.agenda.insert((self.now + after, 0, self.count), what);
    }

    /// A place among all that is due at that time, whose order is free: the seed decides.
    pub(crate) fn place(&mut self, at: u64) -> EventOrder {
        self.count += 1;
        let drawn = hash(&[self.spec.seed, at, self.count]).max(1);
        (at.max(self.now), drawn, self.count)
    }

    /// How long nothing happens.
    pub(crate) fn until_next(&self) -> Duration {
        let due = self.agenda.keys().next().map(|(at, ..)| *at);
        let sleeper = self.sleepers.keys().next().map(|(at, ..)| *at);
        let next = due.into_iter().chain(sleeper).min().unwrap_or(self.now);
        Duration::from_millis(next.saturating_sub(self.now))
    }

    /// Lets the one thing happen that is due next.
    pub(crate) fn go_on(&mut self) -> Advance {
        let due = self.agenda.keys().next().copied();
        let sleeper = self.sleepers.keys().next().copied();
        match (due, sleeper) {
            (Some(due), sleeper) if sleeper.is_none_or(|sleeper| due < sleeper) => {
                self.pass_until(due.0);
                match self.agenda.remove(&due) {
                    Some(due) => self.happen(due),
                    None => Advance::World,
                }
            }
            (_, Some(sleeper)) => {
                self.pass_until(sleeper.0);
                match self.sleepers.remove(&sleeper) {
                    Some(waker) => Advance::Wake(waker),
                    None => Advance::World,
                }
            }
            (_, None) => {
                self.stuck = true;
                match self.teller.take() {
                    Some(teller) => Advance::Wake(teller),
                    None => Advance::Answered,
                }
            }
        }
    }

    fn pass_until(&mut self, time: u64) {
        if time > self.now {
            self.watch();
            self.now = time;
            self.shown.store(time, Ordering::Relaxed);
        }
    }

    /// Whether nothing can happen any more; else this is told when it is so.
    pub(crate) fn stuck(&mut self, teller: &Waker) -> bool {
        self.teller = Some(teller.clone());
        self.stuck
    }

    /// The story is over: nobody is told any more.
    pub(crate) fn take_waker(&mut self) -> Option<Waker> {
        self.teller.take()
    }

    /// How long a question takes there, and its answer back.
    pub(crate) fn ways(&mut self) -> (Duration, Duration) {
        self.count += 1;
        let takes = u64::from(self.spec.seconds.ask) * 1000;
        let there = hash(&[self.spec.seed, self.now, self.count]) % (takes + 1);
        (Duration::from_millis(there), Duration::from_millis(takes - there))
    }

    /// A call sets out.
    pub(crate) fn send(&mut self, call: &Call, action: &Action) -> oneshot::Receiver<CallResult> {
        let (answer, answered) = oneshot::channel();
        let takes = u64::from(self.spec.seconds.call) * 1000;
        let drawn = hash(&[self.spec.seed, self.now, self.count]);
        // It is answered when all is laid out, and some hosts are twice as fast as others.
        let install = match action {
            Action::Visit {
                phase: Phase::Prepare,
                ..
            } => u64::from(self.spec.seconds.install) * (500 + drawn % 501),
            _ => 0,
        };
        let way = drawn % (takes + 1);
        let (install, before, after) = if self.is_over(call, action) {
            (0, 0, 0)
        } else {
            let (before, after) = self.durations(action);
            // Who asks once more, of what is on its way up by then, waits until it is up.
            let left = self.left_until_up(call, action);
            (install, before, left.map_or(after, |left| left.min(after)))
        };
        let there = way + install + before;
        let place = self.place(self.now + there);
        let arrives = ScheduledEvent::Arrives(call.clone(), action.clone(), answer, takes - way + after);
        self.agenda.insert(place, arrives);
        answered
    }

    /// The host has carried that call out, and only answers.
    fn is_over(&self, call: &Call, action: &Action) -> bool {
        let unit = action.unit().and_then(|unit| self.by_id.get(unit));
        self.effects.contains(&call.key()) && unit.is_some_and(|at| self.daemons[*at].up)
    }

    /// The host has carried that call out, and the unit is on its way up: for how long yet, in milliseconds.
    fn left_until_up(&self, call: &Call, action: &Action) -> Option<u64> {
        let at = *self.by_id.get(action.unit()?)?;
        if !self.effects.contains(&call.key()) {
            return None;
        }
        let comes_up = |due: &ScheduledEvent| matches!(due, ScheduledEvent::Up { unit, turn } if *unit == at && *turn == self.daemons[at].turn);
        let place = self
            .agenda
            .iter()
            .find(|(_, due)| comes_up(due))
            .map(|((at, ..), _)| *at)?;
        Some(place.saturating_sub(self.now) + 1)
    }

    fn happen(&mut self, due: ScheduledEvent) -> Advance {
        match due {
            ScheduledEvent::Up { unit, turn } if self.daemons[unit].turn == turn => self.finish_start(unit),
            ScheduledEvent::Crash { unit, turn, again } if self.daemons[unit].turn == turn => {
                let id = self.daemons[unit].id.clone();
                self.truth.fault_hit(&id);
                self.daemons[unit].failed = true;
                self.fall(unit);
                if again > 0 {
                    let turn = self.daemons[unit].turn;
                    self.due(u64::from(again) * 1000, ScheduledEvent::Start { unit, turn });
                }
            }
            ScheduledEvent::Start { unit, turn } if self.daemons[unit].turn == turn => self.start(unit),
            ScheduledEvent::Recovered { unit, turn } if self.daemons[unit].turn == turn => {
                self.recover(unit);
            }
            ScheduledEvent::Up { .. }
            | ScheduledEvent::Crash { .. }
            | ScheduledEvent::Start { .. }
            | ScheduledEvent::Recovered { .. } => {}
            ScheduledEvent::FaultOn(at) => self.fault_on(at),
            ScheduledEvent::FaultOff(at) => self.fault_off(at),
            ScheduledEvent::Late(call, action) => self.land(&call, &action),
            ScheduledEvent::Arrives(call, action, answer, back) => {
                let answered = self.perform(&call, &action);
                if back > 0 {
                    self.due(back, ScheduledEvent::Answers(answer, answered));
                } else {
                    return Self::answer(answer, answered);
                }
            }
            ScheduledEvent::Answers(answer, answered) => return Self::answer(answer, answered),
        }
        Advance::World
    }

    fn answer(to: oneshot::Sender<CallResult>, answered: CallResult) -> Advance {
        match to.send(answered) {
            Ok(()) => Advance::Answered,
            // Whoever asked is not there any more.
            Err(_) => Advance::World,
        }
    }

    /// A call has its effect after its sender has given it up.
    fn land(&mut self, call: &Call, action: &Action) {
        if self.targets_host_that_is_off(action)
            || self.fenced_in(call, action).is_err()
            || self.may_begin(call).is_err()
            || self.failed.contains_key(&call.key())
        {
            return;
        }
        self.truth.late += 1;
        self.truth.landing = true;
        if self.stops_half_way(call, action).is_ok() {
            self.take_effect(call, action);
        }
        self.truth.landing = false;
        for unit in stagger_engine::driver::units_of(action) {
            self.truth.fault_hit(&unit);
        }
    }

    /// An effect lands so much later.
    pub(crate) fn land_later(&mut self, seconds: u32, call: &Call, action: &Action) {
        self.due(
            u64::from(seconds) * 1000,
            ScheduledEvent::Late(call.clone(), action.clone()),
        );
    }

    /// How a call ended, if nothing of it is under way any more.
    pub(crate) fn knows_how_it_ended(&self, key: &str) -> Option<bool> {
        let under_way = self.agenda.values().any(|due| match due {
            ScheduledEvent::Late(call, _) | ScheduledEvent::Arrives(call, ..) => call.key() == key,
            _ => false,
        });
        (!under_way).then(|| self.effects.contains(key))
    }

    /// Whether nothing is wrong with it any more.
    pub(crate) fn is_healed(&self) -> bool {
        self.healed || self.faults.is_empty()
    }

    /// The number of a pool in the names of its placement groups.
    pub(crate) fn pool_number(&self, pool: usize) -> u32 {
        match &self.copy {
            Some(copy) => copy.pool_number(pool),
            None => pool as u32 + 1,
        }
    }

    /// The name of a host.
    pub(crate) fn host_name(&self, host: u32) -> String {
        if let Some(copy) = &self.copy {
            return copy.host(host);
        }
        format!(
            "host-{}-{}",
            placement::rack_of(&self.spec, host),
            host % self.spec.hosts_per_rack.max(1)
        )
    }

    /// The name of the rack of a host.
    pub(crate) fn rack_name(&self, host: u32) -> String {
        format!("rack-{}", placement::rack_of(&self.spec, host))
    }

    /// The name of the site of a host, if it stands in one.
    pub(crate) fn site_name(&self, host: u32) -> Option<String> {
        placement::site_of(&self.spec, host).map(|site| format!("site-{site}"))
    }
}
