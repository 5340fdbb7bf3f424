//! An open wave: guards, both checks, visits, gates.

use jiff::{SignedDuration, Timestamp};

use super::approval::next_phase;
use super::blame::fails;
use super::decide::Decision;
use super::event::{Action, Answer, Effect, Event};
use super::gate;
use super::join::at_home;
use super::state::{SetVerdicts, State};
use super::visit::{OpenWave, Visit, VisitState};
use crate::model::{Code, Ix, Phase, Reason, Snapshot, StageSpec, UnitId, UnitState};
use crate::plan::Move;

/// How often the wait for gates is prolonged because what shuts them changed: recovery makes progress.
const PROLONGED: u32 = 3;

/// The wait before the oracle is asked again after an unknown answer.
const ASK_AGAIN: SignedDuration = SignedDuration::from_secs(2);

impl State {
    /// Why a wave of which nothing was begun should not begin.
    pub(super) fn stops_before(&self, wave: &OpenWave, closing: bool) -> Option<Decision> {
        let why = if wave.is_begun() {
            return None;
        } else if self.aborting {
            "the run is aborted"
        } else if self.paused {
            "the run is paused"
        } else if self.going_back.is_some() && !wave.is_rollback() {
            "the run rolls back"
        } else if closing {
            "its process stops"
        } else {
            return None;
        };
        let reason = Reason::new(
            Code::AskedToStop,
            format!("{why}, and none of the wave was started"),
        );
        Some(Decision::Record(vec![Event::WaveDropped { reason }]))
    }

    /// What comes next in the open wave.
    pub(super) fn in_wave(
        &self,
        now: Timestamp,
        snapshot: &Snapshot,
        wave: &OpenWave,
        closing: bool,
    ) -> Decision {
        let Some(stage) = self.stage(&wave.stage) else {
            return self.hold(Reason::new(
                Code::JournalUnreadable,
                format!("there is no stage {}", wave.stage),
            ));
        };
        if let Some(decision) = self.prepare(now, &stage, wave) {
            return decision;
        }
        let units: Vec<UnitId> = wave.units.keys().cloned().collect();
        let guards = self.missing_guards(now, &stage.guards, &units);
        // Once a unit of the wave has started, only a renewal can fail: entered units are left in any case,
        // and the guard ends at its expiry.
        if !wave.is_begun()
            && let Some(why) = self.guard_failed(&stage)
        {
            let reason = Reason::new(Code::GuardFailed, why);
            return Decision::Record(vec![
                Event::WaveDropped {
                    reason: reason.clone(),
                },
                Event::Held { reason },
            ]);
        }
        if !guards.is_empty() {
            return Decision::act(guards);
        }
        let is_agreed = wave.is_agreed()
            && (wave.is_begun() || wave.is_rollback() || self.units_to_reapprove(now, wave).is_empty());
        if !is_agreed {
            return self
                .drop_for_gates(snapshot, &stage, wave)
                .or_else(|| self.hold_for_stale_approvals(wave))
                .unwrap_or_else(|| self.ask_judges(now, snapshot, &units));
        }
        if let Some(failure) = wave.failure() {
            return self.on_failure(now, snapshot, &stage, wave, failure);
        }
        if wave.is_rollback() {
            return self.advance_rollback(now, snapshot, &stage, wave, &units);
        }
        let fresh = self.next_phases(now);
        if !fresh.is_empty() {
            return Decision::Act {
                fresh,
                again: Vec::new(),
            };
        }
        if let Some(decision) = self.ask_about_rest(now, snapshot, wave, closing) {
            return decision;
        }
        self.after_visits(now, snapshot, &stage, wave, closing)
    }

