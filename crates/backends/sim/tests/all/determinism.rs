//! The same scenario gives the same journal, byte for byte.
#![allow(
    missing_docs,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "test code"
)]

use crate::playing;

use std::sync::{Arc, Mutex};

use stagger_core::run::{Entry, Run};
use stagger_engine::driver::Listener;
use stagger_engine::sqlite::SqliteStore;
use stagger_sim::worlds::{Worlds, play_all};
use stagger_sim::{ClockSpeed, Scenario, random, simulate};

#[derive(Clone, Default)]
struct Written(Arc<Mutex<String>>);

impl Listener for Written {
    fn event(&mut self, entry: &Entry, _run: &Run) {
        let line = serde_json::to_string(entry).unwrap();
        let mut text = self.0.lock().unwrap();
        text.push_str(&line);
        text.push('\n');
    }
}

fn journal(scenario: &Scenario) -> String {
    let written = Written::default();
    let store = Box::new(SqliteStore::in_memory().unwrap());
    let listener = Box::new(written.clone());
    simulate(scenario, store, playing::artifacts(), listener, ClockSpeed::Fast).unwrap();
    written.0.lock().unwrap().clone()
}

#[test]
fn the_same_scenario_gives_the_same_bytes() {
    let demo = include_str!("../../../../../scenarios/demo.toml");
    let demo = Scenario::parse(demo).unwrap();
    let first = journal(&demo);
    assert!(first.lines().count() > 300);
    assert_eq!(first, journal(&demo));
    for seed in 1..150 {
        let scenario = random::scenario(seed).unwrap();
        assert_eq!(journal(&scenario), journal(&scenario), "seed {seed}");
        assert_ne!(journal(&scenario), first);
    }
}

/// Neither what else is played beside it nor on how many cores has a say in how a world goes.
#[test]
fn worlds_go_the_same_way_on_any_number_of_cores() {
    let worlds = |threads| Worlds {
        first: 0,
        seed: 7,
        count: 60,
        twice: 60,
        threads,
    };
    let alone = play_all(&worlds(1));
    assert_eq!(alone, play_all(&worlds(2)));
    assert_eq!(alone, play_all(&worlds(5)));
}
