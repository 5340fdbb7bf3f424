//! A wave that stays unhealthy: the policy's action first, then the rollback of its units.

use jiff::Timestamp;

use super::blame::change_never_reached;
use super::cleanup::hold_and_undrain;
use super::decide::Decision;
use super::event::{Action, Event};
use super::gate::{self, ExpectedUnit};
use super::rollback;
use super::state::State;
use super::visit::{OpenWave, Visit, VisitDirection, WaveFailure};
use super::wave::Waited;
use crate::model::{Code, GoingBack, OnFailure, Reason, Snapshot, StageSpec, UnitId, UnitState};

impl State {
    pub(super) fn on_failure(
        &self,
        now: Timestamp,
        snapshot: &Snapshot,
        stage: &StageSpec,
        wave: &OpenWave,
        failure: &WaveFailure,
    ) -> Decision {
        let WaveFailure { blamed, reason, .. } = failure;
        let all: Vec<UnitId> = wave.units.keys().cloned().collect();
        if self.aborting {
            // A stuck unit may be left by now, and no later step returns to it.
            let stuck = wave
                .units
                .iter()
                .filter(|(_, visit)| visit.is_stuck() && !visit.corrected);
            let stuck: Vec<Action> = stuck.map(|(unit, visit)| wave.leave(unit, visit)).collect();
            if !stuck.is_empty() {
                return Decision::act(stuck);
            }
            return Decision::Record(vec![Event::WaveWentBack]);
        }
        if !failure.collected {
            return Decision::act([Action::Collect { units: all }]);
        }
        // The evidence against the change is checked again before a healthy unit is rolled back.
        if self.going_back.is_none() && !wave.is_rollback() && has_recovered(snapshot, stage, wave) {
            return Decision::Record(vec![Event::WaveRecovered]);
        }
        let is_tried = |unit: &UnitId| {
            wave.units
                .get(unit)
                .is_some_and(|visit| visit.went_back.is_some())
        };
        if !failure.alone
            && self.going_back.is_none()
            && !wave.is_rollback()
            && !blamed.iter().any(is_tried)
            && change_never_reached(snapshot, wave, blamed)
        {
            let (units, reason) = (blamed.clone(), reason.clone());
            return Decision::Record(vec![Event::WaveFailed {
                units,
                reason,
                alone: true,
            }]);
        }
        if wave.is_rollback() {
            return self.hold(Reason::new(Code::RollbackFailed, reason.detail.clone()));
        }
        match self.start.policy.on_failure {
            OnFailure::Stop if self.going_back.is_none() => {
                let detail = format!("{}: {}{}", reason.code, reason.detail, wave.stuck_units_text());
                let reason = Reason::new(Code::WaveFailed, detail);
                let told = self.hold(reason.clone());
                if !matches!(told, Decision::Hold(_)) {
                    return told;
                }
                hold_and_undrain(now, wave, reason)
            }
            OnFailure::Continue if self.going_back.is_none() && !blamed.is_empty() => {
                self.roll_back_units(now, snapshot, stage, wave, blamed)
            }
            // Those that serve on the new release stay where they cannot leave it, and where nothing speaks against it:
            // the fault is not theirs.
            OnFailure::Rollback
                if self.going_back.is_none()
                    && !blamed.is_empty()
                    && (rollback::requires_rebuild(&stage.going_back, &self.start.policy).is_err()
                        || failure.alone) =>
            {
                self.roll_back_units(now, snapshot, stage, wave, blamed)
            }
            OnFailure::Continue | OnFailure::Stop | OnFailure::Rollback => {
                self.roll_back_units(now, snapshot, stage, wave, &all)
            }
        }
    }

    /// Whether the corrective step of that unit is still due.
    ///
    /// The step stops a unit that serves. It cannot help a unit that was rolled back and serves on its
    /// previous release, and a run that is ending does not wait for a permitted moment, which may never come.
    pub(super) fn needs_correction(&self, snapshot: &Snapshot, unit: &UnitId, visit: &Visit) -> bool {
        let serves = || {
            let found = snapshot.find(unit);
            found.is_some_and(|ix| snapshot.unit(ix).state == UnitState::Serving)
        };
        let in_vain = self.aborting || visit.went_back == Some(Ok(()));
        !visit.corrected && (visit.is_stuck() || !(in_vain && serves()))
    }

