//! Continuous waves of units without guests: while a wave waits for its last units to come up, others join
//! it.
//!
//! Units that serve then leave the wave: they have passed, as all gates would be open if the others were up.
//! Units that are not up yet stay in the wave, with its usual timeout. After that no unit joins until they
//! are up, and the wave fails with them. So a rollback never covers more than the units that joined together.
//!
//! A joining unit has a full visit: software installed, guards, and both checks on a current observation.

use jiff::{SignedDuration, Timestamp};

use super::decide::Decision;
use super::event::Event;
use super::gate::{self, UNITS_SERVING};
use super::join::{end_of, first_wave};
use super::state::State;
use super::visit::{OpenWave, VisitState};
use crate::model::{Snapshot, StageSpec, UnitId, UnitState};

/// Who of a wave has had its turn and serves, and who is not up yet.
pub(super) struct Parted<'a> {
    up: Vec<&'a UnitId>,
    pub(super) late: Vec<&'a UnitId>,
}

impl State {
    /// Both, where a wave need not wait for its last; `None`: it has to, or there is only one of the two.
    pub(super) fn split_wave<'a>(
        &self,
        snapshot: &Snapshot,
        stage: &StageSpec,
        wave: &'a OpenWave,
    ) -> Option<Parted<'a>> {
        let is_asked = self.paused || self.aborting || self.going_back.is_some() || self.held.is_some();
        if self.start.policy.barrier || stage.maintenance.is_some() || is_asked || !wave.is_proceeding() {
            return None;
        }
        let (mut up, mut late) = (Vec::new(), Vec::new());
        for (id, visit) in &wave.units {
            let unit = snapshot.unit(snapshot.find(id)?);
            let is_done = visit.state == VisitState::Done;
            match unit.state {
                UnitState::Down if is_done => late.push(id),
                UnitState::Serving if is_done && unit.revision.as_ref() == Some(&stage.revision) => {
                    up.push(id);
                }
                UnitState::Down | UnitState::Serving | UnitState::Unknown => return None,
            }
        }
        (!up.is_empty() && !late.is_empty()).then_some(Parted { up, late })
    }

    /// The next step to let units join while the last of the wave are waited for; `None`: none joins now.
    pub(super) fn join_in_wait(
        &self,
        now: Timestamp,
        snapshot: &Snapshot,
        stage: &StageSpec,
        wave: &OpenWave,
        closing: bool,
    ) -> Option<Decision> {
        let Parted { up, late } = self.split_wave(snapshot, stage, wave).filter(|_| !closing)?;
        let (gates, waiting) = self.gates.as_ref().zip(wave.waiting)?;
        // As last reported, and still the case: only the late units keep gates shut.
        let told = gates.shut.iter().all(|(name, _)| name.as_str() == UNITS_SERVING);
        let earned = self.earned.get(&wave.stage).copied().unwrap_or(0);
        if !told || earned == 0 || !gate::closed_gates_without(&stage.gates, snapshot, &late).is_empty() {
            return None;
        }
        let longest = |of: fn(&crate::model::Gate) -> SignedDuration| stage.gates.iter().map(of).max();
        let held = longest(|gate| gate.hold).unwrap_or_default();
        let held = held.max(self.start.policy.soak_after(false));
        let timeout = longest(|gate| gate.timeout).unwrap_or_default();
        let after = |from: Timestamp, time| from.saturating_add(time).unwrap_or(Timestamp::MAX);
        let is_overdue = |unit: &&&UnitId| {
            let visit = wave.units.get(**unit);
            let since = visit
                .and_then(|visit| visit.overdue_since)
                .unwrap_or(waiting.since);
            after(since, timeout) <= now
        };
        if snapshot.observed_at() < after(gates.since, held) || late.iter().any(|unit| is_overdue(&unit)) {
            return None;
        }
        let plan = self.next_of(snapshot, stage, wave)?;
        let first = first_wave(&plan, wave)?;
        if !self.may_run(now, end_of(now, first)) || self.may_stop(snapshot, &first.units).is_err() {
            return None;
        }
        let units = first.units.iter().map(|id| {
            let unit = snapshot.unit(snapshot.find(id)?);
            Some((id.clone(), unit.revision.clone()?))
        });
        let joined = Event::WaveJoined {
            units: units.collect::<Option<_>>()?,
            passed: up.into_iter().cloned().collect(),
        };
        Some(Decision::Record(vec![
            Event::Planned { plan: Box::new(plan) },
            joined,
        ]))
    }
}
