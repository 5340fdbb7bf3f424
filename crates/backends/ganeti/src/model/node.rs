//! Nodes, and the groups that they are in.

use super::Ipolicy;

/// The place of a node in [`GanetiCluster::nodes`](super::GanetiCluster::nodes).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct NodeIx(pub u32);

/// The place of a group in [`GanetiCluster::groups`](super::GanetiCluster::groups).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct GroupIx(pub u32);

/// A node group.
#[derive(Debug, Clone, PartialEq)]
pub struct NodeGroup {
    /// Its name.
    pub name: String,
    /// What nodes refer to it by.
    pub uuid: String,
    /// Whether new instances are put there.
    pub alloc_policy: AllocPolicy,
    /// Its tags.
    pub tags: Vec<String>,
    /// The networks that it is connected to.
    pub networks: Vec<String>,
    /// Its policy, if it is known.
    pub ipolicy: Option<Ipolicy>,
}

/// Whether a group takes new instances. It says nothing of instances that are there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AllocPolicy {
    /// Yes.
    Preferred,
    /// When the others are full.
    LastResort,
    /// No.
    Unallocable,
}

impl AllocPolicy {
    /// Ganeti's word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Preferred => "preferred",
            Self::LastResort => "last_resort",
            Self::Unallocable => "unallocable",
        }
    }

    /// From Ganeti's word.
    pub fn parse(word: &str) -> Option<Self> {
        [Self::Preferred, Self::LastResort, Self::Unallocable]
            .into_iter()
            .find(|policy| policy.as_str() == word)
    }
}

/// A node.
#[derive(Debug, Clone, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "these are Ganeti's own flags")]
pub struct GanetiNode {
    /// Its name.
    pub name: String,
    /// What it has and what is free; `None`: it did not say, and counts as offline.
    pub resources: Option<Resources>,
    /// Marked offline: Ganeti does not talk to it.
    pub offline: bool,
    /// Drained: it takes no instances. The text format writes it as offline, as htools do.
    pub drained: bool,
    /// Whether it may carry instances.
    pub vm_capable: bool,
    /// Whether it is the master.
    pub master: bool,
    /// Its group.
    pub group: GroupIx,
    /// Its tags.
    pub tags: Vec<String>,
    /// Whether each instance has disks of its own.
    pub exclusive_storage: bool,
}

impl GanetiNode {
    /// Whether it can be counted on: it is not offline, and it says what it has.
    pub fn is_up(&self) -> bool {
        !self.offline && self.resources.is_some()
    }

    /// Whether instances may be moved to it.
    pub fn accepts_instances(&self) -> bool {
        self.is_up() && !self.drained && self.vm_capable
    }
}

/// What a node has.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Resources {
    /// Memory.
    pub memory: u64,
    /// Memory of the node itself.
    pub memory_own: u64,
    /// Memory that is free; below 0 in clusters that are over-committed.
    pub memory_free: i64,
    /// Disk.
    pub disk: u64,
    /// Disk that is free.
    pub disk_free: i64,
    /// Processors.
    pub cpus: u64,
    /// Spindles.
    pub spindles: u64,
    /// Spindles that are free; of interest with exclusive storage.
    pub spindles_free: i64,
    /// Processors of the node itself.
    pub cpus_own: u64,
    /// How fast its processors are, beside others.
    pub cpu_speed: f64,
}
