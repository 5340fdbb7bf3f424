use super::Tabu;
use crate::plan::waves::conflict_graph::ConflictGraph;
use crate::plan::waves::problem::{DomainRule, Problem, Wide};
use crate::plan::waves::rng::SearchRng;

/// After any moves, the tables say what counting anew says.
#[test]
fn tables_stay_true() {
    let mut rng = SearchRng::new(1);
    for _ in 0..200 {
        let ties = random_ties(&mut rng);
        let count = 3;
        let mut tabu = Tabu::new(&ties, count);
        for unit in 0..ties.units() {
            tabu.enter(unit, rng.below(3));
        }
        for _ in 0..50 {
            let unit = rng.below(ties.units());
            tabu.leave(unit);
            tabu.enter(unit, rng.below(3));
        }
        assert_eq!(tabu.excess, counted(&ties, &tabu.wave_of));
        for unit in 0..ties.units() {
            let own = tabu.wave_of[unit as usize];
            let sore = tabu.pain[unit as usize * count + own as usize] > 0;
            assert_eq!(tabu.sore.contains(unit), sore);
            let there = tabu.excess;
            tabu.leave(unit);
            for wave in 0..3 {
                let expected = tabu.excess + tabu.cost_of_entering(unit, wave).cast_signed();
                let mut wave_of = tabu.wave_of.clone();
                wave_of[unit as usize] = wave;
                assert_eq!(expected, counted(&ties, &wave_of));
            }
            tabu.enter(unit, own);
            assert_eq!(tabu.excess, there);
            let mut relieved = tabu.wave_of.clone();
            relieved[unit as usize] = super::NONE;
            let relief = u64::from(tabu.pain[unit as usize * count + own as usize])
                + tabu.rooms[own as usize].removed_excess(&ties, unit);
            assert_eq!(there - relief.cast_signed(), counted(&ties, &relieved));
        }
    }
}

fn counted(ties: &ConflictGraph, wave_of: &[u32]) -> i64 {
    let mut excess = 0;
    for wave in 0..3 {
        let inside = |unit: u32| wave_of[unit as usize] == wave;
        let mut room = super::Room::new(ties, super::cap_at(&ties.caps, wave as usize));
        for unit in (0..ties.units()).filter(|&unit| inside(unit)) {
            room.add(ties, unit);
            excess += ties
                .pairs(unit)
                .iter()
                .filter(|&&other| other > unit && inside(other))
                .count()
                .cast_signed() as i64;
        }
        excess += room.excess(ties).cast_signed();
        for (index, clause) in (0_u32..).zip(&ties.clauses) {
            let seats = ties.seats(index).iter().filter(|seat| inside(seat.unit));
            let load: u32 = seats.map(|seat| seat.cost).sum();
            excess += i64::from(super::over(clause, load));
        }
    }
    excess
}

fn random_ties(rng: &mut SearchRng) -> ConflictGraph {
    let units = 4 + rng.below(8);
    let mut problem = Problem {
        units,
        caps: (0..rng.below(3)).map(|_| 1 + rng.below(4)).collect(),
        ..Problem::default()
    };
    for _ in 0..rng.below(8) {
        let members: Vec<u32> = (0..units).filter(|_| rng.below(2) == 0).collect();
        if rng.below(2) == 0 {
            problem.budgets.push(&members, 1 + rng.below(3));
        } else {
            let costs: Vec<(u32, u32)> = members.iter().map(|&unit| (unit, rng.below(5))).collect();
            problem.budgets.push_with_costs(&costs, 4 + rng.below(8));
        }
    }
    if rng.below(2) == 0 {
        problem.wide.push(Wide {
            costs: (0..units).map(|_| rng.below(4)).collect(),
            limit: u64::from(3 + rng.below(6)),
        });
        problem.domains.push(DomainRule {
            of: (0..units).map(|_| rng.below(4)).collect(),
            limit: 1 + rng.below(2),
            already: Vec::new(),
        });
    }
    let impossible = problem.impossible();
    let mut placeable: Vec<u32> = (0..units).collect();
    placeable.retain(|&unit| impossible.iter().all(|found| found.unit != unit));
    if placeable.is_empty() {
        return random_ties(rng);
    }
    ConflictGraph::new(&problem, placeable)
}
