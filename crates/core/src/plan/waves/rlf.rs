//! Recursive largest first: one wave after another, each filled with the units that are hardest to place
//! later.
//!
//! F. T. Leighton, "A graph coloring algorithm for large scheduling problems", Journal of Research of the
//! National Bureau of Standards 84 (1979) 489-506. There a class is a set of vertices without edges between
//! them, and the next vertex is the one with most neighbours among the excluded ones. Pairs are treated the
//! same way here. A clause excludes no unit until it is used up: it counts against a unit that would use it
//! up, and a little against others, since units in many clauses are hard to place.

use super::conflict_graph::{ConflictGraph, PAIR_WEIGHT};
use super::open_wave::Forming;
use super::problem::cap_at;

/// What shutting out one unit, or using up one clause, weighs beside a unit's ties to its clauses. Of
/// the powers of two tried on maps of erasure-coded pools, this gave the fewest waves.
const SHUT_OUT: i32 = 128;

/// The score of a unit that cannot join; its count continues from here.
const CLOSED: i32 = -(3 << 29);
/// The lowest score of a unit that can join. It would take four million neighbours to raise a score from
/// `CLOSED` to this, so the score alone says whether a unit can still join.
const OPEN: i32 = -(1 << 30);
/// Ties to clauses count up to this, so that scores stay far from the ends of their type.
const MOST_CROWDED: u32 = 1 << 29;
/// So many scores are looked at in one go; most goes find nothing.
const BLOCK: usize = 256;

/// Splits all units into waves; the `i`-th keeps to the `i`-th cap.
pub(super) fn waves(ties: &ConflictGraph, caps: &[u32]) -> Vec<Vec<u32>> {
    let mut left: Vec<u32> = (0..ties.units()).collect();
    let mut scores = Scores::new(ties);
    let mut waves: Vec<Vec<u32>> = Vec::new();
    let mut forming = Forming::new(ties, cap_at(caps, 0));
    let mut newly = Vec::new();
    while !left.is_empty() {
        let mut next = scores.begin(&left);
        while let Some(unit) = next {
            forming.add(unit, &mut newly);
            scores.added(ties, &forming, unit, &newly);
            newly.clear();
            next = scores.choose(&forming);
        }
        let wave = forming.finish(cap_at(caps, waves.len() + 1));
        scores.placed(ties, &wave);
        left.retain(|&unit| !scores.placed[unit as usize]);
        waves.push(wave);
    }
    waves
}

/// What speaks for each unit.
struct Scores {
    /// Units in complete waves.
    placed: Vec<bool>,
    /// How many pairs it forms with units not yet placed.
    pairs: Vec<u32>,
    /// How strongly clauses tie it to units not yet placed.
    clauses: Vec<u32>,
    /// What speaks for placing it now: how many pairs it forms with units that this wave shuts out, less how
    /// many of its clauses one more unit may use up, times `SHUT_OUT`; and its clauses. Below `OPEN` if it
    /// cannot join the wave. All are looked through for each unit that is placed, so they are small and stand next
    /// to each other.
    for_now: Vec<i32>,
    /// How many can join.
    open: usize,
    /// These, once they are few.
    few: Option<Vec<u32>>,
}

impl Scores {
    fn new(ties: &ConflictGraph) -> Self {
        let units = ties.units() as usize;
        Self {
            placed: vec![false; units],
            pairs: (0..ties.units())
                .map(|unit| ties.pairs(unit).len() as u32)
                .collect(),
            clauses: (0..ties.units()).map(|unit| ties.clause_pressure(unit)).collect(),
            for_now: vec![CLOSED; units],
            open: 0,
            few: None,
        }
    }

    /// Opens a wave to all that are left, and says who is the first: the one most tied to all.
    fn begin(&mut self, left: &[u32]) -> Option<u32> {
        self.for_now.fill(CLOSED);
        for &unit in left {
            self.for_now[unit as usize] = self.clause_score(unit);
        }
        self.open = left.len();
        self.few = None;
        let all = |unit: u32| {
            i64::from(self.pairs[unit as usize]) * i64::from(PAIR_WEIGHT)
                + i64::from(self.clauses[unit as usize])
        };
        let hardest = left
            .iter()
            .map(|&unit| (all(unit), std::cmp::Reverse(unit)))
            .max();
        hardest.map(|(_, std::cmp::Reverse(unit))| unit)
    }

