//! Exhaustive search for few units.
//!
//! Sets of units are bits of a number. From the empty set, one wave at a time, all sets that can be done in
//! that many waves are visited breadth first; the first time that the set of all units is reached gives the
//! fewest waves. A set that is reached again by more waves is not visited again: a later position has another
//! cap, but a search that is there earlier can spend a wave on any part of what follows.

use super::conflict_graph::{ConflictGraph, FREE};
use super::problem::cap_at;

/// Up to this many units all splits are tried: at most 3^10 pairs of set and wave.
pub(super) const UNITS: u32 = 10;

/// The fewest waves, in an order that keeps to the caps.
pub(super) fn waves(ties: &ConflictGraph) -> Vec<Vec<u32>> {
    let all = (1_usize << ties.units()) - 1;
    let permitted = permitted(ties);
    // The set before the last wave, for each set reached.
    let mut before: Vec<Option<usize>> = vec![None; all + 1];
    before[0] = Some(0);
    let mut reached = vec![0];
    let mut place = 0;
    while before[all].is_none() {
        let cap = cap_at(&ties.caps, place);
        let mut next = Vec::new();
        for &done in &reached {
            let left = all & !done;
            // All subsets of the remaining units, the largest first.
            let mut wave = left;
            while wave > 0 {
                let set = done | wave;
                if before[set].is_none() && permitted[wave] && wave.count_ones() <= cap {
                    before[set] = Some(done);
                    next.push(set);
                }
                wave = (wave - 1) & left;
            }
        }
        reached = next;
        place += 1;
    }
    let mut waves = Vec::new();
    let mut set = all;
    while set > 0 {
        let earlier = before[set].unwrap_or(0);
        waves.push(members(set & !earlier).collect());
        set = earlier;
    }
    waves.reverse();
    waves
}

/// For each set of units, whether it may be down together.
fn permitted(ties: &ConflictGraph) -> Vec<bool> {
    let sets = 1_usize << ties.units();
    let mut permitted = vec![true; sets];
    for unit in 0..ties.units() {
        let foes = bits(ties.pairs(unit));
        forbid(&mut permitted, |set| set >> unit & 1 == 1 && set & foes != 0);
    }
    let mut sums = vec![0_u64; sets];
    let mut costs = vec![0; ties.units() as usize];
    for (index, clause) in (0_u32..).zip(&ties.clauses) {
        costs.fill(0);
        for seat in ties.seats(index) {
            costs[seat.unit as usize] = seat.cost;
        }
        add_up(&costs, &mut sums);
        forbid(&mut permitted, |set| sums[set] > u64::from(clause.limit));
    }
    for wide in &ties.wide {
        add_up(&wide.costs, &mut sums);
        forbid(&mut permitted, |set| sums[set] > wide.limit);
    }
    for rule in &ties.domains {
        let mut touched: Vec<u32> = Vec::new();
        forbid(&mut permitted, |set| {
            touched.clear();
            touched.extend(members(set).map(|unit| rule.of[unit as usize]));
            touched.retain(|&domain| domain != FREE);
            touched.sort_unstable();
            touched.dedup();
            touched.len() > rule.limit as usize
        });
    }
    permitted
}

fn forbid(permitted: &mut [bool], mut breaks: impl FnMut(usize) -> bool) {
    for (set, permitted) in permitted.iter_mut().enumerate() {
        *permitted = *permitted && !breaks(set);
    }
}

/// The cost of each set: that of its lowest unit, and of the rest.
fn add_up(costs: &[u32], sums: &mut [u64]) {
    for set in 1..sums.len() {
        let lowest = set.trailing_zeros() as usize;
        sums[set] = sums[set & (set - 1)] + u64::from(costs[lowest]);
    }
}

fn bits(units: &[u32]) -> usize {
    units.iter().fold(0, |set, unit| set | 1 << unit)
}

fn members(set: usize) -> impl Iterator<Item = u32> {
    (0..usize::BITS).filter(move |unit| set >> unit & 1 == 1)
}
