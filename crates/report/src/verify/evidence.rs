//! Nothing goes back without evidence against the change.

use stagger_core::model::{Code, UnitId};
use stagger_core::run::{Action, Command, Event};

use super::{Breach, Journal};

pub(super) fn evidence(journal: &Journal<'_>) -> (usize, Vec<Breach>) {
    let mut asked = false;
    let mut aborted = false;
    let mut failed = false;
    // Those that are to blame, where the change never came to them.
    let mut theirs: Option<&[UnitId]> = None;
    let mut count = 0;
    let mut broken = Vec::new();
    for entry in journal.entries {
        let why = match &entry.event {
            Event::Asked { command, .. } => {
                asked |= *command == Command::Rollback;
                aborted |= *command == Command::Abort;
                None
            }
            Event::WaveOpened { .. } | Event::WaveRecovered => {
                failed = false;
                theirs = None;
                None
            }
            Event::WaveFailed { units, reason, alone } => {
                failed = true;
                theirs = alone.then_some(units);
                let is_of_nobody = units.is_empty() && reason.code == Code::GatesShut && !asked && !aborted;
                is_of_nobody.then(|| "the wave fails for a gate, and all its units serve".to_owned())
            }
            Event::Intent {
                action: Action::GoBack { unit, .. },
                ..
            } => {
                count += 1;
                let is_healthy = theirs.is_some_and(|theirs| !theirs.contains(unit));
                match (asked, failed, is_healthy) {
                    (true, ..) | (_, true, false) => None,
                    (_, false, _) => Some(format!("{unit} rolls back, and nothing in its wave failed")),
                    (_, true, true) => Some(format!(
                        "{unit} rolls back, and the change never came to the units that failed"
                    )),
                }
            }
            _ => None,
        };
        broken.extend(why.map(|why| Breach { seq: entry.seq, why }));
    }
    (count, broken)
}
