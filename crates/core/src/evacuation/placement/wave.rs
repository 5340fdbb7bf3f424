//! One wave: the destination of each guest of its hosts, or the host that cannot be emptied.

use std::collections::{BTreeMap, BTreeSet};

use crate::model::{
    Amounts, Capacity, CapacityViolation, Code, Evacuate, GuestHandling, Migration, MoveKind, Reason,
    Resource, Spare, largest_met_demand,
};

use super::PlacementContext;

/// How a host is chosen for a guest that may go anywhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Choice {
    /// The one with most room: the load stays balanced.
    Balanced,
    /// The one in which it fits most tightly: more may fit in all.
    Tight,
}

/// Why a wave cannot be placed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PlacementFailure {
    /// The host whose guests have no place.
    pub(super) host: u32,
    /// Why.
    pub(super) why: Reason,
}

/// `Tight` looks at each host for each guest; beyond so many hosts only `Balanced` is tried.
const HOSTS_FOR_TIGHT: usize = 2_000;

/// The moves that empty these hosts together.
///
/// # Errors
/// A host that cannot be emptied beside the others.
pub(super) fn place(world: &PlacementContext<'_>, hosts: &[u32]) -> Result<Vec<Migration>, PlacementFailure> {
    placed(world, hosts, &|_| 0)
}

/// The same where hosts for which `liking` is larger are taken first, however full they are.
///
/// # Errors
/// As for [`place`].
pub(super) fn placed(
    world: &PlacementContext<'_>,
    hosts: &[u32],
    liking: &dyn Fn(u32) -> i64,
) -> Result<Vec<Migration>, PlacementFailure> {
    let balanced = Attempt::new(world, hosts, liking).run(hosts, Choice::Balanced);
    if balanced.is_ok() || world.capacity.hosts().len() > HOSTS_FOR_TIGHT {
        return balanced;
    }
    Attempt::new(world, hosts, liking)
        .run(hosts, Choice::Tight)
        .or(balanced)
}

/// What one step of liking weighs: more than any share of room, which is in millionths.
const LIKED: i64 = 4_000_000;

/// From whom guests come to a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Senders {
    Nobody,
    /// To their standby, from this one.
    One(u32),
    Several,
}

struct Attempt<'w> {
    world: &'w PlacementContext<'w>,
    liking: &'w dyn Fn(u32) -> i64,
    /// Hosts that are down, or will be.
    out: Vec<bool>,
    comes: Vec<Amounts>,
    senders: Vec<Senders>,
    /// Memory newly wanted on the first host should the second fail.
    wanted: BTreeMap<(u32, u32), i64>,
    /// What each host keeps for the failure of another, once it was asked for.
    kept: Vec<Option<i64>>,
    /// Guests that come, where tags are looked at.
    guests: BTreeMap<u32, Vec<u32>>,
    migrations: Vec<Migration>,
}

impl<'w> Attempt<'w> {
    fn new(world: &'w PlacementContext<'w>, hosts: &[u32], liking: &'w dyn Fn(u32) -> i64) -> Self {
        let mut out = world.down.clone();
        for host in hosts {
            out[*host as usize] = true;
        }
        let count = out.len();
        Self {
            world,
            liking,
            out,
            comes: vec![[0; 4]; count],
            senders: vec![Senders::Nobody; count],
            wanted: BTreeMap::new(),
            kept: vec![None; count],
            guests: BTreeMap::new(),
            migrations: Vec::new(),
        }
    }

    fn run(mut self, hosts: &[u32], choice: Choice) -> Result<Vec<Migration>, PlacementFailure> {
        self.fill_standbys(hosts)?;
        self.place_anywhere(hosts, choice)?;
        if self.world.moving.evacuate == Evacuate::Everything {
            self.new_standbys(hosts, choice)?;
        }
        Ok(self.migrations)
    }

