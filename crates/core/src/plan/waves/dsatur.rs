//! Saturation degree: always places next the unit that the fewest waves still accept.
//!
//! D. Brélaz, "New methods to color the vertices of a graph", Communications of the ACM 22 (1979)
//! 251-256. There saturation is the number of colours seen among the neighbours. Here it is the
//! number of open waves that pairs or used-up clauses forbid to the unit.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::conflict_graph::{ConflictGraph, PAIR_WEIGHT};
use super::open_wave::Forming;

/// Splits all units into waves of at most `cap` units.
pub(super) fn waves(ties: &ConflictGraph, cap: u32) -> Vec<Vec<u32>> {
    // Of equally saturated units, the one with the strongest ties comes first.
    let weights: Vec<u32> = (0..ties.units())
        .map(|unit| {
            let pairs = ties.pairs(unit).len() as u32 * PAIR_WEIGHT;
            pairs.saturating_add(ties.clause_pressure(unit))
        })
        .collect();
    let mut saturation = vec![0_u32; ties.units() as usize];
    let mut placed = vec![false; ties.units() as usize];
    // A unit is pushed again when its saturation grows; its older entries are passed over.
    let mut next: BinaryHeap<(u64, Reverse<u32>)> = (0..ties.units())
        .map(|unit| (u64::from(weights[unit as usize]), Reverse(unit)))
        .collect();
    let mut open: Vec<Forming> = Vec::new();
    let mut newly = Vec::new();
    while let Some((_, Reverse(unit))) = next.pop() {
        if std::mem::replace(&mut placed[unit as usize], true) {
            continue;
        }
        let accepting = open
            .iter()
            .position(|wave| !wave.blocks(unit) && wave.has_room(unit));
        let at = accepting.unwrap_or_else(|| {
            open.push(Forming::new(ties, cap));
            open.len() - 1
        });
        open[at].add(unit, &mut newly);
        for other in newly.drain(..) {
            if !placed[other as usize] {
                let saturation = &mut saturation[other as usize];
                *saturation += 1;
                let weight = u64::from(weights[other as usize]);
                next.push((u64::from(*saturation) << 32 | weight, Reverse(other)));
            }
        }
    }
    open.iter_mut().map(|wave| wave.finish(cap)).collect()
}
