//! The history of a run: its waves with each unit's visit, its waits, and its commands.
//!
//! A fold over the events that keeps times, where the run's own state ([`stagger_core::run::Run`]) keeps what
//! decisions need. It accepts every journal, and shows what a journal with gaps contains.

mod fold;
mod record;

pub use fold::HistoryRecorder;
pub use record::{
    Activity, GuardRecord, Hold, Interval, Judgement, OperatorCommand, PartRecord, Shut, Span, SpanEnd,
    StepRecord, VisitRecord, WaveEnd, WaveRecord,
};

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use stagger_core::model::{ClusterName, Kind, Reason, RunId, Topology, UnitId};
use stagger_core::run::{Ending, Entry};

/// How far the turn of a unit has come, for the map.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum UnitProgress {
    /// Its turn has not come.
    Waiting,
    /// Its software is laid out; it serves.
    Preparing,
    /// It is out of service for this run.
    Down,
    /// It was changed, and its wave waits for its gates.
    Verifying,
    /// Its wave has passed.
    Done,
    /// Its wave failed because of it, or it could not be changed.
    Failed,
    /// It is back on the release before.
    RolledBack,
    /// It needs the change and does not get it.
    Skipped,
}

impl UnitProgress {
    /// All of them, in the order of a legend.
    pub const ALL: [Self; 8] = [
        Self::Waiting,
        Self::Preparing,
        Self::Down,
        Self::Verifying,
        Self::Done,
        Self::Failed,
        Self::RolledBack,
        Self::Skipped,
    ];

    /// Its word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Preparing => "preparing",
            Self::Down => "down",
            Self::Verifying => "verifying",
            Self::Done => "done",
            Self::Failed => "failed",
            Self::RolledBack => "rolled back",
            Self::Skipped => "skipped",
        }
    }

    /// Its glyph, one column wide, which distinguishes it without colours.
    pub fn glyph(self) -> char {
        match self {
            Self::Waiting => '·',
            Self::Preparing => '○',
            Self::Down => '▼',
            Self::Verifying => '◆',
            Self::Done => '●',
            Self::Failed => '✗',
            Self::RolledBack => '◀',
            Self::Skipped => '–',
        }
    }
}

/// A unit that a plan has named.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnitRecord {
    /// Which kind.
    pub kind: Kind,
    /// How far its turn has come.
    pub state: UnitProgress,
}

/// What a run did, and when.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct History {
    /// Which run.
    pub run: RunId,
    /// Of which cluster.
    pub cluster: ClusterName,
    /// What it was to do.
    pub title: String,
    /// When it began.
    pub began: Timestamp,
    /// When its last event was written.
    pub last: Timestamp,
    /// How it ended, if it did.
    pub ended: Option<Ending>,
    /// How long its first plan expected it to take; `None`: nothing was planned.
    pub forecast: Option<SignedDuration>,
    /// Waves and steps in the order in which they began.
    pub parts: Vec<PartRecord>,
    /// What was held or waited for that is more than time, in order.
    pub holds: Vec<Hold>,
    /// Guards, in the order in which they were taken.
    pub guards: Vec<GuardRecord>,
    /// What people asked for.
    pub words: Vec<OperatorCommand>,
    /// Processes that carried it out: since when, token, holder.
    pub holders: Vec<(Timestamp, u64, String)>,
    /// Units that were set aside for a time or for good, in order.
    pub aside: Vec<(Timestamp, UnitId, Reason)>,
    /// Each unit that a plan has named.
    pub units: BTreeMap<UnitId, UnitRecord>,
    /// Where they were when it began.
    pub topology: Topology,
    /// Kinds of units, in the order in which their stages are planned.
    kinds: Vec<Kind>,
}

impl History {
    /// What a journal tells; `None`: its first event is not the start of a run.
    pub fn of(entries: &[Entry]) -> Option<Self> {
        HistoryRecorder::of(entries).map(HistoryRecorder::into_history)
    }

    /// How long it took, or has taken so far.
    pub fn took(&self) -> SignedDuration {
        self.last.duration_since(self.began)
    }

    /// Its waves, in the order in which they were opened.
    pub fn waves(&self) -> impl Iterator<Item = &WaveRecord> {
        self.parts.iter().filter_map(|part| match part {
            PartRecord::Wave(wave) => Some(wave),
            PartRecord::Step(_) => None,
        })
    }

    /// How many units are in each state, of states that there are.
    pub fn counts(&self) -> BTreeMap<UnitProgress, usize> {
        let mut counts = BTreeMap::new();
        for unit in self.units.values() {
            *counts.entry(unit.state).or_default() += 1;
        }
        counts
    }

    /// Units with their states, as people count, by kind in the order in which their stages are planned.
    pub fn by_kind(&self) -> Vec<(&Kind, Vec<(&UnitId, UnitProgress)>)> {
        let mut kinds: Vec<(&Kind, Vec<(&UnitId, UnitProgress)>)> = Vec::new();
        for kind in &self.kinds {
            let of_it = self.units.iter().filter(|(_, unit)| unit.kind == *kind);
            let mut of_it: Vec<(&UnitId, UnitProgress)> = of_it.map(|(id, unit)| (id, unit.state)).collect();
            of_it.sort_by(|(a, _), (b, _)| a.natural_key().cmp(&b.natural_key()));
            if !of_it.is_empty() {
                kinds.push((kind, of_it));
            }
        }
        kinds
    }

    /// The most units that were out of service at one time.
    pub fn max_down(&self) -> usize {
        let mut turns: Vec<(Timestamp, bool)> = Vec::new();
        for turn in self.waves().flat_map(|wave| &wave.turns) {
            for time in turn.out_of_service() {
                turns.push((time.from, true));
                turns.push((time.to.unwrap_or(self.last), false));
            }
        }
        // Who is back at the moment in which another goes was not down together with it.
        turns.sort_unstable();
        let mut down = 0_usize;
        let mut most = 0;
        for (_, goes) in turns {
            down = if goes { down + 1 } else { down.saturating_sub(1) };
            most = most.max(down);
        }
        most
    }
}
