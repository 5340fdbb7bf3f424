//! What is read of a run: its state, its events in words, and what happened when.

use stagger_core::run::{Entry, IllegalEvent, Run};

use crate::History;
use crate::sentences::{EventLine, told};

/// A run as its journal tells of it.
#[derive(Debug)]
pub struct Reading {
    /// Its state.
    pub run: Run,
    /// Its events in words.
    pub lines: Vec<EventLine>,
    /// What happened when.
    pub history: History,
}

impl Reading {
    /// That of a journal; `None`: its first event is not the start of a run.
    ///
    /// # Errors
    /// An event that cannot follow those before it.
    pub fn of(entries: &[Entry]) -> Result<Option<Self>, IllegalEvent> {
        let history = History::of(entries);
        Ok(told(entries)?
            .zip(history)
            .map(|((run, lines), history)| Self { run, lines, history }))
    }

    /// The words that the run knows and nobody has said: points of no return, what may be left behind, interruptions.
    pub fn words(&self) -> Vec<String> {
        let run = &self.run;
        if run.ended().is_some() {
            return Vec::new();
        }
        let said: Vec<String> = run.permitted().collect();
        let interruptions = run.plan().into_iter().flat_map(|plan| &plan.interruptions);
        let asked = interruptions
            .filter(|found| !found.permitted)
            .map(|found| found.name.clone());
        let of_target = run.start().target.words().map(|word| word.to_string());
        of_target
            .chain(asked)
            .filter(|word| !said.contains(word))
            .collect()
    }
}
