use super::ConflictGraph;
use crate::plan::waves::problem::Problem;

#[test]
fn budgets_become_pairs_where_pairs_say_all_and_crowds_where_not() {
    let mut problem = Problem {
        units: 5,
        ..Problem::default()
    };
    problem.budgets.push(&[0, 1, 2], 1);
    problem.budgets.push(&[0, 1], 1); // says nothing new
    problem.budgets.push(&[2, 3, 4], 2);
    problem.budgets.push(&[4, 2, 3], 2); // neither does this
    problem.budgets.push(&[0, 3], 2); // nor this
    let ties = ConflictGraph::new(&problem, vec![0, 1, 2, 3, 4]);
    assert_eq!(ties.pairs(0), [1, 2]);
    assert_eq!(ties.pairs(2), [0, 1]);
    assert_eq!(ties.pairs(3), [0_u32; 0]);
    assert_eq!(ties.clauses.len(), 1);
    assert_eq!(ties.clauses_of(3).len(), 1);
}

#[test]
fn a_unit_listed_twice_costs_both() {
    let mut problem = Problem {
        units: 2,
        ..Problem::default()
    };
    problem.budgets.push(&[0, 0, 1], 2);
    let ties = ConflictGraph::new(&problem, vec![0, 1]);
    assert_eq!(ties.pairs(0), [1]);
}

#[test]
fn a_large_budget_of_one_becomes_pairs_and_one_of_several_stays_a_crowd() {
    let mut problem = Problem {
        units: 60,
        ..Problem::default()
    };
    let all: Vec<u32> = (0..60).collect();
    problem.budgets.push(&all, 1);
    problem.budgets.push(&all, 2);
    let ties = ConflictGraph::new(&problem, all);
    assert_eq!(ties.pairs(7).len(), 59);
    assert_eq!(ties.clauses.len(), 1);
    assert_eq!(ties.clauses[0].limit, 2);
}
