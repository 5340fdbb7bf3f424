//! The target: the revision each unit should have, and the procedure that leads there.
//!
//! A backend compiles the user's goal ("18.2.7") into a target once, at the start of a run. From then on the
//! target is data in the journal.

use serde::{Deserialize, Serialize};

use super::{ConditionName, Gate, GuardSpec, Kind, Maintenance, PartName, Revision, UnitId};

/// The wanted state of a cluster, and the procedure that leads there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Target {
    /// For people: `ceph 16.2.15 to 18.2.7`.
    pub title: String,
    /// Stages and steps in their order. Between two parts the whole cluster's health is verified.
    pub parts: Vec<Part>,
    /// The units that were selected, sorted; `None`: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub only: Option<Vec<UnitId>>,
}

impl Target {
    /// The stage of that name.
    pub fn stage(&self, name: &PartName) -> Option<&StageSpec> {
        self.parts.iter().find_map(|part| match part {
            Part::Stage(stage) if stage.name == *name => Some(stage),
            Part::Stage(_) | Part::Step(_) => None,
        })
    }

    /// The stages in order.
    pub fn stages(&self) -> impl Iterator<Item = &StageSpec> {
        self.parts.iter().filter_map(|part| match part {
            Part::Stage(stage) => Some(stage),
            Part::Step(_) => None,
        })
    }

    /// The revisions that later stages give the units of that stage. A unit may be in several stages, such as
    /// new code first and new settings later. A unit with one of these revisions has passed this stage.
    pub fn later_revisions<'a>(&'a self, stage: &'a StageSpec) -> impl Iterator<Item = &'a Revision> {
        self.stages()
            .skip_while(|other| other.name != stage.name)
            .skip(1)
            .filter(|other| other.kind == stage.kind)
            .map(|other| &other.revision)
    }

    /// Whether that stage is for this unit, if it is of its kind.
    pub fn is_for(&self, stage: &StageSpec, unit: &UnitId) -> bool {
        let selected = self.only.as_ref();
        selected.is_none_or(|only| only.binary_search(unit).is_ok())
            && stage
                .maintenance
                .as_ref()
                .is_none_or(|maintenance| maintenance.is_for(unit))
    }

    /// The step of that name.
    pub fn step(&self, name: &PartName) -> Option<&StepSpec> {
        self.parts.iter().find_map(|part| match part {
            Part::Step(step) if step.name == *name => Some(step),
            Part::Stage(_) | Part::Step(_) => None,
        })
    }
}

/// A stage or a step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Part {
    /// Units of one kind to which one thing is done.
    Stage(StageSpec),
    /// A thing done once for the whole cluster.
    Step(StepSpec),
}

impl Part {
    /// Its name.
    pub fn name(&self) -> &PartName {
        match self {
            Self::Stage(stage) => &stage.name,
            Self::Step(step) => &step.name,
        }
    }
}

/// How many units of a stage may be visited together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Width {
    /// One at a time, whatever the policy says (monitors).
    Single,
    /// As many as the policy and the constraints permit.
    Policy,
}

/// The phases of a unit's turn.
///
/// *Prepare* stops nothing, so no check is needed before it. The first phase after it takes the unit out of service: it is sent
/// only while the answers of both checks are fresh (law 4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// Its software is installed or its image pulled, for a whole wave at once; it serves on as it is.
    Prepare,
    /// Out of service, what must move moved.
    Enter,
    /// The change itself.
    Change,
    /// Back into service.
    Leave,
}

impl Phase {
    /// Those of a visit that needs nothing laid out before, in order.
    pub fn all() -> Vec<Self> {
        vec![Self::Enter, Self::Change, Self::Leave]
    }
}

/// Units of one kind to which one thing is done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct StageSpec {
    /// Its name.
    pub name: PartName,
    /// Which units.
    pub kind: Kind,
    /// The revision that each of them should have. Those that have it and serve are left as they are.
    pub revision: Revision,
    /// How many together at most.
    pub width: Width,
    /// What a visit consists of, in order; a phase that has nothing to do is left out.
    #[serde(default = "Phase::all")]
    pub phases: Vec<Phase>,
    /// What is taken for its time.
    #[serde(default)]
    pub guards: Vec<GuardSpec>,
    /// What must hold after each wave before the next, beside every unit of the wave serving on
    /// `revision`.
    pub gates: Vec<Gate>,
    /// A point of no return before its last unit (the last monitor moves the whole cluster on).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub door_before_last: Option<Door>,
    /// Whether an approval lets what comes after it start while some of its units were skipped.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub may_be_left: bool,
    /// What a unit of this stage takes to go back to the release before.
    pub going_back: GoingBack,
    /// The maintenance of hosts with guests, in turn; `None`: units carry nothing that has to be moved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub maintenance: Option<Maintenance>,
}

impl Target {
    /// Its one-way doors.
    pub fn doors(&self) -> impl Iterator<Item = &PartName> {
        let doors = self.parts.iter().filter_map(|part| match part {
            Part::Stage(stage) => stage.door_before_last.as_ref(),
            Part::Step(step) => step.door.as_ref(),
        });
        doors.map(|door| &door.name)
    }

    /// The words that a person may say in its course: of one-way doors, and of what may be left behind.
    pub fn approval_names(&self) -> impl Iterator<Item = PartName> {
        let accepted = self.stages().filter_map(StageSpec::skip_approval);
        self.doors().cloned().chain(accepted)
    }
}

impl StageSpec {
    /// The word by which a person accepts what was left behind of it; `None`: the procedure does not permit that.
    pub fn skip_approval(&self) -> Option<PartName> {
        let word = format!("left-behind-{}", self.name);
        PartName::new(word).ok().filter(|_| self.may_be_left)
    }
}

/// A thing done once for the whole cluster, between stages.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct StepSpec {
    /// Its name.
    pub name: PartName,
    /// It is done when this condition is yes.
    pub done_when: ConditionName,
    /// What must hold before it.
    #[serde(default)]
    pub before: Vec<Gate>,
    /// The point of no return that it is, if it cannot be undone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub door: Option<Door>,
    /// What it does, in the user's words.
    pub why: String,
}

/// A point that cannot be gone back across.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Door {
    /// Its name, by which it is approved.
    pub name: PartName,
    /// What cannot be undone behind it.
    pub why: String,
}

/// What a rollback to the previous release takes. Unknown counts as impossible.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case", tag = "how", deny_unknown_fields)]
pub enum GoingBack {
    /// Start the old release on the unit's data as it is.
    Restart,
    /// Rebuild the unit's data on the old release; `cost` says what that takes.
    Rebuild {
        /// What it takes: `backfill of the OSD from its peers`.
        cost: String,
    },
    /// There is no way back.
    Impossible {
        /// Why not.
        why: String,
    },
}
