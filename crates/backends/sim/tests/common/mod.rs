//! What the tests of the simulator share.
#![allow(
    dead_code,
    missing_docs,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "each test uses a part of it, and it is test code"
)]

use stagger_core::run::{Ending, Entry, Run};
use stagger_engine::artifacts::Artifacts;
use stagger_engine::driver::Listener;
use stagger_engine::sqlite::SqliteStore;
use stagger_sim::{Pace, Scenario, SimEnding, SimReport, simulate};

/// Prints the journal where the environment asks for it (`TALK=1`).
pub struct Talk;

impl Listener for Talk {
    fn event(&mut self, entry: &Entry, _run: &Run) {
        if std::env::var_os("TALK").is_some() {
            let text = serde_json::to_string(&entry.event).unwrap();
            println!(
                "{:.0} {} {}",
                entry.at,
                entry.seq,
                text.chars().take(240).collect::<String>()
            );
        }
    }
    fn waiting(&mut self, until: jiff::Timestamp, waiting: stagger_core::view::Waiting<'_>, _run: &Run) {
        if std::env::var_os("TALK").is_some_and(|much| much == "2") {
            println!("   until {until:.0}: {}", waiting.why);
        }
    }
}

/// Nothing is kept: the folder is one that cannot be made, and collecting is allowed to fail.
pub fn artifacts() -> Artifacts {
    Artifacts::in_folder("/dev/null/artifacts")
}

pub fn play(scenario: &Scenario) -> SimReport {
    let store = Box::new(SqliteStore::in_memory().unwrap());
    simulate(scenario, store, artifacts(), Box::new(Talk), Pace::Fast).unwrap()
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