    /// The software that must be installed before the checks; `None`: all is.
    ///
    /// A unit whose installation fails has not changed: it is set aside without a restart.
    fn prepare(&self, now: Timestamp, stage: &StageSpec, wave: &OpenWave) -> Option<Decision> {
        if wave.is_begun() || wave.is_rollback() {
            return None;
        }
        let fresh: Vec<Action> = wave
            .units
            .iter()
            .filter(|(_, visit)| visit.may_announce(Phase::Prepare))
            .filter(|(_, visit)| next_phase(stage, visit.last_done()) == Some(Phase::Prepare))
            .map(|(unit, _)| Action::Visit {
                unit: unit.clone(),
                phase: Phase::Prepare,
                revision: stage.revision.clone(),
                moves: Vec::new(),
            })
            .collect();
        if !fresh.is_empty() {
            return Some(Decision::act(fresh));
        }
        let failed: Vec<(&UnitId, &String)> = wave
            .units
            .iter()
            .filter_map(|(unit, visit)| {
                let VisitState::Unprepared { why } = &visit.state else {
                    return None;
                };
                Some((unit, why))
            })
            .collect();
        if failed.is_empty() {
            return None;
        }
        let text: Vec<_> = failed
            .iter()
            .map(|(unit, why)| format!("{unit}: {why}"))
            .collect();
        let dropped = Event::WaveDropped {
            reason: Reason::new(Code::CouldNotBePrepared, text.join("; ")),
        };
        let aside = failed.into_iter().map(|(unit, why)| {
            let reason = Reason::new(Code::CouldNotBePrepared, why.clone());
            self.set_aside(now, unit, reason)
        });
        Some(Decision::Record(std::iter::once(dropped).chain(aside).collect()))
    }

    /// The gates of a wave were open when it was opened. Where one has shut while it was prepared, it is not begun.
    fn drop_for_gates(&self, snapshot: &Snapshot, stage: &StageSpec, wave: &OpenWave) -> Option<Decision> {
        // An unhealthy cluster is no reason against a rollback.
        if wave.is_rollback() || self.going_back.is_some() {
            return None;
        }
        let shut = gate::closed_gates(&stage.gates, snapshot);
        let text: Vec<_> = shut.iter().map(|(name, why)| format!("{name}: {why}")).collect();
        (!shut.is_empty()).then(|| {
            let reason = Reason::new(Code::GatesShut, text.join("; "));
            Decision::Record(vec![Event::WaveDropped { reason }])
        })
    }

    fn guard_failed(&self, stage: &StageSpec) -> Option<String> {
        let failed = self.guards.iter().find_map(|((guard, _), taken)| {
            let ours = stage.guards.iter().any(|spec| spec.name == *guard);
            taken
                .failed
                .as_ref()
                .filter(|_| ours)
                .map(|why| format!("{guard}: {why}"))
        });
        // An operator who resumes has looked into it: `apply_command` clears the hold, and it is tried again.
        failed.filter(|_| {
            self.held
                .as_ref()
                .is_none_or(|(held, _)| held.code != Code::GuardFailed)
        })
    }

    /// Law 4: a wave starts only if our own check on fresh facts and the system's own oracle agree.
    fn ask_judges(&self, now: Timestamp, snapshot: &Snapshot, units: &[UnitId]) -> Decision {
        let drop = |code: Code, why: &str| Event::WaveDropped {
            reason: Reason::new(code, why),
        };
        if let Err(why) = self.may_stop(snapshot, units) {
            return Decision::Record(vec![drop(Code::WorldHasMoved, &why)]);
        }
        let Some(judged) = &self.judged else {
            return Decision::Judge(vec![units.to_vec()]);
        };
        let Some(said) = judged.answers.get(units) else {
            return Decision::Judge(vec![units.to_vec()]);
        };
        match &said.theirs {
            Answer::Yes | Answer::NoOracle | Answer::Overridden { .. } => {
                Decision::Judge(vec![units.to_vec()])
            }
            Answer::Unknown { why } => {
                let until = judged.at.saturating_add(ASK_AGAIN).unwrap_or(now);
                if now < until {
                    let why = Reason::new(Code::OracleUnknown, why.clone());
                    return Decision::Wait {
                        until: Some(until),
                        why,
                    };
                }
                let opened = self.wave.as_ref().map_or(now, |wave| wave.opened);
                let timeout = SignedDuration::from_secs(i64::from(self.start.policy.gate_timeout));
                if opened.saturating_add(timeout).is_ok_and(|end| end <= now) {
                    return Decision::Record(vec![
                        drop(Code::OracleUnknown, why),
                        Event::Held {
                            reason: Reason::new(Code::OracleUnknown, why.clone()),
                        },
                    ]);
                }
                Decision::Judge(vec![units.to_vec()])
            }
            Answer::No { why } => self.handle_refusal(now, units, why, &judged.answers),
        }
    }

