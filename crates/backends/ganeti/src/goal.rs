//! What can be wanted of a Ganeti: that nodes are rebooted, with their instances elsewhere meanwhile.

use std::collections::BTreeMap;

use jiff::SignedDuration;
use serde::{Deserialize, Serialize};
use stagger_core::model::{EvacuationPolicy, Kind};

use crate::model::Template;
use crate::selection::Selection;

/// Which nodes are rebooted, what becomes of their instances, and how long that takes.
#[derive(Debug, Clone, Default)]
pub struct MaintenanceGoal {
    /// Which nodes, and what becomes of their instances.
    pub reboot: RebootGoal,
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
            moving: self.reboot.moving,
            ignore_ipolicy: self.ignore_ipolicy,
            durations: self.durations.clone(),
        }
    }
}

/// Which nodes are rebooted, and what becomes of their instances.
#[derive(Debug, Clone, Default)]
pub struct RebootGoal {
    /// Which nodes.
    pub selection: Selection,
    /// What becomes of their instances.
    pub moving: EvacuationPolicy,
    /// Templates whose storage is on the nodes' own disks: these nodes go one at a time.
    pub local_storage: Vec<Template>,
}

/// What becomes of the instances while their nodes are away. It stays so for the whole run.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EvacuationGoal {
    /// What becomes of instances while their nodes are away.
    pub moving: EvacuationPolicy,
    /// Instances outside of their policy may be moved all the same.
    pub ignore_ipolicy: bool,
    /// How long a visit and moves take, by their names: `node`, `migrate`, `relocate`, `replace-standby`.
    pub durations: BTreeMap<Kind, SignedDuration>,
}
