//! A wave under construction: which units still fit.

use super::conflict_graph::ConflictGraph;
use super::wave_usage::Room;

/// A permitted wave that grows. What no longer fits never fits again: the rules are monotone.
#[derive(Debug)]
pub(super) struct Forming<'a> {
    ties: &'a ConflictGraph,
    room: Room,
    units: Vec<u32>,
    /// Units that a pair or a clause forbids, and those in the wave.
    blocked: Vec<bool>,
    /// The blocked units that are not in the wave.
    shut_out: Vec<u32>,
    /// One for each clause.
    loads: Vec<u32>,
}

impl<'a> Forming<'a> {
    pub(super) fn new(ties: &'a ConflictGraph, cap: u32) -> Self {
        Self {
            ties,
            room: Room::new(ties, cap),
            units: Vec::new(),
            blocked: vec![false; ties.units() as usize],
            shut_out: Vec::new(),
            loads: vec![0; ties.clauses.len()],
        }
    }

    /// Hands out the wave, ascending, and begins another with this cap.
    pub(super) fn finish(&mut self, cap: u32) -> Vec<u32> {
        for unit in self.shut_out.drain(..) {
            self.blocked[unit as usize] = false;
        }
        for &unit in &self.units {
            self.blocked[unit as usize] = false;
            for joined in self.ties.clauses_of(unit) {
                self.loads[joined.clause as usize] = 0;
            }
        }
        self.room = Room::new(self.ties, cap);
        let mut units = std::mem::take(&mut self.units);
        units.sort_unstable();
        units
    }

    /// Whether a pair or a clause forbids this unit, or it is in the wave.
    pub(super) fn blocks(&self, unit: u32) -> bool {
        self.blocked[unit as usize]
    }

    /// The load of a clause.
    pub(super) fn load(&self, clause: u32) -> u32 {
        self.loads[clause as usize]
    }

    /// Whether the rules that bind every unit leave room for this one.
    pub(super) fn has_room(&self, unit: u32) -> bool {
        self.room.fits(self.ties, unit)
    }

    /// Adds a unit that is not blocked and fits; appends to `newly` the units that become blocked.
    pub(super) fn add(&mut self, unit: u32, newly: &mut Vec<u32>) {
        let ties = self.ties;
        let known = newly.len();
        self.units.push(unit);
        self.room.add(ties, unit);
        self.blocked[unit as usize] = true;
        for &other in ties.pairs(unit) {
            if !std::mem::replace(&mut self.blocked[other as usize], true) {
                newly.push(other);
            }
        }
        for joined in ties.clauses_of(unit) {
            let clause = &ties.clauses[joined.clause as usize];
            let load = &mut self.loads[joined.clause as usize];
            *load += joined.cost;
            let left = clause.limit - *load;
            if left >= clause.largest {
                continue;
            }
            for seat in ties.seats(joined.clause) {
                if seat.cost > left && !std::mem::replace(&mut self.blocked[seat.unit as usize], true) {
                    newly.push(seat.unit);
                }
            }
        }
        self.shut_out.extend_from_slice(&newly[known..]);
    }
}
