//! `Problem::permits` finds each fault planted in a permitted wave, and names it.

use stagger_core::plan::waves::{
    DomainRule, Impossible, Problem, Rule, SearchBudget, WaveViolation, Wide, solve,
};

fn problem() -> Problem {
    let mut problem = Problem {
        units: 8,
        wide: vec![
            Wide {
                costs: vec![1; 8],
                limit: 4,
            },
            Wide {
                costs: vec![0, 0, 0, 0, 9, 9, 0, 0],
                limit: 17,
            },
        ],
        domains: vec![DomainRule {
            of: vec![0, 0, 1, 1, 2, 2, 3, 3],
            limit: 3,
            already: vec![3, 3],
        }],
        ..Problem::default()
    };
    problem.budgets.push(&[0, 1, 2], 1);
    problem.budgets.push_with_costs(&[(0, 3), (3, 2), (6, 0)], 4);
    problem.budgets.push(&[5, 6, 7], 2);
    problem
}

fn broken(rule: Rule, used: u64, limit: u64) -> Result<(), WaveViolation> {
    Err(WaveViolation { rule, used, limit })
}

#[test]
fn permitted_waves_are_permitted() {
    for wave in [&[][..], &[0, 4, 6, 7], &[2, 3, 6], &[5, 6], &[1, 3, 6, 7]] {
        assert_eq!(problem().permits(wave), Ok(()));
    }
}

#[test]
fn each_planted_fault_is_found() {
    let problem = problem();
    assert_eq!(problem.permits(&[0, 1]), broken(Rule::Budget(0), 2, 1));
    assert_eq!(problem.permits(&[0, 3, 6]), broken(Rule::Budget(1), 5, 4));
    assert_eq!(problem.permits(&[5, 6, 7]), broken(Rule::Budget(2), 3, 2));
    assert_eq!(problem.permits(&[0, 4, 5]), broken(Rule::Wide(1), 18, 17));
    let five = Problem {
        budgets: stagger_core::plan::waves::NarrowBudgets::default(),
        ..problem.clone()
    };
    assert_eq!(five.permits(&[0, 1, 2, 6, 7]), broken(Rule::Wide(0), 5, 4));
    assert_eq!(five.permits(&[0, 2, 4]), broken(Rule::Domains(0), 3, 2));
}

/// A unit moved into another wave of a solution that has no room for it is found there.
#[test]
fn moving_any_unit_of_a_tight_solution_breaks_a_rule() {
    let mut problem = Problem {
        units: 30,
        ..Problem::default()
    };
    for group in 0..10 {
        problem
            .budgets
            .push(&[group * 3, group * 3 + 1, group * 3 + 2], 1);
    }
    let solution = solve(&problem, SearchBudget { seed: 0, steps: 0 }, None);
    assert_eq!(solution.waves.len(), 3);
    for (from, wave) in solution.waves.iter().enumerate() {
        for &unit in wave {
            for (to, other) in solution.waves.iter().enumerate() {
                let mut planted = other.clone();
                planted.push(unit);
                assert!(from == to || problem.permits(&planted).is_err());
            }
        }
    }
}

#[test]
fn domains_already_over_the_limit_leave_only_their_own_units() {
    let problem = Problem {
        units: 3,
        domains: vec![DomainRule {
            of: vec![0, 1, 2],
            limit: 1,
            already: vec![0, 1],
        }],
        ..Problem::default()
    };
    assert_eq!(problem.permits(&[0, 1]), Ok(()));
    let solution = solve(&problem, SearchBudget { seed: 0, steps: 0 }, None);
    assert_eq!(solution.waves, [[0, 1]]);
    assert_eq!(
        solution.impossible,
        [Impossible {
            unit: 2,
            rule: Rule::Domains(0)
        }]
    );
}

#[test]
#[should_panic(expected = "names a unit that the problem does not have")]
fn mixed_up_indices_are_refused() {
    let mut problem = Problem {
        units: 2,
        ..Problem::default()
    };
    problem.budgets.push(&[0, 2], 1);
    solve(&problem, SearchBudget { seed: 0, steps: 0 }, None);
}
