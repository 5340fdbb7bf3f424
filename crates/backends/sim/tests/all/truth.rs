//! Thousands of random clusters with random faults: the truth finds nothing against the run, in any class.
#![allow(
    missing_docs,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "test code"
)]

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

use stagger_sim::worlds::{Worlds, as_file, play_all, shrunk};

#[test]
fn nothing_is_stopped_that_is_not_safe_to_stop() {
    let number = |name: &str, default| {
        std::env::var(name)
            .ok()
            .and_then(|n| n.parse().ok())
            .unwrap_or(default)
    };
    let worlds = Worlds {
        first: 0,
        seed: number("SEED", 1),
        count: number("CASES", 6_000),
        twice: 100,
        threads: 2,
    };
    let came = play_all(&worlds);
    println!(
        "{} clusters, {} waves, {} stops; {} made unsafe by undetectable false reports, {} by a fault after both checks \
         had answered; {} late calls landed\n{:#?}\n{:#?}",
        worlds.count,
        came.waves,
        came.stops,
        came.undetectable,
        came.raced,
        came.late,
        came.endings,
        came.faults
    );
    let shown: Vec<_> = came
        .found
        .iter()
        .take(12)
        .map(|found| format!("{}: {}", found.number, found.finding))
        .collect();
    if let Some(first) = came.found.first() {
        println!(
            "--- the first of them, for `stagger simulate`:\n{}",
            as_file(&shrunk(first), &worlds).1
        );
    }
    assert!(
        came.found.is_empty(),
        "{:?} in {} worlds\n{}",
        came.by_class(),
        worlds.count,
        shown.join("\n")
    );
    // They have to come as far as where something could be found.
    if worlds.count >= 2_500 {
        let done = came.endings.get("done").copied().unwrap_or(0);
        assert!(done > worlds.count / 2, "only {done} are done");
        assert!(
            came.raced > 0 && came.late > worlds.count / 50,
            "the faults are too tame"
        );
        assert!(came.faults.len() >= 28, "some faults are never drawn");
        for shape in [
            "stretched over sites",
            "hosts of guests",
            "services behind a balancer",
        ] {
            let of_it = came.shapes.get(shape).copied().unwrap_or(0);
            assert!(of_it > worlds.count / 10, "only {of_it} are {shape}");
        }
    }
    if worlds.count >= 10_000 {
        assert!(came.undetectable > 0, "the lies are too tame");
    }
}
