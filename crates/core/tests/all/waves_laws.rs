//! What holds of every answer of the wave solver, whatever the problem.

use proptest::prelude::*;
use stagger_core::plan::waves::{
    DomainRule, Impossible, NarrowBudgets, Problem, Rule, SearchBudget, Solution, Tenure, WaveMethod, Wide,
    solve, solve_until,
};

prop_compose! {
    fn any_budgets(units: u32)(
        budgets in prop::collection::vec(
            (prop::collection::vec((0..units, 0_u32..5), 2..7), any::<bool>(), 0_u32..9),
            0..units as usize * 2,
        )
    ) -> NarrowBudgets {
        let mut all = NarrowBudgets::default();
        for (members, costly, limit) in budgets {
            if costly {
                all.push_with_costs(&members, limit);
            } else {
                let members: Vec<u32> = members.iter().map(|&(unit, _)| unit).collect();
                all.push(&members, limit.div_ceil(3));
            }
        }
        all
    }
}

fn any_problem() -> impl Strategy<Value = Problem> {
    (1_u32..40).prop_flat_map(|units| {
        let each = units as usize;
        let wide = (prop::collection::vec(0_u32..9, each), 3_u64..40)
            .prop_map(|(costs, limit)| Wide { costs, limit });
        let domains = (
            prop::collection::vec(0_u32..8, each),
            0_u32..5,
            prop::collection::vec(0_u32..9, 0..3),
        )
            .prop_map(|(of, limit, already)| DomainRule { of, limit, already });
        (
            any_budgets(units),
            prop::collection::vec(wide, 0..3),
            prop::collection::vec(domains, 0..2),
            prop::collection::vec(prop::collection::vec(0_u32..8, each), 0..4),
            prop::collection::vec(0_u32..20, 0..5),
        )
            .prop_map(move |(budgets, wide, domains, levels, caps)| Problem {
                units,
                budgets,
                wide,
                domains,
                levels,
                caps,
            })
    })
}

const SEARCH: SearchBudget = SearchBudget { seed: 5, steps: 300 };

fn is_valid(problem: &Problem, solution: &Solution) {
    let mut seen = vec![0; problem.units as usize];
    for (place, wave) in solution.waves.iter().enumerate() {
        assert!(!wave.is_empty() && wave.is_sorted());
        assert_eq!(problem.permits(wave), Ok(()));
        assert!(wave.len() <= problem.cap(place) as usize);
        for &unit in wave {
            seen[unit as usize] += 1;
        }
    }
    for &Impossible { unit, rule } in &solution.impossible {
        seen[unit as usize] += 1;
        assert!(only(problem, rule).permits(&[unit]).is_err());
    }
    assert!(seen.iter().all(|&times| times == 1));
    assert!(solution.bound.waves as usize <= solution.waves.len());
    assert!(solution.steps_used <= SEARCH.steps);
}

