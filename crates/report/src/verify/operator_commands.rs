//! What a person says: approvals of points of no return, pauses and aborts.

use std::collections::BTreeSet;

use stagger_core::model::{Door, Doors, PartName, Phase};
use stagger_core::run::{Action, Command, Event};

use super::plans::NewestPlan;
use super::{Breach, Journal};

pub(super) fn points_of_no_return(journal: &Journal<'_>) -> (usize, Vec<Breach>) {
    let mut newest = NewestPlan::default();
    let mut approved: BTreeSet<&PartName> = BTreeSet::new();
    let mut count = 0;
    let mut broken = Vec::new();
    for entry in journal.entries {
        let door: Option<&Door> = match &entry.event {
            Event::WaveOpened { .. } => newest.wave().and_then(|(_, wave)| wave.door.as_ref()),
            Event::Intent {
                action: Action::Step { step },
                ..
            } => journal
                .start
                .target
                .step(step)
                .and_then(|step| step.door.as_ref()),
            Event::Asked {
                command: Command::Approve { door },
                ..
            } => {
                approved.insert(door);
                None
            }
            _ => None,
        };
        if let Some(door) = door {
            count += 1;
            if journal.start.policy.doors == Doors::Ask && !approved.contains(&door.name) {
                let why = format!("{} is passed without approval", door.name);
                broken.push(Breach { seq: entry.seq, why });
            }
        }
        newest.after(&entry.event);
    }
    (count, broken)
}

/// What a person has asked for that keeps the run from going on.
#[derive(Clone, Copy, PartialEq, Eq)]
enum OperatorStop {
    Nothing,
    Pause,
    Abort,
}

pub(super) fn stop_commands(journal: &Journal<'_>) -> (usize, Vec<Breach>) {
    let mut asked = OperatorStop::Nothing;
    let mut begun = false;
    let mut count = 0;
    let mut broken = Vec::new();
    for entry in journal.entries {
        match &entry.event {
            Event::Asked { command, .. } => {
                asked = match (command, asked) {
                    (Command::Abort, _) | (_, OperatorStop::Abort) => OperatorStop::Abort,
                    (Command::Pause, _) => OperatorStop::Pause,
                    (Command::Resume | Command::Rollback, _) => OperatorStop::Nothing,
                    (_, asked) => asked,
                };
                count += usize::from(matches!(command, Command::Pause | Command::Abort));
            }
            Event::WaveOpened { .. } => {
                begun = false;
                if asked != OperatorStop::Nothing {
                    let why = "a wave is opened, and the run was to stop".to_owned();
                    broken.push(Breach { seq: entry.seq, why });
                }
            }
            Event::Intent {
                action:
                    Action::Visit {
                        unit,
                        phase: Phase::Enter | Phase::Change,
                        ..
                    },
                ..
            } => {
                if !begun && asked != OperatorStop::Nothing {
                    let why = format!("{unit} is the first of its wave, and the run was to stop");
                    broken.push(Breach { seq: entry.seq, why });
                }
                begun = true;
            }
            _ => {}
        }
    }
    (count, broken)
}
