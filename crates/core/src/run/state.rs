//! A run is a fold over its journal.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};

use super::event::{Action, Answer, Ending, Entry, Event, Seq, Start};
use super::visit::{OpenWave, UndrainRetry};
use crate::model::{ConditionName, GuardName, HostName, PartName, Reason, Revision, UnitId};
use crate::plan::Plan;

/// An event that cannot follow those before it: the journal is not one of ours, or was altered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("journal event {seq} cannot follow those before it: {why}")]
pub struct IllegalEvent {
    /// The event's place.
    pub seq: Seq,
    /// Why not.
    pub why: &'static str,
}

/// What a run has come to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct State {
    pub(super) start: Box<Start>,
    pub(super) started_at: Timestamp,
    pub(super) seq: Seq,
    pub(super) fence: u64,
    pub(super) holder: String,
    /// The newest token whose holder has written something of its own: before that it had ruled out
    /// stray calls of all holders before.
    pub(super) ruled_out: u64,
    /// The tokens since then whose holders have only written that they took the lock.
    pub(super) taken: BTreeSet<u64>,
    /// The place of the last event that changed the world, or may have: what was observed before it
    /// is old.
    pub(super) changed: Seq,
    /// The place of the last answer that did not agree to a set: a judge may know of a fault that what was observed before it
    /// does not show.
    pub(super) refused: Seq,
    pub(super) plan: Option<Box<Plan>>,
    /// Whether the plan was made since the last wave ended.
    pub(super) plan_is_fresh: bool,
    pub(super) open: BTreeMap<Seq, Action>,
    /// Until when those of them may begin that both judges had to agree to.
    pub(super) deadlines: BTreeMap<Seq, Timestamp>,
    /// Under which fencing token each of them was announced.
    pub(super) announced: BTreeMap<Seq, u64>,
    pub(super) wave: Option<OpenWave>,
    pub(super) guards: BTreeMap<(GuardName, Vec<UnitId>), TakenGuard>,
    /// Waves passed in each stage; growth continues from there.
    pub(super) earned: BTreeMap<PartName, u32>,
    /// What this run has changed, with what it ran before.
    pub(super) done: BTreeMap<UnitId, Revision>,
    /// Whose software was laid out, with which revision.
    pub(super) prepared: BTreeMap<UnitId, Revision>,
    pub(super) last_wave: Option<LastWave>,
    pub(super) aside: BTreeMap<UnitId, Aside>,
    /// Units whose visits were not over when their waves ended.
    pub(super) owed: BTreeSet<UnitId>,
    /// Of those, the units with failed undrain attempts.
    pub(super) giving_back: BTreeMap<UnitId, UndrainRetry>,
    pub(super) judged: Option<LatestVerdicts>,
    pub(super) gates: Option<Gates>,
    pub(super) doors: BTreeSet<PartName>,
    pub(super) steps: BTreeSet<PartName>,
    pub(super) step: Option<SettledStep>,
    pub(super) paused: bool,
    pub(super) aborting: bool,
    pub(super) going_back: Option<Reason>,
    /// A wave failed and is back on the release before: the run ends there.
    pub(super) rolled_back: Option<Reason>,
    pub(super) held: Option<(Reason, Timestamp)>,
    /// Hosts that an operator confirmed as off to the current holder.
    pub(super) off: BTreeSet<HostName>,
    pub(super) ended: Option<Ending>,
    pub(super) ended_at: Option<Timestamp>,
    /// What the time of day is behind of the time by which it is carried out. The journal does not know of it.
    pub(super) behind: SignedDuration,
}

/// A guard that was taken, or may have been.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TakenGuard {
    /// When it goes by itself.
    pub(super) until: Timestamp,
    /// Why taking it failed, if it did and it was not held before.
    pub(super) failed: Option<String>,
    /// When taking or renewing it failed the last time, if it has not been done since.
    pub(super) tried: Option<Timestamp>,
    /// The number of failed attempts to clear it.
    pub(super) drops: u32,
}

/// The last step that was tried.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SettledStep {
    pub(super) step: PartName,
    pub(super) failed: Option<String>,
    pub(super) at: Timestamp,
}

/// The wave before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LastWave {
    pub(super) at: Timestamp,
    /// It was the first of its stage in this run.
    pub(super) canary: bool,
}

/// A unit that is set aside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Aside {
    pub(super) reason: Reason,
    pub(super) until: Option<Timestamp>,
    pub(super) tries: u32,
}

/// The last answers of the judges.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LatestVerdicts {
    pub(super) seq: Seq,
    pub(super) at: Timestamp,
    pub(super) answers: BTreeMap<Vec<UnitId>, SetVerdicts>,
}

/// What both judges have said of a set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SetVerdicts {
    pub(super) ours: Answer,
    pub(super) theirs: Answer,
    /// When the second of them had answered.
    pub(super) at: Timestamp,
    /// Since when it counts: the facts for stagger's own check had arrived by then.
    pub(super) since: Timestamp,
}

impl SetVerdicts {
    /// Whether both agree.
    pub(super) fn is_yes(&self) -> bool {
        self.ours == Answer::Yes && self.theirs.agrees()
    }
}

/// Which gates are shut, since when.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Gates {
    pub(super) shut: Vec<(ConditionName, String)>,
    pub(super) since: Timestamp,
}

impl State {
    /// Observations from before this place are not used for decisions.
    pub(super) fn facts_since(&self) -> Seq {
        self.changed.max(self.refused)
    }

    /// The state after the first event, which must be `Started`.
    pub(super) fn first(entry: Entry) -> Result<Self, IllegalEvent> {
        let Entry { seq, at, event } = entry;
        let Event::Started(start) = event else {
            return Err(IllegalEvent {
                seq,
                why: "the first event must be the start",
            });
        };
        if start.version > super::VERSION {
            return Err(IllegalEvent {
                seq,
                why: "it was written by a later release of stagger",
            });
        }
        Ok(Self {
            start,
            started_at: at,
            seq,
            fence: 0,
            holder: String::new(),
            ruled_out: 0,
            taken: BTreeSet::new(),
            changed: seq,
            refused: seq,
            plan: None,
            plan_is_fresh: false,
            open: BTreeMap::new(),
            deadlines: BTreeMap::new(),
            announced: BTreeMap::new(),
            wave: None,
            guards: BTreeMap::new(),
            earned: BTreeMap::new(),
            done: BTreeMap::new(),
            prepared: BTreeMap::new(),
            last_wave: None,
            aside: BTreeMap::new(),
            owed: BTreeSet::new(),
            giving_back: BTreeMap::new(),
            judged: None,
            gates: None,
            doors: BTreeSet::new(),
            steps: BTreeSet::new(),
            step: None,
            paused: false,
            aborting: false,
            going_back: None,
            rolled_back: None,
            held: None,
            off: BTreeSet::new(),
            ended: None,
            ended_at: None,
            behind: SignedDuration::ZERO,
        })
    }
}