    /// Stagger's own check: whether units may go down now beside those already down, and whether their guests
    /// then have a destination.
    pub(super) fn may_stop(&self, snapshot: &Snapshot, units: &[UnitId]) -> Result<(), String> {
        let set: Vec<Ix> = units.iter().filter_map(|unit| snapshot.find(unit)).collect();
        crate::check::may_stop(snapshot, &set)?;
        let Some(wave) = &self.wave else { return Ok(()) };
        let stage = self.stage(&wave.stage);
        let Some(maintenance) = stage.as_ref().and_then(|stage| stage.maintenance.as_ref()) else {
            return Ok(());
        };
        let is_begun = |unit| wave.units.get(unit).is_some_and(Visit::is_begun);
        if !wave.is_agreed()
            || units
                .iter()
                .all(|unit| wave.units.contains_key(unit) && !is_begun(unit))
        {
            let moves = units.iter().flat_map(|unit| wave.moves_of(unit)).collect();
            return crate::check::may_empty(snapshot, maintenance, units, moves);
        }
        if units.iter().any(|unit| !wave.units.contains_key(unit)) {
            return self.may_join(snapshot, units);
        }
        // Guests of units that are being emptied may be at home still, or on their way: where they go there must be room yet.
        let going: Vec<UnitId> = units
            .iter()
            .filter(|unit| wave.units.get(unit).is_some_and(Visit::is_being_entered))
            .cloned()
            .collect();
        if going.is_empty() {
            return Ok(());
        }
        let moves: Vec<Move> = going.iter().flat_map(|unit| wave.moves_of(unit)).collect();
        let home = at_home(snapshot, &going, &moves)?;
        crate::check::may_empty(&home, maintenance, &going, moves)
    }

    /// The oracle refuses a set: finds the units it refuses, sets them aside, and lets the rest proceed.
    fn handle_refusal(
        &self,
        now: Timestamp,
        units: &[UnitId],
        why: &str,
        answers: &std::collections::BTreeMap<Vec<UnitId>, SetVerdicts>,
    ) -> Decision {
        let dropped = Event::WaveDropped {
            reason: Reason::new(Code::OracleSaysNo, why),
        };
        let aside =
            |unit: &UnitId, why: &str| self.set_aside(now, unit, Reason::new(Code::OracleSaysNo, why));
        if let [only] = units {
            return Decision::Record(vec![dropped, aside(only, why)]);
        }
        let singles: Vec<Vec<UnitId>> = units.iter().map(|unit| vec![unit.clone()]).collect();
        if let Some(missing) = singles.iter().find(|single| !answers.contains_key(*single)) {
            let rest = singles
                .iter()
                .filter(|single| !answers.contains_key(*single))
                .cloned()
                .collect();
            debug_assert!(!missing.is_empty(), "a wave has units");
            return Decision::Judge(rest);
        }
        let mut refused: Vec<Event> = singles
            .iter()
            .filter_map(|single| match &answers[single].theirs {
                Answer::Yes | Answer::NoOracle | Answer::Overridden { .. } => None,
                Answer::No { why } | Answer::Unknown { why } => Some(aside(&single[0], why)),
            })
            .collect();
        if refused.is_empty() {
            // Each alone may go, all together may not: the second half waits for the first.
            let half = &units[units.len().div_ceil(2)..];
            refused = half
                .iter()
                .map(|unit| Event::SetAside {
                    unit: unit.clone(),
                    reason: Reason::new(
                        Code::OracleSaysNo,
                        format!("not together with the rest of its wave: {why}"),
                    ),
                    until: now.saturating_add(SignedDuration::from_secs(1)).ok(),
                })
                .collect();
        }
        refused.insert(0, dropped);
        Decision::Record(refused)
    }

