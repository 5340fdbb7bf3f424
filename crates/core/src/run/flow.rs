//! Without barriers, for units that carry nothing: while a wave waits for the last of its units to be up, others join it.
//!
//! Those that serve leave the wave then: they have passed, as all gates would be open if the others were up. Whoever is not up
//! yet stays in it and is waited for as long as in any wave; after that nobody joins until it is up, and the wave fails
//! with it. So what goes back with it is never more than has joined beside it.
//!
//! Who joins has a turn like any other: software laid out, guards, both judges on the world as it is then.

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
    pub(super) fn parted<'a>(
        &self,
        snapshot: &Snapshot,
        stage: &StageSpec,
        wave: &'a OpenWave,
    ) -> Option<Parted<'a>> {
        let is_asked = self.paused || self.aborting || self.going_back.is_some() || self.held.is_some();
        if self.start.policy.barrier || stage.maintenance.is_some() || is_asked || !wave.goes_on() {
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

    /// What comes next so that more units join while the last of the wave are waited for; `None`: nobody does now.
    pub(super) fn join_in_wait(
        &self,
        now: Timestamp,
        snapshot: &Snapshot,
        stage: &StageSpec,
        wave: &OpenWave,
        closing: bool,
    ) -> Option<Decision> {
        let Parted { up, late } = self.parted(snapshot, stage, wave).filter(|_| !closing)?;
        let (gates, waiting) = self.gates.as_ref().zip(wave.waiting)?;
        // As it was told last, and still is: nothing but those that are late keeps any gate shut.
        let told = gates.shut.iter().all(|(name, _)| name.as_str() == UNITS_SERVING);
        let earned = self.earned.get(&wave.stage).copied().unwrap_or(0);
        if !told || earned == 0 || !gate::shut_but_for(&stage.gates, snapshot, &late).is_empty() {
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
