//! A whole cluster, and its inconsistencies.

use std::fmt;

use super::{GanetiNode, GroupIx, Instance, Ipolicy, NodeGroup, NodeIx, Status};

/// So much in MiB no node has of anything: more is refused, so that sums can be made of what is left.
pub const MOST: u64 = 1_000_000_000_000;

/// All that is known of a cluster.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct GanetiCluster {
    /// Node groups; instances stay in theirs.
    pub groups: Vec<NodeGroup>,
    /// Nodes.
    pub nodes: Vec<GanetiNode>,
    /// Instances. Two of one name are possible in files made by hand.
    pub instances: Vec<Instance>,
    /// The tags of the cluster.
    pub tags: Vec<String>,
    /// The policy of the cluster; that of a group counts for its nodes.
    pub ipolicy: Option<Ipolicy>,
}

impl GanetiCluster {
    /// That node.
    pub fn node(&self, ix: NodeIx) -> &GanetiNode {
        &self.nodes[ix.0 as usize]
    }

    /// That group.
    pub fn group(&self, ix: GroupIx) -> &NodeGroup {
        &self.groups[ix.0 as usize]
    }

    /// The policy that counts for the nodes of a group.
    pub fn ipolicy_of(&self, ix: GroupIx) -> Option<&Ipolicy> {
        self.group(ix).ipolicy.as_ref().or(self.ipolicy.as_ref())
    }

    /// The nodes whose numbers do not add up, with the bounds of htools: more than 512 MiB of memory or 1 GiB of disk
    /// are neither free nor in use. Offline nodes that say what they have count too, and disks of every template.
    pub fn missing(&self) -> Vec<Discrepancy> {
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
            Some(Discrepancy {
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
    pub fn oversized(&self) -> Option<(&'static str, &str, String)> {
        let why = |what: &str, amount: &dyn fmt::Display| {
            format!("its {what} of {amount} is more than any node has, which is at most {MOST}")
        };
        let of_node = |node: &GanetiNode| {
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
    pub fn masters(&self) -> impl Iterator<Item = &GanetiNode> {
        self.nodes.iter().filter(|node| node.master)
    }
}

fn signed(amount: u64) -> i64 {
    i64::try_from(amount).unwrap_or(i64::MAX)
}

/// A node whose numbers do not add up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Discrepancy {
    /// Its name.
    pub node: String,
    /// Memory in MiB that is neither free nor in use; below 0 where more is free than can be.
    pub memory: i64,
    /// Disk in MiB, likewise.
    pub disk: i64,
}
