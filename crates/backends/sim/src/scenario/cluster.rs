//! A simulated cluster as a scenario file describes it.

use serde::{Deserialize, Serialize};
use stagger_core::model::{ClusterName, Revision, UnitId};

use super::balanced::BalancedSpec;
use super::guests::GuestsSpec;

/// What the cluster is made of, and how fast it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SimSpec {
    /// Its name.
    pub name: ClusterName,
    /// What its daemons run.
    pub release: Revision,
    /// Seed of the placement, and of the small differences in how long things take.
    #[serde(default)]
    pub seed: u64,
    /// How many racks.
    pub racks: u32,
    /// Hosts in each rack.
    pub hosts_per_rack: u32,
    /// The racks stand in so many sites by turns, and the last monitor in none of them, as the tiebreaker; 0: in no sites.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub sites: u32,
    /// OSDs on each host; they are numbered host by host.
    pub osds_per_host: u32,
    /// Monitors, named `mon.a` and so on, on the first hosts.
    #[serde(default = "three")]
    pub mons: u32,
    /// Managers.
    #[serde(default = "two")]
    pub mgrs: u32,
    /// Metadata servers.
    #[serde(default)]
    pub mds: u32,
    /// How many of them are active.
    #[serde(default = "one")]
    pub mds_ranks: u32,
    /// Object gateways.
    #[serde(default)]
    pub rgws: u32,
    /// The pools.
    #[serde(default, rename = "pool")]
    pub pools: Vec<PoolSpec>,
    /// OSDs that hold no placement group.
    #[serde(default)]
    pub out: Vec<UnitId>,
    /// OSDs that the cluster's books name, and that are no more.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub destroyed: Vec<UnitId>,
    /// So many placement groups lack objects on one of their OSDs when all begins, and recover by themselves.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub recovering: u32,
    /// The gateways stand in so many groups behind a balancer, and of each one has to serve.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub rgw_groups: u32,
    /// Units that are down before anything begins.
    #[serde(default)]
    pub down: Vec<UnitId>,
    /// Hosts of guests, in the place of storage.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guests: Option<GuestsSpec>,
    /// Services behind a balancer, in the place of storage.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub balanced: Option<BalancedSpec>,
    /// How long things take.
    #[serde(default)]
    pub seconds: Seconds,
}

/// A pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PoolSpec {
    /// Its name.
    pub name: String,
    /// Copies, or `k + m` shards.
    pub size: u32,
    /// How many must be there for it to serve.
    pub min_size: u32,
    /// Of an erasure-coded pool, the data shards: so many are needed to rebuild one.
    #[serde(default = "one")]
    pub k: u32,
    /// Shards lie in different ones of these.
    pub domain: Level,
    /// Shards lie in all sites by turns, and a placement group serves only with OSDs in so many of them; 0: wherever
    /// they are.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub sites: u32,
    /// Placement groups.
    pub pgs: u32,
}

/// A level of failure domains.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Level {
    /// OSDs.
    Osd,
    /// Hosts.
    Host,
    /// Racks.
    Rack,
}

/// How long things take, in seconds of the virtual clock.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Seconds {
    /// From start to serving: a monitor, manager, metadata server or gateway.
    pub restart: u32,
    /// From start to serving: an OSD.
    pub restart_osd: u32,
    /// From serving to complete: an OSD that was away.
    pub recovery: u32,
    /// How long placement groups are unknown after a manager took over.
    pub blind: u32,
    /// How long a call takes.
    pub call: u32,
    /// How long a question takes, to the cluster or to its oracle.
    #[serde(skip_serializing_if = "is_zero")]
    pub ask: u32,
    /// How long it takes to lay the software out for a unit, which stops nothing; 0: nothing has to be laid out.
    #[serde(skip_serializing_if = "is_zero")]
    pub install: u32,
    /// Between two looks while something is waited for.
    pub poll: u32,
    /// A lock not renewed for so long may be taken over.
    pub lock: u32,
}

impl Default for Seconds {
    fn default() -> Self {
        Self {
            restart: 8,
            restart_osd: 12,
            recovery: 10,
            blind: 6,
            call: 0,
            ask: 0,
            install: 0,
            poll: 2,
            lock: 30,
        }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
fn is_zero(seconds: &u32) -> bool {
    *seconds == 0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
fn is_one(count: &u32) -> bool {
    *count == 1
}

fn one() -> u32 {
    1
}

fn two() -> u32 {
    2
}

fn three() -> u32 {
    3
}

impl SimSpec {
    /// How many OSDs.
    pub fn osds(&self) -> u32 {
        self.racks * self.hosts_per_rack * self.osds_per_host
    }

    /// How many hosts.
    pub fn hosts(&self) -> u32 {
        self.racks * self.hosts_per_rack
    }
}
