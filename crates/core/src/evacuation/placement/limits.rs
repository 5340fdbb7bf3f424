//! The guests' requirements on hosts, as budgets for the solver.
//!
//! Where each guest goes to its standby, the budgets are exact. Where guests may go anywhere, the budgets
//! limit their total, and the placement decides whether it can be done.

use std::collections::BTreeMap;

use crate::model::{Capacity, Code, GuestHandling, Reason, SharedGuests, Spare, Standbys};

use super::PlacementContext;

/// A budget over the hosts that are to be visited, by their places among these.
#[derive(Debug, Clone)]
pub(crate) struct HostBudget {
    /// Members and costs.
    pub(crate) members: Vec<(u32, u32)>,
    /// How much may be down together.
    pub(crate) most: u32,
    /// A relaxation without what the solver cannot express exactly. Every feasible placement satisfies it, so
    /// a lower bound may rest on it.
    pub(crate) loose: Option<(Vec<(u32, u32)>, u32)>,
    /// Why it is there.
    pub(crate) why: Reason,
}

/// What comes to a standby from one host.
#[derive(Debug, Clone, Copy, Default)]
struct From {
    memory: i64,
    cpus: i64,
    spindles: i64,
}

/// All budgets for these hosts.
pub(super) fn limits(world: &PlacementContext<'_>, hosts: &[u32]) -> Vec<HostBudget> {
    let capacity = world.capacity;
    let local = places(capacity, hosts);
    let mut found = Vec::new();
    for standby in (0..capacity.hosts().len() as u32).filter(|host| !world.down[*host as usize]) {
        let from = sent_to_standby(world, &local, standby);
        if from.is_empty() {
            continue;
        }
        if world.moving.standbys == Standbys::Exclude {
            found.extend(shared(capacity, standby, &from));
        }
        found.extend(memory(world, hosts, standby, &from));
        found.extend(speed(capacity, standby, &from));
    }
    found.extend(pools(world, hosts));
    found
}

/// That no two of these hosts have a standby in common, which is narrower than what standbys have room for.
pub(super) fn standbys_apart(world: &PlacementContext<'_>, hosts: &[u32]) -> Vec<HostBudget> {
    let local = places(world.capacity, hosts);
    (0..world.capacity.hosts().len() as u32)
        .filter(|host| !world.down[*host as usize])
        .filter_map(|standby| shared(world.capacity, standby, &sent_to_standby(world, &local, standby)))
        .collect()
}

/// One at a time of those that would send what they carry to the same standby.
fn shared(capacity: &Capacity, standby: u32, from: &[(u32, From)]) -> Option<HostBudget> {
    (from.len() > 1).then(|| HostBudget {
        members: from.iter().map(|(at, _)| (*at, 1)).collect(),
        most: 1,
        loose: None,
        why: Reason::new(
            Code::StandbyShared,
            format!(
                "what runs on both would be moved to {}",
                capacity.host(standby).unit
            ),
        ),
    })
}

/// For each host its place among those to be visited.
fn places(capacity: &Capacity, hosts: &[u32]) -> Vec<Option<u32>> {
    let mut local = vec![None; capacity.hosts().len()];
    for (at, host) in (0_u32..).zip(hosts) {
        local[*host as usize] = Some(at);
    }
    local
}

/// What the hosts to be visited would send to a standby.
fn sent_to_standby(world: &PlacementContext<'_>, local: &[Option<u32>], standby: u32) -> Vec<(u32, From)> {
    let mut from: BTreeMap<u32, From> = BTreeMap::new();
    for guest in world.capacity.guests_with_standby(standby) {
        let turn = world.turn(*guest);
        let guest = world.capacity.guest(*guest);
        let (GuestHandling::ToStandby, Some(at)) = (turn, local[guest.host as usize]) else {
            continue;
        };
        let [memory, cpus, spindles, _] = guest.takes;
        let sum = from.entry(at).or_default();
        sum.memory += memory;
        sum.cpus += cpus;
        sum.spindles += spindles;
    }
    from.into_iter().collect()
}

/// What comes fits, and what would have to come if one more host failed still does.
fn memory(
    world: &PlacementContext<'_>,
    hosts: &[u32],
    standby: u32,
    from: &[(u32, From)],
) -> Option<HostBudget> {
    let free = world.capacity.host(standby).free[0];
    let spends = world.moving.spare == Spare::Spend;
    // The two largest demands that can be met now: they must be met while the others are down.
    let mut met = world.demands[standby as usize]
        .iter()
        .filter(|demand| !Capacity::fails(demand.memory, free));
    let (first, second) = (met.next().copied(), met.next().map_or(0, |demand| demand.memory));
    let most = first.map_or(0, |first| first.memory);
    let room = (free - most).max(0);
    // With the most demanding host emptied, it is the next one that might fail, or what stays there.
    let cost = |at: u32, from: &From| match first {
        Some(first) if first.of == hosts[at as usize] => from.memory - (most - second.max(first.stays)),
        Some(_) | None => from.memory,
    };
    let whole: i64 = from.iter().map(|(at, from)| cost(*at, from)).sum();
    if whole <= room && from.iter().all(|(_, from)| from.memory <= free.max(0)) {
        return None;
    }
    let limit = if spends { room.max(1) } else { room };
    let members = from.iter().map(|(at, from)| {
        let cost = match cost(*at, from) {
            _ if from.memory > free.max(0) => limit + 1,
            // A single host may use up the reserve.
            cost if spends => cost.clamp(1, limit),
            cost => cost,
        };
        (*at, as_cost(cost))
    });
    let loose = from
        .iter()
        .map(|(at, from)| (*at, as_cost(from.memory.min(free.max(0) + 1))));
    let name = &world.capacity.host(standby).unit;
    let kept = match first {
        Some(first) => format!(
            " and must reserve {most} for a failure of {}",
            world.capacity.host(first.of).unit
        ),
        None => String::new(),
    };
    Some(HostBudget {
        members: members.collect(),
        most: as_cost(limit),
        loose: Some((loose.collect(), as_cost(free.max(0)))),
        why: Reason::new(
            Code::NoRoom,
            format!("{name} has {free} MiB of memory free{kept}"),
        ),
    })
}