    /// The next phase of each unit whose visit proceeds.
    ///
    /// A phase that takes a unit out of service is included only while both checks of it are fresh.
    pub(super) fn next_phases(&self, now: Timestamp) -> Vec<Effect> {
        let Some(wave) = self.wave.as_ref().filter(|wave| wave.is_proceeding()) else {
            return Vec::new();
        };
        let Some(stage) = self.stage(&wave.stage) else {
            return Vec::new();
        };
        wave.units
            .iter()
            .filter(|(unit, _)| !self.has_open_call(unit))
            .filter_map(|(unit, visit)| match &visit.state {
                VisitState::Waiting { .. } | VisitState::UnderWay { .. } => {
                    let phase = next_phase(&stage, visit.last_done())?;
                    let action = Action::Visit {
                        unit: unit.clone(),
                        phase,
                        revision: stage.revision.clone(),
                        moves: wave.moves_of(unit),
                    };
                    self.phase(now, visit, phase, action)
                }
                // What could not be entered is left again.
                VisitState::Failed {
                    phase: Phase::Enter, ..
                } => Some(wave.leave(unit, visit).into()),
                VisitState::Unprepared { .. }
                | VisitState::Failed { .. }
                | VisitState::Stuck { .. }
                | VisitState::NotEntered { .. }
                | VisitState::Lost { .. }
                | VisitState::Done => None,
            })
            .collect()
    }

    fn after_visits(
        &self,
        now: Timestamp,
        snapshot: &Snapshot,
        stage: &StageSpec,
        wave: &OpenWave,
        closing: bool,
    ) -> Decision {
        if !self.aborting
            && self.going_back.is_none()
            && let Some(hold) = self.hold_for_skipped_units(snapshot, wave)
        {
            return hold;
        }
        let broken: Vec<(&UnitId, &Visit, &str)> = wave
            .units
            .iter()
            .filter_map(|(unit, visit)| Some((unit, visit, visit.broken()?)))
            .collect();
        let (stuck, again): (Vec<_>, Vec<_>) = broken
            .iter()
            .filter(|(unit, visit, _)| self.needs_correction(snapshot, unit, visit))
            .partition(|(_, visit, _)| visit.is_stuck());
        if !stuck.is_empty() {
            return Decision::act(stuck.into_iter().map(|(unit, visit, _)| wave.leave(unit, visit)));
        }
        if !again.is_empty() {
            let restarts = again.into_iter().map(|(unit, ..)| Action::Restart {
                unit: (*unit).clone(),
            });
            return self.stop_again(now, snapshot, restarts.collect());
        }
        if !broken.is_empty() {
            let text: Vec<_> = broken
                .iter()
                .map(|(unit, _, why)| format!("{unit}: {why}"))
                .collect();
            let units = broken.iter().map(|(unit, ..)| (*unit).clone()).collect();
            let reason = Reason::new(Code::VisitFailed, text.join("; "));
            return fails(snapshot, wave, units, reason);
        }
        let wanted = wave
            .units
            .iter()
            .map(|(unit, visit)| (unit, visit.expected(stage)));
        let missing = gate::not_serving(wanted, snapshot);
        if let Some(decision) = self.join_in_wait(now, snapshot, stage, wave, closing) {
            return decision;
        }
        match self.gates_after(now, snapshot, stage, wave, &missing) {
            Waited::Open => {
                let aside = wave
                    .units
                    .iter()
                    .filter_map(|(unit, visit)| Some(self.set_aside(now, unit, visit.set_aside_for()?)));
                let fault_is_gone = self
                    .held
                    .as_ref()
                    .filter(|(held, _)| [Code::FaultOutsideTheWave, Code::GatesShut].contains(&held.code))
                    .map(|_| Event::Released);
                Decision::Record(
                    fault_is_gone
                        .into_iter()
                        .chain([Event::WavePassed])
                        .chain(aside)
                        .collect(),
                )
            }
            Waited::Not(decision) => decision,
            Waited::TooLong(reason) => {
                let again: Vec<_> = missing
                    .iter()
                    .filter(|(unit, _)| {
                        let visit = wave.units.get(unit);
                        visit.is_some_and(|visit| self.needs_correction(snapshot, unit, visit))
                    })
                    .map(|(unit, _)| Action::Restart { unit: unit.clone() })
                    .collect();
                if !again.is_empty() {
                    return self.stop_again(now, snapshot, again);
                }
                if !self.aborting
                    && self.going_back.is_none()
                    && let Some(hold) = self
                        .hold_for_outside(snapshot, wave, &reason)
                        .or_else(|| missing.is_empty().then(|| self.hold_for_gates(&reason)))
                {
                    return hold;
                }
                let units = missing.into_iter().map(|(unit, _)| unit).collect();
                fails(snapshot, wave, units, reason)
            }
        }
    }