    /// What a unit's clauses add to its score.
    fn clause_score(&self, unit: u32) -> i32 {
        self.clauses[unit as usize].min(MOST_CROWDED).cast_signed()
    }

    /// The unit that fits and costs the others least. Of equals the one that shuts out the fewest, and of
    /// these the first.
    fn choose(&mut self, forming: &Forming) -> Option<u32> {
        let best = self.best()?;
        if forming.has_room(best) {
            return Some(best);
        }
        // Rules that apply to every unit have become tight: a unit that does not fit now does not fit later
        // either.
        for unit in 0..self.for_now.len() as u32 {
            if self.for_now[unit as usize] >= OPEN && !forming.has_room(unit) {
                self.close(unit);
            }
        }
        self.best()
    }

    fn best(&mut self) -> Option<u32> {
        if self.open == 0 {
            return None;
        }
        if self.few.is_none() && self.open < self.for_now.len() / 16 {
            let open = (0_u32..).zip(&self.for_now).filter(|(_, score)| **score >= OPEN);
            self.few = Some(open.map(|(unit, _)| unit).collect());
        }
        let Some(mut few) = self.few.take() else {
            return self.best_of_many();
        };
        let mut best = None;
        few.retain(|&unit| {
            let score = self.for_now[unit as usize];
            if score < OPEN {
                return false;
            }
            best = best.max(Some((score, std::cmp::Reverse((self.shuts_out(unit), unit)))));
            true
        });
        self.few = Some(few);
        best.map(|(_, std::cmp::Reverse((_, unit)))| unit)
    }

    fn best_of_many(&self) -> Option<u32> {
        let mut most = OPEN;
        let mut found: Option<(i32, u32)> = None;
        for (block, scores) in (0_u32..).zip(self.for_now.chunks(BLOCK)) {
            let highest = scores.iter().fold(i32::MIN, |most, &score| most.max(score));
            if highest < most {
                continue;
            }
            if highest > most {
                most = highest;
                found = None;
            }
            for (unit, _) in (block * BLOCK as u32..)
                .zip(scores)
                .filter(|(_, score)| **score == most)
            {
                let key = (self.shuts_out(unit), unit);
                if found.is_none_or(|found| key < found) {
                    found = Some(key);
                }
            }
        }
        found.map(|(_, unit)| unit)
    }

    /// How many units that could still join the wave it would shut out.
    fn shuts_out(&self, unit: u32) -> i32 {
        let pull = (self.for_now[unit as usize] - self.clause_score(unit)) / SHUT_OUT;
        self.pairs[unit as usize].cast_signed() - pull
    }

    fn close(&mut self, unit: u32) {
        let score = &mut self.for_now[unit as usize];
        self.open -= usize::from(*score >= OPEN);
        *score = CLOSED;
    }

    #[inline]
    fn pull(&mut self, unit: u32, by: i32) {
        self.for_now[unit as usize] += by * SHUT_OUT;
    }

    /// A unit joined the wave and shut out others.
    fn added(&mut self, ties: &ConflictGraph, forming: &Forming, unit: u32, newly: &[u32]) {
        self.close(unit);
        for &shut_out in newly {
            self.close(shut_out);
        }
        for &shut_out in newly {
            if !self.placed[shut_out as usize] {
                for &other in ties.pairs(shut_out) {
                    self.pull(other, 1);
                }
            }
        }
        for joined in ties.clauses_of(unit) {
            let clause = &ties.clauses[joined.clause as usize];
            // From here on, one more member of the largest cost uses it up.
            let tight = clause.limit.saturating_sub(2 * clause.largest - 1);
            let load = forming.load(joined.clause);
            if load >= tight && load - joined.cost < tight {
                for seat in ties.seats(joined.clause) {
                    self.pull(seat.unit, -1);
                }
            }
        }
    }

    /// A wave is complete.
    fn placed(&mut self, ties: &ConflictGraph, wave: &[u32]) {
        for &unit in wave {
            self.placed[unit as usize] = true;
            for &other in ties.pairs(unit) {
                self.pairs[other as usize] -= 1;
            }
            for joined in ties.clauses_of(unit) {
                let by = ties.clauses[joined.clause as usize].weight;
                for seat in ties.seats(joined.clause) {
                    let clauses = &mut self.clauses[seat.unit as usize];
                    *clauses = clauses.saturating_sub(by);
                }
            }
        }
    }
}
