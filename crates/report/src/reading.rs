//! A run as read from its journal: its state, its events as text, and its history.

use stagger_core::run::{Entry, IllegalEvent, Run};

use crate::History;
use crate::event_text::{EventLine, event_lines};

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
        Ok(event_lines(entries)?
            .zip(history)
            .map(|((run, lines), history)| Self { run, lines, history }))
    }

    /// The approvals that the run accepts and does not have yet: points of no return, skipped units,
    /// interruptions.
    pub fn pending_approvals(&self) -> Vec<String> {
        let run = &self.run;
        if run.ended().is_some() {
            return Vec::new();
        }
        let said: Vec<String> = run.permitted_interruptions().collect();
        let interruptions = run.plan().into_iter().flat_map(|plan| &plan.interruptions);
        let asked = interruptions
            .filter(|found| !found.permitted)
            .map(|found| found.name.clone());
        let of_target = run.start().target.approval_names().map(|word| word.to_string());
        of_target
            .chain(asked)
            .filter(|word| !said.contains(word))
            .collect()
    }
}
