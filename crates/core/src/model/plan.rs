//! The plan, as data.

use jiff::SignedDuration;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::{
    Absent, Bystander, ClusterName, Door, GoingBack, Kind, Move, PartName, Reason, Revision, Search, UnitId,
};

/// What will be done, in what order, and what is skipped. One wave at a time is binding, the rest is a
/// forecast: before each wave a run observes again and plans again, and the new plan names its parent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// `plan`, so that a stored document says what it is.
    pub document: String,
    /// Version of the document.
    pub version: u32,
    /// Content digest, 16 hexadecimal digits of SHA-256 over everything else.
    pub id: String,
    /// The plan that this one continues.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// Which cluster.
    pub cluster: ClusterName,
    /// The target's title.
    pub title: String,
    /// Which state of the world it was made from: `osdmap 175`.
    pub generation: String,
    /// Stages and steps that are still to be done, in order.
    pub parts: Vec<PlannedPart>,
    /// Units that need the change and do not get it, with the reason.
    pub left_alone: Vec<LeftAlone>,
    /// What the cluster's books name and nothing counts on: no part of the plan.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub absent: Vec<Absent>,
    /// Services that are interrupted while units are down, and for how long.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub interruptions: Vec<Interrupted>,
    /// Daemons that it does not touch.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bystanders: Vec<Bystander>,
    /// Seed and steps of the search, so that the same plan can be made again.
    pub search: Search,
}

/// A stage or a step with its plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum PlannedPart {
    /// Units of one kind in waves.
    Stage(PlannedStage),
    /// A thing done once.
    Step(PlannedStep),
}

impl PlannedPart {
    /// Its name.
    pub fn name(&self) -> &PartName {
        match self {
            Self::Stage(stage) => &stage.name,
            Self::Step(step) => &step.name,
        }
    }
}

/// Units of one kind in waves.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct PlannedStage {
    /// Its name.
    pub name: PartName,
    /// Which units.
    pub kind: Kind,
    /// What they will run.
    pub revision: Revision,
    /// How many units of the kind there are in all.
    pub all: u32,
    /// How many may be down at once by policy.
    pub parallel: u32,
    /// The waves in order.
    pub waves: Vec<Wave>,
    /// No plan can have fewer waves than this.
    pub at_least: u32,
    /// Why not fewer, in words.
    pub at_least_because: String,
    /// What a unit takes to go back.
    pub going_back: GoingBack,
    /// The same visits without waiting for whole waves, where hosts of guests are visited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedule: Option<Schedule>,
}

/// Units visited together.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Wave {
    /// Sorted as people count.
    pub units: Vec<UnitId>,
    /// A point of no return to pass before it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub door: Option<Door>,
    /// How long it is expected to take, gates and soak included, in seconds.
    pub seconds: u32,
    /// Moves of the guests of its units before they go down, in this order. They are undone in reverse order
    /// when the units are back.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub moves: Vec<Move>,
}

/// When each unit starts if no unit waits for a whole wave.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Schedule {
    /// How long everything takes so, in seconds.
    pub seconds: u32,
    /// In the order in which they start.
    pub turns: Vec<ScheduledVisit>,
}

/// One unit's visit in a schedule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ScheduledVisit {
    /// Which.
    pub unit: UnitId,
    /// When it starts, in seconds.
    pub start: u32,
    /// How long it takes: its moves there and back, the change, the gates.
    pub seconds: u32,
}

impl ScheduledVisit {
    /// When it is done.
    pub fn end(&self) -> u32 {
        self.start.saturating_add(self.seconds)
    }
}

/// A thing done once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct PlannedStep {
    /// Its name.
    pub name: PartName,
    /// The point of no return that it is, if it cannot be undone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub door: Option<Door>,
    /// What it does.
    pub why: String,
}

/// A service that is gone while units have their turn.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Interrupted {
    /// By which it is permitted.
    pub name: String,
    /// By which all of its sort are permitted.
    pub sort: String,
    /// How many units have a turn that brings it about.
    pub units: u32,
    /// For about how long each time, in seconds.
    pub seconds: u32,
    /// Who loses what service for that time.
    pub what: String,
    /// Whether it is permitted. If not, the plan is not started.
    pub permitted: bool,
}

/// A unit that does not get the change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct LeftAlone {
    /// Which.
    pub unit: UnitId,
    /// Of which stage.
    pub stage: PartName,
    /// Why.
    pub reason: Reason,
    /// The next part that is to be done, and that waits for it: the plan does not get there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub needed_by: Option<PartName>,
}

impl Plan {
    /// The document's name.
    pub const DOCUMENT: &str = "plan";
    /// The newest version of the document.
    pub const VERSION: u32 = 1;

    /// The same with its id computed from its content.
    #[must_use]
    pub(crate) fn identified(mut self) -> Self {
        self.id.clear();
        let bytes = serde_json::to_vec(&self).unwrap_or_default();
        super::hex(&Sha256::digest(bytes))[..16].clone_into(&mut self.id);
        self
    }

    /// Whether nothing is left to do.
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// What keeps it from its target: units that are left alone and that a later part waits for. Such a plan is
    /// not begun, unless the policy asks for what can be done.
    pub fn obstacles(&self) -> impl Iterator<Item = &LeftAlone> {
        self.left_alone.iter().filter(|left| left.needed_by.is_some())
    }

    /// The planned stages.
    pub fn stages(&self) -> impl Iterator<Item = &PlannedStage> {
        self.parts.iter().filter_map(|part| match part {
            PlannedPart::Stage(stage) => Some(stage),
            PlannedPart::Step(_) => None,
        })
    }

    /// The planned stage of that name.
    pub fn stage(&self, name: &PartName) -> Option<&PlannedStage> {
        self.stages().find(|stage| stage.name == *name)
    }

    /// How many waves in all stages.
    pub fn waves(&self) -> usize {
        self.stages().map(|stage| stage.waves.len()).sum()
    }

    /// How many waves no plan can do without.
    pub fn at_least(&self) -> u32 {
        self.stages().map(|stage| stage.at_least).sum()
    }

    /// How many units it visits.
    pub fn units(&self) -> usize {
        self.stages()
            .flat_map(|stage| &stage.waves)
            .map(|wave| wave.units.len())
            .sum()
    }

    /// How long it is expected to take.
    pub fn forecast(&self) -> SignedDuration {
        let seconds: i64 = self
            .stages()
            .flat_map(|s| &s.waves)
            .map(|w| i64::from(w.seconds))
            .sum();
        SignedDuration::from_secs(seconds)
    }

    /// The doors on the way, in order.
    pub fn doors(&self) -> Vec<&Door> {
        self.parts
            .iter()
            .flat_map(|part| match part {
                PlannedPart::Stage(stage) => stage.waves.iter().filter_map(|w| w.door.as_ref()).collect(),
                PlannedPart::Step(step) => step.door.iter().collect::<Vec<_>>(),
            })
            .collect()
    }
}
