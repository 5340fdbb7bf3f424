//! Tabu search: the same units in one wave fewer, first with broken rules, which moves then repair.
//!
//! A. Hertz and D. de Werra, "Using tabu search techniques for graph coloring", Computing 39 (1987)
//! 345-351; the length of a tabu from P. Galinier and J.-K. Hao, "Hybrid evolutionary algorithms for
//! graph coloring", Journal of Combinatorial Optimization 3 (1999) 379-397. There the count of edges
//! inside a colour is brought to nothing. Here it is the excess over all rules: broken pairs, loads
//! of clauses over their limits, and what `Room` counts.

use super::conflict_graph::{Clause, ConflictGraph};
use super::list::List;
use super::problem::cap_at;
use super::rng::SearchRng;
use super::wave_usage::Room;
use super::{Effort, Tenure};

/// The search keeps tables of units × waves and clauses × waves; beyond so many cells (of 4 bytes) it
/// declines. Ten thousand units in 40 waves need a twentieth of this.
const CELLS: u64 = 16_000_000;

/// In no wave.
const NONE: u32 = u32::MAX;

/// So many moves are made between two questions whether to stop.
const MOVES_A_QUESTION: u32 = 32;

/// A split into one wave fewer, or `None` if none was found with this effort; its steps are moves.
pub(super) fn reduce_waves(
    ties: &ConflictGraph,
    waves: &[Vec<u32>],
    effort: &mut Effort<'_>,
) -> Option<Vec<Vec<u32>>> {
    let count = waves.len().checked_sub(1).filter(|&count| count > 0)?;
    let cells = count as u64 * (u64::from(ties.units()) * 2 + ties.clauses.len() as u64);
    if cells > CELLS {
        return None;
    }
    let mut search = Tabu::new(ties, count);
    search.start_from(waves);
    let moves = search.run(effort);
    *effort.steps_left -= moves;
    (search.excess == 0).then(|| search.waves())
}

struct Tabu<'a> {
    ties: &'a ConflictGraph,
    count: usize,
    wave_of: Vec<u32>,
    /// `pain[unit × count + wave]`: what the pairs and clauses of the unit would add to the excess
    /// with it in the wave, or do add if it is there.
    pain: Vec<u32>,
    /// Until which move the unit may not go (back) to the wave.
    until: Vec<u32>,
    /// `loads[clause × count + wave]`.
    loads: Vec<u32>,
    /// Whether there are rules that bind every unit; if not, rooms are never asked.
    crowded_rooms: bool,
    rooms: Vec<Room>,
    /// The units in each wave, and where each unit stands there; kept only with `crowded_rooms`.
    inside: Vec<Vec<u32>>,
    inside_at: Vec<u32>,
    /// Units that feel pain where they are.
    sore: List,
    /// Total excess over all rules.
    excess: i64,
}

/// A move looked at.
#[derive(Debug, Clone, Copy)]
struct Move {
    unit: u32,
    to: u32,
    change: i64,
}

impl<'a> Tabu<'a> {
    fn new(ties: &'a ConflictGraph, count: usize) -> Self {
        let units = ties.units() as usize;
        Self {
            ties,
            count,
            wave_of: vec![NONE; units],
            pain: vec![0; units * count],
            until: vec![0; units * count],
            loads: vec![0; ties.clauses.len() * count],
            crowded_rooms: !(ties.caps.is_empty() && ties.wide.is_empty() && ties.domains.is_empty()),
            rooms: (0..count)
                .map(|place| Room::new(ties, cap_at(&ties.caps, place)))
                .collect(),
            inside: vec![Vec::new(); count],
            inside_at: vec![NONE; units],
            sore: List::new(units),
            excess: 0,
        }
    }

    /// Dissolves one wave among the others. Of those in places as large as the last it is the one
    /// with the fewest units, and the last takes its place: so all others keep their caps.
    fn start_from(&mut self, waves: &[Vec<u32>]) {
        let last = waves.len() - 1;
        let cap = |place: usize| cap_at(&self.ties.caps, place);
        let dissolved = (0..waves.len())
            .filter(|&place| cap(place) >= cap(last))
            .min_by_key(|&place| waves[place].len())
            .unwrap_or(last);
        for (place, wave) in waves.iter().enumerate() {
            if place != dissolved {
                let to = if place == last { dissolved } else { place };
                for &unit in wave {
                    self.enter(unit, to as u32);
                }
            }
        }
        for &unit in &waves[dissolved] {
            let to = (0..self.count as u32).min_by_key(|&to| self.cost_of_entering(unit, to));
            self.enter(unit, to.unwrap_or(0));
        }
    }

