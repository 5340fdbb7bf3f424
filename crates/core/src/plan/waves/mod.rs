//! Waves: the units of one stage in as few permitted sets as can be found.
//!
//! This is graph colouring, widened from "never these two" to budgets with limits and costs, domains
//! and growth. The steps, in order:
//!
//! 1. `problem`: units that fit in no wave, not even alone, are set aside with the rule that says so.
//! 2. `conflict_graph`: prepares the rules for the search; placement groups of which one member may go
//!    become pairs of units.
//! 3. `bound`: how few waves there can be at best, and why; where a search is asked for, `spectrum` too.
//! 4. Up to ten units: `exact` tries all splits, and that is the answer.
//! 5. Else `parent` (the split that a run is in), `rlf`, `dsatur` and `domain_walks` (along each level of the
//!    failure domains, and as Ceph walks) each give a split; where growth is asked, `growth` cuts the
//!    first waves to measure. The fewest waves win, the parent wins ties.
//! 6. `tabu` tries one wave fewer, again and again, until the bound is reached or the steps are used.
//!
//! The answer depends on nothing but the arguments: choices are seeded, effort is counted in steps.
//! What it knows of the rest of the program is nothing: units are numbers.

mod bound;
mod conflict_graph;
mod domain_walks;
mod dsatur;
mod exact;
mod flat;
mod growth;
mod list;
mod open_wave;
mod parent;
mod problem;
mod rlf;
mod rng;
mod spectrum;
mod tabu;
mod wave_usage;

pub use bound::{BoundReason, LowerBound};
pub use problem::{DomainRule, Impossible, NarrowBudget, NarrowBudgets, Problem, Rule, WaveViolation, Wide};

use conflict_graph::ConflictGraph;
use rng::SearchRng;

/// `dsatur` holds all waves open at once, and its queue may grow to units × waves; beyond so many bytes
/// it is left out. On maps of ten thousand units, of three copies and erasure-coded, with caps and without,
/// it took as long as `rlf`, which holds one wave, and gave no fewer.
const OPEN_WAVES_BYTES: u64 = 4_000_000;

/// How long to search.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SearchBudget {
    /// Which of equally good moves are taken.
    pub seed: u64,
    /// How many moves the search may make. 0: only the constructions.
    pub steps: u64,
}

/// How long the search does not let a unit go back to the wave that it left, beside a little chance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tenure {
    /// For three fifths as many moves as units are hurt, as Galinier and Hao have it.
    Published,
    /// For as many moves as units are hurt. Hosts that share standbys make graphs on which that is better: on two of a
    /// thousand hosts, 27 waves were found after 79,000 moves on average of six seeds each, and with the other after 179,000.
    Long,
}

/// The waves, and how good they are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Solution {
    /// Each unit that fits anywhere, once. Units ascend within a wave. The parent's waves keep their
    /// order; otherwise small waves come first.
    pub waves: Vec<Vec<u32>>,
    /// The units that fit nowhere. Ascending.
    pub impossible: Vec<Impossible>,
    /// How few waves there can be at best.
    pub bound: LowerBound,
    /// How many moves the search has made.
    pub steps_used: u64,
    /// Where the waves come from.
    pub method: WaveMethod,
}

/// Where waves come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaveMethod {
    /// All splits were tried: there are no fewer.
    Exact,
    /// The parent's split still holds, or was mended, and nothing better was found.
    Parent,
    /// Recursive largest first (Leighton 1979).
    Rlf,
    /// Saturation degree (Brélaz 1979).
    Dsatur,
    /// One failure domain after another, or up the tree of them as Ceph's own walk.
    Walk,
    /// Tabu search (Hertz and de Werra 1987).
    Tabu,
}

/// Splits the units of a problem into the fewest waves that the search finds.
///
/// With a `parent`, the waves that are left of an earlier split, the answer has never more waves than
/// it, provided that it still holds without the units that are gone; and if nothing better is found
/// it comes back as it was.
///
/// # Panics
///
/// If a rule of the problem names a unit that the problem does not have.
pub fn solve(problem: &Problem, search: SearchBudget, parent: Option<&[Vec<u32>]>) -> Solution {
    solve_with(problem, search, Tenure::Published, parent)
}