    /// Acts on units after their visit: at once on those that are down, since nothing is lost. Those that
    /// serve would be stopped again, and the earlier approval may no longer hold. Law 4 applies to a rollback
    /// too.
    pub(super) fn stop_again(&self, now: Timestamp, snapshot: &Snapshot, fresh: Vec<Action>) -> Decision {
        let serves = |action: &Action| match action {
            Action::Visit { unit, .. } | Action::Restart { unit } | Action::GoBack { unit, .. } => snapshot
                .find(unit)
                .filter(|ix| snapshot.unit(*ix).state != UnitState::Down)
                .map(|ix| (ix, unit.clone())),
            Action::TakeGuard { .. }
            | Action::DropGuard { .. }
            | Action::Step { .. }
            | Action::Collect { .. } => None,
        };
        let (set, units): (Vec<Ix>, Vec<UnitId>) = fresh.iter().filter_map(serves).unzip();
        if units.len() < fresh.len() || units.is_empty() {
            // It may serve again when this starts: then it is checked like any other unit that serves.
            let down = fresh.into_iter().filter(|action| serves(action).is_none());
            return Decision::Act {
                fresh: down.map(|action| self.approved(action, now)).collect(),
                again: Vec::new(),
            };
        }
        let wait = |until, why: &str| {
            let names: Vec<_> = units.iter().map(UnitId::as_str).collect();
            let serve = if units.len() == 1 { "serves" } else { "serve" };
            let why = format!("{} {serve} and must not be stopped now: {why}", names.join(" "));
            let why = Reason::new(Code::NotSafeToStopAgain, why);
            // The operator may have to make it safe; it continues by itself once it is.
            match &self.held {
                Some((held, _)) if held.code == Code::NotSafeToStopAgain => Decision::Wait { until, why },
                Some(_) | None => Decision::Record(vec![Event::Held { reason: why }]),
            }
        };
        if let Err(why) = crate::check::may_stop(snapshot, &set) {
            return wait(None, &why);
        }
        // An answer counts for what it was asked about, while nothing has changed since.
        let answer = self
            .judged
            .as_ref()
            .filter(|judged| judged.seq > self.changed)
            .and_then(|judged| judged.answers.get(&units));
        let Some(said) = answer else {
            return Decision::Judge(vec![units]);
        };
        let again = said.at.saturating_add(ASK_AGAIN).unwrap_or(now);
        if again <= now {
            return Decision::Judge(vec![units]);
        }
        let why = match (&said.ours, &said.theirs) {
            (Answer::No { why } | Answer::Unknown { why }, _)
            | (_, Answer::No { why } | Answer::Unknown { why }) => why.as_str(),
            _ if said.is_yes() && self.approved_until(said.since) <= now => {
                "both checks agreed, but the approval has expired: approval_age is shorter than the checks take"
            }
            _ if said.is_yes() => {
                if self
                    .held
                    .as_ref()
                    .is_some_and(|(held, _)| held.code == Code::NotSafeToStopAgain)
                {
                    return Decision::Record(vec![Event::Released]);
                }
                let fresh = fresh.into_iter().map(|action| self.approved(action, said.since));
                return Decision::Act {
                    fresh: fresh.collect(),
                    again: Vec::new(),
                };
            }
            _ => "stagger's own check is missing",
        };
        wait(Some(again), why)
    }

