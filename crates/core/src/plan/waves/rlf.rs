//! Recursive largest first: one wave after another, each filled with what is hardest to place later.
//!
//! F. T. Leighton, "A graph coloring algorithm for large scheduling problems", Journal of Research of
//! the National Bureau of Standards 84 (1979) 489-506. There a class is a set of vertices without
//! edges between them. Here a unit is shut out of a wave also by a crowd that is used up, by a wide
//! budget, by its domain or by the cap; ties to others are weighed, pairs more than crowds.

use std::cmp::Reverse;

use super::forming::Forming;
use super::problem::cap_at;
use super::ties::{PAIR_WEIGHT, Ties};

/// Splits all units into waves; the `i`-th keeps to the `i`-th cap.
pub(super) fn waves(ties: &Ties, caps: &[u32]) -> Vec<Vec<u32>> {
    let mut left: Vec<u32> = (0..ties.units()).collect();
    // How strongly each unit is tied to those not yet placed.
    let mut weight = ties.weights();
    let mut placed = vec![false; left.len()];
    let mut waves: Vec<Vec<u32>> = Vec::new();
    let mut pull = Pull::new(ties);
    let mut forming = Forming::new(ties, cap_at(caps, 0));
    while !left.is_empty() {
        pull.clear();
        let mut candidates = left.clone();
        let mut newly = Vec::new();
        let mut first = true;
        while let Some(unit) = choose(&mut candidates, &forming, &pull.of, &weight, first) {
            first = false;
            forming.add(unit, &mut newly);
            pull.shut_out(ties, &placed, &mut newly);
        }
        let wave = forming.finish(cap_at(caps, waves.len() + 1));
        for &unit in &wave {
            placed[unit as usize] = true;
            for &other in ties.pairs(unit) {
                let weight = &mut weight[other as usize];
                *weight = weight.saturating_sub(PAIR_WEIGHT);
            }
            for joined in ties.crowds_of(unit) {
                let by = ties.crowds[joined.crowd as usize].weight;
                for seat in ties.seats(joined.crowd) {
                    let weight = &mut weight[seat.unit as usize];
                    *weight = weight.saturating_sub(by);
                }
            }
        }
        left.retain(|&unit| !placed[unit as usize]);
        waves.push(wave);
    }
    waves
}

/// The candidate most tied to units that this wave shuts out, and least to other candidates; as the
/// first of a wave, the one most tied to all. Drops candidates that no longer fit.
fn choose(
    candidates: &mut Vec<u32>,
    forming: &Forming,
    pull: &[u32],
    weight: &[u32],
    first: bool,
) -> Option<u32> {
    let mut best = None;
    candidates.retain(|&unit| {
        if forming.blocks(unit) || !forming.has_room(unit) {
            return false;
        }
        let (pull, weight) = (pull[unit as usize], weight[unit as usize]);
        let key = if first {
            (weight, Reverse(0), Reverse(unit))
        } else {
            let to_candidates = weight.saturating_sub(pull);
            (pull, Reverse(to_candidates), Reverse(unit))
        };
        best = best.max(Some(key));
        true
    });
    best.map(|(_, _, Reverse(unit))| unit)
}

/// How strongly each unit is tied to those that the wave shuts out.
struct Pull {
    of: Vec<u32>,
    /// How many members of each crowd were shut out just now; all 0 between calls.
    shut: Vec<u32>,
    crowds: Vec<u32>,
}

impl Pull {
    fn new(ties: &Ties) -> Self {
        Self {
            of: vec![0; ties.units() as usize],
            shut: vec![0; ties.crowds.len()],
            crowds: Vec::new(),
        }
    }

    fn clear(&mut self) {
        self.of.fill(0);
    }

    /// Counts the ties to units that were shut out just now, and empties the list. Crowds are summed
    /// up first: one unit may shut out a whole crowd, and walking it once for each member would be
    /// quadratic.
    fn shut_out(&mut self, ties: &Ties, placed: &[bool], newly: &mut Vec<u32>) {
        for unit in newly.drain(..) {
            if placed[unit as usize] {
                continue;
            }
            for &other in ties.pairs(unit) {
                self.of[other as usize] += PAIR_WEIGHT;
            }
            for joined in ties.crowds_of(unit) {
                let shut = &mut self.shut[joined.crowd as usize];
                if *shut == 0 {
                    self.crowds.push(joined.crowd);
                }
                *shut += 1;
            }
        }
        for crowd in self.crowds.drain(..) {
            let shut = std::mem::take(&mut self.shut[crowd as usize]);
            let by = shut.saturating_mul(ties.crowds[crowd as usize].weight);
            for seat in ties.seats(crowd) {
                let pull = &mut self.of[seat.unit as usize];
                *pull = pull.saturating_add(by);
            }
        }
    }
}
