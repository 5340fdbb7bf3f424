//! What hosts carry, and what fits where.
//!
//! A *guest* runs on a host and leaves it before the host goes down: to its *standby*, the host that holds a
//! second copy of its disks; or to any host of the same *pool*, where its disks are shared. A guest that does
//! not run stays. A *migration* is one such step; a planned one is a [`Move`](super::Move).
//!
//! [`Capacity::permit`] is the constraint predicate: whether all guests that move because of a set of down
//! hosts fit at their destinations, without a new N+1 failure. A host is *N+1* for another whose standby it
//! is, if it has memory for all guests that would fail over from there. Stopped guests count too, since they
//! may be started at any time.

mod columns;
mod permit;
mod without_moves;

use serde::{Deserialize, Serialize};

use super::{MoveKind, UnitId, evacuation::EvacuationPolicy, evacuation::GuestHandling};
pub use columns::CapacityError;
pub use permit::CapacityViolation;

/// A resource of hosts that guests take.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Resource {
    /// MiB of memory.
    Memory,
    /// Virtual processors, up to what policy permits a host.
    Cpus,
    /// Spindles, up to what policy permits a host.
    Spindles,
    /// MiB of disk on the host itself.
    Disk,
}

impl Resource {
    /// All, in the order of [`Amounts`].
    pub const ALL: [Self; 4] = [Self::Memory, Self::Cpus, Self::Spindles, Self::Disk];
}

impl std::fmt::Display for Resource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Memory => "MiB of memory",
            Self::Cpus => "virtual processors",
            Self::Spindles => "spindles",
            Self::Disk => "MiB of disk",
        })
    }
}

/// So much of each [`Resource`], in their order.
pub type Amounts = [i64; 4];

/// A host of guests.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Host {
    /// The unit that it is.
    pub unit: UnitId,
    /// Which of the pools it belongs to: guests stay in theirs.
    pub pool: u32,
    /// Whether guests that may go to any host, and new second copies, may be placed there. The host remains a
    /// standby in any case.
    pub takes: bool,
    /// What it has in all, for balance.
    pub size: Amounts,
    /// Free for arriving guests; negative where a host is over-committed.
    pub free: Amounts,
}

/// Where the disks of a guest are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Storage {
    /// On its host and on its standby.
    Copied,
    /// Where each host of the pool sees them.
    Shared,
    /// On its host only: it is not redundant.
    Local,
}

/// A guest of a host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Guest {
    /// Its name.
    pub name: String,
    /// Its host, by its place among the hosts.
    pub host: u32,
    /// The host of its second copy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub standby: Option<u32>,
    /// Where its disks are.
    pub storage: Storage,
    /// Whether it runs; one of unknown state counts as running.
    pub runs: bool,
    /// Whether memory is to be kept for it on its standby.
    pub reserved: bool,
    /// What it takes where it runs. Disk: what it takes where a copy of its disks is.
    pub takes: Amounts,
    /// Guests that share one of these numbers are not put on one host.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub apart: Vec<u32>,
    /// Why it cannot be moved, if it cannot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stuck: Option<String>,
    /// Whether it may run elsewhere than on its host: on its standby, if it has one, else on any host.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub elsewhere: bool,
}

/// All hosts and their guests.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(try_from = "columns::CapacityDocument", into = "columns::CapacityDocument")]
pub struct Capacity {
    hosts: Vec<Host>,
    guests: Vec<Guest>,
    pools: Vec<String>,
    tags: Vec<String>,
    /// The guests on each host.
    on: Lists,
    /// The guests whose standby each host is.
    behind: Lists,
    /// The guests that may run elsewhere than on their host.
    elsewhere: Vec<u32>,
}

/// One list a host, in two flat arrays.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Lists {
    ends: Vec<u32>,
    flat: Vec<u32>,
}

impl Lists {
    fn new(hosts: usize, of: impl Iterator<Item = Option<u32>> + Clone) -> Self {
        let mut ends = vec![0_u32; hosts + 1];
        for host in of.clone().flatten() {
            ends[host as usize + 1] += 1;
        }
        for host in 0..hosts {
            ends[host + 1] += ends[host];
        }
        let mut next = ends.clone();
        let mut flat = vec![0; ends[hosts] as usize];
        for (guest, host) in (0_u32..).zip(of) {
            if let Some(host) = host {
                flat[next[host as usize] as usize] = guest;
                next[host as usize] += 1;
            }
        }
        Self { ends, flat }
    }

    fn of(&self, host: u32) -> &[u32] {
        &self.flat[self.ends[host as usize] as usize..self.ends[host as usize + 1] as usize]
    }
}

/// One step of one guest, by places.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Migration {
    /// Which guest.
    pub guest: u32,
    /// What is done.
    pub how: MoveKind,
    /// To which host.
    pub to: u32,
}

