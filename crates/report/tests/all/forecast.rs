//! What is learned of journals: of one that was written once, and of simulated runs of one cluster.
#![allow(missing_docs, unreachable_pub, clippy::unwrap_used, reason = "test code")]

use std::sync::{Arc, Mutex};

use serde_json::{Map, Value};
use stagger_core::run::{Entry, Run};
use stagger_engine::artifacts::Artifacts;
use stagger_engine::driver::Listener;
use stagger_engine::sqlite::SqliteStore;
use stagger_report::History;
use stagger_report::forecast::{EarlierRun, accuracy, from_runs, phases};
use stagger_sim::{ClockSpeed, Scenario, simulate};

const DEMO: &str = include_str!("../journals/demo.jsonl");
const CALM: &str = include_str!("../../../../scenarios/calm.toml");

fn entries(journal: &str) -> Vec<Entry> {
    let entry = |line: &str| {
        let mut fields: Map<String, Value> = serde_json::from_str(line).unwrap();
        let seq = serde_json::from_value(fields.remove("seq").unwrap()).unwrap();
        let at = serde_json::from_value(fields.remove("at").unwrap()).unwrap();
        let event = serde_json::from_value(fields.into()).unwrap();
        Entry { seq, at, event }
    };
    journal.lines().map(entry).collect()
}

#[derive(Clone, Default)]
struct Written(Arc<Mutex<Vec<Entry>>>);

impl Listener for Written {
    fn event(&mut self, entry: &Entry, _: &Run) {
        self.0.lock().unwrap().push(entry.clone());
    }
}

/// The journal of a run on a cluster of that seed, whose OSDs start and recover in so many seconds.
fn run(seed: u64, restart: u32, recovery: u32) -> Vec<Entry> {
    let slow = format!("rgws = 2\nseconds = {{ restart_osd = {restart}, recovery = {recovery} }}");
    let text = CALM
        .replace("rgws = 2", &slow)
        .replace("seed = 3", &format!("seed = {seed}"));
    assert!(text.contains(&slow) && text.contains(&format!("seed = {seed}")));
    let written = Written::default();
    let store = Box::new(SqliteStore::in_memory().unwrap());
    let artifacts = Artifacts::in_folder("/dev/null/artifacts");
    let scenario = Scenario::parse(&text).unwrap();
    simulate(
        &scenario,
        store,
        artifacts,
        Box::new(written.clone()),
        ClockSpeed::Fast,
    )
    .unwrap();
    written.0.lock().unwrap().clone()
}

/// The same run, as if it had begun so many days later: each of a cluster is at a time of its own.
fn later(entries: Vec<Entry>, days: i64) -> Vec<Entry> {
    let later = |entry: Entry| Entry {
        at: entry.at + jiff::SignedDuration::from_hours(24 * days),
        ..entry
    };
    entries.into_iter().map(later).collect()
}

#[test]
fn a_journal_tells_how_long_each_phase_took() {
    let run = EarlierRun::of(&entries(DEMO)).unwrap();
    let times = phases(std::slice::from_ref(&run));
    let of = |kind: &str, phase: &str| {
        times
            .iter()
            .find(|time| time.kind.as_str() == kind && time.phase == phase)
    };
    let osd = of("osd", "change").unwrap();
    assert!(
        osd.seen > 30 && osd.median <= osd.ninety && osd.median.is_positive(),
        "{osd:?}"
    );
    assert!(of("osd", "gates").unwrap().median.is_positive());
    assert!(of("mon", "change").is_some());
    // What was waited for a person between waves is not counted.
    let history = History::of(&entries(DEMO)).unwrap();
    assert!(run.took.unwrap() < history.took());
}

/// The plan of a run that went well, asked again, takes about as long as that run did.
#[test]
fn the_same_again_takes_as_long() {
    for (restart, recovery) in [(5, 10), (40, 90)] {
        let run = EarlierRun::of(&run(3, restart, recovery)).unwrap();
        let took = run.took.unwrap().as_secs_f64();
        let found = from_runs(std::slice::from_ref(&run), &run.plan).unwrap();
        let off = found.median().as_secs_f64() / took - 1.0;
        assert!(off.abs() < 0.1, "{found:?} and it took {took} s");
        assert!(
            found.ninety().as_secs_f64() > took * 0.95,
            "{found:?} and it took {took} s"
        );
    }
}

/// Twelve runs of one cluster on a day that is slower or faster than the last: what is learned of those before is nearer than what
/// plans say.
#[test]
fn what_is_learned_is_nearer_than_what_was_planned() {
    let days = [
        (8, 20),
        (10, 25),
        (7, 22),
        (12, 30),
        (9, 18),
        (11, 26),
        (8, 28),
        (10, 20),
        (9, 24),
        (13, 22),
        (8, 21),
        (10, 27),
    ];
    let runs = (0..).zip(days).map(|(day, (restart, recovery))| {
        let entries = later(run(3 + u64::try_from(day % 3).unwrap(), restart, recovery), day);
        EarlierRun::of(&entries).unwrap()
    });
    let runs: Vec<EarlierRun> = runs.collect();
    let found = accuracy(&runs);
    println!("{found:?}");
    assert_eq!((found.runs, found.told), (12, 11));
    let (planned, learned) = (found.planned.unwrap(), found.learned.unwrap());
    assert!(learned < planned, "{found:?}");
    assert!(learned < 15.0, "{found:?}");
    assert!(found.under_90 >= 8, "{found:?}");
}
