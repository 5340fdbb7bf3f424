//! Goals for a Ganeti cluster: a reboot of nodes, a command for each, or manual work on each, with their
//! instances on other nodes meanwhile.

use std::collections::BTreeMap;

use jiff::SignedDuration;
use serde::{Deserialize, Serialize};
use stagger_core::model::{EvacuationPolicy, Kind};

use crate::config::Visits;
use crate::model::Template;
use crate::selection::NodeSelection;

/// What is done to a node while it is empty.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Task {
    /// It is rebooted.
    #[default]
    Reboot,
    /// This command is run for `{node}`, on the machine of stagger; the node has had its turn when it ends with 0 and the node
    /// answers.
    Command(String),
    /// It stays empty until an operator confirms that it is done (`stagger ganeti done NODE`) and it answers.
    Hold,
}

impl Task {
    /// Whether it is a reboot.
    pub fn is_reboot(&self) -> bool {
        *self == Self::Reboot
    }

    /// How nodes are visited for it. While a person works, jobs of others do not wait: nobody knows for how long that is.
    pub fn visits(&self, configured: &Visits) -> Visits {
        match self {
            Self::Reboot | Self::Command(_) => configured.clone(),
            Self::Hold => Visits {
                drain: false,
                ..configured.clone()
            },
        }
    }
}

/// What is done to which nodes, what becomes of their instances, and how long that takes.
#[derive(Debug, Clone, Default)]
pub struct MaintenanceGoal {
    /// What is done to each.
    pub task: Task,
    /// Which nodes, and what becomes of their instances.
    pub reboot: GanetiRebootGoal,
    /// Instances outside of their policy may be moved all the same.
    pub ignore_ipolicy: bool,
    /// How long a visit and moves take, by their names: `node`, `migrate`, `relocate`, `replace-standby`. Of moves that are not
    /// named the cluster's own jobs tell.
    pub durations: BTreeMap<Kind, SignedDuration>,
}

impl MaintenanceGoal {
    /// What a run keeps of it.
    pub fn evacuation(&self) -> EvacuationGoal {
        EvacuationGoal {
            task: self.task.clone(),
            moving: self.reboot.moving,
            ignore_ipolicy: self.ignore_ipolicy,
            durations: self.durations.clone(),
        }
    }
}

/// Which nodes are rebooted, and what becomes of their instances.
#[derive(Debug, Clone, Default)]
pub struct GanetiRebootGoal {
    /// Which nodes.
    pub selection: NodeSelection,
    /// What becomes of their instances.
    pub moving: EvacuationPolicy,
    /// Templates whose storage is on the nodes' own disks: these nodes go one at a time.
    pub local_storage: Vec<Template>,
}

/// What becomes of the instances while their nodes are away. It stays so for the whole run.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EvacuationGoal {
    /// What is done to nodes while they are away.
    #[serde(default, skip_serializing_if = "Task::is_reboot")]
    pub task: Task,
    /// What becomes of instances while their nodes are away.
    pub moving: EvacuationPolicy,
    /// Instances outside of their policy may be moved all the same.
    pub ignore_ipolicy: bool,
    /// How long a visit and moves take, by their names: `node`, `migrate`, `relocate`, `replace-standby`.
    pub durations: BTreeMap<Kind, SignedDuration>,
}