/// The problem with this rule alone.
fn only(problem: &Problem, rule: Rule) -> Problem {
    let mut only = Problem {
        units: problem.units,
        ..Problem::default()
    };
    match rule {
        Rule::Budget(index) => {
            let budget = problem.budgets.get(index as usize);
            let members: Vec<(u32, u32)> = budget.iter().collect();
            only.budgets.push_with_costs(&members, budget.limit);
        }
        Rule::Wide(index) => only.wide.push(problem.wide[index as usize].clone()),
        Rule::Domains(index) => only.domains.push(problem.domains[index as usize].clone()),
    }
    only
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn every_unit_stands_in_one_permitted_wave_or_is_impossible(problem in any_problem()) {
        is_valid(&problem, &solve(&problem, SEARCH, None));
        is_valid(&problem, &solve(&problem, SearchBudget { seed: 0, steps: 0 }, None));
    }

    #[test]
    fn same_input_same_output(problem in any_problem()) {
        prop_assert_eq!(solve(&problem, SEARCH, None), solve(&problem, SEARCH, None));
    }

    #[test]
    fn searching_longer_is_never_worse(problem in any_problem()) {
        let short = solve(&problem, SearchBudget { seed: 1, steps: 0 }, None);
        let long = solve(&problem, SearchBudget { seed: 1, steps: 300 }, None);
        prop_assert!(long.waves.len() <= short.waves.len());
        prop_assert!(long.bound.waves >= short.bound.waves);
    }

    /// Law 11: a search that a clock has ended is found again by its steps.
    #[test]
    fn a_search_that_was_stopped_is_found_again(problem in any_problem(), questions in 1_u32..9) {
        let mut left = questions;
        let mut stop = || {
            left = left.saturating_sub(1);
            left == 0
        };
        let endless = SearchBudget { seed: 5, steps: u64::MAX };
        let stopped = solve_until(&problem, endless, Tenure::Published, None, &mut stop);
        let steps = stopped.steps_used.max(1);
        prop_assert_eq!(&stopped, &solve(&problem, SearchBudget { seed: 5, steps }, None));
    }

    #[test]
    fn budgets_in_another_order_leave_it_valid(problem in any_problem()) {
        let mut turned = problem.clone();
        turned.budgets = NarrowBudgets::default();
        for index in (0..problem.budgets.len()).rev() {
            let budget = problem.budgets.get(index);
            let members: Vec<(u32, u32)> = budget.iter().collect();
            turned.budgets.push_with_costs(&members, budget.limit);
        }
        let solution = solve(&turned, SEARCH, None);
        is_valid(&turned, &solution);
        for wave in &solution.waves {
            prop_assert_eq!(problem.permits(wave), Ok(()));
        }
    }

    /// Law 5: the parent's split without its first waves is never made worse.
    #[test]
    fn a_parent_that_holds_is_never_made_worse(problem in any_problem(), done in 0_usize..4) {
        let parent = solve(&problem, SEARCH, None);
        let left = parent.waves.get(done..).unwrap_or_default();
        let (rest, left) = without_done(&problem, left, done);
        for steps in [0, 300] {
            let again = solve(&rest, SearchBudget { seed: 9, steps }, Some(&left));
            is_valid(&rest, &again);
            prop_assert!(again.waves.len() <= left.len());
            if again.waves.len() == left.len() {
                prop_assert_eq!(&again.waves, &left);
                prop_assert!(left.is_empty() || again.method == WaveMethod::Parent);
            }
        }
    }

    #[test]
    fn any_nonsense_as_a_parent_leaves_it_valid(
        problem in any_problem(),
        parent in prop::collection::vec(prop::collection::vec(0_u32..60, 0..8), 0..8),
    ) {
        let alone = solve(&problem, SearchBudget { seed: 0, steps: 0 }, None);
        let with = solve(&problem, SearchBudget { seed: 0, steps: 0 }, Some(&parent));
        is_valid(&problem, &with);
        prop_assert!(with.waves.len() <= alone.waves.len());
    }
}

/// The problem over the units of these waves, renumbered, and the waves over them.
fn without_done(problem: &Problem, left: &[Vec<u32>], done: usize) -> (Problem, Vec<Vec<u32>>) {
    let mut units: Vec<u32> = left.iter().flatten().copied().collect();
    units.sort_unstable();
    let number = |unit: &u32| units.binary_search(unit).map(|at| at as u32).ok();
    let mut rest = Problem {
        units: units.len() as u32,
        // The waves that are left are the later ones: growth goes on where it was.
        caps: problem.caps.get(done..).unwrap_or_default().to_vec(),
        ..Problem::default()
    };
    if rest.caps.is_empty() {
        rest.caps.extend(problem.caps.last());
    }
    for budget in problem.budgets.iter() {
        let members: Vec<(u32, u32)> = budget
            .iter()
            .filter_map(|(unit, cost)| number(&unit).map(|unit| (unit, cost)))
            .collect();
        rest.budgets.push_with_costs(&members, budget.limit);
    }
    for wide in &problem.wide {
        rest.wide.push(Wide {
            costs: units.iter().map(|&unit| wide.costs[unit as usize]).collect(),
            limit: wide.limit,
        });
    }
    for level in &problem.levels {
        let of = units.iter().map(|&unit| level[unit as usize]);
        rest.levels.push(of.collect());
    }
    for rule in &problem.domains {
        rest.domains.push(DomainRule {
            of: units.iter().map(|&unit| rule.of[unit as usize]).collect(),
            ..rule.clone()
        });
    }
    let left = left
        .iter()
        .map(|wave| wave.iter().filter_map(number).collect())
        .collect();
    (rest, left)
}
