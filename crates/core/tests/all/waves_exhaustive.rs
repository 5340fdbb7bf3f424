//! The wave solver against a judge that shares nothing with it: backtracking over units, with its own
//! reading of the rules.

use stagger_core::plan::waves::{DomainRule, Problem, SearchBudget, Solution, Wide, solve};

/// The rules as the judge reads them: everything by unit, nothing prepared.
struct Judge {
    units: usize,
    /// (cost of each unit, limit)
    budgets: Vec<(Vec<u64>, u64)>,
    /// (domain of each unit, domains touched already, limit)
    domains: Vec<(Vec<u32>, Vec<u32>, usize)>,
    caps: Vec<u32>,
}

impl Judge {
    fn new(problem: &Problem) -> Self {
        let units = problem.units as usize;
        let mut budgets: Vec<(Vec<u64>, u64)> = Vec::new();
        for budget in problem.budgets.iter() {
            let mut costs = vec![0; units];
            for (unit, cost) in budget.iter() {
                costs[unit as usize] += u64::from(cost);
            }
            budgets.push((costs, u64::from(budget.limit)));
        }
        for wide in &problem.wide {
            budgets.push((wide.costs.iter().map(|&cost| cost.into()).collect(), wide.limit));
        }
        let domains = problem.domains.iter().map(|rule| {
            let mut already = rule.already.clone();
            already.sort_unstable();
            already.dedup();
            (rule.of.clone(), already, rule.limit as usize)
        });
        Self {
            units,
            budgets,
            domains: domains.collect(),
            caps: problem.caps.clone(),
        }
    }

    fn permits(&self, wave: &[usize]) -> bool {
        let affordable = self
            .budgets
            .iter()
            .all(|(costs, limit)| wave.iter().map(|&unit| costs[unit]).sum::<u64>() <= *limit);
        affordable
            && self.domains.iter().all(|(of, already, limit)| {
                let mut new = 0;
                for (at, &unit) in wave.iter().enumerate() {
                    let seen = wave[..at].iter().any(|&before| of[before] == of[unit]);
                    new += usize::from(!seen && !already.contains(&of[unit]));
                }
                new == 0 || already.len() + new <= *limit
            })
    }

    fn cap(&self, place: usize) -> usize {
        match self.caps.len() {
            0 => usize::MAX,
            len => self.caps[place.min(len - 1)].max(1) as usize,
        }
    }

    /// Whether some order of waves of these sizes keeps to the caps.
    fn grows(&self, waves: &[Vec<usize>]) -> bool {
        let mut sizes: Vec<usize> = waves.iter().map(Vec::len).collect();
        let mut caps: Vec<usize> = (0..waves.len()).map(|place| self.cap(place)).collect();
        sizes.sort_unstable();
        caps.sort_unstable();
        sizes.iter().zip(&caps).all(|(size, cap)| size <= cap)
    }

    /// The fewest waves for these units.
    fn fewest(&self, units: &[usize]) -> usize {
        let mut count = 0;
        let mut room = 0;
        while room < units.len() || !self.places(units, count, &mut Vec::new()) {
            room = room.saturating_add(self.cap(count));
            count += 1;
        }
        count
    }

    fn places(&self, units: &[usize], count: usize, waves: &mut Vec<Vec<usize>>) -> bool {
        let Some((&unit, rest)) = units.split_first() else {
            return waves.len() == count && self.grows(waves);
        };
        for at in 0..waves.len() {
            waves[at].push(unit);
            if self.permits(&waves[at]) && self.places(rest, count, waves) {
                return true;
            }
            waves[at].pop();
        }
        if waves.len() < count {
            waves.push(vec![unit]);
            if self.places(rest, count, waves) {
                return true;
            }
            waves.pop();
        }
        false
    }

