//! The consequences of a settled effect.

use jiff::Timestamp;

use super::event::{Action, Outcome};
use super::state::{SettledStep, State, TakenGuard};
use super::visit::{OpenWave, WavePhase};
use crate::model::Phase;

impl State {
    /// What both judges had said of it was too old: it is as if it had not been announced.
    fn apply_not_begun(&mut self, action: &Action) {
        self.judged = None;
        let Action::Visit { unit, phase, .. } = action else {
            return;
        };
        if let Some(visit) = self.visit(unit)
            && *phase > Phase::Prepare
        {
            visit.mark_not_begun();
        }
    }

    pub(super) fn apply_settled(&mut self, at: Timestamp, action: Action, outcome: Outcome) {
        let failed = match outcome {
            Outcome::Done { .. } => None,
            Outcome::Failed { why } => Some(why),
            Outcome::NotBegun { .. } => return self.apply_not_begun(&action),
        };
        match action {
            Action::TakeGuard {
                guard,
                units,
                expires,
            } => {
                let taken = self.guards.entry((guard, units)).or_insert(TakenGuard {
                    until: at,
                    failed: None,
                    tried: None,
                    drops: 0,
                });
                taken.drops = 0;
                taken.tried = failed.is_some().then_some(at);
                // A failed renewal leaves the guard as it was. A guard that could not be taken may have been
                // taken in fact: it is cleared.
                let is_held = taken.failed.is_none() && at < taken.until;
                if failed.is_none() || !is_held {
                    taken.until = at
                        .checked_add(jiff::SignedDuration::from_secs(i64::from(expires)))
                        .unwrap_or(at);
                    taken.failed = failed;
                }
            }
            Action::DropGuard { guard, units } => {
                let key = (guard, units);
                if failed.is_none() {
                    self.guards.remove(&key);
                } else if let Some(taken) = self.guards.get_mut(&key) {
                    taken.drops += 1;
                }
            }
            Action::Visit {
                unit,
                phase,
                revision,
                ..
            } => {
                if phase == Phase::Prepare && failed.is_none() {
                    self.prepared.insert(unit.clone(), revision);
                }
                if let Some(OpenWave {
                    phase: WavePhase::Agreed { in_vain },
                    ..
                }) = self.wave.as_mut().filter(|_| phase > Phase::Prepare)
                {
                    *in_vain = 0;
                }
                let is_last = self.is_last(phase);
                let retry = self.start.policy.retry;
                if self.wave.is_none() && phase == Phase::Leave {
                    self.apply_undrain(at, unit, failed.is_some());
                } else if let Some(visit) = self.visit(&unit) {
                    visit.settle_phase(phase, is_last, failed);
                    if visit.is_stuck() {
                        visit.giving_back.record_failed_attempt(at, retry);
                    }
                }
            }
            Action::Restart { unit } => {
                if let Some(visit) = self.visit(&unit) {
                    visit.restarted(failed);
                }
                if let Some(wave) = &mut self.wave {
                    wave.waiting = None;
                }
                self.gates = None;
            }
            Action::GoBack { unit, rebuild, .. } => {
                if let Some(visit) = self.visit(&unit) {
                    visit.went_back = Some(failed.map_or(Ok(()), Err));
                    visit.rebuilt |= rebuild;
                }
                if let Some(wave) = &mut self.wave {
                    wave.waiting = None;
                }
                self.gates = None;
            }
            Action::Step { step } => {
                self.step = Some(SettledStep { step, failed, at });
            }
            Action::Collect { .. } => {
                if let Some(OpenWave {
                    phase: WavePhase::Failed(failure),
                    ..
                }) = &mut self.wave
                {
                    failure.collected = true;
                }
            }
        }
    }
}
