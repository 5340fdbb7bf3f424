//! `--improve 10s`: a time turned into steps of the search, by measuring this machine once. The steps
//! stand in the plan, so that it can be made again anywhere.

use std::time::Instant;

use jiff::SignedDuration;
use stagger_core::plan::waves::{Budgets, Problem, Search, solve};

/// Steps that are tried out.
const TRIED: u64 = 20_000;

/// About how many steps fit into that time.
pub(crate) fn steps(time: SignedDuration) -> u64 {
    if time <= SignedDuration::ZERO {
        // There is nothing to measure for.
        return 0;
    }
    // A thousand units in three copies, spread by a plain sequence: the shape of a Ceph map.
    let mut budgets = Budgets::default();
    let mut next = 1_u64;
    for _ in 0..32_000 {
        let mut members = [0_u32; 3];
        for member in &mut members {
            next = next
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            *member = (next >> 33) as u32 % 1_000;
        }
        members.sort_unstable();
        if members[0] != members[1] && members[1] != members[2] {
            budgets.push(&members, 1);
        }
    }
    let problem = Problem {
        units: 1_000,
        budgets,
        ..Problem::default()
    };
    let begun = Instant::now();
    let without = solve(&problem, Search { seed: 1, steps: 0 }, None);
    let construction = begun.elapsed();
    let begun = Instant::now();
    let with = solve(
        &problem,
        Search {
            seed: 1,
            steps: TRIED,
        },
        None,
    );
    debug_assert!(
        with.waves.len() <= without.waves.len(),
        "a search never makes it worse"
    );
    let each = begun.elapsed().saturating_sub(construction).as_secs_f64() / with.steps_used.max(1) as f64;
    ((time.as_secs_f64() / each.max(1e-9)).min(1e15).floor() as i64).cast_unsigned()
}
