//! Counterexamples as files: what goes wrong without a rail, step by step.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::book::Book;
use super::laws::Law;
use super::rails::Setup;
use super::search;
use super::system::System;

/// A counterexample.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Scenario {
    /// What goes wrong, in one sentence.
    pub(crate) says: String,
    /// What happens. What stands in brackets is told, not asked for.
    pub(crate) steps: Vec<String>,
    /// The model, and the law that is broken at the end.
    pub(crate) model: Setup,
}

const HEAD: &str = "# A counterexample found by the model of the run protocol; `crates/engine/tests/model.rs` writes it\n\
                    # and replays it: it breaks the law without the rail, and is harmless with it.\n\n";

/// Where the files are.
pub(crate) fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../scenarios/model")
}

fn file(name: &str) -> PathBuf {
    folder().join(format!("{name}.toml"))
}

pub(crate) fn read(name: &str) -> Scenario {
    let text = std::fs::read_to_string(file(name)).unwrap_or_else(|error| {
        panic!("{name}: {error}; STAGGER_WRITE_SCENARIOS=1 writes it anew");
    });
    toml::from_str(&text).unwrap_or_else(|error| panic!("{name}: {error}"))
}

pub(crate) fn write(name: &str, scenario: &Scenario) {
    std::fs::create_dir_all(folder()).unwrap();
    let text = toml::to_string_pretty(scenario).unwrap();
    std::fs::write(file(name), format!("{HEAD}{text}")).unwrap();
}

/// What came of the steps of a scenario.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Replayed {
    /// The law that is broken, if one is.
    pub(crate) broken: Option<Law>,
    /// Steps that a rail did not permit.
    pub(crate) refused: Vec<String>,
}

/// Takes the steps of a scenario one after another in that model; what is not possible there is left out.
pub(crate) fn replay(scenario: &Scenario, setup: &Setup) -> Replayed {
    let mut book = Book::new(setup.guard);
    let mut system = System::new(setup);
    let mut refused = Vec::new();
    for wanted in &scenario.steps {
        let told = system
            .steps()
            .into_iter()
            .find(|step| named(&system.tell(&mut book, *step)) == named(wanted));
        match told.and_then(|step| system.after(setup, &mut book, step)) {
            Some(Ok(next)) => system = next,
            Some(Err(law)) => {
                return Replayed {
                    broken: Some(law),
                    refused,
                };
            }
            None => refused.push(wanted.clone()),
        }
    }
    // Whether the end is in reach does not show in the steps that were taken.
    let broken = (scenario.model.only == Some(Law::EndReachable))
        .then(|| search::from(setup, &mut book, system))
        .and_then(|found| found.broken.map(|(law, _)| law));
    Replayed { broken, refused }
}

fn named(step: &str) -> &str {
    step.split(" (").next().unwrap_or(step)
}