    fn fill_standbys(&mut self, hosts: &[u32]) -> Result<(), PlacementFailure> {
        let capacity = self.world.capacity;
        let mut reached: BTreeMap<u32, u32> = BTreeMap::new();
        for host in hosts {
            for at in capacity.guests_on(*host) {
                let guest = capacity.guest(*at);
                let (GuestHandling::ToStandby, Some(standby)) = (self.world.turn(*at), guest.standby) else {
                    continue;
                };
                if self.out[standby as usize] {
                    let gone = CapacityViolation::Gone {
                        guest: *at,
                        host: standby,
                    };
                    return Err(self.placement_failure(*host, &gone));
                }
                let [memory, cpus, spindles, _] = guest.takes;
                self.add_arrival(standby, [memory, cpus, spindles, 0]);
                self.senders[standby as usize] = match self.senders[standby as usize] {
                    Senders::Nobody => Senders::One(*host),
                    Senders::One(same) if same == *host => Senders::One(*host),
                    Senders::One(_) | Senders::Several => Senders::Several,
                };
                self.guests.entry(standby).or_default().push(*at);
                reached.insert(standby, *host);
                self.migrations.push(Migration {
                    guest: *at,
                    how: MoveKind::Migrate,
                    to: standby,
                });
            }
        }
        for (standby, host) in reached {
            let alone = self.senders[standby as usize] != Senders::Several;
            if let Err(violation) = self.holds(standby, alone) {
                return Err(self.placement_failure(host, &violation));
            }
        }
        Ok(())
    }

    fn add_arrival(&mut self, host: u32, amounts: Amounts) {
        for (sum, more) in self.comes[host as usize].iter_mut().zip(amounts) {
            *sum += more;
        }
    }

    fn placement_failure(&self, host: u32, violation: &CapacityViolation) -> PlacementFailure {
        PlacementFailure {
            host,
            why: Reason::new(Code::NoRoom, self.world.capacity.words(violation)),
        }
    }

    /// Whether a host bears what comes to it; `alone`: all of it is what the failure of one host would bring.
    fn holds(&mut self, host: u32, alone: bool) -> Result<(), CapacityViolation> {
        let comes = self.comes[host as usize];
        let has = self.world.capacity.host(host).free;
        for ((resource, comes), free) in Resource::ALL.into_iter().zip(comes).zip(has) {
            let lenient = alone && matches!(resource, Resource::Cpus | Resource::Spindles);
            if comes > 0 && comes > free && !lenient {
                return Err(CapacityViolation::Full {
                    host,
                    resource,
                    comes,
                    free,
                });
            }
        }
        if !(alone && self.world.moving.spare == Spare::Spend) {
            let (of, demand) = self.keeps(host);
            let free = has[0] - comes[0];
            if Capacity::fails(demand, free) {
                return Err(CapacityViolation::NPlusOne {
                    host,
                    of,
                    demand,
                    free,
                });
            }
        }
        if !alone && let Some(tag) = self.conflicting_tag(host) {
            return Err(CapacityViolation::Together { host, tag });
        }
        Ok(())
    }

    /// What a host keeps for the failure of another. What could not be kept before does not count.
    fn keeps(&mut self, host: u32) -> (u32, i64) {
        let free = self.world.capacity.host(host).free[0];
        // Of hosts that are down already nothing is moved.
        let emptied = |of: u32| self.out[of as usize] && !self.world.down[of as usize];
        let (of, old) =
            largest_met_demand(&self.world.demands[host as usize], free, emptied).unwrap_or((host, 0));
        let new = match self.kept[host as usize] {
            Some(_) => self
                .wanted
                .range((host, 0)..=(host, u32::MAX))
                .map(|((_, of), demand)| (*of, *demand))
                .max_by_key(|(_, demand)| *demand),
            None => None,
        };
        match new {
            Some((of, new)) if new > old => (of, new),
            Some(_) | None => (of, old),
        }
    }

    /// A tag by which a guest that comes to a host meets another there.
    fn conflicting_tag(&self, host: u32) -> Option<u32> {
        let capacity = self.world.capacity;
        if !self.world.any_tag {
            return None;
        }
        let there = capacity
            .guests_on(host)
            .iter()
            .filter(|guest| capacity.guest(**guest).runs);
        let mut tags: BTreeSet<u32> = there
            .flat_map(|guest| capacity.guest(*guest).apart.iter().copied())
            .collect();
        let coming = self.guests.get(&host).into_iter().flatten();
        coming
            .flat_map(|guest| capacity.guest(*guest).apart.iter().copied())
            .find(|tag| !tags.insert(*tag))
    }

