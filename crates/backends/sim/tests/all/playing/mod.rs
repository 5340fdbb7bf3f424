//! What the tests of the simulator share.
#![allow(
    dead_code,
    missing_docs,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "each test uses a part of it, and it is test code"
)]

use stagger_conformance::listener::JournalPrinter;
use stagger_core::run::Ending;
use stagger_engine::artifacts::Artifacts;
use stagger_engine::sqlite::SqliteStore;
use stagger_sim::{ClockSpeed, Scenario, SimEnding, SimReport, simulate};

/// Nothing is kept: the folder is one that cannot be made, and collecting is allowed to fail.
pub fn artifacts() -> Artifacts {
    Artifacts::in_folder("/dev/null/artifacts")
}

pub fn play(scenario: &Scenario) -> SimReport {
    let store = Box::new(SqliteStore::in_memory().unwrap());
    simulate(
        scenario,
        store,
        artifacts(),
        Box::new(JournalPrinter),
        ClockSpeed::Fast,
    )
    .unwrap()
}

/// The ending in one word, with the stable word of its reason.
pub fn word(ending: &SimEnding) -> (&'static str, Option<String>) {
    (ending.word(), ending.reason().map(str::to_owned))
}

/// What was left, and why, in stable words.
pub fn left(ending: &SimEnding) -> Vec<(String, String)> {
    match ending {
        SimEnding::Over(Ending::Incomplete { left }) => left
            .iter()
            .map(|(what, why)| (what.clone(), why.code.to_string()))
            .collect(),
        SimEnding::Over(_) | SimEnding::Held(_) | SimEnding::Endless(_) => Vec::new(),
    }
}
