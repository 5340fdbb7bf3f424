//! The document of `simulate` with a goal: its result on a copy of the cluster.

use schemars::JsonSchema;
use serde::Serialize;
use stagger_core::model::{ClusterName, PartName, Search, UnitId};
use stagger_core::plan::LeftAlone;

/// `simulate` with a goal: time, exposure and risk, on a copy of the cluster in memory.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Rehearsal {
    /// Which cluster was copied.
    pub(crate) cluster: ClusterName,
    /// What was wanted: `ceph 16.2.15 to 18.2.7`.
    pub(crate) title: String,
    /// The plan that was carried out: that of `plan`, by its id.
    pub(crate) plan: String,
    /// How the plan was searched for.
    pub(crate) search: Search,
    /// Draws which OSD dies when, and the small differences in how long things take.
    pub(crate) seed: u64,
    /// How the undisturbed run ended.
    pub(crate) ended: RehearsalOutcome,
    /// Why it ended so, where it did not reach its target.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) why: Option<String>,
    /// How long the undisturbed run took.
    pub(crate) time: Time,
    /// The points of no return that it passed by itself; a real run asks, unless its policy says otherwise.
    pub(crate) doors: Vec<PartName>,
    /// What the undisturbed run meant for the placement groups.
    pub(crate) exposure: Exposure,
    /// What it meant for guests, such as Ganeti's instances, where hosts have them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) guests: Option<Guests>,
    /// What one more failure would mean. Nothing, if the undisturbed run passed no wave, or without OSDs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) risk: Option<RehearsalRisk>,
    /// Units that the undisturbed run skipped.
    pub(crate) left_alone: Vec<LeftAlone>,
}

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum RehearsalOutcome {
    /// Every unit serves on the target.
    Done,
    /// All that could be done is done; some units were left.
    Incomplete,
    /// It is back where it came from.
    RolledBack,
    /// It was ended.
    Aborted,
    /// It is held: it waits for an operator, or for the cluster to be healthy again.
    Held,
    /// It came to no end.
    Endless,
}

/// How long the undisturbed run took.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Time {
    /// Waves of the plan.
    pub(crate) planned_waves: usize,
    /// Waves that were passed.
    pub(crate) waves: u32,
    /// Units of the plan.
    pub(crate) planned_units: usize,
    /// Units that were changed.
    pub(crate) units: usize,
    /// How long the plan says that it takes.
    pub(crate) forecast_seconds: i64,
    /// How long it took on the virtual clock; one that is held, until then.
    pub(crate) took_seconds: i64,
}

/// What the undisturbed run meant for the placement groups.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Exposure {
    /// All placement groups.
    pub(crate) placement_groups: usize,
    /// How many were one failure away from not serving at the worst moment, and only because of the run.
    pub(crate) worst: u64,
    /// In which stage that was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) stage: Option<String>,
    /// In which wave of that stage, from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) wave: Option<u32>,
    /// For how long in all: seconds, a placement group each.
    pub(crate) placement_group_seconds: u64,
    /// How many stopped serving because of the run. Any but 0 is a bug of ours.
    pub(crate) stopped: u64,
}

/// What the undisturbed run meant for guests.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Guests {
    /// How many run.
    pub(crate) running: usize,
    /// How often one of them, or a second copy, was moved away from its host.
    pub(crate) moves: u64,
    /// How many were down at once at worst.
    pub(crate) worst_down: u64,
}

/// What one more failure would mean.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Risk")]
pub(crate) struct RehearsalRisk {
    /// Runs in each of which one more OSD died.
    pub(crate) runs: usize,
    /// In how many of them placement groups stopped serving that would have gone on without the run.
    pub(crate) stopped_in: usize,
    /// How long it took at most until one of them served again, in seconds.
    pub(crate) longest_seconds: u64,
    /// The most such placement groups in one run.
    pub(crate) most_placement_groups: u64,
    /// In how many of them some did not serve again while the dead OSD was away: what was written while
    /// a wave was down lay on it alone, or on too few beside it.
    pub(crate) still_stopped_in: usize,
    /// Each of the runs.
    pub(crate) cases: Vec<Case>,
}

/// A run in which one more OSD died.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Case {
    /// Which.
    pub(crate) osd: UnitId,
    /// How many seconds after the run started.
    pub(crate) at_seconds: u32,
    /// How the run ended.
    pub(crate) ended: RehearsalOutcome,
    /// The stable word of the reason, where it did not reach its target.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<String>,
    /// Units that it changed.
    pub(crate) units: usize,
    /// Units that it skipped.
    pub(crate) left_alone: Vec<UnitId>,
    /// Placement groups that stopped serving and would have gone on without the run.
    pub(crate) stopped: u64,
    /// How long it took at most until one of them served again, in seconds.
    pub(crate) longest_seconds: u64,
    /// How many of them did not serve again while the dead OSD was away.
    pub(crate) still_stopped: u64,
}