    /// Puts a guest on a host if that bears it.
    fn try_on(&mut self, guest: u32, amounts: Amounts, host: u32) -> bool {
        self.add_arrival(host, amounts);
        self.guests.entry(host).or_default().push(guest);
        if self.holds(host, false).is_ok() {
            self.senders[host as usize] = Senders::Several;
            return true;
        }
        self.add_arrival(host, amounts.map(|amount| -amount));
        if let Some(guests) = self.guests.get_mut(&host) {
            guests.pop();
        }
        false
    }

    fn place_anywhere(&mut self, hosts: &[u32], choice: Choice) -> Result<(), PlacementFailure> {
        let capacity = self.world.capacity;
        let mut moved: Vec<(u32, MoveKind)> = Vec::new();
        for guest in hosts.iter().flat_map(|host| capacity.guests_on(*host)) {
            match self.world.turn(*guest) {
                GuestHandling::Anywhere => moved.push((*guest, MoveKind::Migrate)),
                GuestHandling::WithDowntime => moved.push((*guest, MoveKind::Relocate)),
                GuestHandling::Stays | GuestHandling::ToStandby => {}
            }
        }
        // The largest first: the small ones find a place in what is left.
        moved.sort_by_key(|(guest, _)| (capacity.guest(*guest).takes.map(|amount| -amount), *guest));
        let mut ranks = Ranks::new(self.world, Ranked::Running);
        for (guest, how) in moved {
            let of = capacity.guest(guest);
            let amounts = match how {
                MoveKind::Relocate => of.takes,
                MoveKind::Migrate | MoveKind::ReplaceStandby => [of.takes[0], of.takes[1], of.takes[2], 0],
            };
            let pool = capacity.host(of.host).pool;
            let Some(to) = self.choose(&mut ranks, choice, pool, |attempt, host| {
                attempt.try_on(guest, amounts, host)
            }) else {
                return Err(PlacementFailure {
                    host: of.host,
                    why: Reason::new(
                        Code::NoRoomAnywhere,
                        format!(
                            "no {} of {} has room for {}, which needs {} MiB of memory and {} virtual processors",
                            self.world.terms.host,
                            capacity.pool(pool),
                            of.name,
                            of.takes[0],
                            of.takes[1]
                        ),
                    ),
                });
            };
            self.migrations.push(Migration { guest, how, to });
        }
        Ok(())
    }

    fn new_standbys(&mut self, hosts: &[u32], choice: Choice) -> Result<(), PlacementFailure> {
        let capacity = self.world.capacity;
        // (guest, where it runs by then, the host that its second copy leaves)
        let mut lost: Vec<(u32, u32, u32)> = Vec::new();
        for host in hosts {
            for guest in capacity.guests_on(*host) {
                if self.world.turn(*guest) == GuestHandling::ToStandby
                    && let Some(standby) = capacity.guest(*guest).standby
                {
                    lost.push((*guest, standby, *host));
                }
            }
            for guest in capacity.guests_with_standby(*host) {
                let runs_on = capacity.guest(*guest).host;
                if self.world.turn(*guest) == GuestHandling::ToStandby && !self.out[runs_on as usize] {
                    lost.push((*guest, runs_on, *host));
                }
            }
        }
        lost.sort_by_key(|(guest, ..)| {
            (
                -capacity.guest(*guest).takes[3],
                -capacity.guest(*guest).takes[0],
                *guest,
            )
        });
        let mut ranks = Ranks::new(self.world, Ranked::Copies);
        for (guest, runs_on, leaves) in lost {
            let of = capacity.guest(guest);
            let pool = capacity.host(runs_on).pool;
            let memory = if of.reserved { of.takes[0] } else { 0 };
            let found = self.choose(&mut ranks, choice, pool, |attempt, host| {
                host != runs_on && attempt.try_copy(guest, runs_on, memory, host)
            });
            let Some(to) = found else {
                return Err(PlacementFailure {
                    host: leaves,
                    why: Reason::new(
                        Code::NoRoomForCopies,
                        format!(
                            "no {} of {} has room for the second copy of {}, which needs {} MiB of disk",
                            self.world.terms.host,
                            capacity.pool(pool),
                            of.name,
                            of.takes[3]
                        ),
                    ),
                });
            };
            self.migrations.push(Migration {
                guest,
                how: MoveKind::ReplaceStandby,
                to,
            });
        }
        Ok(())
    }

