//! The events of a journal, which is an intent log: every change of the cluster is announced first.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::model::{
    ClusterId, ClusterName, ConditionName, GuardName, HostName, PartName, Phase, Policy, Reason, Revision,
    RunId, Target, Topology, UnitId,
};
use crate::plan::{Move, Plan};

/// The place of an event in its journal, from 1, without gaps.
pub type Seq = u64;

/// An event in its place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// Its place.
    pub seq: Seq,
    /// When it was written. Information: order is `seq`.
    pub at: Timestamp,
    /// What happened.
    #[serde(flatten)]
    pub event: Event,
}

/// What happened, or is about to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum Event {
    /// The run starts.
    Started(Box<Start>),
    /// A process became the one writer.
    LeaseTaken {
        /// Its fencing token: it only grows.
        fence: u64,
        /// Which incarnation of which process on which host.
        holder: String,
    },
    /// Something was done that is not in this journal: it was restored from a backup, or another process had the lock. The
    /// fence is raised everywhere. What was entered is not relied on: it is left, and checked again.
    JournalBehind,
    /// A plan, made from a fresh observation; the one before is its parent.
    Planned {
        /// The plan.
        plan: Box<Plan>,
    },
    /// A wave starts: its guards are taken, then both checks are made, then it is visited.
    WaveOpened {
        /// Of which stage.
        stage: PartName,
        /// Its units, with what they run now.
        units: Vec<(UnitId, Revision)>,
        /// What did not serve before it: that is not laid to a later fault.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        not_serving: Vec<UnitId>,
    },
    /// More units join the open wave: others of it are done, and there is room. They are those of the first wave of the plan
    /// right before.
    WaveJoined {
        /// They, with what they run now.
        units: Vec<(UnitId, Revision)>,
        /// Those that are done and leave it: they serve, and what keeps gates shut is not theirs.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        passed: Vec<UnitId>,
    },
    /// Both checks were made: whether a set may go down now.
    Judged {
        /// The set.
        units: Vec<UnitId>,
        /// Our own check on fresh facts.
        ours: Answer,
        /// The system's own oracle.
        theirs: Answer,
        /// When the facts of stagger's own check had come in, since when this counts; earlier releases wrote when they were
        /// asked for, or nothing.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        facts: Option<Timestamp>,
    },
    /// The wave is not carried out: a check did not agree. Nothing of it was touched.
    WaveDropped {
        /// Why.
        reason: Reason,
    },
    /// Something is about to be done. Its key is the run and this event's place.
    Intent {
        /// What.
        action: Action,
        /// It is not started after that: the approval has expired by then. `None`: it needs no approval.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        before: Option<Timestamp>,
    },
    /// It was done, or could not be.
    Settled {
        /// The place of its intent.
        intent: Seq,
        /// How it ended.
        outcome: Outcome,
    },
    /// The gates that are not open are now these.
    GatesTurned {
        /// Each with its why; none: all are open.
        shut: Vec<(ConditionName, String)>,
    },
    /// A wave stays unhealthy: what follows is policy. Of one that has failed: by now nothing speaks against the change.
    WaveFailed {
        /// The units that are to blame, as far as that is known.
        units: Vec<UnitId>,
        /// Why.
        reason: Reason,
        /// The change never came to these, which are as they were or serve on what they ran before: nothing speaks against it,
        /// and no other unit is rolled back.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        alone: bool,
    },
    /// What spoke against the wave is gone: its units serve on the target after all.
    WaveRecovered,
    /// All gates of the wave have held: its units serve on the target.
    WavePassed,
    /// The wave is back on the release before, and its gates have held there.
    WaveWentBack,
    /// A step's condition holds.
    StepPassed {
        /// Which.
        step: PartName,
    },
    /// A unit is not retried before that time, and the rest continues.
    SetAside {
        /// Which.
        unit: UnitId,
        /// Why.
        reason: Reason,
        /// When it is tried again; `None`: not in this run.
        until: Option<Timestamp>,
    },
    /// A command was received.
    Asked {
        /// What.
        command: Command,
        /// Who, as the system knows them: `anna@ops1`.
        by: String,
    },
    /// The run waits for more than time.
    Held {
        /// For what.
        reason: Reason,
    },
    /// It waits no longer.
    Released,
    /// The run is over.
    Ended {
        /// How.
        outcome: Ending,
    },
}

/// What a run is made of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Start {
    /// Version of the journal's events.
    pub version: u32,
    /// Its name.
    pub run: RunId,
    /// Of which cluster.
    pub cluster: ClusterName,
    /// The cluster's own identity; `None`: it was not read when the run started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<ClusterId>,
    /// The wanted state.
    pub target: Target,
    /// How bold to be.
    pub policy: Policy,
    /// The backend's own memory of how things were before.
    pub baseline: serde_json::Value,
    /// Where units were when it started: for people, nothing is decided by it. Earlier releases did not write it.
    #[serde(default, skip_serializing_if = "Topology::is_empty")]
    pub topology: Topology,
}

