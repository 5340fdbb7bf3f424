//! The parent's split, kept as far as it is still valid, so that a new plan resembles the previous one.

use super::conflict_graph::ConflictGraph;
use super::growth;
use super::open_wave::Forming;
use super::problem::cap_at;

/// The parent's waves over the units of today. Units that are gone leave their wave, units that no
/// longer fit theirs and units that are new go to the first wave that takes them. A parent that still
/// holds comes back as it was.
pub(super) fn waves(ties: &ConflictGraph, parent: &[Vec<u32>]) -> Vec<Vec<u32>> {
    let mut homeless: Vec<bool> = vec![true; ties.units() as usize];
    let mut kept: Vec<Vec<u32>> = Vec::new();
    let steady = ties.steady_cap();
    let mut forming = Forming::new(ties, steady);
    let mut newly = Vec::new();
    let mut put = |unit: u32, forming: &mut Forming, homeless: &mut [bool]| {
        if homeless[unit as usize] && !forming.blocks(unit) && forming.has_room(unit) {
            homeless[unit as usize] = false;
            forming.add(unit, &mut newly);
            newly.clear();
        }
    };
    for wave in parent {
        for &original in wave {
            if let Some(unit) = ties.renumbered(original) {
                put(unit, &mut forming, &mut homeless);
            }
        }
        kept.push(forming.finish(steady));
    }
    kept.retain(|wave| !wave.is_empty());
    let mut at = 0;
    while homeless.contains(&true) {
        if at == kept.len() {
            kept.push(Vec::new());
        }
        for &unit in &kept[at] {
            // These fitted together before, and no unit was added.
            homeless[unit as usize] = true;
            put(unit, &mut forming, &mut homeless);
        }
        for unit in 0..ties.units() {
            put(unit, &mut forming, &mut homeless);
        }
        kept[at] = forming.finish(steady);
        at += 1;
    }
    if keeps_to(&kept, &ties.caps) {
        return kept;
    }
    growth::cut(kept, &ties.caps)
}

fn keeps_to(waves: &[Vec<u32>], caps: &[u32]) -> bool {
    waves
        .iter()
        .enumerate()
        .all(|(place, wave)| wave.len() <= cap_at(caps, place) as usize)
}
