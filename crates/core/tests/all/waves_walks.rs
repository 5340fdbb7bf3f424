//! Never more waves than whoever walks along the failure domains: host by host, rack by rack, or as Ceph's
//! own tools do.

use proptest::prelude::*;
use stagger_core::plan::waves::{Problem, SearchBudget, Wide, solve};

/// Numbers from a seed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: u32) -> u32 {
        // Knuth's; the high bits are good enough for a layout.
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (((self.0 >> 33) * u64::from(end)) >> 31) as u32
    }
}

/// Hosts, racks and rooms of uneven sizes, some units below none of them; groups that keep to distinct domains
/// of a level, as CRUSH places them; caps and limits as growth and policies set them.
fn layout(seed: u64) -> Problem {
    let mut dice = Dice(seed);
    let units = 11 + dice.below(50);
    let mut problem = Problem {
        units,
        ..Problem::default()
    };
    // Each level groups whole domains of the one below; a child without a parent stands alone.
    let mut below: Vec<u32> = (0..units).collect();
    for _ in 0..=dice.below(3) {
        let most = 1 + dice.below(7);
        let (mut parents, mut left, mut parent) = (Vec::new(), 0, 0);
        for child in 0..=below.iter().copied().max().unwrap_or(0) {
            if left == 0 {
                left = 1 + dice.below(most);
                parent = child;
            }
            let alone = dice.below(12) == 0;
            parents.push(if alone { 1000 + child } else { parent });
            left -= 1;
        }
        let of: Vec<u32> = below.iter().map(|&child| parents[child as usize]).collect();
        // The next level counts from nought again.
        let mut names: Vec<u32> = of.clone();
        names.sort_unstable();
        names.dedup();
        below = of
            .iter()
            .map(|name| names.binary_search(name).map_or(0, |at| at as u32))
            .collect();
        problem.levels.push(below.clone());
    }
    if dice.below(2) == 0 {
        problem.levels.push(vec![0; units as usize]);
    }
    if dice.below(2) == 0 {
        problem.levels.reverse();
    }
    let rule = dice.below(problem.levels.len() as u32) as usize;
    let (size, groups) = (2 + dice.below(3), units * (1 + dice.below(8)) / 2);
    for _ in 0..groups {
        let mut members: Vec<u32> = Vec::new();
        for _ in 0..8 * size {
            let unit = dice.below(units);
            let apart = |&other: &u32| {
                other != unit && problem.levels[rule][other as usize] != problem.levels[rule][unit as usize]
            };
            if members.len() < size as usize && members.iter().all(apart) {
                members.push(unit);
            }
        }
        let limit = 1 + dice.below(size - 1);
        problem.budgets.push(&members, limit);
    }
    if dice.below(2) == 0 {
        problem.wide.push(Wide {
            costs: vec![1; units as usize],
            limit: u64::from(1 + dice.below(units)),
        });
    }
    if dice.below(2) == 0 {
        problem.caps = (0..=dice.below(5)).map(|power| 1 << power).collect();
    }
    problem
}

/// Fills waves; `fill` is given those that are left and adds to a wave what it walks over.
fn walk(problem: &Problem, mut fill: impl FnMut(&[bool], usize, &mut Vec<u32>)) -> usize {
    let mut left = vec![true; problem.units as usize];
    for found in problem.impossible() {
        left[found.unit as usize] = false;
    }
    let mut waves = 0;
    while left.contains(&true) {
        let mut wave = Vec::new();
        fill(&left, waves, &mut wave);
        let before = left.iter().filter(|left| **left).count();
        for unit in wave {
            left[unit as usize] = false;
        }
        assert!(
            left.iter().filter(|left| **left).count() < before,
            "the walk stands still"
        );
        waves += 1;
    }
    waves
}

/// Adds a unit if the wave at this place may hold it too.
fn add(problem: &Problem, place: usize, wave: &mut Vec<u32>, unit: u32) -> bool {
    wave.push(unit);
    let fits = wave.len() <= problem.cap(place) as usize && problem.permits(wave).is_ok();
    if !fits {
        wave.pop();
    }
    fits
}

fn domain_by_domain(problem: &Problem, level: &[u32]) -> usize {
    walk(problem, |left, place, wave| {
        let waiting = || (0..problem.units).filter(|&unit| left[unit as usize]);
        let domain = waiting().map(|unit| level[unit as usize]).min();
        for unit in waiting().filter(|&unit| Some(level[unit as usize]) == domain) {
            add(problem, place, wave, unit);
        }
    })
}

