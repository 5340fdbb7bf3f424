//! Ten thousand random clusters with random faults: nothing is stopped that is not safe to stop.
#![allow(
    missing_docs,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "test code"
)]

mod common;
#[path = "common/memory.rs"]
mod memory;
#[path = "common/random.rs"]
mod random;

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use stagger_sim::{Pace, SimEnding, SimReport, simulate};

/// Reasons for which a run may be held although all is healed: each names what a person must decide.
const HELD: [&str; 6] = [
    "going-back-is-impossible",
    "going-back-needs-a-rebuild",
    "rollback-failed",
    "wave-failed",
    "step-failed",
    "guard-failed",
];

#[derive(Default)]
struct Sum {
    endings: BTreeMap<String, u32>,
    stops: u64,
    waves: u64,
    raced: u32,
    undetectable: u32,
    late: u32,
    late_unsafe: u32,
    wrong: Vec<(u64, String)>,
}

/// Every tenth with the real store; it would be most of the time.
fn play(seed: u64) -> SimReport {
    let scenario = random::scenario(seed);
    if seed.is_multiple_of(10) {
        return common::play(&scenario);
    }
    let store = Box::new(memory::MemoryStore::default());
    let listener = Box::new(common::Talk);
    common::block_on(simulate(
        &scenario,
        store,
        common::artifacts(),
        listener,
        Pace::Fast,
    ))
    .unwrap()
}

fn judge(seed: u64, report: &SimReport, sum: &mut Sum) {
    let (ending, reason) = common::word(&report.ending);
    let key = match &reason {
        Some(reason) => format!("{ending} {reason}"),
        None => ending.to_owned(),
    };
    *sum.endings.entry(key).or_insert(0) += 1;
    sum.stops += u64::from(report.truth.stops);
    sum.waves += u64::from(report.waves);
    sum.raced += report.truth.raced;
    sum.undetectable += report.truth.undetectable;
    sum.late += report.truth.late;
    sum.late_unsafe += report.truth.late_unsafe;
    let mut wrong = |what: String| sum.wrong.push((seed, what));
    if let Some(first) = report.truth.violations.first() {
        wrong(format!("{} unsafe stops; {first}", report.truth.violations.len()));
    }
    match &report.ending {
        SimEnding::Endless(why) => wrong(format!("it never ends: {why}")),
        SimEnding::Held(why) if !HELD.contains(&why.slug.as_str()) => wrong(format!("held: {why}")),
        SimEnding::Held(_) => {}
        SimEnding::Over(_) if !report.guards.is_empty() => wrong(format!("guards left: {:?}", report.guards)),
        SimEnding::Over(_) => {}
    }
}

#[test]
fn nothing_is_stopped_that_is_not_safe_to_stop() {
    let number = |name: &str, default| {
        std::env::var(name)
            .ok()
            .and_then(|n| n.parse().ok())
            .unwrap_or(default)
    };
    let (first, cases): (u64, u64) = (number("SEED", 1), number("CASES", 10_000));
    let next = AtomicU64::new(first);
    let sum = Mutex::new(Sum::default());
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::SeqCst);
                    if seed >= first + cases {
                        break;
                    }
                    let report = play(seed);
                    judge(seed, &report, &mut sum.lock().unwrap());
                }
            });
        }
    });
    let mut sum = sum.into_inner().unwrap();
    sum.wrong.sort();
    println!(
        "{cases} clusters, {} waves, {} stops; {} made unsafe by lies that nobody could detect, {} by a fault \
         after both judges had answered; {} late calls landed, {} of them unsafe\n{:#?}",
        sum.waves, sum.stops, sum.undetectable, sum.raced, sum.late, sum.late_unsafe, sum.endings
    );
    if let Some((seed, _)) = sum.wrong.first() {
        println!(
            "--- the first of them, for `stagger simulate`:\n{}",
            random::scenario(*seed).text()
        );
    }
    let shown: Vec<_> = sum
        .wrong
        .iter()
        .take(12)
        .map(|(seed, why)| format!("{seed}: {why}"))
        .collect();
    assert!(
        sum.wrong.is_empty(),
        "{} of {cases} went wrong\n{}",
        sum.wrong.len(),
        shown.join("\n")
    );
    if cases >= 10_000 {
        assert!(
            sum.undetectable > 0 && sum.raced > 0 && sum.late > 0,
            "the faults are too tame"
        );
    }
}
