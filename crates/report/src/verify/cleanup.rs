//! What was taken is given back.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use stagger_core::model::{GuardName, Phase, UnitId};
use stagger_core::run::{Action, Event};

use super::effects::{EffectEnd, Effects};
use super::{Breach, Journal};

/// A guard that was taken.
struct GuardSpan {
    /// When it goes by itself.
    until: Timestamp,
    /// Giving it back was tried.
    tried: bool,
}

pub(super) fn guards_cleared(journal: &Journal<'_>) -> (usize, Vec<Breach>) {
    let mut effects = Effects::default();
    let mut guards: BTreeMap<(&GuardName, &[UnitId]), GuardSpan> = BTreeMap::new();
    // Who was entered, and whether it was tried to leave it.
    let mut entered: BTreeMap<&UnitId, bool> = BTreeMap::new();
    let mut count = 0;
    let mut broken = Vec::new();
    for entry in journal.entries {
        for (action, end) in effects.effects_ended_by(&entry.event).unwrap_or_default() {
            match (action, end) {
                (
                    Action::TakeGuard {
                        guard,
                        units,
                        expires,
                    },
                    EffectEnd::Done,
                ) => {
                    count += 1;
                    let expires = SignedDuration::from_secs(i64::from(*expires));
                    let until = entry.at.saturating_add(expires).unwrap_or(Timestamp::MAX);
                    guards.insert((guard, units), GuardSpan { until, tried: false });
                }
                (Action::DropGuard { guard, units }, EffectEnd::Done) => {
                    guards.remove(&(guard, units.as_slice()));
                }
                (Action::DropGuard { guard, units }, _) => {
                    if let Some(taken) = guards.get_mut(&(guard, units.as_slice())) {
                        taken.tried = true;
                    }
                }
                (
                    Action::Visit {
                        unit,
                        phase: Phase::Enter,
                        ..
                    },
                    EffectEnd::Done,
                ) => {
                    count += 1;
                    entered.insert(unit, false);
                }
                (
                    Action::Visit {
                        unit,
                        phase: Phase::Leave,
                        ..
                    }
                    | Action::Restart { unit }
                    | Action::GoBack { unit, .. },
                    EffectEnd::Done,
                ) => {
                    // Who is started once more or goes back is in service then.
                    entered.remove(unit);
                }
                (
                    Action::Visit {
                        unit,
                        phase: Phase::Leave,
                        ..
                    }
                    | Action::Restart { unit }
                    | Action::GoBack { unit, .. },
                    EffectEnd::Failed,
                ) => {
                    if let Some(tried) = entered.get_mut(unit) {
                        *tried = true;
                    }
                }
                _ => {}
            }
        }
        effects.announced(entry.seq, &entry.event);
        if matches!(entry.event, Event::Ended { .. }) {
            let seq = entry.seq;
            for ((guard, _), taken) in &guards {
                // What could not be given back goes by itself.
                if !taken.tried && entry.at < taken.until {
                    let why = format!("the run ends with {guard} not cleared");
                    broken.push(Breach { seq, why });
                }
            }
            for (unit, tried) in &entered {
                if !tried {
                    let why = format!("the run ends with {unit} entered and not left");
                    broken.push(Breach { seq, why });
                }
            }
        }
    }
    (count, broken)
}
