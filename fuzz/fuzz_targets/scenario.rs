//! Scenario files: what is taken is the same after being written and read.
#![no_main]

use libfuzzer_sys::fuzz_target;
use stagger_sim::Scenario;

fuzz_target!(|text: &str| {
    let Ok(scenario) = Scenario::parse(text) else {
        return;
    };
    let written = scenario.text();
    let again = Scenario::parse(&written);
    assert!(
        again.as_ref().is_ok_and(|again| again.text() == written),
        "{written} became {again:?}"
    );
});