/// The same with a tenure that suits the problem.
///
/// # Panics
///
/// If a rule of the problem names a unit that the problem does not have.
pub fn solve_with(
    problem: &Problem,
    search: SearchBudget,
    tenure: Tenure,
    parent: Option<&[Vec<u32>]>,
) -> Solution {
    solve_until(problem, search, tenure, parent, &mut || false)
}

/// The same, but ends the search as soon as `stop` returns true; `stop` is called now and then. Without
/// `stop`, the same number of steps gives the same answer again.
///
/// # Panics
///
/// If a rule of the problem names a unit that the problem does not have.
pub fn solve_until(
    problem: &Problem,
    search: SearchBudget,
    tenure: Tenure,
    parent: Option<&[Vec<u32>]>,
    stop: &mut dyn FnMut() -> bool,
) -> Solution {
    problem.assert_well_formed();
    let impossible = problem.impossible();
    let placeable = without(problem.units, &impossible);
    let ties = ConflictGraph::new(problem, placeable);
    let mut bound = bound::find(&ties);

    let kept = parent.map(|parent| Split {
        waves: parent::waves(&ties, parent),
        method: WaveMethod::Parent,
    });
    let mut steps_left = search.steps;
    let found = if ties.units() <= exact::UNITS {
        let exact = Split {
            waves: growth::cut(exact::waves(&ties), &ties.caps),
            method: WaveMethod::Exact,
        };
        if exact.waves.len() > bound.waves as usize {
            bound = LowerBound {
                waves: exact.waves.len() as u32,
                why: BoundReason::Exact,
            };
        }
        smaller_split(kept, exact)
    } else {
        let constructed = construct(&ties, kept);
        // It takes as long as a construction, and who carries a plan on has been told.
        if search.steps > 0
            && parent.is_none()
            && constructed.waves.len() > bound.waves as usize
            && let Some(found) = spectrum::at_least(&ties, bound.waves)
        {
            bound = LowerBound {
                waves: found.waves,
                why: BoundReason::Eigenvalues { units: found.units },
            };
        }
        let mut rng = SearchRng::new(search.seed);
        let effort = Effort {
            tenure,
            steps_left: &mut steps_left,
            rng: &mut rng,
            stop,
        };
        improve(&ties, constructed, bound.waves, effort)
    };
    Solution {
        waves: found.waves.iter().map(|wave| ties.originals(wave)).collect(),
        impossible,
        bound,
        steps_used: search.steps - steps_left,
        method: found.method,
    }
}

/// A number of waves that no split of the problem can beat, found quickly.
///
/// # Panics
///
/// If a rule of the problem names a unit that the problem does not have.
pub fn bound(problem: &Problem) -> LowerBound {
    problem.assert_well_formed();
    let placeable = without(problem.units, &problem.impossible());
    bound::find(&ConflictGraph::new(problem, placeable))
}

/// Cuts waves so that they keep to the caps; each of the answer is a part of one of them.
pub(crate) fn cut(waves: Vec<Vec<u32>>, caps: &[u32]) -> Vec<Vec<u32>> {
    growth::cut(waves, caps)
}

struct Split {
    waves: Vec<Vec<u32>>,
    method: WaveMethod,
}

/// The split with fewer waves, the first if they have as many.
fn smaller_split(first: Option<Split>, second: Split) -> Split {
    match first {
        Some(first) if first.waves.len() <= second.waves.len() => first,
        Some(_) | None => second,
    }
}

/// The best of the parent's split and of the constructions.
fn construct(ties: &ConflictGraph, kept: Option<Split>) -> Split {
    let steady = ties.steady_cap();
    let waves = rlf::waves(ties, &[steady]);
    let open_waves = waves.len() as u64;
    let cut = |waves: Vec<Vec<u32>>, method: WaveMethod| Split {
        waves: growth::cut(waves, &ties.caps),
        method,
    };
    let mut best = smaller_split(kept, cut(waves, WaveMethod::Rlf));
    if ties.caps.iter().any(|&cap| cap < steady) {
        // The hardest units in the first, small waves, or all waves first and then cut: either may
        // come out better.
        let waves = rlf::waves(ties, &ties.caps);
        best = smaller_split(Some(best), cut(waves, WaveMethod::Rlf));
    }
    let bytes_a_wave = 17 * u64::from(ties.units()) + 4 * ties.clauses.len() as u64;
    if open_waves * bytes_a_wave <= OPEN_WAVES_BYTES {
        let waves = dsatur::waves(ties, steady);
        best = smaller_split(Some(best), cut(waves, WaveMethod::Dsatur));
    }
    domain_walks::each(ties, best.waves.len(), |waves| {
        let walked = cut(waves, WaveMethod::Walk);
        if walked.waves.len() < best.waves.len() {
            best = walked;
        }
        best.waves.len()
    });
    best
}

