//! Measures the wave solver on maps shaped like Ceph's: time, waves, bound, moves a second, peak
//! memory.
//!
//! `cargo run --release -p stagger-core --example waves_bench -- SHAPE [SECONDS] [SEED]`, with SHAPE
//! one of 1k, 10k, 30k (hosts of 20 units, placement groups of 3 on distinct hosts, one may go), ec
//! (groups of 11, two may go), ec10k, capped (10k, at most 200 in parallel), growth (10k, 1, 2, 4 …
//! 1500).
#![expect(clippy::print_stdout, reason = "printing is what it is for")]

use std::time::{Duration, Instant};

use stagger_core::plan::waves::{Problem, SearchBudget, Wide, solve};

struct Shape {
    units: u32,
    groups: u32,
    members: usize,
    limit: u32,
}

fn main() {
    let mut args = std::env::args().skip(1);
    let name = args.next().unwrap_or_else(|| "10k".to_owned());
    let seconds: f64 = args.next().and_then(|arg| arg.parse().ok()).unwrap_or(0.0);
    let seed: u64 = args.next().and_then(|arg| arg.parse().ok()).unwrap_or(1);
    let (units, groups, members, limit) = match name.as_str() {
        "1k" => (1_000, 32_000, 3, 1),
        "30k" => (30_000, 960_000, 3, 1),
        "ec" => (2_000, 16_000, 11, 2),
        "ec10k" => (10_000, 80_000, 11, 2),
        _ => (10_000, 320_000, 3, 1),
    };
    let mut problem = synthetic(&Shape {
        units,
        groups,
        members,
        limit,
    });
    match name.as_str() {
        "capped" => problem.wide.push(Wide {
            costs: vec![1; units as usize],
            limit: 200,
        }),
        "growth" => problem.caps = (0..11).map(|power| 1 << power).chain([1500]).collect(),
        _ => {}
    }
    println!("{name}: {units} units, {groups} budgets of {members}, limit {limit}");

    let first = report(&problem, SearchBudget { seed, steps: 0 }, 0.0);
    if seconds > 0.0 {
        // What a face does with `--improve 10s`: measure once, turn time into steps.
        let trial = 20_000;
        let tried = report(&problem, SearchBudget { seed, steps: trial }, first);
        let millis = ((tried - first) * 1e3).max(1.0);
        let steps = Duration::from_secs_f64(seconds * trial as f64 / millis).as_millis() as u64;
        report(&problem, SearchBudget { seed, steps }, first);
    }
    println!("peak memory {}", peak_memory());
}

/// Solves, prints, answers the seconds that it took.
fn report(problem: &Problem, search: SearchBudget, first: f64) -> f64 {
    let start = Instant::now();
    let solution = solve(problem, search, None);
    let seconds = start.elapsed().as_secs_f64();
    let rate = solution.steps_used as f64 / (seconds - first).max(1e-9);
    println!(
        "steps {:>9} used {:>9}  {seconds:7.3} s  {rate:>9.0} steps/s  {} waves by {:?}, at least {} ({})",
        search.steps,
        solution.steps_used,
        solution.waves.len(),
        solution.method,
        solution.bound.waves,
        format!("{:?}", solution.bound.why)
            .split(' ')
            .next()
            .unwrap_or_default(),
    );
    seconds
}

fn synthetic(shape: &Shape) -> Problem {
    let mut problem = Problem {
        units: shape.units,
        ..Problem::default()
    };
    let mut state = 42_u64;
    let mut members: Vec<u32> = Vec::new();
    for _ in 0..shape.groups {
        members.clear();
        while members.len() < shape.members {
            // Knuth's linear congruential generator; its high bits are good enough for a map.
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let unit = (((state >> 33) * u64::from(shape.units)) >> 31) as u32;
            if members.iter().all(|&other| other / 20 != unit / 20) {
                members.push(unit);
            }
        }
        problem.budgets.push(&members, shape.limit);
    }
    problem
}

fn peak_memory() -> String {
    std::fs::read_to_string("/proc/self/status")
        .ok()
        .and_then(|status| {
            let line = status.lines().find(|line| line.starts_with("VmHWM"))?;
            Some(line.trim_start_matches("VmHWM:").trim().to_owned())
        })
        .unwrap_or_else(|| "unknown".to_owned())
}
