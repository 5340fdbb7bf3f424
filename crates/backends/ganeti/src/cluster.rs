//! A cluster as Ganeti has it.
//!
//! Sizes are in MiB. Nodes and groups are referred to by their place in the lists of the cluster; every
//! message names them.

use std::fmt;

/// The place of a node in [`Cluster::nodes`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct NodeIx(pub u32);

/// The place of a group in [`Cluster::groups`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct GroupIx(pub u32);

/// So much in MiB no node has of anything: more is refused, so that sums can be made of what is left.
pub const MOST: u64 = 1_000_000_000_000;

/// All that is known of a cluster.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Cluster {
    /// Node groups; instances stay in theirs.
    pub groups: Vec<Group>,
    /// Nodes.
    pub nodes: Vec<Node>,
    /// Instances. Two of one name are possible in files made by hand.
    pub instances: Vec<Instance>,
    /// The tags of the cluster.
    pub tags: Vec<String>,
    /// The policy of the cluster; that of a group counts for its nodes.
    pub ipolicy: Option<Ipolicy>,
}

impl Cluster {
    /// That node.
    pub fn node(&self, ix: NodeIx) -> &Node {
        &self.nodes[ix.0 as usize]
    }

    /// That group.
    pub fn group(&self, ix: GroupIx) -> &Group {
        &self.groups[ix.0 as usize]
    }

    /// The policy that counts for the nodes of a group.
    pub fn ipolicy_of(&self, ix: GroupIx) -> Option<&Ipolicy> {
        self.group(ix).ipolicy.as_ref().or(self.ipolicy.as_ref())
    }

    /// The nodes whose numbers do not add up, with the bounds of htools: more than 512 MiB of memory or 1 GiB of disk
    /// are neither free nor in use. Offline nodes that say what they have count too, and disks of every template.
    pub fn missing(&self) -> Vec<Missing> {
        let mut memory = vec![0_i64; self.nodes.len()];
        let mut disk = vec![0_i64; self.nodes.len()];
        for instance in self.instances.iter().filter(|instance| !instance.forthcoming) {
            let on = instance.primary.0 as usize;
            if instance.status.may_run() || instance.status == Status::ErrorNodeOffline {
                memory[on] += signed(instance.memory);
            }
            disk[on] += signed(instance.disk);
            if let Some(secondary) = instance.secondary {
                disk[secondary.0 as usize] += signed(instance.disk);
            }
        }
        let used = memory.into_iter().zip(disk);
        let missing = self.nodes.iter().zip(used).filter_map(|(node, (memory, disk))| {
            let has = node.resources.as_ref()?;
            Some(Missing {
                node: node.name.clone(),
                memory: signed(has.memory).saturating_sub(signed(has.memory_own)) - has.memory_free - memory,
                disk: signed(has.disk) - has.disk_free - disk,
            })
        });
        missing
            .filter(|missing| missing.memory > 512 || missing.disk > 1024)
            .collect()
    }

    /// The first node or instance with more of something than [`MOST`]: what it is, its name, and why not.
    pub fn beyond(&self) -> Option<(&'static str, &str, String)> {
        let why = |what: &str, amount: &dyn fmt::Display| {
            format!("its {what} of {amount} is more than any node has, which is at most {MOST}")
        };
        let of_node = |node: &Node| {
            let has = node.resources.as_ref()?;
            let amounts = [
                ("memory", has.memory),
                ("own memory", has.memory_own),
                ("disk", has.disk),
                ("number of processors", has.cpus),
                ("number of own processors", has.cpus_own),
                ("number of spindles", has.spindles),
            ];
            let free = [
                ("free memory", has.memory_free),
                ("free disk", has.disk_free),
                ("number of free spindles", has.spindles_free),
            ];
            let large = amounts.iter().find(|(_, amount)| *amount > MOST);
            let large = large.map(|(what, amount)| why(what, amount));
            large.or_else(|| {
                let large = free.iter().find(|(_, amount)| amount.unsigned_abs() > MOST);
                large.map(|(what, amount)| why(what, amount))
            })
        };
        let of_instance = |instance: &Instance| {
            let amounts = [
                ("memory", instance.memory),
                ("most memory", instance.maxmem),
                ("disk", instance.disk),
                ("number of virtual processors", instance.vcpus),
                ("number of spindles", instance.spindle_use),
            ];
            let large = amounts.iter().find(|(_, amount)| *amount > MOST);
            large.map(|(what, amount)| why(what, amount))
        };
        let node = self
            .nodes
            .iter()
            .find_map(|node| Some(("node", node.name.as_str(), of_node(node)?)));
        node.or_else(|| {
            self.instances
                .iter()
                .find_map(|instance| Some(("instance", instance.name.as_str(), of_instance(instance)?)))
        })
    }