/// The commands of operators to a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "command", rename_all = "kebab-case")]
pub enum Command {
    /// No new wave.
    Pause,
    /// Continue.
    Resume,
    /// Pass a point of no return.
    Approve {
        /// Its name.
        door: PartName,
    },
    /// Finish the wave, clean up, and end.
    Abort,
    /// Bring what was changed back to the release before, as far as that is possible.
    Rollback,
    /// A host is off, and nothing that was started on it continues: as confirmed by an operator, what is open there has failed.
    Confirm {
        /// Which host.
        host: HostName,
        /// What was open there, as who carries the run out found it when it took the word.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        ended: Vec<Seq>,
    },
    /// How one effect ended, as settled by an operator.
    Settle {
        /// The place of its intent.
        intent: Seq,
        /// Whether the state wanted is there.
        done: bool,
    },
}

/// An answer of one of the two checks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "answer", rename_all = "kebab-case")]
pub enum Answer {
    /// It may.
    Yes,
    /// It may not.
    No {
        /// What it would break.
        why: String,
    },
    /// The check has no answer now.
    Unknown {
        /// Why not.
        why: String,
    },
    /// The system has no such oracle.
    NoOracle,
    /// The oracle says no because of what an operator has permitted by name for this very unit.
    Overridden {
        /// What it said, and whose word stands against it.
        why: String,
    },
}

impl Answer {
    /// Whether the verdict permits the stop.
    pub fn agrees(&self) -> bool {
        matches!(self, Self::Yes | Self::NoOracle | Self::Overridden { .. })
    }
}

/// One effect on the world. Every effect is an *ensure*: it names the state wanted.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "action", rename_all = "kebab-case")]
pub enum Action {
    /// Take or renew a guard.
    TakeGuard {
        /// Which.
        guard: GuardName,
        /// The units; empty: the whole cluster.
        units: Vec<UnitId>,
        /// It goes by itself after so many seconds.
        expires: u32,
    },
    /// Give a guard back.
    DropGuard {
        /// Which.
        guard: GuardName,
        /// The units.
        units: Vec<UnitId>,
    },
    /// One phase of a unit's turn.
    Visit {
        /// Which unit.
        unit: UnitId,
        /// Which phase.
        phase: Phase,
        /// What it should run afterwards.
        revision: Revision,
        /// Moves of its guests before it goes down; undone on leave.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        moves: Vec<Move>,
    },
    /// The corrective step: start it again as it is.
    Restart {
        /// Which unit.
        unit: UnitId,
    },
    /// Bring a unit back.
    GoBack {
        /// Which unit.
        unit: UnitId,
        /// What it ran before.
        revision: Revision,
        /// Whether its data is rebuilt.
        rebuild: bool,
    },
    /// A step, once for the whole cluster.
    Step {
        /// Which.
        step: PartName,
    },
    /// Collect diagnostics before anything is ended.
    Collect {
        /// Of which units.
        units: Vec<UnitId>,
    },
}

impl Action {
    /// The unit that it takes down, brings up or prepares; `None`: it is about several or none.
    pub fn unit(&self) -> Option<&UnitId> {
        match self {
            Self::Visit { unit, .. } | Self::Restart { unit } | Self::GoBack { unit, .. } => Some(unit),
            Self::TakeGuard { .. } | Self::DropGuard { .. } | Self::Step { .. } | Self::Collect { .. } => {
                None
            }
        }
    }
}

/// How an effect ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "outcome", rename_all = "kebab-case")]
pub enum Outcome {
    /// The state wanted is there.
    Done {
        /// A note for the operator: `up after 4.2 s`.
        note: String,
    },
    /// It is not.
    Failed {
        /// What was tried, on what, and why it failed.
        why: String,
    },
    /// Nothing was started, since the approval had expired: the checks are repeated.
    NotBegun {
        /// What kept it back for so long.
        why: String,
    },
}

/// An effect to be announced and carried out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Effect {
    /// What.
    pub action: Action,
    /// It is not begun after that; `None`: whenever.
    pub before: Option<Timestamp>,
}

impl From<Action> for Effect {
    fn from(action: Action) -> Self {
        Self { action, before: None }
    }
}

impl From<Effect> for Event {
    fn from(Effect { action, before }: Effect) -> Self {
        Self::Intent { action, before }
    }
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "ending", rename_all = "kebab-case")]
pub enum Ending {
    /// Every unit serves on the target, and every step is done.
    Done,
    /// All that could be done is done; some units or steps were left.
    Incomplete {
        /// Which, with the reason.
        left: Vec<(String, Reason)>,
    },
    /// It was rolled back, as far as that is supported.
    RolledBack {
        /// Why.
        reason: Reason,
    },
    /// An operator aborted it.
    Aborted,
}
