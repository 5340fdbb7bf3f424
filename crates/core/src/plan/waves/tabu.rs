//! Tabu search: the same units in one wave fewer, rules broken at first, then mended move by move.
//!
//! A. Hertz and D. de Werra, "Using tabu search techniques for graph coloring", Computing 39 (1987)
//! 345-351; the length of a tabu from P. Galinier and J.-K. Hao, "Hybrid evolutionary algorithms for
//! graph coloring", Journal of Combinatorial Optimization 3 (1999) 379-397. There the count of edges
//! inside a colour is brought to nothing. Here it is the excess over all rules: broken pairs, loads
//! of crowds over their limits, and what `Room` counts.

use super::problem::cap_at;
use super::rng::Rng;
use super::room::Room;
use super::ties::{Crowd, Ties};

/// The search keeps tables of units × waves and crowds × waves; beyond so many cells (of 4 bytes) it
/// declines. Ten thousand units in 40 waves need a twentieth of this.
const CELLS: u64 = 16_000_000;

/// In no wave, or not on the list.
const NONE: u32 = u32::MAX;

/// A split into one wave fewer, or `None` if none was found in these steps (moves), which are counted
/// down.
pub(super) fn one_fewer(
    ties: &Ties,
    waves: &[Vec<u32>],
    steps: &mut u64,
    rng: &mut Rng,
) -> Option<Vec<Vec<u32>>> {
    let count = waves.len().checked_sub(1).filter(|&count| count > 0)?;
    let cells = count as u64 * (u64::from(ties.units()) * 2 + ties.crowds.len() as u64);
    if cells > CELLS {
        return None;
    }
    let mut search = Tabu::new(ties, count);
    search.start_from(waves);
    let moves = search.run(*steps, rng);
    *steps -= moves;
    (search.excess == 0).then(|| search.waves())
}