    /// Checks all that a solution says about a problem.
    fn check(&self, problem: &Problem, solution: &Solution) {
        let possible: Vec<usize> = (0..self.units).filter(|&unit| self.permits(&[unit])).collect();
        let mut placed: Vec<usize> = Vec::new();
        for (place, wave) in solution.waves.iter().enumerate() {
            let wave: Vec<usize> = wave.iter().map(|&unit| unit as usize).collect();
            assert!(wave.is_sorted() && !wave.is_empty());
            assert!(self.permits(&wave), "wave {place} of {problem:?}");
            assert!(wave.len() <= self.cap(place), "wave {place} of {problem:?}");
            placed.extend(wave);
        }
        placed.sort_unstable();
        assert_eq!(placed, possible, "each unit once: {problem:?}");
        assert_eq!(solution.impossible.len() + possible.len(), self.units);
        let fewest = self.fewest(&possible);
        assert_eq!(solution.waves.len(), fewest, "{problem:?}");
        assert_eq!(solution.bound.waves as usize, fewest, "{problem:?}");
    }
}

const SEARCH: SearchBudget = SearchBudget { seed: 0, steps: 0 };

#[test]
fn all_graphs_up_to_six_units() {
    for units in 0..=6_u32 {
        let pairs: Vec<[u32; 2]> = (0..units).flat_map(|b| (0..b).map(move |a| [a, b])).collect();
        for graph in 0..1_u32 << pairs.len() {
            let mut problem = Problem {
                units,
                ..Problem::default()
            };
            for (bit, pair) in pairs.iter().enumerate() {
                if graph >> bit & 1 == 1 {
                    problem.budgets.push(pair, 1);
                }
            }
            Judge::new(&problem).check(&problem, &solve(&problem, SEARCH, None));
        }
    }
}

/// `STAGGER_WAVES_CASES` asks for more or fewer.
#[test]
fn random_problems_of_up_to_ten_units() {
    let cases = std::env::var("STAGGER_WAVES_CASES")
        .ok()
        .and_then(|cases| cases.parse().ok())
        .unwrap_or(100_000);
    let mut dice = Dice(20_26);
    for _ in 0..cases {
        let problem = random(&mut dice);
        Judge::new(&problem).check(&problem, &solve(&problem, SEARCH, None));
    }
}

struct Dice(u64);

impl Dice {
    /// A number in `from..=to`. Xorshift (Marsaglia 2003).
    fn throw(&mut self, from: u32, to: u32) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        from + ((self.0 >> 20) % u64::from(to - from + 1)) as u32
    }

    fn one_in(&mut self, chances: u32) -> bool {
        self.throw(1, chances) == 1
    }
}

fn random(dice: &mut Dice) -> Problem {
    let units = dice.throw(7, 10);
    let mut problem = Problem {
        units,
        ..Problem::default()
    };
    for _ in 0..dice.throw(0, 12) {
        let size = dice.throw(2, 5);
        // Sometimes one unit comes twice.
        let members: Vec<u32> = (0..size).map(|_| dice.throw(0, units - 1)).collect();
        if dice.one_in(2) {
            problem.budgets.push(&members, dice.throw(0, 12).div_ceil(4));
        } else {
            let costs: Vec<(u32, u32)> = members.iter().map(|&unit| (unit, dice.throw(0, 5))).collect();
            problem.budgets.push_with_costs(&costs, dice.throw(4, 12));
        }
    }
    if dice.one_in(3) {
        problem.wide.push(Wide {
            costs: vec![1; units as usize],
            limit: dice.throw(1, 5).into(),
        });
    }
    if dice.one_in(3) {
        problem.wide.push(Wide {
            costs: (0..units).map(|_| dice.throw(0, 9)).collect(),
            limit: dice.throw(6, 20).into(),
        });
    }
    if dice.one_in(3) {
        problem.domains.push(DomainRule {
            of: (0..units).map(|_| dice.throw(0, 4)).collect(),
            limit: dice.throw(0, 9).div_ceil(3),
            already: (0..dice.throw(0, 2)).map(|_| dice.throw(0, 5)).collect(),
        });
    }
    if dice.one_in(3) {
        let mut caps: Vec<u32> = (0..dice.throw(1, 4)).map(|_| dice.throw(0, 6)).collect();
        if !dice.one_in(4) {
            caps.sort_unstable();
        }
        problem.caps = caps;
    }
    problem
}