/// How the search goes about it, and when it ends.
struct Effort<'a> {
    tenure: Tenure,
    /// Counted down.
    steps_left: &'a mut u64,
    rng: &'a mut SearchRng,
    /// Whether to end before the steps are used.
    stop: &'a mut dyn FnMut() -> bool,
}

/// Reduces by one wave repeatedly, until the bound is reached or the effort ends. A wave that can be
/// dissolved without a move is dissolved even with no steps left: a search with more steps does the same at
/// that point.
fn improve(ties: &ConflictGraph, from: Split, bound: u32, mut effort: Effort<'_>) -> Split {
    let mut best = from;
    if *effort.steps_left == 0 {
        return best;
    }
    while best.waves.len() > bound as usize {
        let Some(waves) = tabu::reduce_waves(ties, &best.waves, &mut effort) else {
            break;
        };
        best = Split {
            waves: growth::cut(waves, &ties.caps),
            method: WaveMethod::Tabu,
        };
    }
    best
}

fn without(units: u32, impossible: &[Impossible]) -> Vec<u32> {
    let mut possible = vec![true; units as usize];
    for found in impossible {
        possible[found.unit as usize] = false;
    }
    (0..units).filter(|&unit| possible[unit as usize]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Constructions and search find the fewest waves on nearly all small problems. (`solve` does not use
    /// them there; on large problems the minimum is unknown.)
    #[test]
    fn the_search_is_seldom_beaten_by_trying_all_splits() {
        let mut rng = SearchRng::new(3);
        let (mut cases, mut beaten) = (0, 0);
        while cases < 2000 {
            let problem = random(&mut rng);
            let ties = ConflictGraph::new(&problem, without(problem.units, &problem.impossible()));
            if ties.units() == 0 {
                continue;
            }
            cases += 1;
            let fewest = exact::waves(&ties).len();
            let built = construct(&ties, None);
            let mut steps = 2000;
            let mut seeded = SearchRng::new(1);
            let effort = Effort {
                tenure: Tenure::Published,
                steps_left: &mut steps,
                rng: &mut seeded,
                stop: &mut || false,
            };
            let found = improve(&ties, built, fewest as u32, effort);
            for (place, wave) in found.waves.iter().enumerate() {
                assert_eq!(problem.permits(&ties.originals(wave)), Ok(()));
                assert!(wave.len() <= problem.cap(place) as usize);
            }
            assert!(found.waves.len() >= fewest);
            beaten += usize::from(found.waves.len() > fewest);
        }
        assert!(beaten * 100 <= cases, "beaten {beaten} times");
    }

    fn random(rng: &mut SearchRng) -> Problem {
        let units = exact::UNITS;
        let mut caps: Vec<u32> = (0..rng.below(3)).map(|_| 1 + rng.below(5)).collect();
        caps.sort_unstable();
        let mut problem = Problem {
            units,
            caps,
            ..Problem::default()
        };
        for _ in 0..5 + rng.below(12) {
            let members: Vec<(u32, u32)> = (0..2 + rng.below(4))
                .map(|_| (rng.below(units), 1 + rng.below(3)))
                .collect();
            let limit = 2 + rng.below(5);
            problem.budgets.push_with_costs(&members, limit);
        }
        if rng.below(2) == 0 {
            problem.wide.push(Wide {
                costs: (0..units).map(|_| rng.below(5)).collect(),
                limit: u64::from(4 + rng.below(6)),
            });
        }
        if rng.below(2) == 0 {
            problem.domains.push(DomainRule {
                of: (0..units).map(|_| rng.below(5)).collect(),
                limit: 1 + rng.below(3),
                already: vec![0],
            });
        }
        problem
    }
}
