//! Instances, and their states.

use std::fmt;

use stagger_core::model::Storage;

use super::{NodeIx, Template};

/// An instance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Instance {
    /// Its name.
    pub name: String,
    /// Memory: what it uses while it runs, else what it would get.
    pub memory: u64,
    /// The most memory that it may have, which is what policies bound. The text format does not have it: there it
    /// is what the instance uses.
    pub maxmem: u64,
    /// Disk that it takes on each node that has its data.
    pub disk: u64,
    /// Virtual processors.
    pub vcpus: u64,
    /// Its state.
    pub status: Status,
    /// Whether memory is reserved for it on its secondary.
    pub auto_balance: bool,
    /// Where it runs.
    pub primary: NodeIx,
    /// Where its second copy is.
    pub secondary: Option<NodeIx>,
    /// How its disks are stored.
    pub template: Template,
    /// Its tags.
    pub tags: Vec<String>,
    /// How many spindles it counts for.
    pub spindle_use: u64,
    /// Spindles of its disks, with exclusive storage.
    pub disk_spindles: Option<u64>,
    /// Only planned so far.
    pub forthcoming: bool,
}

impl Instance {
    /// Where its disks are. DRBD without a secondary has one copy.
    pub fn storage(&self) -> Storage {
        self.template.storage(self.secondary.is_some())
    }
}

words!(
    /// The state of an instance: what was wanted, and what is.
    Status {
        /// It runs.
        Running = "running",
        /// Somebody stopped it.
        AdminDown = "ADMIN_down",
        /// It should run and does not.
        ErrorDown = "ERROR_down",
        /// It should not run and does.
        ErrorUp = "ERROR_up",
        /// It runs elsewhere than it should.
        ErrorWrongNode = "ERROR_wrongnode",
        /// Its node does not answer.
        ErrorNodeDown = "ERROR_nodedown",
        /// Its node is offline.
        ErrorNodeOffline = "ERROR_nodeoffline",
        /// Somebody took it out of service, without memory kept for it.
        AdminOffline = "ADMIN_offline",
        /// Its user stopped it from inside.
        UserDown = "USER_down",
    }
);

impl Status {
    /// Whether it runs, or may: what nobody can tell counts as running, since it must not go down.
    pub fn may_run(self) -> bool {
        match self {
            Self::Running | Self::ErrorUp | Self::ErrorWrongNode | Self::ErrorNodeDown => true,
            Self::AdminDown
            | Self::ErrorDown
            | Self::ErrorNodeOffline
            | Self::AdminOffline
            | Self::UserDown => false,
        }
    }
}
