//! Units that are set aside: their failed attempts, and when they are retried.

use jiff::Timestamp;

use super::event::Event;
use super::state::State;
use crate::model::{Code, Reason, UnitId};

impl State {
    /// It is tried again when policy says so.
    pub(super) fn set_aside(&self, now: Timestamp, unit: &UnitId, reason: Reason) -> Event {
        let tries = self.attempts_before(unit, &reason);
        Event::SetAside {
            unit: unit.clone(),
            reason,
            until: self.start.policy.retry.after(now, tries),
        }
    }

    /// The number of failed attempts before the unit is set aside for that reason. An attempt while its host
    /// was off does not count.
    pub(super) fn attempts_before(&self, unit: &UnitId, reason: &Reason) -> u32 {
        let tried = self.aside.get(unit).filter(|_| reason.code != Code::HostOff);
        tried.map_or(0, |aside| aside.tries)
    }

    /// A unit was changed, or another process has taken over. Earlier refusals of the oracle referred to a
    /// state that has passed: those units get one more attempt before the run ends without them. Each such
    /// attempt takes a change or a new process, so it cannot repeat for ever.
    pub(super) fn refusals_are_old(&mut self) {
        let tries = self.start.policy.retry.tries;
        let all = self.aside.values_mut();
        for aside in all.filter(|aside| aside.reason.code == Code::OracleSaysNo) {
            aside.tries = aside.tries.min(tries);
        }
    }
}
