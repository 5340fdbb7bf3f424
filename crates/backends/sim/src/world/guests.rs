//! Hosts with guests that move, as a Ganeti's: who runs where, what is moved, and what is true of it.
//!
//! A node is taken out of service by moving its guests and draining it, and is rebooted then. It keeps notes of what was
//! moved away, from which whoever leaves it brings the guests back.

use std::collections::BTreeMap;

use stagger_core::model::{
    Amounts, BudgetsBuilder, Capacity, CapacityError, Guest, Host, IdError, Ix, MoveKind, Storage, UnitId,
};
use stagger_core::plan::Move;

use super::SimulatedCluster;
use crate::scenario::{GuestsSpec, guest_name, node_name};

/// What no guest asks for.
const PLENTY: i64 = 1 << 20;

/// Hosts, and the guests that they carry.
#[derive(Debug, Clone)]
pub(crate) struct GuestHosts {
    /// What is free there is what was so at first.
    hosts: Vec<Host>,
    guests: Vec<Guest>,
    pools: Vec<String>,
    tags: Vec<String>,
    by_name: BTreeMap<String, usize>,
    /// What the guests of each host took at first.
    took: Vec<Amounts>,
    /// Of each host, which unit it is.
    units: Vec<usize>,
    /// So many guests, or second copies, were moved to where they were to go.
    moves: u64,
    /// So many guests were down at once at worst, beside those that were so at first.
    worst_down: u64,
    /// So many were down at first.
    down_at_first: u64,
}

impl GuestHosts {
    /// Those of a specification, in which units are nodes and nothing else.
    pub(crate) fn of_spec(spec: &GuestsSpec) -> Result<Self, IdError> {
        let guests = spec.guests.iter().enumerate().map(|(number, guest)| Guest {
            name: guest_name(number),
            host: guest.node,
            standby: guest.standby,
            storage: guest.storage,
            runs: guest.runs,
            reserved: true,
            takes: [i64::from(guest.memory), 1, 0, 1],
            apart: Vec::new(),
            stuck: guest.stuck.then(|| "it is said to be so".to_owned()),
            elsewhere: false,
        });
        let guests: Vec<Guest> = guests.collect();
        let took = took(&guests, spec.memory.len());
        let hosts = (0_u32..)
            .zip(&spec.memory)
            .zip(&took)
            .map(|((node, memory), took)| {
                let size = [i64::from(*memory), PLENTY, PLENTY, PLENTY];
                Ok(Host {
                    unit: node_name(node)?,
                    pool: 0,
                    takes: true,
                    size,
                    free: less(size, *took),
                })
            });
        let hosts: Vec<Host> = hosts.collect::<Result<_, IdError>>()?;
        let units = (0..hosts.len()).collect();
        Ok(Self::new(
            hosts,
            guests,
            vec!["default".to_owned()],
            Vec::new(),
            units,
        ))
    }

    /// Those that were observed, with the unit that each host is.
    pub(crate) fn of_capacity(capacity: &Capacity, units: Vec<usize>) -> Self {
        let apart = capacity.guests().iter().flat_map(|guest| &guest.apart);
        let tags = apart.max().map_or(0, |last| last + 1);
        let pools = 0..capacity.pools() as u32;
        Self::new(
            capacity.hosts().to_vec(),
            capacity.guests().to_vec(),
            pools.map(|pool| capacity.pool(pool).to_owned()).collect(),
            (0..tags).map(|tag| capacity.tag(tag).to_owned()).collect(),
            units,
        )
    }

    fn new(
        hosts: Vec<Host>,
        guests: Vec<Guest>,
        pools: Vec<String>,
        tags: Vec<String>,
        units: Vec<usize>,
    ) -> Self {
        let names = guests.iter().enumerate();
        Self {
            by_name: names.map(|(at, guest)| (guest.name.clone(), at)).collect(),
            took: took(&guests, hosts.len()),
            hosts,
            guests,
            pools,
            tags,
            units,
            moves: 0,
            worst_down: 0,
            down_at_first: 0,
        }
    }

    /// What is free on each host now.
    fn free(&self) -> impl Iterator<Item = Amounts> {
        let now = took(&self.guests, self.hosts.len());
        let hosts = self.hosts.iter().zip(&self.took).zip(now);
        hosts.map(|((host, then), now)| less(more(host.free, *then), now))
    }

