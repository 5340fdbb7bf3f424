//! What earlier builds stored and sent is read, and means the same. The files were written by a build of before documents went
//! through `versioned`; journals of it are read in the tests of the engine.

use serde_json::{Map, Value};
use stagger_core::model::Snapshot;
use stagger_core::plan::Plan;
use stagger_core::releases::{Own, document};
use stagger_core::view::RunView;

/// The document, and all its fields as they stand in the file, but for its head if it is not its own.
fn read<T: Own>(text: &str, head_is_its_own: bool) -> (T, Value) {
    let mut fields: Map<String, Value> = serde_json::from_str(text).unwrap();
    let number = fields["schema"]["version"].as_u64().unwrap();
    if !head_is_its_own {
        fields.remove("schema");
    }
    let number = u32::try_from(number).unwrap();
    // A document in a journal had no head.
    assert!(document::<T>(None, fields.clone()).is_ok());
    let read = document(Some(number), fields.clone()).unwrap();
    (read, Value::Object(fields))
}

fn comes_back<T: Own>(text: &str, head_is_its_own: bool) -> T {
    let (read, fields) = read::<T>(text, head_is_its_own);
    assert_eq!(serde_json::to_value(&read).unwrap(), fields);
    read
}

#[test]
fn plans_runs_and_snapshots_of_earlier_builds_are_read() {
    let plan: Plan = comes_back(include_str!("../fixtures/earlier/plan.json"), false);
    assert!(plan.waves() > 10, "{} waves", plan.waves());
    let run: RunView = comes_back(include_str!("../fixtures/earlier/run.json"), true);
    assert_eq!(run.run.as_str(), "sim-no-way-back");
    let snapshot: Snapshot = comes_back(include_str!("../fixtures/earlier/snapshot.json"), false);
    assert!(snapshot.units().len() > 10);
}