    /// Brings a wave of the way back there. Where that would wait for a person and one has aborted the run, the wave ends as it is.
    pub(super) fn advance_rollback(
        &self,
        now: Timestamp,
        snapshot: &Snapshot,
        stage: &StageSpec,
        wave: &OpenWave,
        units: &[UnitId],
    ) -> Decision {
        let next = self.roll_back_units(now, snapshot, stage, wave, units);
        let is_held = match &next {
            Decision::Hold(_) => true,
            Decision::Record(events) => matches!(events.as_slice(), [Event::Held { .. }]),
            Decision::Observe
            | Decision::Judge(_)
            | Decision::Act { .. }
            | Decision::Wait { .. }
            | Decision::Over(_) => false,
        };
        if self.aborting && is_held {
            return Decision::Record(vec![Event::WaveWentBack]);
        }
        next
    }

    /// Brings units of the open wave back, then waits for its gates.
    pub(super) fn roll_back_units(
        &self,
        now: Timestamp,
        snapshot: &Snapshot,
        stage: &StageSpec,
        wave: &OpenWave,
        which: &[UnitId],
    ) -> Decision {
        let visits: Vec<(&UnitId, &Visit)> = which
            .iter()
            .filter_map(|unit| wave.units.get(unit).map(|visit| (unit, visit)))
            // What surely is as it was has nowhere to go back to.
            .filter(|(_, visit)| wave.is_rollback() || !visit.is_untouched())
            .collect();
        let fresh: Vec<_> = visits
            .iter()
            .filter(|(_, visit)| visit.went_back.is_none())
            .map(|(unit, visit)| (*unit, *visit, self.rebuild(stage, wave, visit)))
            .collect();
        if !fresh.is_empty() {
            return match rollback_actions(stage, wave, fresh) {
                Ok(fresh) => self.stop_again(now, snapshot, fresh),
                Err(reason) => self.hold(why_it_failed(wave, reason)),
            };
        }
        let stuck: Vec<_> = visits
            .iter()
            .filter_map(|(unit, visit)| match &visit.went_back {
                Some(Err(why)) => Some((*unit, *visit, why)),
                Some(Ok(())) | None => None,
            })
            .collect();
        if !stuck.is_empty() {
            // The old release did not start on the data as it is.
            if needs_rebuild(stage) && stuck.iter().all(|(_, visit, _)| !visit.rebuilt) {
                let how = rollback::requires_rebuild(&stage.going_back, &self.start.policy);
                let again = stuck.iter().map(|(unit, visit, _)| (*unit, *visit, how.clone()));
                return match rollback_actions(stage, wave, again.collect()) {
                    Ok(fresh) => self.stop_again(now, snapshot, fresh),
                    Err(reason) => self.hold(why_it_failed(wave, reason)),
                };
            }
            let text: Vec<_> = stuck
                .iter()
                .map(|(unit, _, why)| format!("{unit}: {why}"))
                .collect();
            return self.hold(Reason::new(Code::RollbackFailed, text.join("; ")));
        }
        let wanted = wave.units.iter().map(|(unit, visit)| {
            let wanted = match wave.way {
                VisitDirection::There if visit.went_back.is_some() => ExpectedUnit::On(&visit.before),
                VisitDirection::There if visit.is_untouched() => ExpectedUnit::Serving,
                VisitDirection::There | VisitDirection::Back => ExpectedUnit::On(&stage.revision),
            };
            (unit, wanted)
        });
        let missing = gate::not_serving(wanted, snapshot);
        match self.gates_after(now, snapshot, stage, wave, &missing) {
            Waited::Not(decision) => decision,
            Waited::Open => self.finish_rolled_back(wave),
            Waited::TooLong(reason) if wave.is_rollback() || self.going_back.is_some() => {
                self.hold(Reason::new(Code::RollbackFailed, reason.detail))
            }
            // Its start was reported as done, and it does not serve: that is a start that failed.
            Waited::TooLong(_) if needs_rebuild(stage) && not_rebuilt(wave, &missing) => {
                let how = rollback::requires_rebuild(&stage.going_back, &self.start.policy);
                let again = missing
                    .iter()
                    .filter_map(|(unit, _)| Some((unit, wave.units.get(unit)?, how.clone())));
                match rollback_actions(stage, wave, again.collect()) {
                    Ok(fresh) => self.stop_again(now, snapshot, fresh),
                    Err(reason) => self.hold(why_it_failed(wave, reason)),
                }
            }
            // It is back and serves: what still shuts the gates is not of the change.
            Waited::TooLong(reason) if missing.is_empty() => self.hold_for_gates(&reason),
            // Nothing was to go back: who is to blame is as it was, and down.
            Waited::TooLong(reason) if wave.units.values().all(|visit| visit.went_back.is_none()) => {
                self.hold(Reason::new(Code::WaveFailed, reason.detail))
            }
            Waited::TooLong(reason) => self.hold(Reason::new(Code::RollbackFailed, reason.detail)),
        }
    }