    /// The host that a unit is.
    fn host_of(&self, unit: usize) -> Option<u32> {
        let at = self.units.iter().position(|other| *other == unit)?;
        Some(at as u32)
    }

    fn guest(&mut self, name: &str) -> Option<&mut Guest> {
        let at = self.by_name.get(name)?;
        self.guests.get_mut(*at)
    }

    /// The guests that run on a unit.
    fn running_on(&self, unit: usize) -> impl Iterator<Item = &Guest> {
        let host = self.host_of(unit);
        self.guests
            .iter()
            .filter(move |guest| guest.runs && Some(guest.host) == host)
    }
}

/// What became of the guests in a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GuestsMoved {
    /// How many run.
    pub all: usize,
    /// How often one of them, or a second copy, was moved away from its host.
    pub moves: u64,
    /// How many were down at once at worst, beside those that were so before.
    pub worst_down: u64,
}

/// What the guests that run take on each of so many hosts.
fn took(guests: &[Guest], hosts: usize) -> Vec<Amounts> {
    let mut took = vec![[0; 4]; hosts];
    for guest in guests.iter().filter(|guest| guest.runs) {
        if let Some(sum) = took.get_mut(guest.host as usize) {
            *sum = more(*sum, guest.takes);
        }
    }
    took
}

fn more(mut amounts: Amounts, other: Amounts) -> Amounts {
    for (amount, other) in amounts.iter_mut().zip(other) {
        *amount += other;
    }
    amounts
}

fn less(mut amounts: Amounts, other: Amounts) -> Amounts {
    for (amount, other) in amounts.iter_mut().zip(other) {
        *amount -= other;
    }
    amounts
}

impl SimulatedCluster {
    /// What the hosts carry now, if they carry anything.
    pub(crate) fn capacity(&self) -> Result<Option<Capacity>, CapacityError> {
        let Some(carried) = &self.carried else {
            return Ok(None);
        };
        let hosts = carried.hosts.iter().zip(carried.free()).zip(&carried.units);
        let hosts = hosts.map(|((host, free), unit)| Host {
            takes: host.takes && self.daemons[*unit].serves(),
            free,
            ..host.clone()
        });
        Capacity::new(
            hosts.collect(),
            carried.guests.clone(),
            carried.pools.clone(),
            carried.tags.clone(),
        )
        .map(Some)
    }

    /// No two nodes with the copies of one guest go together.
    pub(crate) fn pairs(&self, budgets: &mut BudgetsBuilder, place: &[Ix]) {
        let Some(carried) = &self.carried else { return };
        for guest in &carried.guests {
            if let Some(standby) = guest.standby {
                let place = |host: u32| place[carried.units[host as usize]];
                let pair = [(place(guest.host), 1), (place(standby), 1)];
                budgets.add("both copies of", &guest.name, 1, &pair);
            }
        }
    }

    /// The guests that run on a node.
    pub(crate) fn running_on(&self, unit: usize) -> Vec<String> {
        let carried = self.carried.iter();
        let here = carried.flat_map(|carried| carried.running_on(unit));
        here.map(|guest| guest.name.clone()).collect()
    }

    /// A guest that somebody has started on a node while the run was at work. A visit looks at its node once more before it
    /// reboots it, as Ganeti's does, and refuses.
    pub(crate) fn foreign_guest(&self, unit: usize) -> Option<String> {
        let carried = self.carried.as_ref()?;
        let mut here = carried.running_on(unit);
        let guest = here.find(|guest| self.started_by_others.contains(&guest.name))?;
        self.daemons[unit].up.then(|| guest.name.clone())
    }

    /// The guests that should run and whose node is away.
    pub(crate) fn guests_down(&self) -> Vec<String> {
        let carried = self.carried.iter();
        let running = carried.flat_map(|carried| carried.guests.iter().map(move |guest| (carried, guest)));
        running
            .filter(|(carried, guest)| guest.runs && !self.daemons[carried.units[guest.host as usize]].up)
            .map(|(_, guest)| guest.name.clone())
            .collect()
    }

