//! What a virtual cluster consists of.

use std::collections::BTreeMap;

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use super::release::Release;

/// The cluster's name, and the address that is always its master's.
pub const CLUSTER: &str = "cluster";
/// See [`CLUSTER`].
pub const CLUSTER_ADDRESS: &str = "198.51.100.1";
/// A name by which the first node is known too, and that is in no certificate.
pub const STRANGER: &str = "stranger";
/// Of the bridge, from which tests reach the nodes.
pub(super) const BRIDGE_ADDRESS: &str = "198.51.100.254";

/// So many nodes a cluster may have.
pub const MOST_NODES: u32 = 40;

/// A virtual cluster. Its nodes are called `node1`, `node2` …, and the first is its master.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GanetiSpec {
    /// The release of Ganeti.
    pub release: Release,
    /// How many nodes, up to [`MOST_NODES`].
    pub nodes: u32,
    /// The memory of each node in MiB; half a GiB of it is the node's own.
    pub memory_mib: u64,
    /// Nodes with another memory, by number.
    pub other_memory_mib: BTreeMap<u32, u64>,
    /// The volume group of each node in MiB. Volumes are sparse files.
    pub disk_mib: u64,
    /// How fast DRBD devices are resynchronised, in MiB/s; 0 is at once.
    pub sync_rate: u32,
    /// How long a node takes from its end to its next start, in seconds.
    pub boot_seconds: u32,
}

impl Default for GanetiSpec {
    fn default() -> Self {
        Self {
            release: Release::V3_0,
            nodes: 5,
            memory_mib: 16 * 1024,
            other_memory_mib: BTreeMap::new(),
            disk_mib: 100 * 1024,
            sync_rate: 0,
            boot_seconds: 3,
        }
    }
}

impl GanetiSpec {
    /// The names of the nodes, in order.
    pub fn names(&self) -> Vec<String> {
        (1..=self.nodes).map(name).collect()
    }

    /// What is wrong with it, if anything is.
    pub(super) fn check(&self) -> Result<()> {
        ensure!(
            (1..=MOST_NODES).contains(&self.nodes),
            "{} nodes: there may be 1 to {MOST_NODES}",
            self.nodes
        );
        let all = self.other_memory_mib.values().chain([&self.memory_mib]);
        ensure!(
            all.min().is_some_and(|&least| least >= 1024),
            "a node needs at least 1024 MiB of memory"
        );
        ensure!(
            self.other_memory_mib
                .keys()
                .all(|number| (1..=self.nodes).contains(number)),
            "there is memory for a node that is not there: {:?}",
            self.other_memory_mib.keys()
        );
        Ok(())
    }

    /// What the stand-ins know of the nodes.
    pub(super) fn settings(&self) -> Value {
        let nodes = (1..=self.nodes).map(|number| {
            let memory = self.other_memory_mib.get(&number).unwrap_or(&self.memory_mib);
            let one = json!({
                "address": address(number),
                "memory_mib": memory,
                "disk_mib": self.disk_mib,
            });
            (name(number), one)
        });
        Value::Object(nodes.collect())
    }
}

/// The name of a node by its number, from 1 on.
pub fn name(number: u32) -> String {
    format!("node{number}")
}

/// The address of a node by its number.
pub fn address(number: u32) -> String {
    format!("198.51.100.{}", 10 + number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_have_the_memory_that_was_asked_for() {
        let spec = GanetiSpec {
            nodes: 2,
            other_memory_mib: [(2, 4096)].into(),
            ..GanetiSpec::default()
        };
        spec.check().unwrap();
        let settings = spec.settings();
        assert_eq!(settings["node1"]["memory_mib"], 16384);
        assert_eq!(
            settings["node2"],
            json!({ "address": "198.51.100.12", "memory_mib": 4096, "disk_mib": 102_400 })
        );
    }

    #[test]
    fn impossible_clusters_are_refused() {
        let default = GanetiSpec::default();
        let spec = |change: fn(&mut GanetiSpec)| {
            let mut spec = default.clone();
            change(&mut spec);
            spec.check()
        };
        assert!(spec(|spec| spec.nodes = 0).is_err());
        assert!(spec(|spec| spec.nodes = MOST_NODES + 1).is_err());
        assert!(spec(|spec| spec.memory_mib = 512).is_err());
        assert!(spec(|spec| spec.other_memory_mib = [(6, 4096)].into()).is_err());
    }
}