    /// Whether the rollback of a unit starts with a rebuild of its data.
    ///
    /// A unit that failed to start on the new release may never have opened its data. The old release is
    /// tried on that data first, which does no harm where it cannot read it.
    fn rebuild(&self, stage: &StageSpec, wave: &OpenWave, visit: &Visit) -> Result<bool, Reason> {
        if !wave.is_rollback() && visit.failed().is_some() && !visit.rebuilt && needs_rebuild(stage) {
            return Ok(false);
        }
        rollback::requires_rebuild(&stage.going_back, &self.start.policy)
    }

    /// The wave is back and healthy there.
    fn finish_rolled_back(&self, wave: &OpenWave) -> Decision {
        let mut events = vec![Event::WaveWentBack];
        if let Some(WaveFailure { blamed, reason, .. }) = wave.failure().filter(|_| !wave.is_rollback())
            && self.start.policy.on_failure == OnFailure::Continue
        {
            let all: Vec<UnitId> = wave.units.keys().cloned().collect();
            let blamed = if blamed.is_empty() { &all } else { blamed };
            events.extend(blamed.iter().map(|unit| Event::SetAside {
                unit: unit.clone(),
                reason: Reason::new(Code::WentBack, reason.detail.clone()),
                until: None,
            }));
        }
        Decision::Record(events)
    }
}

/// Whether every unit of a wave that has failed serves on the target after all, and nothing of it went back yet.
fn has_recovered(snapshot: &Snapshot, stage: &StageSpec, wave: &OpenWave) -> bool {
    let wanted = wave
        .units
        .iter()
        .map(|(unit, visit)| (unit, visit.expected(stage)));
    wave.units.values().all(|visit| visit.went_back.is_none())
        && gate::not_serving(wanted, snapshot).is_empty()
}

/// Why a wave cannot go back, after why it should.
fn why_it_failed(wave: &OpenWave, cannot: Reason) -> Reason {
    match wave.failure() {
        Some(failure) => Reason::new(cannot.code, format!("{}; {}", failure.reason, cannot.detail)),
        None => cannot,
    }
}

fn needs_rebuild(stage: &StageSpec) -> bool {
    matches!(stage.going_back, GoingBack::Rebuild { .. })
}

/// Whether some of these were rolled back, and none of those by a rebuild.
fn not_rebuilt(wave: &OpenWave, missing: &[(UnitId, String)]) -> bool {
    let visits: Vec<_> = missing
        .iter()
        .filter_map(|(unit, _)| wave.units.get(unit))
        .collect();
    !visits.is_empty()
        && visits
            .iter()
            .all(|visit| visit.went_back.is_some() && !visit.rebuilt)
}

/// The actions that bring these units back.
///
/// # Errors
/// Why one of them cannot go back.
fn rollback_actions(
    stage: &StageSpec,
    wave: &OpenWave,
    units: Vec<(&UnitId, &Visit, Result<bool, Reason>)>,
) -> Result<Vec<Action>, Reason> {
    units
        .into_iter()
        .map(|(unit, visit, rebuild)| {
            Ok(Action::GoBack {
                unit: unit.clone(),
                // On the way there, what it ran before; on the way back, what the stage leads to.
                revision: if wave.is_rollback() {
                    stage.revision.clone()
                } else {
                    visit.before.clone()
                },
                rebuild: rebuild?,
            })
        })
        .collect()
}
