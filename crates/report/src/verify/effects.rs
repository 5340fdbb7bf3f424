//! Effects: each announced, then ended.

use std::collections::BTreeMap;

use stagger_core::model::Phase;
use stagger_core::run::{Action, Command, Event, Outcome, Seq};

use super::{Breach, Journal};

/// How an effect ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EffectEnd {
    /// It was done.
    Done,
    /// It was not, or a person says so.
    Failed,
    /// Nothing of it was begun.
    NotBegun,
}

/// What events say of effects, one after another.
#[derive(Default)]
pub(super) struct Effects<'a> {
    open: BTreeMap<Seq, &'a Action>,
}

impl<'a> Effects<'a> {
    /// The effects that end with this event; `Err`: why that cannot be.
    pub(super) fn effects_ended_by(
        &mut self,
        event: &'a Event,
    ) -> Result<Vec<(&'a Action, EffectEnd)>, String> {
        let ended: Vec<(Seq, EffectEnd)> = match event {
            Event::Settled { intent, outcome } => {
                let end = match outcome {
                    Outcome::Done { .. } => EffectEnd::Done,
                    Outcome::Failed { .. } => EffectEnd::Failed,
                    Outcome::NotBegun { .. } => EffectEnd::NotBegun,
                };
                if !self.open.contains_key(intent) {
                    return Err(format!("effect {intent} was not announced, or has ended before"));
                }
                vec![(*intent, end)]
            }
            Event::Asked {
                command: Command::Settle { intent, done },
                ..
            } => vec![(*intent, if *done { EffectEnd::Done } else { EffectEnd::Failed })],
            Event::Asked {
                command: Command::Confirm { ended, .. },
                ..
            } => ended.iter().map(|intent| (*intent, EffectEnd::Failed)).collect(),
            // The outcome of an open enter is unknown: the unit is left, whatever it is.
            Event::JournalBehind => {
                let entered = self.open.iter().filter(|(_, action)| enters(action));
                entered.map(|(intent, _)| (*intent, EffectEnd::Failed)).collect()
            }
            _ => Vec::new(),
        };
        // An operator may confirm an effect that has ended in the meantime.
        let ended = ended.into_iter();
        Ok(ended
            .filter_map(|(intent, end)| Some((self.open.remove(&intent)?, end)))
            .collect())
    }

    /// The effects that this event announces.
    pub(super) fn announced(&mut self, seq: Seq, event: &'a Event) -> Option<&'a Action> {
        let Event::Intent { action, .. } = event else {
            return None;
        };
        self.open.insert(seq, action);
        Some(action)
    }
}

fn enters(action: &Action) -> bool {
    matches!(
        action,
        Action::Visit {
            phase: Phase::Enter,
            ..
        }
    )
}

pub(super) fn journal_first(journal: &Journal<'_>) -> (usize, Vec<Breach>) {
    let mut effects = Effects::default();
    let mut count = 0;
    let mut broken = Vec::new();
    for entry in journal.entries {
        let seq = entry.seq;
        if let Err(why) = effects.effects_ended_by(&entry.event) {
            broken.push(Breach { seq, why });
        }
        count += usize::from(effects.announced(seq, &entry.event).is_some());
        if matches!(entry.event, Event::Ended { .. }) && !effects.open.is_empty() {
            let open: Vec<String> = effects.open.keys().map(ToString::to_string).collect();
            let why = format!("the run ends, and effects {} have no outcome", open.join(" "));
            broken.push(Breach { seq, why });
        }
    }
    (count, broken)
}
