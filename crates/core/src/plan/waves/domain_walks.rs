//! Walks along the failure domains: what operators do by hand, and what Ceph's own tools do.
//!
//! They are seldom the fewest waves where domains are many, and hard to beat where domains are few: where
//! each of ten racks holds a tenth of all placement groups, a whole rack can go at once and next to nothing
//! beside it. Every common walk is tried here, so that no answer has more waves than one of them.

use super::conflict_graph::{ConflictGraph, DomainLevel};
use super::open_wave::Forming;
use super::problem::cap_at;

/// Offers all walks that take fewer waves than `fewest`; `offer` returns the new minimum. Each walk keeps to
/// the caps: the `i`-th wave holds at most what the `i`-th cap permits. Where caps bind the first waves, the
/// walks are also made without them, to be cut afterwards.
pub(super) fn each(ties: &ConflictGraph, mut fewest: usize, mut offer: impl FnMut(Vec<Vec<u32>>) -> usize) {
    let steady = [ties.steady_cap()];
    let grows = ties.caps.iter().any(|&cap| cap < steady[0]);
    let all_caps = [Some(&steady[..]), grows.then_some(&ties.caps[..])];
    for caps in all_caps.into_iter().flatten() {
        for level in &ties.levels {
            if let Some(waves) = domain_by_domain(ties, level, caps, fewest) {
                fewest = offer(waves);
            }
        }
        for done in [Done::PassedOver, Done::TakenAlong] {
            if !ties.levels.is_empty()
                && let Some(waves) = ok_to_stop_walk(ties, caps, done, fewest)
            {
                fewest = offer(waves);
            }
        }
    }
}

/// One domain of the level after another; within it, each wave takes every unit that fits, in order.
fn domain_by_domain(
    ties: &ConflictGraph,
    level: &DomainLevel,
    caps: &[u32],
    fewest: usize,
) -> Option<Vec<Vec<u32>>> {
    if level.domains().count() >= fewest {
        return None;
    }
    let mut waves = Vec::new();
    let mut forming = Forming::new(ties, cap_at(caps, 0));
    let mut newly = Vec::new();
    for domain in level.domains() {
        let mut left = domain.to_vec();
        while !left.is_empty() {
            if waves.len() + 1 >= fewest {
                return None;
            }
            left.retain(|&unit| {
                let fits = !forming.blocks(unit) && forming.has_room(unit);
                if fits {
                    forming.add(unit, &mut newly);
                    newly.clear();
                }
                !fits
            });
            waves.push(forming.finish(cap_at(caps, waves.len() + 1)));
        }
    }
    Some(waves)
}

/// What a walk up the tree makes of units that are done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Done {
    /// It asks only about those that are left.
    PassedOver,
    /// It knows nothing of them, as Ceph: they join its sets, and take the place of others.
    TakenAlong,
}

/// Ceph's own walk (`ok-to-stop --max`), from the first unit that is left: up its failure domains, the
/// smallest first, adding what fits in order, up to the first domain in which something did not fit.
fn ok_to_stop_walk(ties: &ConflictGraph, caps: &[u32], done: Done, fewest: usize) -> Option<Vec<Vec<u32>>> {
    let mut placed = vec![false; ties.units() as usize];
    let mut joined = vec![usize::MAX; placed.len()];
    let mut waves: Vec<Vec<u32>> = Vec::new();
    let mut forming = Forming::new(ties, cap_at(caps, 0));
    let mut newly = Vec::new();
    for seed in 0..ties.units() {
        if placed[seed as usize] {
            continue;
        }
        let wave = waves.len();
        if wave + 1 >= fewest {
            return None;
        }
        let mut above: Vec<&[u32]> = ties.levels.iter().map(|level| level.domain_of(seed)).collect();
        above.sort_by_key(|domain| domain.len());
        let path = [std::slice::from_ref(&seed)].into_iter().chain(above);
        for domain in path {
            let mut all_fit = true;
            for &unit in domain {
                let passed_over = done == Done::PassedOver && placed[unit as usize];
                if passed_over || joined[unit as usize] == wave {
                    continue;
                }
                if forming.blocks(unit) || !forming.has_room(unit) {
                    all_fit = false;
                } else {
                    joined[unit as usize] = wave;
                    forming.add(unit, &mut newly);
                    newly.clear();
                }
            }
            if !all_fit {
                break;
            }
        }
        let mut taken = forming.finish(cap_at(caps, wave + 1));
        taken.retain(|&unit| !std::mem::replace(&mut placed[unit as usize], true));
        waves.push(taken);
    }
    Some(waves)
}