    /// Moves until nothing is broken or the effort ends; answers how many were made.
    fn run(&mut self, effort: &mut Effort<'_>) -> u64 {
        // Moves are counted in u32 to keep `until` small; four thousand million are enough.
        let steps = (*effort.steps_left).min(u64::from(u32::MAX - 10_000_000)) as u32;
        let mut best = self.excess;
        let mut now = 0;
        while self.excess > 0 && now < steps {
            if now % MOVES_A_QUESTION == MOVES_A_QUESTION - 1 && (effort.stop)() {
                break;
            }
            now += 1;
            if let Some(chosen) = self.choose(now, best, effort.rng) {
                let from = self.wave_of[chosen.unit as usize];
                let sore = self.sore.units.len() as u32;
                let kept_out = match effort.tenure {
                    Tenure::Published => sore * 3 / 5,
                    Tenure::Long => sore,
                };
                let back = chosen.unit as usize * self.count + from as usize;
                self.until[back] = now + 1 + effort.rng.below(10) + kept_out;
                self.leave(chosen.unit);
                self.enter(chosen.unit, chosen.to);
                best = best.min(self.excess);
            }
        }
        u64::from(now)
    }

    /// The best move that is not tabu, or that leads to less excess than ever seen; among equals one
    /// at random. Only units that something hurts are moved.
    fn choose(&self, now: u32, best: i64, rng: &mut SearchRng) -> Option<Move> {
        let mut choice = Choice {
            now,
            to_beat: best - self.excess,
            found: None,
            equals: 0,
        };
        for &unit in &self.sore.units {
            self.look_at(unit, &mut choice, rng);
        }
        if self.crowded_rooms {
            for (room, inside) in self.rooms.iter().zip(&self.inside) {
                if room.excess(self.ties) > 0 {
                    for &unit in inside.iter().filter(|&&unit| !self.sore.contains(unit)) {
                        self.look_at(unit, &mut choice, rng);
                    }
                }
            }
        }
        choice.found
    }

    /// Looks at all moves of one unit.
    #[inline]
    fn look_at(&self, unit: u32, choice: &mut Choice, rng: &mut SearchRng) {
        let own = self.wave_of[unit as usize];
        let row = unit as usize * self.count..(unit as usize + 1) * self.count;
        let pains = &self.pain[row.clone()];
        let until = &self.until[row];
        let mut relief = i64::from(pains[own as usize]);
        if self.crowded_rooms {
            relief += self.rooms[own as usize]
                .removed_excess(self.ties, unit)
                .cast_signed();
        }
        // A move that costs more than this is worse than the best so far. Nearly all moves are, and nearly
        // all of the search's time is spent here: they are counted first, several at a time.
        let Some(mut most) = choice.max_added_excess(relief) else {
            return;
        };
        let as_good = |pain: u32| u32::from(pain <= most);
        let others = pains.iter().fold(0, |count, &pain| count + as_good(pain));
        if others == as_good(pains[own as usize]) {
            return;
        }
        for (to, &pain) in (0_u32..).zip(pains) {
            if pain > most || to == own {
                continue;
            }
            let mut change = i64::from(pain) - relief;
            if self.crowded_rooms {
                change += self.rooms[to as usize]
                    .added_excess(self.ties, unit)
                    .cast_signed();
            }
            if until[to as usize] > choice.now && change >= choice.to_beat {
                continue;
            }
            choice.offer(Move { unit, to, change }, rng);
            most = choice.max_added_excess(relief).unwrap_or(0);
        }
    }

    fn cost_of_entering(&self, unit: u32, wave: u32) -> u64 {
        u64::from(self.pain[unit as usize * self.count + wave as usize])
            + self.rooms[wave as usize].added_excess(self.ties, unit)
    }

    fn enter(&mut self, unit: u32, wave: u32) {
        self.excess += self.cost_of_entering(unit, wave).cast_signed();
        if self.crowded_rooms {
            self.rooms[wave as usize].add(self.ties, unit);
            let inside = &mut self.inside[wave as usize];
            self.inside_at[unit as usize] = inside.len() as u32;
            inside.push(unit);
        }
        self.wave_of[unit as usize] = wave;
        if self.pain[unit as usize * self.count + wave as usize] > 0 {
            self.sore.add(unit);
        }
        let ties = self.ties;
        for &other in ties.pairs(unit) {
            self.add_move_cost(other, wave, 1);
        }
        for joined in ties.clauses_of(unit) {
            let at = joined.clause as usize * self.count + wave as usize;
            let before = self.loads[at];
            self.loads[at] += joined.cost;
            self.load_changed(joined.clause, unit, wave, before, self.loads[at]);
        }
    }

