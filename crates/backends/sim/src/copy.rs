//! A real cluster in plain values, to be copied into the simulator.

use std::collections::BTreeSet;

use stagger_core::model::{ConditionName, Ix, Revision, Snapshot, Unit, UnitState};

/// All that the simulator takes over of a cluster. Its units, what may be down together of them, what
/// already is, its conditions and durations stand in the snapshot; what a snapshot does not hold is here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterCopy {
    /// What was observed, judged as a run would that begins now.
    pub snapshot: Snapshot,
    /// The pools.
    pub pools: Vec<CopiedPool>,
    /// The placement groups.
    pub groups: Vec<CopiedGroup>,
    /// Seconds between two looks while something is waited for.
    pub poll: u32,
    /// Its units are drained before they are changed, and nobody but us says what may be down: those of a Ganeti or an Ironic.
    pub drains: bool,
    /// Conditions that come with the change: each is so as soon as all units run one of these revisions.
    pub comes_with: Vec<(ConditionName, Vec<Revision>)>,
}

/// A pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopiedPool {
    /// Its number.
    pub number: u32,
    /// Its name.
    pub name: String,
    /// Copies, or `k + m` shards.
    pub size: u32,
    /// How many must be there for it to serve.
    pub min_size: u32,
    /// Of an erasure-coded pool, the data shards.
    pub k: u32,
}

/// A placement group as it lies now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopiedGroup {
    /// Its pool, by the place in the list of pools.
    pub pool: usize,
    /// Its number in the pool.
    pub seed: u32,
    /// The OSDs of its shards, by their places in the snapshot (`None`: a hole).
    pub shards: Vec<Option<Ix>>,
    /// Of each shard, whether objects are missing on it.
    pub missing: Vec<bool>,
}

impl ClusterCopy {
    /// Of a cluster whose units are drained before they are changed.
    pub fn drained(snapshot: Snapshot, poll: u32, comes_with: Vec<(ConditionName, Vec<Revision>)>) -> Self {
        Self {
            snapshot,
            pools: Vec::new(),
            groups: Vec::new(),
            poll,
            drains: true,
            comes_with,
        }
    }

    /// The names of its hosts, each once. A unit of which no host is known stands on one of its own.
    pub(crate) fn hosts(&self) -> Vec<&str> {
        let hosts: BTreeSet<&str> = self.snapshot.units().iter().map(Self::host_of).collect();
        hosts.into_iter().collect()
    }

    pub(crate) fn host_of(unit: &Unit) -> &str {
        unit.domains.get("host").map_or(unit.id.as_str(), String::as_str)
    }

    /// How many OSDs serve.
    pub fn osds_up(&self) -> usize {
        self.osds().count()
    }

    /// The OSDs that serve.
    pub(crate) fn osds(&self) -> impl Iterator<Item = &Unit> {
        self.snapshot
            .units()
            .iter()
            .filter(|unit| unit.kind.as_str() == "osd" && unit.state == UnitState::Serving)
    }
}