    /// Carries out one move that empties a node, and keeps a note of it there.
    pub(crate) fn move_away(&mut self, unit: usize, a_move: &Move) {
        let Some((from, to)) = self.ends(a_move) else {
            return;
        };
        let Some(carried) = &mut self.carried else { return };
        let Some(guest) = carried.guest(&a_move.guest) else {
            return;
        };
        let moved = match a_move.how {
            MoveKind::Migrate | MoveKind::Relocate if guest.runs && guest.host == from => {
                guest.host = to;
                if guest.storage == Storage::Copied {
                    guest.standby = Some(from);
                }
                true
            }
            MoveKind::ReplaceStandby if guest.standby == Some(from) && guest.host != to => {
                guest.standby = Some(to);
                true
            }
            MoveKind::Migrate | MoveKind::Relocate | MoveKind::ReplaceStandby => false,
        };
        if moved {
            carried.moves += 1;
            self.daemons[unit].away.push(a_move.clone());
        }
    }

    /// The hosts from and to which something is moved.
    fn ends(&self, a_move: &Move) -> Option<(u32, u32)> {
        let carried = self.carried.as_ref()?;
        let host = |unit: &UnitId| carried.host_of(*self.by_id.get(unit)?);
        Some((host(&a_move.from)?, host(&a_move.to)?))
    }

    /// Brings back what was moved away from a node, the last first.
    pub(crate) fn bring_back(&mut self, unit: usize) {
        for a_move in std::mem::take(&mut self.daemons[unit].away).into_iter().rev() {
            let Some((from, to)) = self.ends(&a_move) else {
                continue;
            };
            let carried = self.carried.as_mut();
            let Some(guest) = carried.and_then(|carried| carried.guest(&a_move.guest)) else {
                continue;
            };
            match a_move.how {
                MoveKind::Migrate | MoveKind::Relocate if guest.host == to => {
                    guest.host = from;
                    if guest.storage == Storage::Copied {
                        guest.standby = Some(to);
                    }
                }
                MoveKind::ReplaceStandby if guest.standby == Some(to) => guest.standby = Some(from),
                MoveKind::Migrate | MoveKind::Relocate | MoveKind::ReplaceStandby => {}
            }
        }
    }

    /// The nodes among those to which something is moved that have more guests than memory.
    pub(crate) fn over_filled(&self, moves: &[Move]) -> Vec<usize> {
        let Some(carried) = &self.carried else {
            return Vec::new();
        };
        let free: Vec<Amounts> = carried.free().collect();
        let is_full = |unit: &usize| {
            let host = carried.host_of(*unit);
            host.is_some_and(|host| free[host as usize][0] < 0)
        };
        let mut full: Vec<usize> = moves
            .iter()
            .filter(|a_move| a_move.how != MoveKind::ReplaceStandby)
            .filter_map(|a_move| self.by_id.get(&a_move.to).copied())
            .filter(is_full)
            .collect();
        full.sort_unstable();
        full.dedup();
        full
    }

    /// Somebody starts a guest that did not run: nothing is started on a node that is drained.
    pub(crate) fn start_guest(&mut self, number: usize) {
        let Some(carried) = &mut self.carried else { return };
        let Some(guest) = carried.guests.get_mut(number) else {
            return;
        };
        let unit = carried.units[guest.host as usize];
        if guest.runs || !self.daemons[unit].serves() {
            return;
        }
        guest.runs = true;
        self.started_by_others.insert(guest.name.clone());
        self.generation += 1;
        // What it takes there, nobody who judged before could know.
        let id = self.daemons[unit].id.clone();
        self.truth.fault_hit(&id);
    }

    /// What became of the guests, if there are any.
    pub(crate) fn guests_moved(&self) -> Option<GuestsMoved> {
        self.carried.as_ref().map(|carried| GuestsMoved {
            all: carried.guests.iter().filter(|guest| guest.runs).count(),
            moves: carried.moves,
            worst_down: carried.worst_down,
        })
    }

    /// Counts the guests that are down with their nodes before anything begins.
    pub(crate) fn count_down_at_first(&mut self) {
        let down = self.guests_down().len() as u64;
        if let Some(carried) = &mut self.carried {
            carried.down_at_first = down;
        }
    }

    /// Counts those that are down now.
    pub(crate) fn count_down(&mut self) {
        let down = self.guests_down().len() as u64;
        if let Some(carried) = &mut self.carried {
            let more = down.saturating_sub(carried.down_at_first);
            carried.worst_down = carried.worst_down.max(more);
        }
    }
}