    fn leave(&mut self, unit: u32) {
        let wave = self.wave_of[unit as usize];
        if self.crowded_rooms {
            self.rooms[wave as usize].take(self.ties, unit);
            let inside = &mut self.inside[wave as usize];
            let at = self.inside_at[unit as usize];
            inside.swap_remove(at as usize);
            if let Some(&moved) = inside.get(at as usize) {
                self.inside_at[moved as usize] = at;
            }
        }
        self.excess -= self.cost_of_entering(unit, wave).cast_signed();
        self.wave_of[unit as usize] = NONE;
        self.sore.remove(unit);
        let ties = self.ties;
        for &other in ties.pairs(unit) {
            self.add_move_cost(other, wave, -1);
        }
        for joined in ties.clauses_of(unit) {
            let at = joined.clause as usize * self.count + wave as usize;
            let before = self.loads[at];
            self.loads[at] -= joined.cost;
            self.load_changed(joined.clause, unit, wave, before, self.loads[at]);
        }
    }

    /// Updates the other members of a clause whose load in a wave has changed. Most changes stay below the
    /// limit even with the costliest member added; these are skipped.
    fn load_changed(&mut self, index: u32, mover: u32, wave: u32, before: u32, after: u32) {
        let ties = self.ties;
        let clause = &ties.clauses[index as usize];
        if clause.limit - clause.largest >= before.max(after) {
            return;
        }
        if clause.largest == 1 {
            // All cost 1: crossing the limit hurts (or eases) those elsewhere, for whom the load is
            // that of others; those inside count themselves in it, and feel it one later.
            let sign = if after > before { 1 } else { -1 };
            let crossed = before.min(after);
            if crossed > clause.limit {
                return;
            }
            let outside = crossed + 1 == clause.limit;
            for seat in ties.seats(index) {
                let inside = self.wave_of[seat.unit as usize] == wave;
                if seat.unit != mover && inside != outside {
                    self.add_move_cost(seat.unit, wave, sign);
                }
            }
            return;
        }
        for seat in ties.seats(index) {
            if seat.unit == mover {
                continue;
            }
            let own = if self.wave_of[seat.unit as usize] == wave {
                seat.cost
            } else {
                0
            };
            let by = share(clause, after - own, seat.cost) - share(clause, before - own, seat.cost);
            if by != 0 {
                self.add_move_cost(seat.unit, wave, by);
            }
        }
    }

    #[inline]
    fn add_move_cost(&mut self, unit: u32, wave: u32, by: i32) {
        let pain = &mut self.pain[unit as usize * self.count + wave as usize];
        let before = *pain;
        *pain = before.wrapping_add_signed(by);
        if (before == 0) != (*pain == 0) && self.wave_of[unit as usize] == wave {
            if before == 0 {
                self.sore.add(unit);
            } else {
                self.sore.remove(unit);
            }
        }
    }

    fn waves(&self) -> Vec<Vec<u32>> {
        let mut waves = vec![Vec::new(); self.count];
        for (unit, &wave) in (0_u32..).zip(&self.wave_of) {
            waves[wave as usize].push(unit);
        }
        waves.retain(|wave| !wave.is_empty());
        waves
    }
}

/// What a member of this cost adds to the excess on top of the load of others.
fn share(clause: &Clause, others: u32, cost: u32) -> i32 {
    (over(clause, others + cost) - over(clause, others)).cast_signed()
}

/// The excess of a load, counted in the largest cost: a clause in gigabytes must not drown one of
/// placement groups.
fn over(clause: &Clause, load: u32) -> u32 {
    load.saturating_sub(clause.limit).div_ceil(clause.largest)
}

/// The best move so far.
struct Choice {
    now: u32,
    /// A move that changes the excess by less than this is taken even if it is tabu.
    to_beat: i64,
    found: Option<Move>,
    equals: u32,
}

impl Choice {
    /// The largest excess that a move of a unit with this relief may add and still be as good as the best so
    /// far; `None`: no such move.
    fn max_added_excess(&self, relief: i64) -> Option<u32> {
        let Some(found) = self.found else {
            return Some(u32::MAX);
        };
        let most = found.change.saturating_add(relief).min(i64::from(u32::MAX));
        u32::try_from(most).ok()
    }

    fn offer(&mut self, offered: Move, rng: &mut SearchRng) {
        if let Some(found) = self.found
            && found.change <= offered.change
        {
            if found.change == offered.change {
                self.equals += 1;
                if rng.below(self.equals) == 0 {
                    self.found = Some(offered);
                }
            }
            return;
        }
        self.found = Some(offered);
        self.equals = 1;
    }
}

#[cfg(test)]
mod tests;
