use super::at_least;
use crate::plan::waves::conflict_graph::ConflictGraph;
use crate::plan::waves::exact;
use crate::plan::waves::problem::Problem;
use crate::plan::waves::rng::SearchRng;

fn graph(units: u32, pairs: impl IntoIterator<Item = (u32, u32)>) -> ConflictGraph {
    let mut problem = Problem {
        units,
        ..Problem::default()
    };
    for (a, b) in pairs {
        problem.budgets.push(&[a, b], 1);
    }
    ConflictGraph::new(&problem, (0..units).collect())
}

fn waves(ties: &ConflictGraph, known: u32) -> Option<u32> {
    at_least(ties, known).map(|found| found.waves)
}

fn all_pairs(units: u32) -> impl Iterator<Item = (u32, u32)> {
    (0..units).flat_map(move |a| (0..a).map(move |b| (b, a)))
}

/// Vertices are neighbours if they differ by a square modulo a prime; the eigenvalues are known.
fn paley(prime: u32) -> ConflictGraph {
    let squares: Vec<u32> = (1..prime).map(|root| root * root % prime).collect();
    graph(
        prime,
        all_pairs(prime).filter(|(a, b)| squares.contains(&(b - a))),
    )
}

#[test]
fn graphs_whose_bound_is_known() {
    let cycle = graph(5, (0..5).map(|at| (at, (at + 1) % 5)));
    assert_eq!(waves(&cycle, 2), Some(3), "1 + 2 / 1.618");
    // Three of four neighbours each: 1 + 8 / 2.56 and 1 + 30 / 4.41, roots of the primes rounded up.
    assert_eq!(waves(&paley(17), 2), Some(5));
    assert_eq!(waves(&paley(61), 2), Some(8));
    assert_eq!(waves(&graph(30, all_pairs(30)), 2), Some(30));
    // Nothing is told that is known already.
    assert_eq!(waves(&paley(61), 8), None);
    assert_eq!(waves(&graph(30, []), 1), None);
}

/// Graphs that are made of classes without pairs inside never need more waves than classes.
#[test]
fn never_more_than_a_split_that_is_known() {
    let mut rng = SearchRng::new(5);
    for round in 0..120 {
        let classes = 2 + rng.below(6);
        let units = 40 + rng.below(400);
        let (part, of) = (1 + rng.below(30), 31);
        let pairs = all_pairs(units).filter(|(a, b)| a % classes != b % classes);
        let pairs: Vec<_> = pairs.filter(|_| rng.below(of) < part).collect();
        let ties = graph(units, pairs);
        for known in 0..=classes {
            let found = waves(&ties, known);
            assert!(
                found.is_none_or(|waves| waves <= classes),
                "round {round}: {found:?} for {classes} classes"
            );
        }
    }
}

#[test]
fn never_more_than_trying_all_splits_finds() {
    let mut rng = SearchRng::new(7);
    for _ in 0..3000 {
        let units = 2 + rng.below(exact::UNITS - 1);
        let share = 1 + rng.below(9);
        let pairs: Vec<_> = all_pairs(units).filter(|_| rng.below(10) < share).collect();
        let ties = graph(units, pairs);
        let fewest = exact::waves(&ties).len() as u32;
        let found = waves(&ties, 1);
        assert!(found.is_none_or(|waves| waves <= fewest), "{found:?} of {fewest}");
    }
}

/// Two parts with nothing between them: the one that needs more is not hidden by the other.
#[test]
fn a_small_part_hides_nothing() {
    let pairs = all_pairs(20).chain([(20, 21), (22, 23)]);
    assert_eq!(waves(&graph(24, pairs), 1), Some(20));
}

/// What a map of placement groups gives, where the largest clique has six or seven.
#[test]
fn a_map_of_a_thousand_needs_nine() {
    let mut rng = SearchRng::new(42);
    let mut problem = Problem {
        units: 1000,
        ..Problem::default()
    };
    for _ in 0..32_000 {
        let mut members: Vec<u32> = Vec::new();
        while members.len() < 3 {
            let unit = rng.below(1000);
            if members.iter().all(|member| member / 20 != unit / 20) {
                members.push(unit);
            }
        }
        problem.budgets.push(&members, 1);
    }
    let ties = ConflictGraph::new(&problem, (0..1000).collect());
    assert_eq!(
        at_least(&ties, 7).map(|found| (found.waves, found.units)),
        Some((9, 1000))
    );
}