    /// Waits for the gates of a wave whose units `missing` are not yet what they should be.
    pub(super) fn gates_after(
        &self,
        now: Timestamp,
        snapshot: &Snapshot,
        stage: &StageSpec,
        wave: &OpenWave,
        missing: &[(UnitId, String)],
    ) -> Waited {
        // Of those for whom others need not wait only this is told: they do not serve yet.
        let parted = self.split_wave(snapshot, stage, wave);
        let late = parted.map(|parted| parted.late).unwrap_or_default();
        let mut shut = gate::closed_gates_without(&stage.gates, snapshot, &late);
        shut.extend(gate::as_gate(missing));
        let names = |gates: &[(crate::model::ConditionName, String)]| -> Vec<_> {
            gates.iter().map(|(name, _)| name.clone()).collect()
        };
        let turned =
            |shut: &[_]| Waited::Not(Decision::Record(vec![Event::GatesTurned { shut: shut.to_vec() }]));
        let Some((before, waiting)) = self.gates.as_ref().zip(wave.waiting) else {
            return turned(&shut);
        };
        if names(&before.shut) != names(&shut) {
            return turned(&shut);
        }
        let hold = stage.gates.iter().map(|gate| gate.hold).max().unwrap_or_default();
        if shut.is_empty() {
            let until = before.since.saturating_add(hold).unwrap_or(Timestamp::MAX);
            // What was seen counts: an answer that took long tells of the time when it was asked for.
            if snapshot.observed_at() < until {
                let why = Reason::new(
                    Code::GatesHolding,
                    "all gates are open; they must stay so for a while",
                );
                return Waited::Not(Decision::Wait {
                    until: Some(until),
                    why,
                });
            }
            return Waited::Open;
        }
        let text: Vec<_> = shut.iter().map(|(name, why)| format!("{name}: {why}")).collect();
        let reason = Reason::new(Code::GatesShut, text.join("; "));
        let timeout = stage
            .gates
            .iter()
            .map(|gate| gate.timeout)
            .max()
            .unwrap_or_default();
        let timeout = timeout.max(SignedDuration::from_secs(1));
        let periods = i32::try_from(waiting.prolonged)
            .unwrap_or(i32::MAX)
            .saturating_add(1);
        let until = waiting
            .since
            .saturating_add(timeout.saturating_mul(periods))
            .unwrap_or(Timestamp::MAX);
        // An abort does not wait for other units: a guard of this run may block their repair.
        let is_left = self.aborting && missing.is_empty();
        if now < until && !is_left {
            return Waited::Not(Decision::Wait {
                until: Some(until),
                why: reason,
            });
        }
        if before.shut != shut && waiting.prolonged < PROLONGED && !is_left {
            return turned(&shut);
        }
        Waited::TooLong(reason)
    }
}

pub(super) enum Waited {
    Open,
    Not(Decision),
    TooLong(Reason),
}
