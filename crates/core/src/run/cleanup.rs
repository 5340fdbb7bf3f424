//! Who drains gives back (law 8): what a visit of this run keeps out of service, and no wave has in hand, is left again. It is
//! planned like any other then.
//!
//! Such a unit is one whose host was off when its wave ended and answers again, or one that was entered by what the journal has
//! lost: of that its own note tells. In a wave that has failed it is one that could be neither entered nor left.

use jiff::Timestamp;

use super::decide::Decision;
use super::event::Action;
use super::state::State;
use super::visit::{OpenWave, UndrainRetry};
use crate::model::{Code, Phase, Reason, Snapshot, Unit};

impl State {
    /// Undrains what this run keeps drained; `None`: nothing is, or the last attempt failed just now.
    pub(super) fn undrain_units(&self, now: Timestamp, snapshot: &Snapshot) -> Option<Decision> {
        let due = self
            .drained_units(snapshot)
            .filter(|(_, tried)| tried.is_none_or(|tried| tried.again <= now));
        let leave = due.filter_map(|(unit, _)| {
            Some(Action::Visit {
                unit: unit.id.clone(),
                phase: Phase::Leave,
                revision: unit.revision.clone()?,
                moves: Vec::new(),
            })
        });
        let leave: Vec<Action> = leave.collect();
        (!leave.is_empty()).then(|| Decision::act(leave))
    }

    /// Waits until that may be tried again: before it, no run ends.
    pub(super) fn wait_to_undrain(&self, snapshot: &Snapshot) -> Option<Decision> {
        let (unit, tried) = self
            .drained_units(snapshot)
            .filter_map(|(unit, tried)| Some((unit, tried?)))
            .min_by_key(|(_, tried)| tried.again)?;
        let why = format!("{} is drained; undraining it is retried", unit.id);
        Some(Decision::Wait {
            until: Some(tried.again),
            why: Reason::new(Code::UnitsSetAside, why),
        })
    }

    /// The units that this run keeps drained, with their failed undrain attempts.
    fn drained_units<'a>(
        &'a self,
        snapshot: &'a Snapshot,
    ) -> impl Iterator<Item = (&'a Unit, Option<&'a UndrainRetry>)> {
        snapshot
            .drained()
            .iter()
            .filter(|drained| {
                drained.by.as_ref() == Some(&self.start.run)
                    || (drained.by.is_none() && self.owed.contains(&drained.unit))
            })
            .filter_map(|drained| {
                let unit = snapshot.unit(snapshot.find(&drained.unit)?);
                let tried = self.giving_back.get(&unit.id);
                let is_left = tried.is_none_or(|tried| tried.tries < self.start.policy.retry.tries);
                (is_left && unit.revision.is_some()).then_some((unit, tried))
            })
    }

    /// What came of leaving a unit that no wave has in hand.
    pub(super) fn apply_undrain(&mut self, at: Timestamp, unit: crate::model::UnitId, failed: bool) {
        if failed {
            let tried = self.giving_back.entry(unit).or_default();
            tried.record_failed_attempt(at, self.start.policy.retry);
        } else {
            self.owed.remove(&unit);
            self.giving_back.remove(&unit);
        }
        self.plan_is_fresh = false;
    }
}

/// While a person is waited for since the wave has failed: what could be neither entered nor left is left as soon as it
/// answers, however long that takes.
pub(super) fn hold_and_undrain(now: Timestamp, wave: &OpenWave, reason: Reason) -> Decision {
    let stuck = wave.units.iter().filter(|(_, visit)| visit.is_stuck());
    let due = stuck.clone().filter(|(_, visit)| visit.giving_back.again <= now);
    let due: Vec<Action> = due.map(|(unit, visit)| wave.leave(unit, visit)).collect();
    if !due.is_empty() {
        return Decision::act(due);
    }
    match stuck.map(|(_, visit)| visit.giving_back.again).min() {
        Some(again) => Decision::Wait {
            until: Some(again),
            why: reason,
        },
        None => Decision::Hold(reason),
    }
}
