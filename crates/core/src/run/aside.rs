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
}
