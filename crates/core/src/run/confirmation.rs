//! What a person's word settles: how an effect ended of which nobody else can tell.

use jiff::Timestamp;

use super::event::{Action, Outcome, Seq};
use super::state::State;
use super::visit::OpenWave;
use crate::model::HostName;

impl State {
    /// A host is off: what was open on it has failed. Nothing goes on there, so no fence is needed either.
    pub(super) fn apply_off(&mut self, seq: Seq, at: Timestamp, host: HostName, ended: Vec<Seq>, by: &str) {
        let why = format!("{host} is off, as {by} confirmed");
        for intent in ended {
            let unit = self.open.get(&intent).and_then(Action::unit).cloned();
            self.settle_by_word(seq, at, intent, Outcome::Failed { why: why.clone() });
            // That its host is off speaks against nobody's release: the others of its wave stay where they are.
            let goes_on = self.wave.as_ref().is_some_and(OpenWave::goes_on);
            let unit = unit.filter(|_| goes_on);
            let prepared = unit.as_ref().is_some_and(|unit| self.prepared.contains_key(unit));
            if let Some(visit) = unit.and_then(|unit| self.visit(&unit)) {
                visit.is_lost(prepared, &why);
            }
        }
        self.off.insert(host);
        self.held = None;
    }

    /// One effect ended so.
    pub(super) fn apply_word(&mut self, seq: Seq, at: Timestamp, intent: Seq, done: bool, by: &str) {
        let outcome = if done {
            Outcome::Done {
                note: format!("done, as {by} settled it"),
            }
        } else {
            Outcome::Failed {
                why: format!("not done, as {by} settled it"),
            }
        };
        self.settle_by_word(seq, at, intent, outcome);
        self.held = None;
    }

    /// What was settled meanwhile stays so: the word may come late.
    fn settle_by_word(&mut self, seq: Seq, at: Timestamp, intent: Seq, outcome: Outcome) {
        if self.settle(at, intent, outcome) {
            self.changed = seq;
        }
    }
}
