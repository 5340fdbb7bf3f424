//! Outcomes that an operator confirms, where nothing else can determine them.

use jiff::Timestamp;

use super::event::{Action, Outcome, Seq};
use super::state::State;
use super::visit::OpenWave;
use crate::model::HostName;

impl State {
    /// A host is off: open effects on it have failed. Nothing on it continues, so no fence is needed.
    pub(super) fn apply_off(&mut self, seq: Seq, at: Timestamp, host: HostName, ended: Vec<Seq>, by: &str) {
        let why = format!("{host} is off, as {by} confirmed");
        for intent in ended {
            let unit = self.open.get(&intent).and_then(Action::unit).cloned();
            self.settle_confirmed(seq, at, intent, Outcome::Failed { why: why.clone() });
            // A host that is off says nothing against the release: the other units of its wave stay where
            // they are.
            let goes_on = self.wave.as_ref().is_some_and(OpenWave::is_proceeding);
            let unit = unit.filter(|_| goes_on);
            let prepared = unit.as_ref().is_some_and(|unit| self.prepared.contains_key(unit));
            if let Some(visit) = unit.and_then(|unit| self.visit(&unit)) {
                visit.mark_lost(prepared, &why);
            }
        }
        self.off.insert(host);
        self.held = None;
    }

    /// One effect ended so.
    pub(super) fn apply_confirmation(&mut self, seq: Seq, at: Timestamp, intent: Seq, done: bool, by: &str) {
        let outcome = if done {
            Outcome::Done {
                note: format!("done, as {by} settled it"),
            }
        } else {
            Outcome::Failed {
                why: format!("not done, as {by} settled it"),
            }
        };
        self.settle_confirmed(seq, at, intent, outcome);
        self.held = None;
    }

    /// Settles an effect by confirmation. An effect that is already settled keeps its outcome, since the
    /// confirmation may be late.
    fn settle_confirmed(&mut self, seq: Seq, at: Timestamp, intent: Seq, outcome: Outcome) {
        if self.settle(at, intent, outcome) {
            self.changed = seq;
        }
    }
}
