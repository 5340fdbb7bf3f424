//! Recursive largest first: one wave after another, each filled with what is hardest to place later.
//!
//! F. T. Leighton, "A graph coloring algorithm for large scheduling problems", Journal of Research of
//! the National Bureau of Standards 84 (1979) 489-506. There a class is a set of vertices without
//! edges between them, and next comes the vertex with most neighbours among those shut out. Pairs are
//! treated so here. A crowd shuts nobody out until it is used up: it counts against a unit if one
//! more would use it up, and a little for it otherwise, since units in many crowds are hard to place.

use std::cmp::Reverse;

use super::forming::Forming;
use super::problem::cap_at;
use super::ties::{PAIR_WEIGHT, Ties};

/// What shutting out one unit, or using up one crowd, weighs beside a unit's ties to its crowds. Of
/// the powers of two tried on maps of erasure-coded pools, this gave the fewest waves.
const SHUT_OUT: i64 = 128;

/// Splits all units into waves; the `i`-th keeps to the `i`-th cap.
pub(super) fn waves(ties: &Ties, caps: &[u32]) -> Vec<Vec<u32>> {
    let mut left: Vec<u32> = (0..ties.units()).collect();
    let mut placed = vec![false; left.len()];
    let mut scores = Scores::new(ties);
    let mut waves: Vec<Vec<u32>> = Vec::new();
    let mut forming = Forming::new(ties, cap_at(caps, 0));
    let mut newly = Vec::new();
    while !left.is_empty() {
        let mut candidates = left.clone();
        let mut first = true;
        while let Some(unit) = choose(&mut candidates, &forming, &scores, first) {
            first = false;
            forming.add(unit, &mut newly);
            newly.retain(|&unit| !placed[unit as usize]);
            scores.added(ties, &forming, unit, &newly);
            newly.clear();
        }
        let wave = forming.finish(cap_at(caps, waves.len() + 1));
        for &unit in &wave {
            placed[unit as usize] = true;
        }
        scores.placed(ties, &wave);
        left.retain(|&unit| !placed[unit as usize]);
        waves.push(wave);
    }
    waves
}

/// The candidate that costs the others least; as the first of a wave, the one most tied to all. Drops
/// candidates that no longer fit.
fn choose(candidates: &mut Vec<u32>, forming: &Forming, scores: &Scores, first: bool) -> Option<u32> {
    let mut best = None;
    candidates.retain(|&unit| {
        if forming.blocks(unit) || !forming.has_room(unit) {
            return false;
        }
        let pairs = scores.pairs[unit as usize];
        let crowds = scores.crowds[unit as usize];
        let key = if first {
            let all = i64::from(pairs) * i64::from(PAIR_WEIGHT) + i64::from(crowds);
            (all, Reverse(0), Reverse(unit))
        } else {
            let pull = scores.pull[unit as usize];
            // Of equals, the one that shuts out the fewest.
            let shuts_out = i64::from(pairs) - i64::from(pull);
            let score = i64::from(pull) * SHUT_OUT + i64::from(crowds);
            (score, Reverse(shuts_out), Reverse(unit))
        };
        best = best.max(Some(key));
        true
    });
    best.map(|(_, _, Reverse(unit))| unit)
}

/// What speaks for each unit.
struct Scores {
    /// How many pairs it forms with units not yet placed.
    pairs: Vec<u32>,
    /// How strongly crowds tie it to units not yet placed.
    crowds: Vec<u32>,
    /// How many pairs it forms with units that this wave shuts out, less how many of its crowds one
    /// more unit may use up.
    pull: Vec<i32>,
}

impl Scores {
    fn new(ties: &Ties) -> Self {
        Self {
            pairs: (0..ties.units())
                .map(|unit| ties.pairs(unit).len() as u32)
                .collect(),
            crowds: (0..ties.units()).map(|unit| ties.crowded(unit)).collect(),
            pull: vec![0; ties.units() as usize],
        }
    }

    /// A unit joined the wave and shut out some that are not yet placed.
    fn added(&mut self, ties: &Ties, forming: &Forming, unit: u32, newly: &[u32]) {
        for &shut_out in newly {
            for &other in ties.pairs(shut_out) {
                self.pull[other as usize] += 1;
            }
        }
        for joined in ties.crowds_of(unit) {
            let crowd = &ties.crowds[joined.crowd as usize];
            // From here on, one more member of the largest cost uses it up.
            let tight = crowd.limit.saturating_sub(2 * crowd.largest - 1);
            let load = forming.load(joined.crowd);
            if load >= tight && load - joined.cost < tight {
                for seat in ties.seats(joined.crowd) {
                    self.pull[seat.unit as usize] -= 1;
                }
            }
        }
    }

    /// A wave is complete.
    fn placed(&mut self, ties: &Ties, wave: &[u32]) {
        self.pull.fill(0);
        for &unit in wave {
            for &other in ties.pairs(unit) {
                self.pairs[other as usize] -= 1;
            }
            for joined in ties.crowds_of(unit) {
                let by = ties.crowds[joined.crowd as usize].weight;
                for seat in ties.seats(joined.crowd) {
                    let crowds = &mut self.crowds[seat.unit as usize];
                    *crowds = crowds.saturating_sub(by);
                }
            }
        }
    }
}
