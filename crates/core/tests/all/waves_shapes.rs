//! Shapes at the edge of what clusters look like: nothing may blow up, and where the fewest waves are
//! known they are found.

use stagger_core::plan::waves::{BoundReason, DomainRule, Problem, SearchBudget, Solution, Wide, solve};

const SEARCH: SearchBudget = SearchBudget { seed: 1, steps: 200 };

fn of(units: u32) -> Problem {
    Problem {
        units,
        ..Problem::default()
    }
}

/// Solves, and checks that the answer is as good as its bound.
fn optimal(problem: &Problem) -> Solution {
    let solution = solve(problem, SEARCH, None);
    for (place, wave) in solution.waves.iter().enumerate() {
        assert_eq!(problem.permits(wave), Ok(()));
        assert!(wave.len() <= problem.cap(place) as usize);
    }
    assert_eq!(solution.waves.len(), solution.bound.waves as usize);
    solution
}

#[test]
fn nothing_to_do() {
    let solution = optimal(&of(0));
    assert!(solution.waves.is_empty());
    assert_eq!(solution.bound.why, BoundReason::NothingToPlace);
}

#[test]
fn no_rules_at_all_is_one_wave() {
    assert_eq!(optimal(&of(10_000)).waves.len(), 1);
}

#[test]
fn one_in_parallel_of_many() {
    let mut problem = of(2_000);
    problem.wide.push(Wide {
        costs: vec![1; 2_000],
        limit: 1,
    });
    let solution = optimal(&problem);
    assert_eq!(solution.waves.len(), 2_000);
    assert_eq!(solution.bound.why, BoundReason::Wide { index: 0 });
}

#[test]
fn one_budget_over_all() {
    let all: Vec<u32> = (0..2_000).collect();
    let mut problem = of(2_000);
    problem.budgets.push(&all, 1);
    assert_eq!(optimal(&problem).waves.len(), 2_000);
    let mut problem = of(2_000);
    problem.budgets.push(&all, 300);
    let solution = optimal(&problem);
    assert_eq!(solution.waves.len(), 7);
    assert_eq!(solution.bound.why, BoundReason::Budget { index: 0 });
}

#[test]
fn pairs_are_two_waves() {
    let mut problem = of(2_000);
    for pair in 0..1_000 {
        problem.budgets.push(&[pair, 1_999 - pair], 1);
    }
    assert_eq!(optimal(&problem).waves.len(), 2);
}

#[test]
fn sums_beyond_32_bits() {
    let mut problem = of(100);
    let members: Vec<(u32, u32)> = (0..100).map(|unit| (unit, 4_000_000_000)).collect();
    problem.budgets.push_with_costs(&members, u32::MAX);
    let solution = optimal(&problem);
    assert_eq!(solution.waves.len(), 100);
    assert_eq!(solution.bound.why, BoundReason::Budget { index: 0 });
}

/// Thirty hosts carry so many placement groups that most say the same.
#[test]
fn few_units_with_very_many_budgets() {
    let mut problem = of(30);
    for group in 0..200_000_u32 {
        let first = group % 30;
        let step = 1 + group / 30 % 9;
        problem
            .budgets
            .push(&[first, (first + step) % 30, (first + 2 * step) % 30], 2);
    }
    let solution = solve(&problem, SEARCH, None);
    assert!(solution.waves.len() <= 4);
}

#[test]
fn one_rack_at_a_time() {
    let mut problem = of(1_000);
    problem.domains.push(DomainRule {
        of: (0..1_000).map(|unit| unit % 10).collect(),
        limit: 1,
        already: Vec::new(),
    });
    let solution = optimal(&problem);
    assert_eq!(solution.waves.len(), 10);
    assert_eq!(solution.bound.why, BoundReason::Domains { index: 0 });
    // At most 40 at once: three waves a rack.
    problem.wide.push(Wide {
        costs: vec![1; 1_000],
        limit: 40,
    });
    assert_eq!(optimal(&problem).waves.len(), 30);
}

#[test]
fn growth_up_to_a_cap() {
    let mut problem = of(1_000);
    problem.caps = vec![1, 2, 4, 8, 16, 32, 64, 100];
    let solution = optimal(&problem);
    // 127 in the first seven, 873 in waves of 100.
    assert_eq!(solution.waves.len(), 7 + 9);
    assert_eq!(solution.bound.why, BoundReason::Growth);
    // One in parallel leaves nothing to grow.
    problem.caps = vec![1];
    assert_eq!(optimal(&problem).waves.len(), 1_000);
}