impl Capacity {
    /// Hosts and guests, and the names of pools and of what keeps guests apart.
    ///
    /// # Errors
    /// A guest, pool or tag that refers to what there is not, a guest whose standby is its host, one with two
    /// copies and no standby or the other way round, a host or the name of a guest that is listed twice.
    pub fn new(
        hosts: Vec<Host>,
        guests: Vec<Guest>,
        pools: Vec<String>,
        tags: Vec<String>,
    ) -> Result<Self, CapacityError> {
        columns::fit(&hosts, &guests, &pools, &tags)?;
        let on = Lists::new(hosts.len(), guests.iter().map(|guest| Some(guest.host)));
        let behind = Lists::new(hosts.len(), guests.iter().map(|guest| guest.standby));
        let elsewhere = (0_u32..)
            .zip(&guests)
            .filter(|(_, guest)| guest.elsewhere)
            .map(|(at, _)| at)
            .collect();
        Ok(Self {
            hosts,
            guests,
            pools,
            tags,
            on,
            behind,
            elsewhere,
        })
    }

    /// The hosts.
    pub fn hosts(&self) -> &[Host] {
        &self.hosts
    }

    /// That host.
    pub fn host(&self, at: u32) -> &Host {
        &self.hosts[at as usize]
    }

    /// The guests.
    pub fn guests(&self) -> &[Guest] {
        &self.guests
    }

    /// That guest.
    pub fn guest(&self, at: u32) -> &Guest {
        &self.guests[at as usize]
    }

    /// The name of a pool.
    pub fn pool(&self, at: u32) -> &str {
        &self.pools[at as usize]
    }

    /// How many pools there are.
    pub fn pools(&self) -> usize {
        self.pools.len()
    }

    /// The name of what keeps guests apart.
    pub fn tag(&self, at: u32) -> &str {
        &self.tags[at as usize]
    }

    /// The guests on that host.
    pub fn guests_on(&self, host: u32) -> &[u32] {
        self.on.of(host)
    }

    /// The guests whose standby that host is.
    pub fn guests_with_standby(&self, host: u32) -> &[u32] {
        self.behind.of(host)
    }

    /// The guests that may run on a host that is not theirs.
    pub fn eligible_guests(&self, host: u32) -> impl Iterator<Item = u32> {
        self.elsewhere.iter().copied().filter(move |at| {
            let guest = self.guest(*at);
            guest.host != host && guest.standby.is_none_or(|standby| standby == host)
        })
    }

    /// The place of the host that this unit is.
    pub fn find(&self, unit: &UnitId) -> Option<u32> {
        self.hosts
            .binary_search_by(|host| host.unit.natural_key().cmp(&unit.natural_key()))
            .ok()
            .map(|at| at as u32)
    }

    /// What `standby` would have to take over, from each host whose failure would bring it anything: the largest
    /// first, hosts ascending among equals. What does not run counts too: it may be started.
    pub fn demands(&self, moving: &EvacuationPolicy, standby: u32) -> Vec<Demand> {
        let mut demands: Vec<Demand> = Vec::new();
        let mut from: Vec<&Guest> = self
            .guests_with_standby(standby)
            .iter()
            .map(|guest| self.guest(*guest))
            .filter(|guest| guest.reserved && !moving.as_if_down)
            .collect();
        from.sort_unstable_by_key(|guest| guest.host);
        for guest in from {
            let memory = guest.takes[0];
            let stays = if moving.turn(guest) == GuestHandling::Stays {
                memory
            } else {
                0
            };
            match demands.last_mut() {
                Some(last) if last.of == guest.host => {
                    last.memory += memory;
                    last.stays += stays;
                }
                Some(_) | None => demands.push(Demand {
                    of: guest.host,
                    memory,
                    stays,
                }),
            }
        }
        demands.sort_unstable_by(|a, b| b.memory.cmp(&a.memory).then(a.of.cmp(&b.of)));
        demands
    }

    /// Whether a host without so much free memory has an N+1 failure for this demand.
    pub fn fails(demand: i64, free: i64) -> bool {
        demand > 0 && demand > free
    }
}

/// The memory that a host would want on another if it failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Demand {
    /// Whose failure it would be.
    pub of: u32,
    /// For all its guests that have their second copy there.
    pub memory: i64,
    /// For those of them that stay when that host is emptied: so much is wanted while it is.
    pub stays: i64,
}

/// The largest of these demands that could be met with so much free memory, beside hosts that were `emptied`: what
/// could not be met before does not count.
pub(crate) fn largest_met_demand(
    demands: &[Demand],
    free: i64,
    emptied: impl Fn(u32) -> bool,
) -> Option<(u32, i64)> {
    let mut most: Option<(u32, i64)> = None;
    for demand in demands {
        if most.is_some_and(|(_, most)| demand.memory <= most) {
            break;
        }
        if Capacity::fails(demand.memory, free) {
            continue;
        }
        let wanted = if emptied(demand.of) {
            demand.stays
        } else {
            demand.memory
        };
        if most.is_none_or(|(_, most)| wanted > most) {
            most = Some((demand.of, wanted));
        }
    }
    most
}
