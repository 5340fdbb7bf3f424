//! Placement of guests while their hosts are down, and which hosts can be emptied together.
//!
//! 1. [`limits`]: the guests' requirements become budgets for the solver.
//! 2. [`wave`]: the guests of one wave get their destinations, balanced, or a host is named that cannot be
//!    emptied.
//! 3. [`partition`]: hosts that had to leave their wave are placed elsewhere, and the number of waves is
//!    reduced.
//!
//! Each wave starts from the observed state: moves are undone when their host is back.

mod limits;
mod partition;
mod wave;

pub(crate) use limits::HostBudget;
pub(crate) use partition::{Partition, WavePlacement};

use crate::model::{
    Capacity, Demand, Evacuate, EvacuationPolicy, GuestHandling, Ix, Migration, Snapshot, Standbys, Terms,
    UnitState,
};

/// What placing looks at again and again.
#[derive(Debug)]
pub(crate) struct PlacementContext<'a> {
    capacity: &'a Capacity,
    moving: &'a EvacuationPolicy,
    /// Hosts that do not serve.
    down: Vec<bool>,
    /// What each host would have to take over, from whom.
    demands: Vec<Vec<Demand>>,
    pool_hosts: Vec<Vec<u32>>,
    any_tag: bool,
    terms: Terms,
}

impl<'a> PlacementContext<'a> {
    /// The world of a snapshot.
    pub(crate) fn new(snapshot: &Snapshot, capacity: &'a Capacity, moving: &'a EvacuationPolicy) -> Self {
        let hosts = 0..capacity.hosts().len() as u32;
        let down = capacity.hosts().iter().map(|host| {
            let unit = snapshot.find(&host.unit);
            unit.is_none_or(|unit| snapshot.unit(unit).state != UnitState::Serving)
        });
        let mut pool_hosts = vec![Vec::new(); capacity.pools()];
        for host in hosts.clone() {
            pool_hosts[capacity.host(host).pool as usize].push(host);
        }
        Self {
            down: down.collect(),
            demands: hosts.map(|host| capacity.demands(moving, host)).collect(),
            any_tag: capacity.guests().iter().any(|guest| !guest.apart.is_empty()),
            capacity,
            moving,
            pool_hosts,
            terms: snapshot.terms().clone(),
        }
    }

    /// The hosts that these units are.
    pub(crate) fn hosts_of(&self, snapshot: &Snapshot, units: &[Ix]) -> Vec<u32> {
        units
            .iter()
            .filter_map(|unit| self.capacity.find(&snapshot.unit(*unit).id))
            .collect()
    }

    fn turn(&self, guest: u32) -> GuestHandling {
        self.moving.turn(self.capacity.guest(guest))
    }

    /// The budgets for these hosts.
    pub(crate) fn limits(&self, hosts: &[u32]) -> Vec<HostBudget> {
        limits::limits(self, hosts)
    }

    /// Budgets that keep apart hosts with a standby in common, where its room is all that would bind them.
    pub(crate) fn standbys_apart(&self, hosts: &[u32]) -> Vec<HostBudget> {
        match self.moving.standbys {
            Standbys::Capacity => limits::standbys_apart(self, hosts),
            Standbys::Exclude => Vec::new(),
        }
    }

    /// Whether a guest of these hosts has a choice of where to go.
    fn has_choice(&self, hosts: &[u32]) -> bool {
        self.moving.evacuate == Evacuate::Everything
            || hosts
                .iter()
                .flat_map(|host| self.capacity.guests_on(*host))
                .any(|guest| {
                    matches!(
                        self.turn(*guest),
                        GuestHandling::Anywhere | GuestHandling::WithDowntime
                    )
                })
    }

    /// Those of the moves that are made because of these hosts.
    fn of(&self, migrations: &[Migration], hosts: &[u32]) -> Vec<Migration> {
        let because = |migration: &&Migration| {
            let guest = self.capacity.guest(migration.guest);
            hosts.contains(&guest.host) || guest.standby.is_some_and(|standby| hosts.contains(&standby))
        };
        migrations.iter().filter(because).copied().collect()
    }
}
