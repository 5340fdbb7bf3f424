//! Every file in `scenarios/` runs and comes to what it expects.

use stagger_core::run::{Ending, Entry, Run};
use stagger_engine::artifacts::Artifacts;
use stagger_engine::driver::Listener;
use stagger_engine::sqlite::SqliteStore;
use stagger_sim::{Pace, Scenario, SimEnding, SimReport, simulate};

struct Talk(bool);
impl Listener for Talk {
    fn event(&mut self, entry: &Entry, _run: &Run) {
        if self.0 {
            let text = serde_json::to_string(&entry.event).unwrap();
            println!("{:.0} {} {}", entry.at, entry.seq, &text[..text.len().min(240)]);
        }
    }
}

fn play(name: &str) -> SimReport {
    let path = format!("{}/../../../scenarios/{name}", env!("CARGO_MANIFEST_DIR"));
    let scenario = Scenario::parse(&std::fs::read_to_string(path).unwrap()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap()
        .block_on(simulate(
            &scenario,
            Box::new(SqliteStore::in_memory().unwrap()),
            Artifacts::in_folder(folder.path()),
            Box::new(Talk(std::env::var_os("TALK").is_some())),
            Pace::Fast,
        ))
        .unwrap()
}

#[test]
fn demo() {
    let report = play("demo.toml");
    println!("{report:?}");
    assert!(matches!(
        report.ending,
        SimEnding::Over(Ending::Incomplete { .. })
    ));
}