    /// Makes a host the standby of a guest if it bears that.
    fn try_copy(&mut self, guest: u32, runs_on: u32, memory: i64, host: u32) -> bool {
        let disk = self.world.capacity.guest(guest).takes[3];
        let key = (host, runs_on);
        let before = self.wanted.get(&key).copied();
        if memory > 0 {
            let old = self.world.demands[host as usize]
                .iter()
                .find(|demand| demand.of == runs_on)
                .map_or(0, |demand| demand.memory);
            self.wanted.insert(key, before.unwrap_or(old) + memory);
            self.kept[host as usize] = Some(0);
        }
        self.add_arrival(host, [0, 0, 0, disk]);
        if self.holds(host, false).is_ok() {
            self.senders[host as usize] = Senders::Several;
            return true;
        }
        self.add_arrival(host, [0, 0, 0, -disk]);
        match before {
            Some(before) => self.wanted.insert(key, before),
            None => self.wanted.remove(&key),
        };
        false
    }

    /// The first host, in the order of choice, that takes it.
    fn choose(
        &mut self,
        ranks: &mut Ranks,
        choice: Choice,
        pool: u32,
        mut takes: impl FnMut(&mut Self, u32) -> bool,
    ) -> Option<u32> {
        let order = ranks.of(self, pool);
        let found = match choice {
            Choice::Balanced => order.iter().rev().find(|(_, host)| takes(self, *host)).copied(),
            Choice::Tight => order.iter().find(|(_, host)| takes(self, *host)).copied(),
        };
        let (old, host) = found?;
        let new = ranks.rank(self, host);
        ranks.moved(pool, host, old, new);
        Some(host)
    }
}

/// For what hosts are ranked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ranked {
    /// For guests that run: by what is left of memory, processors and spindles.
    Running,
    /// For second copies: by what is left of the disk.
    Copies,
}

/// The hosts of each pool by how much room they have, in millionths of their size.
struct Ranks {
    by: Ranked,
    pools: Vec<Option<BTreeSet<(i64, u32)>>>,
}

impl Ranks {
    fn new(world: &PlacementContext<'_>, by: Ranked) -> Self {
        Self {
            by,
            pools: vec![None; world.capacity.pools()],
        }
    }

    fn of(&mut self, attempt: &mut Attempt<'_>, pool: u32) -> &BTreeSet<(i64, u32)> {
        if self.pools[pool as usize].is_none() {
            let capacity = attempt.world.capacity;
            let hosts: Vec<u32> = attempt.world.pool_hosts[pool as usize]
                .iter()
                .copied()
                .filter(|host| capacity.host(*host).takes && !attempt.out[*host as usize])
                .collect();
            let ranked = hosts
                .into_iter()
                .map(|host| (self.rank(attempt, host), host))
                .collect();
            self.pools[pool as usize] = Some(ranked);
        }
        self.pools[pool as usize].get_or_insert_default()
    }

    fn rank(&self, attempt: &mut Attempt<'_>, host: u32) -> i64 {
        let (_, kept) = attempt.keeps(host);
        let of = attempt.world.capacity.host(host);
        let comes = attempt.comes[host as usize];
        let share = |resource: usize, kept: i64| {
            let left = of.free[resource] - comes[resource] - kept;
            left.saturating_mul(1_000_000) / of.size[resource].max(1)
        };
        let room = match self.by {
            Ranked::Running => share(0, kept).min(share(1, 0)).min(share(2, 0)),
            Ranked::Copies => share(3, 0),
        };
        room.clamp(-LIKED / 2, LIKED / 2) + LIKED * (attempt.liking)(host)
    }

    fn moved(&mut self, pool: u32, host: u32, old: i64, new: i64) {
        if let Some(order) = &mut self.pools[pool as usize] {
            order.remove(&(old, host));
            order.insert((new, host));
        }
    }
}
