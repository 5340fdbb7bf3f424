//! The lower bound of the number of waves, and its reason: the measure of a solution.

use super::conflict_graph::{ConflictGraph, FREE};
use super::growth::least;
use super::problem::Rule;

/// A number of waves that no split can beat.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LowerBound {
    /// At least so many waves are needed.
    pub waves: u32,
    /// Why not fewer.
    pub why: BoundReason,
}

/// Why there cannot be fewer waves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BoundReason {
    /// No unit can be placed in any wave.
    NothingToPlace,
    /// No two of these units may be down together.
    Clique {
        /// The units, ascending.
        units: Vec<u32>,
    },
    /// The members of this narrow budget cost so much.
    Budget {
        /// Its index.
        index: u32,
    },
    /// The units cost so much in this wide budget.
    Wide {
        /// Its index.
        index: u32,
    },
    /// The units lie in so many domains.
    Domains {
        /// The index of the rule.
        index: u32,
    },
    /// The waves may hold so few.
    Growth,
    /// Hoffman's bound on the graph of those that may never be down together.
    Eigenvalues {
        /// How many units it has.
        units: u32,
    },
    /// All splits were tried.
    Exact,
}

/// The search for a clique compares at most about so many pairs.
const CLIQUE_WORK: usize = 20_000_000;

/// The best of the bounds that are cheap to find.
pub(super) fn find(ties: &ConflictGraph) -> LowerBound {
    if ties.units() == 0 {
        return LowerBound {
            waves: 0,
            why: BoundReason::NothingToPlace,
        };
    }
    let clique = clique(ties);
    let mut bound = LowerBound {
        waves: clique.len() as u32,
        why: BoundReason::Clique {
            units: ties.originals(&clique),
        },
    };
    let mut at_least = |waves: u32, why: BoundReason| {
        if waves > bound.waves {
            bound = LowerBound { waves, why };
        }
    };
    for (index, clause) in (0_u32..).zip(&ties.clauses) {
        let costs = ties.seats(index).iter().map(|seat| seat.cost);
        let waves = spread(costs, u64::from(clause.limit), &ties.caps);
        at_least(waves, BoundReason::Budget { index: clause.budget });
    }
    for wide in &ties.wide {
        let waves = spread(wide.costs.iter().copied(), wide.limit, &ties.caps);
        at_least(
            waves,
            match wide.rule {
                Rule::Budget(index) => BoundReason::Budget { index },
                Rule::Wide(index) => BoundReason::Wide { index },
                Rule::Domains(index) => BoundReason::Domains { index },
            },
        );
    }
    for (index, _) in ties.domains.iter().enumerate() {
        let (waves, index) = (domains(ties, index), ties.domains[index].index);
        at_least(waves, BoundReason::Domains { index });
    }
    let growth = least(u64::from(ties.units()), &ties.caps, u64::from(u32::MAX));
    at_least(growth, BoundReason::Growth);
    bound
}

/// How many waves these costs need, if each takes at most `limit` of them.
fn spread(costs: impl Iterator<Item = u32>, limit: u64, caps: &[u32]) -> u32 {
    let (mut count, mut total) = (0_u64, 0_u64);
    let (mut smallest, mut largest) = (u64::MAX, 1);
    for cost in costs.map(u64::from).filter(|&cost| cost > 0) {
        count += 1;
        total += cost;
        smallest = smallest.min(cost);
        largest = largest.max(cost);
    }
    if count == 0 {
        return 0;
    }
    // By number: no wave holds more units than the cheapest would make. By cost: in units of the
    // largest cost the caps bind too, but rounding those units would claim too much, so only the
    // limit counts.
    let by_number = least(count, caps, limit / smallest);
    let by_cost = u32::try_from(total.div_ceil(limit)).unwrap_or(u32::MAX);
    by_number.max(by_cost)
}

/// Each wave touches at most `limit` domains; a domain must be touched by as many waves as its own
/// units need.
fn domains(ties: &ConflictGraph, index: usize) -> u32 {
    let rule = &ties.domains[index];
    let mut units: Vec<u32> = (0..ties.units())
        .filter(|&unit| rule.of[unit as usize] != FREE)
        .collect();
    units.sort_by_key(|&unit| rule.of[unit as usize]);
    let mut touches = 0_u64;
    for group in units.chunk_by(|&a, &b| rule.of[a as usize] == rule.of[b as usize]) {
        let steady = u64::from(ties.steady_cap());
        let mut waves = (group.len() as u64).div_ceil(steady) as u32;
        for wide in &ties.wide {
            let costs = group.iter().map(|&unit| wide.costs[unit as usize]);
            waves = waves.max(spread(costs, wide.limit, &[]));
        }
        touches += u64::from(waves);
    }
    if touches == 0 {
        return 0;
    }
    u32::try_from(touches.div_ceil(u64::from(rule.limit.max(1)))).unwrap_or(u32::MAX)
}

/// A set of units no two of which may share a wave: grown greedily, from the units with most pairs.
fn clique(ties: &ConflictGraph) -> Vec<u32> {
    let mut starts: Vec<u32> = (0..ties.units()).collect();
    starts.sort_by_key(|&unit| std::cmp::Reverse(ties.pairs(unit).len()));
    let mut best: Vec<u32> = starts[..1].to_vec();
    let mut work = 0;
    let mut mark = vec![false; ties.units() as usize];
    for &start in &starts {
        if work > CLIQUE_WORK || ties.pairs(start).len() < best.len() {
            break;
        }
        let mut clique = vec![start];
        let mut candidates = ties.pairs(start).to_vec();
        while clique.len() + candidates.len() > best.len() {
            for &unit in &candidates {
                mark[unit as usize] = true;
            }
            let among = |unit: u32| ties.pairs(unit).iter().filter(|&&other| mark[other as usize]);
            work += candidates
                .iter()
                .map(|&unit| ties.pairs(unit).len())
                .sum::<usize>();
            let next = candidates
                .iter()
                .copied()
                .max_by_key(|&unit| (among(unit).count(), std::cmp::Reverse(unit)));
            let kept = next.map(|unit| among(unit).copied().collect());
            for &unit in &candidates {
                mark[unit as usize] = false;
            }
            match (next, kept) {
                (Some(unit), Some(kept)) => {
                    clique.push(unit);
                    candidates = kept;
                }
                (Some(_), None) | (None, _) => break,
            }
        }
        if candidates.is_empty() && clique.len() > best.len() {
            best = clique;
        }
    }
    best.sort_unstable();
    best
}
