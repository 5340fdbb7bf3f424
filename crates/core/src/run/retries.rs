//! Units that are set aside: how often each was tried, and when it is tried again.

use jiff::Timestamp;

use super::event::Event;
use super::state::State;
use crate::model::{Code, Reason, UnitId};

impl State {
    /// It is tried again when policy says so.
    pub(super) fn set_aside(&self, now: Timestamp, unit: &UnitId, reason: Reason) -> Event {
        let tries = self.tries_before(unit, &reason);
        Event::SetAside {
            unit: unit.clone(),
            reason,
            until: self.start.policy.retry.after(now, tries),
        }
    }

    /// How often it was tried in vain before it is set aside for that reason. That its host was off is no try of it: once
    /// that is back, it has all of them.
    pub(super) fn tries_before(&self, unit: &UnitId, reason: &Reason) -> u32 {
        let tried = self.aside.get(unit).filter(|_| reason.code != Code::HostOff);
        tried.map_or(0, |aside| aside.tries)
    }

    /// A unit was changed, or another process has taken over. What the oracle refused before, it refused in a world that is no
    /// more: those units have one turn more before the run ends without them. Each such turn takes a change or a process, so
    /// there is an end to it.
    pub(super) fn refusals_are_old(&mut self) {
        let tries = self.start.policy.retry.tries;
        let all = self.aside.values_mut();
        for aside in all.filter(|aside| aside.reason.code == Code::OracleSaysNo) {
            aside.tries = aside.tries.min(tries);
        }
    }
}