    /// So much memory in MiB is for each node itself, whatever it reports; 0: what it reports.
    pub fn keep_for_nodes(&mut self, memory: u64) {
        let says = self.nodes.iter_mut().filter_map(|node| node.resources.as_mut());
        for has in says.filter(|_| memory > 0) {
            has.memory_own = memory;
        }
    }

    /// The masters: one in a cluster that is well.
    pub fn masters(&self) -> impl Iterator<Item = &Node> {
        self.nodes.iter().filter(|node| node.master)
    }
}

fn signed(amount: u64) -> i64 {
    i64::try_from(amount).unwrap_or(i64::MAX)
}

/// A node whose numbers do not add up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Missing {
    /// Its name.
    pub node: String,
    /// Memory in MiB that is neither free nor in use; below 0 where more is free than can be.
    pub memory: i64,
    /// Disk in MiB, likewise.
    pub disk: i64,
}

/// A node group.
#[derive(Debug, Clone, PartialEq)]
pub struct Group {
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

/// A node.
#[derive(Debug, Clone, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "these are Ganeti's own flags")]
pub struct Node {
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

impl Node {
    /// Whether it can be counted on: it is not offline, and it says what it has.
    pub fn is_up(&self) -> bool {
        !self.offline && self.resources.is_some()
    }

    /// Whether instances may be moved to it.
    pub fn takes_instances(&self) -> bool {
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

/// The words of an enum, and back.
macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $word:literal,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum $name { $($(#[$vdoc])* $variant,)* }

        impl $name {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// Ganeti's word.
            pub fn word(self) -> &'static str {
                match self { $(Self::$variant => $word,)* }
            }

            /// From Ganeti's word.
            pub fn of_word(word: &str) -> Option<Self> {
                match word { $($word => Some(Self::$variant),)* _ => None }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.word())
            }
        }
    };
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

words!(
    /// How the disks of an instance are stored.
    Template {
        /// It has none.
        Diskless = "diskless",
        /// Files on its node.
        File = "file",
        /// Files on storage that all nodes share.
        SharedFile = "sharedfile",
        /// Logical volumes of its node.
        Plain = "plain",
        /// Block devices that all nodes share.
        BlockDev = "blockdev",
        /// Logical volumes of two nodes.
        Drbd = "drbd",
        /// Images in a Ceph pool.
        Rbd = "rbd",
        /// A provider of others.
        Ext = "ext",
        /// Files on Gluster.
        Gluster = "gluster",
    }
);

words!(
    /// A resource that a policy bounds for one instance, in the order of the text format.
    SpecKey {
        /// Memory in MiB.
        Memory = "memory-size",
        /// Virtual processors.
        Cpus = "cpu-count",
        /// A disk in MiB.
        DiskSize = "disk-size",
        /// Number of disks.
        DiskCount = "disk-count",
        /// Number of network interfaces.
        NicCount = "nic-count",
        /// Spindles.
        Spindles = "spindle-use",
    }
);

/// A size for each [`SpecKey`], in its order.
pub type Spec = [u64; 6];

/// What instances may be, and how full nodes may get.
#[derive(Debug, Clone, PartialEq)]
pub struct Ipolicy {
    /// The usual instance.
    pub standard: Spec,
    /// Ranges: an instance has to fit one of them.
    pub ranges: Vec<(Spec, Spec)>,
    /// The templates that may be used.
    pub templates: Vec<Template>,
    /// Virtual processors for each processor of a node.
    pub vcpu_ratio: f64,
    /// Instances' spindles for each spindle of a node.
    pub spindle_ratio: f64,
}

impl AllocPolicy {
    /// Ganeti's word.
    pub fn word(self) -> &'static str {
        match self {
            Self::Preferred => "preferred",
            Self::LastResort => "last_resort",
            Self::Unallocable => "unallocable",
        }
    }

    /// From Ganeti's word.
    pub fn of_word(word: &str) -> Option<Self> {
        [Self::Preferred, Self::LastResort, Self::Unallocable]
            .into_iter()
            .find(|policy| policy.word() == word)
    }
}