/// `ok-to-stop --max` from the first that is left, again and again. Ceph does not know who is done, and may
/// take them along.
fn as_ceph_walks(problem: &Problem, takes_done_along: bool) -> usize {
    let impossible = problem.impossible();
    walk(problem, |left, place, wave| {
        let seed = (0..problem.units).find(|&unit| left[unit as usize]).unwrap_or(0);
        add(problem, place, wave, seed);
        let mut above: Vec<Vec<u32>> = problem
            .levels
            .iter()
            .map(|level| {
                let around = |&unit: &u32| level[unit as usize] == level[seed as usize];
                (0..problem.units).filter(around).collect()
            })
            .collect();
        above.sort_by_key(Vec::len);
        for domain in above {
            let mut all_fit = true;
            for unit in domain {
                let possible = impossible.iter().all(|found| found.unit != unit);
                if possible && !wave.contains(&unit) && (left[unit as usize] || takes_done_along) {
                    all_fit &= add(problem, place, wave, unit);
                }
            }
            if !all_fit {
                break;
            }
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn never_more_waves_than_a_walk(seed: u64) {
        let problem = layout(seed);
        let mut walks = vec![
            ("Ceph's walk".to_owned(), as_ceph_walks(&problem, false)),
            ("Ceph's walk with those that are done".to_owned(), as_ceph_walks(&problem, true)),
        ];
        for (at, level) in problem.levels.iter().enumerate() {
            walks.push((format!("domain by domain of level {at}"), domain_by_domain(&problem, level)));
        }
        for steps in [0, 300] {
            let solution = solve(&problem, SearchBudget { seed: 1, steps }, None);
            for (name, waves) in &walks {
                prop_assert!(
                    solution.waves.len() <= *waves,
                    "{} waves with {steps} steps, {name} takes {waves}: {problem:?}",
                    solution.waves.len()
                );
            }
        }
    }
}

/// A map of three copies in distinct racks.
fn racks(units: u32, a_host: u32, a_rack: u32, groups: u32) -> Problem {
    let mut dice = Dice(7);
    let rack = |unit: u32| unit / (a_host * a_rack);
    let mut problem = Problem {
        units,
        levels: vec![
            (0..units).map(|unit| unit / a_host).collect(),
            (0..units).map(rack).collect(),
            vec![0; units as usize],
        ],
        ..Problem::default()
    };
    for _ in 0..groups {
        let mut members: Vec<u32> = Vec::new();
        while members.len() < 3 {
            let unit = dice.below(units);
            if members.iter().all(|&member| rack(member) != rack(unit)) {
                members.push(unit);
            }
        }
        problem.budgets.push(&members, 1);
    }
    problem
}

/// Maps on which the first plan took 40, 37 and 22 waves.
#[test]
fn a_rack_at_a_time_is_a_plan() {
    for (units, a_host, a_rack, groups, racks_of_it) in [
        (720, 12, 2, 24_000, 30),
        (4_000, 20, 10, 128_000, 20),
        (1_000, 20, 5, 32_000, 10),
    ] {
        let problem = racks(units, a_host, a_rack, groups);
        let waves = solve(&problem, SearchBudget { seed: 1, steps: 0 }, None)
            .waves
            .len();
        assert!(waves <= racks_of_it, "{waves} waves of {racks_of_it} racks");
    }
}

/// One unit, then two, then four: growth costs what it must, and not more than whoever walks so.
#[test]
fn growth_costs_no_more_than_the_walk() {
    let mut problem = racks(720, 12, 2, 24_000);
    problem.caps = (0..7).map(|power| 1 << power).chain([108]).collect();
    let waves = solve(&problem, SearchBudget { seed: 1, steps: 0 }, None)
        .waves
        .len();
    for level in &problem.levels {
        assert!(waves <= walked(&problem, level));
    }
}

/// Domain by domain, with each pair looked up in a table: `permits` is too slow for so many groups.
fn walked(problem: &Problem, level: &[u32]) -> usize {
    let mut foes = vec![vec![false; problem.units as usize]; problem.units as usize];
    for budget in problem.budgets.iter() {
        for &a in budget.members {
            for &b in budget.members {
                foes[a as usize][b as usize] = a != b;
            }
        }
    }
    walk(problem, |left, place, wave| {
        let waiting = || (0..problem.units).filter(|&unit| left[unit as usize]);
        let domain = waiting().map(|unit| level[unit as usize]).min();
        for unit in waiting().filter(|&unit| Some(level[unit as usize]) == domain) {
            let fits = wave.len() < problem.cap(place) as usize
                && wave.iter().all(|&other| !foes[unit as usize][other as usize]);
            if fits {
                wave.push(unit);
            }
        }
    })
}
