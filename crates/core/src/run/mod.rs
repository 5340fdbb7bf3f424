//! A plan being carried out, as a state machine.
//!
//! [`Run`] folds a journal ([`event`], [`state`]) and returns the next decision ([`decide`]); it never acts.
//! The engine records, acts, observes, and asks again.
//!
//! | module | subject |
//! |---|---|
//! | [`wave`] | an open wave: guards, checks, visits, gates |
//! | [`gate`], [`wave_gates`] | which gates are shut; waits between waves |
//! | [`guards`] | which guards to take, renew and clear |
//! | [`approval`] | which units may be stopped now |
//! | [`join`], [`continuous`] | units that join an open wave |
//! | [`retries`] | when deferred units are tried again |
//! | [`failure`], [`outside_faults`] | a wave that stays unhealthy; faults outside it |
//! | [`rollback`] | the rollback target |
//! | [`cleanup`] | units that are still drained and in no wave |
//! | [`finish`] | the end of a run |

mod approval;
mod blame;
mod cleanup;
mod confirmation;
mod continuous;
mod decide;
mod durations;
mod event;
mod failure;
mod finish;
mod fold;
mod gate;
mod guards;
mod join;
mod outside_faults;
mod retries;
mod rollback;
mod settlement;
mod stage_order;
mod state;
mod visit;
mod wave;
mod wave_gates;
mod windows;

pub use decide::{Decision, TimedObservation};
pub use durations::measured_durations;
pub use event::{Action, Answer, Command, Effect, Ending, Entry, Event, Outcome, Seq, Start};
pub use state::{IllegalEvent, State};
pub use visit::{GateWait, OpenWave, Visit, VisitDirection, VisitState, WaveFailure, WavePhase};

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};

use crate::model::{PartName, Reason, Snapshot, UnitId};
use crate::plan::Plan;

/// The newest version of the journal's events.
pub const VERSION: u32 = 1;

/// A run: what its journal has come to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    state: State,
    /// No unit joins the open wave: this process is about to stop.
    closing: bool,
}

impl Run {
    /// The run that begins with this event.
    ///
    /// # Errors
    /// It is not a start, or one written by a later release.
    pub fn begin(first: Entry) -> Result<Self, IllegalEvent> {
        Ok(Self {
            state: State::first(first)?,
            closing: false,
        })
    }

    /// The run of a whole journal; `None` if it is empty.
    ///
    /// # Errors
    /// An event that cannot follow those before it.
    pub fn replay(entries: impl IntoIterator<Item = Entry>) -> Result<Option<Self>, IllegalEvent> {
        let mut entries = entries.into_iter();
        let Some(first) = entries.next() else {
            return Ok(None);
        };
        let mut run = Self::begin(first)?;
        for entry in entries {
            run.apply(entry)?;
        }
        Ok(Some(run))
    }

    /// One more event.
    ///
    /// # Errors
    /// It cannot follow those before it.
    pub fn apply(&mut self, entry: Entry) -> Result<(), IllegalEvent> {
        self.state.apply(entry)
    }

    /// This process is about to stop: from here on no unit joins the open wave, and a wave that has not
    /// started is dropped. The journal does not record it.
    pub fn close(&mut self) {
        self.closing = true;
    }

    /// The process uses a monotonic clock, and the time of day lags behind it by `by`; windows use the time
    /// of day. The journal does not record it.
    pub fn time_of_day_is_behind(&mut self, by: SignedDuration) {
        self.state.behind = by;
    }

    /// How it began.
    pub fn start(&self) -> &Start {
        &self.state.start
    }

    /// When it began.
    pub fn started_at(&self) -> Timestamp {
        self.state.started_at
    }

    /// The place of the last event.
    pub fn seq(&self) -> Seq {
        self.state.seq
    }

    /// The fencing token of its holder, and who that is.
    pub fn holder(&self) -> (u64, &str) {
        (self.state.fence, &self.state.holder)
    }

    /// The newest fencing token whose holder has gone on after it took over. Before it did, it had ruled
    /// out stray calls of all holders before it; 0: none has.
    pub fn ruled_out(&self) -> u64 {
        self.state.ruled_out
    }

    /// The fencing tokens since [`ruled_out`](Self::ruled_out) whose holders took over and did nothing more. Whatever they
    /// had sent would be announced here.
    pub fn takeover_tokens(&self) -> &BTreeSet<u64> {
        &self.state.taken
    }

