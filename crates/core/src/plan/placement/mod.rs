//! Where guests go while their hosts are down, and which hosts can be emptied together.
//!
//! 1. [`limits`]: what guests ask of hosts becomes budgets, so that the solver of waves knows of it.
//! 2. [`wave`]: the guests of one wave get their places, balanced, or a host is named that cannot be emptied.
//! 3. [`partition`]: hosts that had to leave their wave are put elsewhere, and the waves are made fewer.
//!
//! Each wave begins from the world as it was observed: what was moved is moved back when its host is back.

mod limits;
mod partition;
mod wave;

pub(super) use limits::Limit;
pub(super) use partition::{Partition, Placed};

use crate::model::{Demand, Ix, Moving, Rooms, Shift, Snapshot, Standbys, Terms, Turn, UnitState};

/// What placing looks at again and again.
#[derive(Debug)]
pub(super) struct World<'a> {
    rooms: &'a Rooms,
    moving: &'a Moving,
    /// Hosts that do not serve.
    down: Vec<bool>,
    /// What each host would have to take over, from whom.
    demands: Vec<Vec<Demand>>,
    pool_hosts: Vec<Vec<u32>>,
    any_tag: bool,
    terms: Terms,
}

impl<'a> World<'a> {
    /// The world of a snapshot.
    pub(super) fn new(snapshot: &Snapshot, rooms: &'a Rooms, moving: &'a Moving) -> Self {
        let hosts = 0..rooms.hosts().len() as u32;
        let down = rooms.hosts().iter().map(|host| {
            let unit = snapshot.find(&host.unit);
            unit.is_none_or(|unit| snapshot.unit(unit).state != UnitState::Serving)
        });
        let mut pool_hosts = vec![Vec::new(); rooms.pools()];
        for host in hosts.clone() {
            pool_hosts[rooms.host(host).pool as usize].push(host);
        }
        Self {
            down: down.collect(),
            demands: hosts.map(|host| rooms.demands(moving, host)).collect(),
            any_tag: rooms.guests().iter().any(|guest| !guest.apart.is_empty()),
            rooms,
            moving,
            pool_hosts,
            terms: snapshot.terms().clone(),
        }
    }

    /// The hosts that these units are.
    pub(super) fn hosts_of(&self, snapshot: &Snapshot, units: &[Ix]) -> Vec<u32> {
        units
            .iter()
            .filter_map(|unit| self.rooms.find(&snapshot.unit(*unit).id))
            .collect()
    }

    fn turn(&self, guest: u32) -> Turn {
        self.moving.turn(self.rooms.guest(guest))
    }

    /// The budgets for these hosts.
    pub(super) fn limits(&self, hosts: &[u32]) -> Vec<Limit> {
        limits::limits(self, hosts)
    }

    /// Budgets that keep apart hosts with a standby in common, where its room is all that would bind them.
    pub(super) fn standbys_apart(&self, hosts: &[u32]) -> Vec<Limit> {
        match self.moving.standbys {
            Standbys::Capacity => limits::standbys_apart(self, hosts),
            Standbys::Exclude => Vec::new(),
        }
    }

    /// Whether a guest of these hosts has a choice of where to go.
    fn has_choice(&self, hosts: &[u32]) -> bool {
        self.moving.evacuate == crate::model::Evacuate::Everything
            || hosts
                .iter()
                .flat_map(|host| self.rooms.on(*host))
                .any(|guest| matches!(self.turn(*guest), Turn::Anywhere | Turn::WithDowntime))
    }

    /// Those of the moves that are made because of these hosts.
    fn of(&self, shifts: &[Shift], hosts: &[u32]) -> Vec<Shift> {
        let because = |shift: &&Shift| {
            let guest = self.rooms.guest(shift.guest);
            hosts.contains(&guest.host) || guest.standby.is_some_and(|standby| hosts.contains(&standby))
        };
        shifts.iter().filter(because).copied().collect()
    }
}