struct Tabu<'a> {
    ties: &'a Ties,
    count: usize,
    wave_of: Vec<u32>,
    /// `pain[unit × count + wave]`: what the pairs and crowds of the unit would add to the excess
    /// with it in the wave, or do add if it is there.
    pain: Vec<u32>,
    /// Until which move the unit may not go (back) to the wave.
    until: Vec<u32>,
    /// `loads[crowd × count + wave]`.
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
    fn new(ties: &'a Ties, count: usize) -> Self {
        let units = ties.units() as usize;
        Self {
            ties,
            count,
            wave_of: vec![NONE; units],
            pain: vec![0; units * count],
            until: vec![0; units * count],
            loads: vec![0; ties.crowds.len() * count],
            crowded_rooms: !(ties.caps.is_empty()
                && ties.wide.is_empty()
                && ties.domains.is_empty()),
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

    /// Moves until nothing is broken or the steps are used up; answers how many were made.
    fn run(&mut self, steps: u64, rng: &mut Rng) -> u64 {
        // Moves are counted in u32 to keep `until` small; four thousand million are enough.
        let steps = steps.min(u64::from(u32::MAX - 10_000_000)) as u32;
        let mut best = self.excess;
        let mut now = 0;
        while self.excess > 0 && now < steps {
            now += 1;
            if let Some(chosen) = self.choose(now, best, rng) {
                let from = self.wave_of[chosen.unit as usize];
                let tenure = rng.below(10) + (self.sore.units.len() as u32 * 3) / 5;
                let back = chosen.unit as usize * self.count + from as usize;
                self.until[back] = now + 1 + tenure;
                self.leave(chosen.unit);
                self.enter(chosen.unit, chosen.to);
                best = best.min(self.excess);
            }
        }
        u64::from(now)
    }

    /// The best move that is not tabu, or that leads to less excess than ever seen; among equals one
    /// at random. Only units that something hurts are moved.
    fn choose(&self, now: u32, best: i64, rng: &mut Rng) -> Option<Move> {
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
    fn look_at(&self, unit: u32, choice: &mut Choice, rng: &mut Rng) {
        let own = self.wave_of[unit as usize];
        let row = unit as usize * self.count..(unit as usize + 1) * self.count;
        let pains = &self.pain[row.clone()];
        let until = &self.until[row];
        let mut relief = i64::from(pains[own as usize]);
        if self.crowded_rooms {
            relief += self.rooms[own as usize]
                .relief(self.ties, unit)
                .cast_signed();
        }
        for (to, (&pain, &until)) in (0_u32..).zip(pains.iter().zip(until)) {
            let mut change = i64::from(pain) - relief;
            if choice.found.is_some_and(|found| change > found.change) || to == own {
                continue;
            }
            if self.crowded_rooms {
                change += self.rooms[to as usize].pain(self.ties, unit).cast_signed();
            }
            if until > choice.now && change >= choice.to_beat {
                continue;
            }
            choice.offer(Move { unit, to, change }, rng);
        }
    }

    fn cost_of_entering(&self, unit: u32, wave: u32) -> u64 {
        u64::from(self.pain[unit as usize * self.count + wave as usize])
            + self.rooms[wave as usize].pain(self.ties, unit)
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
            self.hurt(other, wave, 1);
        }
        for joined in ties.crowds_of(unit) {
            let at = joined.crowd as usize * self.count + wave as usize;
            let before = self.loads[at];
            self.loads[at] += joined.cost;
            self.load_changed(joined.crowd, unit, wave, before, self.loads[at]);
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
            self.hurt(other, wave, -1);
        }
        for joined in ties.crowds_of(unit) {
            let at = joined.crowd as usize * self.count + wave as usize;
            let before = self.loads[at];
            self.loads[at] -= joined.cost;
            self.load_changed(joined.crowd, unit, wave, before, self.loads[at]);
        }
    }

    /// Tells the other members of a crowd that its load in a wave has changed. Most changes happen
    /// where they hurt nobody, below the limit even with the dearest member on top; these are passed
    /// over.
    fn load_changed(&mut self, index: u32, mover: u32, wave: u32, before: u32, after: u32) {
        let ties = self.ties;
        let crowd = &ties.crowds[index as usize];
        if crowd.limit - crowd.largest >= before.max(after) {
            return;
        }
        if crowd.largest == 1 {
            // All cost 1: crossing the limit hurts (or eases) those elsewhere, for whom the load is
            // that of others; those inside count themselves in it, and feel it one later.
            let sign = if after > before { 1 } else { -1 };
            let crossed = before.min(after);
            if crossed > crowd.limit {
                return;
            }
            let outside = crossed + 1 == crowd.limit;
            for seat in ties.seats(index) {
                let inside = self.wave_of[seat.unit as usize] == wave;
                if seat.unit != mover && inside != outside {
                    self.hurt(seat.unit, wave, sign);
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
            let by = share(crowd, after - own, seat.cost) - share(crowd, before - own, seat.cost);
            if by != 0 {
                self.hurt(seat.unit, wave, by);
            }
        }
    }

    fn hurt(&mut self, unit: u32, wave: u32, by: i32) {
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
fn share(crowd: &Crowd, others: u32, cost: u32) -> i32 {
    (over(crowd, others + cost) - over(crowd, others)).cast_signed()
}

/// The excess of a load, counted in the largest cost: a crowd in gigabytes must not drown one of
/// placement groups.
fn over(crowd: &Crowd, load: u32) -> u32 {
    load.saturating_sub(crowd.limit).div_ceil(crowd.largest)
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
    fn offer(&mut self, offered: Move, rng: &mut Rng) {
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

/// A set of units, quick to add to, to take from and to walk. Its order is that of its history, so
/// the same history gives the same walk.
struct List {
    units: Vec<u32>,
    at: Vec<u32>,
}

impl List {
    fn new(units: usize) -> Self {
        Self {
            units: Vec::new(),
            at: vec![NONE; units],
        }
    }

    fn contains(&self, unit: u32) -> bool {
        self.at[unit as usize] != NONE
    }

    fn add(&mut self, unit: u32) {
        if !self.contains(unit) {
            self.at[unit as usize] = self.units.len() as u32;
            self.units.push(unit);
        }
    }

    fn remove(&mut self, unit: u32) {
        let at = std::mem::replace(&mut self.at[unit as usize], NONE);
        if at != NONE {
            self.units.swap_remove(at as usize);
            if let Some(&moved) = self.units.get(at as usize) {
                self.at[moved as usize] = at;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::problem::{DomainRule, Problem, Wide};
    use super::super::rng::Rng;
    use super::super::ties::Ties;
    use super::Tabu;

    /// After any moves, the tables say what counting anew says.
    #[test]
    fn tables_stay_true() {
        let mut rng = Rng::new(1);
        for _ in 0..200 {
            let ties = random_ties(&mut rng);
            let count = 3;
            let mut tabu = Tabu::new(&ties, count);
            for unit in 0..ties.units() {
                tabu.enter(unit, rng.below(3));
            }
            for _ in 0..50 {
                let unit = rng.below(ties.units());
                tabu.leave(unit);
                tabu.enter(unit, rng.below(3));
            }
            assert_eq!(tabu.excess, counted(&ties, &tabu.wave_of));
            for unit in 0..ties.units() {
                let own = tabu.wave_of[unit as usize];
                let sore = tabu.pain[unit as usize * count + own as usize] > 0;
                assert_eq!(tabu.sore.contains(unit), sore);
                let there = tabu.excess;
                tabu.leave(unit);
                for wave in 0..3 {
                    let expected = tabu.excess + tabu.cost_of_entering(unit, wave).cast_signed();
                    let mut wave_of = tabu.wave_of.clone();
                    wave_of[unit as usize] = wave;
                    assert_eq!(expected, counted(&ties, &wave_of));
                }
                tabu.enter(unit, own);
                assert_eq!(tabu.excess, there);
                let mut relieved = tabu.wave_of.clone();
                relieved[unit as usize] = super::NONE;
                let relief = u64::from(tabu.pain[unit as usize * count + own as usize])
                    + tabu.rooms[own as usize].relief(&ties, unit);
                assert_eq!(there - relief.cast_signed(), counted(&ties, &relieved));
            }
        }
    }

    fn counted(ties: &Ties, wave_of: &[u32]) -> i64 {
        let mut excess = 0;
        for wave in 0..3 {
            let inside = |unit: u32| wave_of[unit as usize] == wave;
            let mut room = super::Room::new(ties, super::cap_at(&ties.caps, wave as usize));
            for unit in (0..ties.units()).filter(|&unit| inside(unit)) {
                room.add(ties, unit);
                excess += ties
                    .pairs(unit)
                    .iter()
                    .filter(|&&other| other > unit && inside(other))
                    .count()
                    .cast_signed() as i64;
            }
            excess += room.excess(ties).cast_signed();
            for (index, crowd) in (0_u32..).zip(&ties.crowds) {
                let seats = ties.seats(index).iter().filter(|seat| inside(seat.unit));
                let load: u32 = seats.map(|seat| seat.cost).sum();
                excess += i64::from(super::over(crowd, load));
            }
        }
        excess
    }

    fn random_ties(rng: &mut Rng) -> Ties {
        let units = 4 + rng.below(8);
        let mut problem = Problem {
            units,
            caps: (0..rng.below(3)).map(|_| 1 + rng.below(4)).collect(),
            ..Problem::default()
        };
        for _ in 0..rng.below(8) {
            let members: Vec<u32> = (0..units).filter(|_| rng.below(2) == 0).collect();
            if rng.below(2) == 0 {
                problem.budgets.push(&members, 1 + rng.below(3));
            } else {
                let costs: Vec<(u32, u32)> =
                    members.iter().map(|&unit| (unit, rng.below(5))).collect();
                problem.budgets.push_with_costs(&costs, 4 + rng.below(8));
            }
        }
        if rng.below(2) == 0 {
            problem.wide.push(Wide {
                costs: (0..units).map(|_| rng.below(4)).collect(),
                limit: u64::from(3 + rng.below(6)),
            });
            problem.domains.push(DomainRule {
                of: (0..units).map(|_| rng.below(4)).collect(),
                limit: 1 + rng.below(2),
                already: Vec::new(),
            });
        }
        let impossible = problem.impossible();
        let mut placeable: Vec<u32> = (0..units).collect();
        placeable.retain(|&unit| impossible.iter().all(|found| found.unit != unit));
        if placeable.is_empty() {
            return random_ties(rng);
        }
        Ties::new(&problem, placeable)
    }
}
