//! Journals: a run or an illegal event, and a run can be shown.
#![no_main]

use libfuzzer_sys::fuzz_target;
use stagger_core::run::{Entry, Run};
use stagger_core::view;

fuzz_target!(|text: &str| {
    let mut entries = Vec::new();
    for line in text.lines() {
        let Ok(entry) = serde_json::from_str::<Entry>(line) else {
            break;
        };
        let written = serde_json::to_string(&entry).unwrap();
        assert_eq!(serde_json::from_str::<Entry>(&written).unwrap(), entry);
        entries.push(entry);
    }
    let Some(first) = entries.first().cloned() else {
        return;
    };
    let Ok(mut run) = Run::begin(first) else { return };
    for entry in entries.drain(1..) {
        let before = run.seq();
        if run.apply(entry).is_err() {
            break;
        }
        assert_eq!(run.seq(), before + 1, "a journal has no gaps");
    }
    let seen = view::run(&run, None);
    serde_json::to_string(&seen).unwrap();
    run.has_uncleared_guards();
});
