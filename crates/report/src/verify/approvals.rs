//! Both judges agree before anything is taken out of service, and their word has an age.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use stagger_core::model::{Phase, UnitId};
use stagger_core::run::{Action, Answer, Event};

use super::effects::{EffectEnd, Effects};
use super::{Breach, Journal};

/// What both judges have said in the open wave.
#[derive(Default)]
struct Verdicts<'a> {
    /// The sets to which both agreed, and since when that counts.
    agreed: Vec<(&'a [UnitId], Timestamp)>,
    /// Whose turn has begun.
    begun: BTreeSet<&'a UnitId>,
}

/// The unit that the action takes out of service, or may.
fn stopped_unit(action: &Action) -> Option<&UnitId> {
    match action {
        Action::Visit {
            unit,
            phase: Phase::Enter | Phase::Change,
            ..
        } => Some(unit),
        _ => None,
    }
}

pub(super) fn two_judges(journal: &Journal<'_>) -> (usize, Vec<Breach>) {
    let age = SignedDuration::from_secs(i64::from(journal.start.policy.approval_age));
    // Early builds wrote no ends of approvals.
    let are_told = journal
        .entries
        .iter()
        .any(|entry| matches!(entry.event, Event::Intent { before: Some(_), .. }));
    let mut effects = Effects::default();
    let mut said = Verdicts::default();
    let mut count = 0;
    let mut broken = Vec::new();
    for entry in journal.entries {
        for (action, end) in effects.effects_ended_by(&entry.event).unwrap_or_default() {
            if let Some(unit) = stopped_unit(action).filter(|_| end == EffectEnd::NotBegun) {
                said.begun.remove(unit);
            }
        }
        effects.announced(entry.seq, &entry.event);
        match &entry.event {
            Event::WaveOpened { .. } => said = Verdicts::default(),
            // A successor requests new checks for everything that has not started.
            Event::LeaseTaken { .. } => said.agreed.clear(),
            Event::Judged {
                units,
                ours: Answer::Yes,
                theirs,
                facts,
            } if theirs.agrees() => {
                let since = facts.map_or(entry.at, |facts| facts.min(entry.at));
                said.agreed.push((units, since));
            }
            Event::Intent { action, before } => {
                let late = |from: Timestamp| {
                    before.is_some_and(|before| before > from.saturating_add(age).unwrap_or(before))
                };
                let why = match (action, stopped_unit(action)) {
                    (_, Some(unit)) if said.begun.insert(unit) => {
                        count += 1;
                        let newest = said.agreed.iter().rev().find(|(units, _)| units.contains(unit));
                        match newest {
                            None => Some(format!(
                                "{unit} is taken out of service without the approval of both checks"
                            )),
                            Some(_) if are_told && before.is_none() => {
                                Some(format!("{unit} is taken out of service, whenever that comes"))
                            }
                            Some((_, since)) => late(*since).then(|| {
                                format!("{unit} may be taken out of service after its approval has expired")
                            }),
                        }
                    }
                    (Action::Restart { unit } | Action::GoBack { unit, .. }, _) => {
                        count += 1;
                        late(entry.at)
                            .then(|| format!("{unit} may be stopped after every approval has expired"))
                    }
                    _ => None,
                };
                broken.extend(why.map(|why| Breach { seq: entry.seq, why }));
            }
            _ => {}
        }
    }
    (count, broken)
}