/// Processors and spindles of a standby: the guests of one host alone may always come.
fn speed(capacity: &Capacity, standby: u32, from: &[(u32, From)]) -> Vec<HostBudget> {
    let name = &capacity.host(standby).unit;
    let of = |free: i64, what: &str, amount: fn(&From) -> i64| {
        let whole: i64 = from.iter().map(|(_, from)| amount(from)).sum();
        if whole <= free || from.len() < 2 {
            return None;
        }
        let limit = free.max(1);
        Some(HostBudget {
            members: from
                .iter()
                .map(|(at, from)| (*at, as_cost(amount(from).clamp(i64::from(free < 1), limit))))
                .collect(),
            most: as_cost(limit),
            loose: None,
            why: Reason::new(Code::NoRoom, format!("{name} has {free} {what} free")),
        })
    };
    let [_, cpus, spindles, _] = capacity.host(standby).free;
    [
        of(cpus, "virtual processors", |from| from.cpus),
        of(spindles, "spindles", |from| from.spindles),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Guests that may go anywhere: all that leaves, and all that goes away as room, is room in the pool.
fn pools(world: &PlacementContext<'_>, hosts: &[u32]) -> Vec<HostBudget> {
    let capacity = world.capacity;
    let mut found = Vec::new();
    for pool in 0..capacity.pools() as u32 {
        let members: Vec<(u32, u32)> = (0_u32..)
            .zip(hosts.iter().copied())
            .filter(|(_, host)| capacity.host(*host).pool == pool)
            .collect();
        let floats = |host: u32| {
            let guests = capacity.guests_on(host).iter().copied();
            guests.filter(|guest| {
                matches!(
                    world.turn(*guest),
                    GuestHandling::Anywhere | GuestHandling::WithDowntime
                )
            })
        };
        if members.iter().all(|(_, host)| floats(*host).next().is_none()) {
            continue;
        }
        if world.moving.shared == SharedGuests::One {
            found.push(HostBudget {
                members: members
                    .iter()
                    .filter(|(_, host)| floats(*host).next().is_some())
                    .map(|(at, _)| (*at, 1))
                    .collect(),
                most: 1,
                loose: None,
                why: Reason::new(
                    Code::OneAtATime,
                    format!(
                        "{}s of {} with {}s on shared storage go one at a time",
                        world.terms.host,
                        capacity.pool(pool),
                        world.terms.guest
                    ),
                ),
            });
        }
        for (resource, what) in [(0, "MiB of memory"), (1, "virtual processors")] {
            // Room on other hosts is not in the sum, so that what goes there, to a standby, takes nothing of it.
            let counts = |host: u32| {
                let of = capacity.host(host);
                of.pool == pool && of.takes && !world.down[host as usize]
            };
            let usable = |host: u32| {
                if counts(host) {
                    capacity.host(host).free[resource].max(0)
                } else {
                    0
                }
            };
            let all: i64 = (0..capacity.hosts().len() as u32).map(usable).sum();
            let costs: Vec<(u32, i64)> = members
                .iter()
                .map(|(at, host)| {
                    let leaves: i64 = floats(*host)
                        .map(|guest| capacity.guest(guest).takes[resource])
                        .sum();
                    let to_standbys: i64 = if resource == 0 {
                        capacity
                            .guests_on(*host)
                            .iter()
                            .filter(|guest| world.turn(**guest) == GuestHandling::ToStandby)
                            .map(|guest| capacity.guest(*guest))
                            .filter(|guest| guest.standby.is_some_and(counts))
                            .map(|guest| guest.takes[0])
                            .sum()
                    } else {
                        0
                    };
                    (*at, leaves + to_standbys + usable(*host))
                })
                .collect();
            if costs.iter().map(|(_, cost)| cost).sum::<i64>() <= all {
                continue;
            }
            // Rounded so that nothing that is possible is forbidden.
            let mut unit = 1;
            while all / unit > i64::from(u32::MAX / 4) {
                unit *= 2;
            }
            found.push(HostBudget {
                members: costs
                    .iter()
                    .map(|(at, cost)| (*at, as_cost(cost / unit)))
                    .collect(),
                most: as_cost((all + unit - 1) / unit),
                loose: None,
                why: Reason::new(
                    Code::NoRoomAnywhere,
                    format!(
                        "all {}s of {} have {all} {what} free",
                        world.terms.host,
                        capacity.pool(pool)
                    ),
                ),
            });
        }
    }
    found
}

fn as_cost(amount: i64) -> u32 {
    u32::try_from(amount.max(0)).unwrap_or(u32::MAX)
}