    /// The newest plan.
    pub fn plan(&self) -> Option<&Plan> {
        self.state.plan.as_deref()
    }

    /// The interruptions that are permitted, by name or kind: in the policy, and by word since then.
    pub fn permitted_interruptions(&self) -> impl Iterator<Item = String> {
        let of_policy = self.start().policy.interruptions.iter().cloned();
        let words = self.state.doors.iter().map(ToString::to_string);
        of_policy.chain(words)
    }

    /// Whether this name can be approved: a point of no return, skipped units, or an interruption that its
    /// plan names.
    pub fn knows_approval(&self, word: &PartName) -> bool {
        let interruptions = self.plan().into_iter().flat_map(|plan| &plan.interruptions);
        let mut names = interruptions.flat_map(|found| [&found.name, &found.sort]);
        self.start().target.approval_names().any(|known| known == *word)
            || names.any(|name| name == word.as_str())
    }

    /// The wave that is open.
    pub fn wave(&self) -> Option<&OpenWave> {
        self.state.wave.as_ref()
    }

    /// Our own judgement: whether these units may go down now, with what the open wave does to their guests.
    ///
    /// # Errors
    /// What they would break.
    pub fn may_stop(&self, snapshot: &Snapshot, units: &[UnitId]) -> Result<(), String> {
        self.state.may_stop(snapshot, units)
    }

    /// Intents that are not settled: what may be under way in the world.
    pub fn open(&self) -> impl Iterator<Item = (Seq, &Action)> {
        self.state.open.iter().map(|(seq, action)| (*seq, action))
    }

    /// Whether a person has said, to who carries it out now, that this host is off.
    pub fn is_host_off(&self, host: &str) -> bool {
        self.state.off.iter().any(|off| off.as_str() == host)
    }

    /// How many guards it holds, or may hold.
    pub fn guards(&self) -> usize {
        self.state.guards.len()
    }

    /// Whether guards of a wave that is over are still to be given back.
    pub fn has_uncleared_guards(&self) -> bool {
        self.state.has_uncleared_guards()
    }

    /// The time by which the effect announced at that place must start; `None`: any time.
    pub fn begins_before(&self, seq: Seq) -> Option<Timestamp> {
        self.state.deadlines.get(&seq).copied()
    }

    /// Under which fencing token it was announced, if it is not settled. An event of a journal that was put back from a
    /// backup has the place of one that is lost, and never its token.
    pub fn announced_under(&self, seq: Seq) -> Option<u64> {
        self.state.announced.get(&seq).copied()
    }

    /// The action announced at that place, if it is not settled.
    pub fn intent(&self, seq: Seq) -> Option<&Action> {
        self.state.open.get(&seq)
    }

    /// How many units it has changed.
    pub fn changed(&self) -> usize {
        self.state.done.len()
    }

    /// How many waves it has passed.
    pub fn waves_passed(&self) -> u32 {
        self.state.earned.values().sum()
    }

    /// The gates that are shut, with their why; `None`: none is waited for.
    pub fn gates(&self) -> Option<(&[(crate::model::ConditionName, String)], Timestamp)> {
        self.state
            .gates
            .as_ref()
            .map(|gates| (gates.shut.as_slice(), gates.since))
    }

    /// Units set aside, with the reason and when they are tried again.
    pub fn set_aside_units(
        &self,
    ) -> impl Iterator<Item = (&crate::model::UnitId, &Reason, Option<Timestamp>)> {
        self.state
            .aside
            .iter()
            .map(|(unit, aside)| (unit, &aside.reason, aside.until))
    }

    /// What it is held by, since when.
    pub fn held(&self) -> Option<(&Reason, Timestamp)> {
        self.state.held.as_ref().map(|(reason, since)| (reason, *since))
    }

    /// Whether it goes back, and why.
    pub fn rollback_reason(&self) -> Option<&Reason> {
        self.state.going_back.as_ref()
    }

    /// Steps that were passed.
    pub fn steps(&self) -> impl Iterator<Item = &crate::model::PartName> {
        self.state.steps.iter()
    }

    /// How it ended, if it did.
    pub fn ended(&self) -> Option<&Ending> {
        self.state.ended.as_ref()
    }

    /// When it ended, if it did.
    pub fn ended_at(&self) -> Option<Timestamp> {
        self.state.ended_at
    }
}
