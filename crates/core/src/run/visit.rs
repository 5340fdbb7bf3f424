//! An open wave, and the progress of its units' visits.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::event::Action;
use super::gate::ExpectedUnit;
use crate::model::{Code, PartName, Phase, Reason, Retry, Revision, StageSpec, UnitId};
use crate::plan::Move;

/// A wave being carried out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenWave {
    /// Of which stage.
    pub stage: PartName,
    /// Its units, with how far their turns have come.
    pub units: BTreeMap<UnitId, Visit>,
    /// What did not serve before it was opened.
    pub not_serving: Vec<UnitId>,
    /// Moves of the guests of its units while they are down.
    pub moves: Vec<Move>,
    /// When it was opened.
    pub opened: Timestamp,
    /// Where it leads.
    pub way: VisitDirection,
    /// How far it has come.
    pub phase: WavePhase,
    /// The wait for its gates, while there is one.
    pub waiting: Option<GateWait>,
}

/// Where a wave leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VisitDirection {
    /// To the release that is wanted.
    There,
    /// To the release before: the run goes back.
    Back,
}

/// How far a wave has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WavePhase {
    /// Software is laid out, guards are taken, both judges are asked. None of its units is stopped.
    Opened,
    /// Both judges agreed: its units have their turns, and then its gates are waited for.
    Agreed {
        /// How many approvals expired unused since a unit of it was last started.
        in_vain: u32,
    },
    /// It stays unhealthy, and policy says what follows.
    Failed(WaveFailure),
}

/// Why a wave failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaveFailure {
    /// The units that are to blame, as far as that is known.
    pub blamed: Vec<UnitId>,
    /// Why.
    pub reason: Reason,
    /// Nothing speaks against the change: it never came to those that are to blame.
    pub alone: bool,
    /// Whether what tells later what happened was gathered.
    pub collected: bool,
}

/// The wait for the gates of a wave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GateWait {
    /// Since when.
    pub since: Timestamp,
    /// How often it was prolonged because recovery made progress.
    pub prolonged: u32,
}

/// A unit's turn in a wave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Visit {
    /// What it ran before.
    pub before: Revision,
    /// When it began to be taken out of service.
    pub since: Option<Timestamp>,
    /// How far it has come.
    pub state: VisitState,
    /// Whether the corrective step was tried: it was started once more, or left once more.
    pub corrected: bool,
    /// Failed attempts to leave it.
    pub(super) giving_back: UndrainRetry,
    /// Whether it was brought back; `Err`: why it could not be.
    pub went_back: Option<Result<(), String>>,
    /// Whether its data was rebuilt.
    pub rebuilt: bool,
    /// Since when others have been waiting for it, where they no longer do.
    pub overdue_since: Option<Timestamp>,
}

/// Failed attempts to undrain a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct UndrainRetry {
    pub(super) tries: u32,
    /// When it is tried again.
    pub(super) again: Timestamp,
}

impl UndrainRetry {
    /// Records one more failed attempt.
    pub(super) fn record_failed_attempt(&mut self, at: Timestamp, retry: Retry) {
        self.again = retry.next(at, self.tries);
        self.tries = self.tries.saturating_add(1);
    }
}

/// How far a unit's turn has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum VisitState {
    /// Nothing of it was begun.
    Waiting {
        /// Whether its software is laid out.
        prepared: bool,
        /// Since when the word of both judges counts; `None`: they have not agreed to it.
        approved: Option<Timestamp>,
    },
    /// Its software could not be laid out: it is as it was.
    Unprepared {
        /// Why not.
        why: String,
    },
    /// Its phases follow one another.
    UnderWay {
        /// The last one that was done.
        done: Option<Phase>,
    },
    /// A phase failed.
    Failed {
        /// Which.
        phase: Phase,
        /// Why.
        why: String,
    },
    /// It could be neither entered nor left: nothing of it was changed.
    Stuck {
        /// Why it could not be left.
        why: String,
    },
    /// It could not be entered, and was left again: nothing of it was changed, and it fails no wave.
    NotEntered {
        /// Why not.
        why: String,
    },
    /// Its host is off, as confirmed by an operator: no further action before a resume, and it says nothing
    /// about the change.
    Lost {
        /// Whether its software is laid out.
        prepared: bool,
        /// Whose word.
        why: String,
    },
    /// All its phases were done.
    Done,
}

impl OpenWave {
    /// Whether a unit of it was begun to be taken out of service.
    pub(super) fn is_begun(&self) -> bool {
        self.units.values().any(Visit::is_begun)
    }

    /// Whether both judges agreed to it.
    pub fn is_agreed(&self) -> bool {
        !matches!(self.phase, WavePhase::Opened)
    }

    /// Why it failed, if it did.
    pub fn failure(&self) -> Option<&WaveFailure> {
        match &self.phase {
            WavePhase::Failed(failure) => Some(failure),
            WavePhase::Opened | WavePhase::Agreed { .. } => None,
        }
    }

    /// Whether it brings its units back to the release before.
    pub fn is_rollback(&self) -> bool {
        self.way == VisitDirection::Back
    }

    /// Whether its visits proceed: both checks agreed, it has not failed, and it is no rollback.
    pub(super) fn is_proceeding(&self) -> bool {
        matches!(self.phase, WavePhase::Agreed { .. }) && !self.is_rollback()
    }

    /// Whether all its visits are over.
    pub(super) fn all_visits_over(&self) -> bool {
        let is_over = |visit: &Visit| visit.state == VisitState::Done || visit.set_aside_for().is_some();
        self.is_proceeding() && self.units.values().all(is_over)
    }

    /// How many approvals expired unused.
    pub(super) fn stale_approvals(&self) -> u32 {
        match self.phase {
            WavePhase::Agreed { in_vain } => in_vain,
            WavePhase::Opened | WavePhase::Failed(_) => 0,
        }
    }

    /// Another process has taken over: approvals of units that have not started are dropped.
    pub(super) fn reset_approvals(&mut self, at: Timestamp) {
        if let Some(waiting) = &mut self.waiting {
            waiting.since = at;
        }
        if !self.is_begun() {
            self.phase = WavePhase::Opened;
        }
        for visit in self.units.values_mut() {
            visit.approve(None);
        }
    }

    /// Both judges agreed to these, and that counts since that time. Of part of those that are still to go down together nothing
    /// follows for the others.
    pub(super) fn record_approval(&mut self, units: &[UnitId], at: Timestamp) {
        let mut waiting = self
            .units
            .iter()
            .filter(|(_, visit)| visit.is_waiting())
            .peekable();
        let is_whole = waiting.peek().is_some() && waiting.all(|(unit, _)| units.contains(unit));
        if !is_whole || self.failure().is_some() {
            return;
        }
        self.phase = WavePhase::Agreed {
            in_vain: self.stale_approvals() + 1,
        };
        for (_, visit) in self.units.iter_mut().filter(|(unit, _)| units.contains(unit)) {
            visit.approve(Some(at));
        }
    }

    /// A person says that all of it is tried once more. A wave of which nothing else was begun would be dropped, were its
    /// lost unit to wait again: what was done to that would be forgotten.
    pub(super) fn retry(&mut self) {
        let goes_on = |visit: &Visit| visit.is_begun() && !matches!(visit.state, VisitState::Lost { .. });
        let others = self.units.values().any(goes_on);
        for visit in self.units.values_mut() {
            visit.retry(others);
        }
        self.clear_failure();
    }

    /// The run is to end: what could be neither entered nor left is left once more.
    pub(super) fn gives_up(&mut self) {
        for visit in self.units.values_mut().filter(|visit| visit.is_stuck()) {
            visit.corrected = false;
        }
    }

    /// The moves of that unit's guests.
    pub(super) fn moves_of(&self, unit: &UnitId) -> Vec<Move> {
        let of_it = self.moves.iter().filter(|a_move| a_move.from == *unit);
        of_it.cloned().collect()
    }

    /// A unit that could not be entered is left, as what it was.
    pub(super) fn leave(&self, unit: &UnitId, visit: &Visit) -> Action {
        Action::Visit {
            unit: unit.clone(),
            phase: Phase::Leave,
            revision: visit.before.clone(),
            moves: self.moves_of(unit),
        }
    }

    /// The stuck units in a message to the operator.
    pub(super) fn stuck_units_text(&self) -> String {
        let stuck = self.units.iter().filter(|(_, visit)| visit.is_stuck());
        let names: Vec<&str> = stuck.map(|(unit, _)| unit.as_str()).collect();
        match names.as_slice() {
            [] => String::new(),
            names => format!("; undraining {} is retried until it works", names.join(" ")),
        }
    }

    /// Confines a failure to units that the change never reached: no other unit is rolled back. Returns
    /// whether that applies.
    pub(super) fn confine_failure_to(&mut self, units: &[UnitId]) -> bool {
        let is_tried = units.iter().any(|unit| {
            self.units
                .get(unit)
                .is_some_and(|visit| visit.went_back.is_some())
        });
        match &mut self.phase {
            WavePhase::Failed(failure) if failure.blamed == units && !failure.alone && !is_tried => {
                failure.alone = true;
                true
            }
            WavePhase::Failed(_) | WavePhase::Opened | WavePhase::Agreed { .. } => false,
        }
    }

    /// Its units serve on the target after all, or a person says that it is tried once more.
    pub(super) fn clear_failure(&mut self) {
        if self.is_agreed() {
            self.phase = WavePhase::Agreed { in_vain: 0 };
        }
        self.waiting = None;
    }
}

impl Visit {
    pub(super) fn fresh(before: Revision, prepared: bool, approved: Option<Timestamp>) -> Self {
        Self {
            before,
            since: None,
            state: VisitState::Waiting { prepared, approved },
            corrected: false,
            giving_back: UndrainRetry::default(),
            went_back: None,
            rebuilt: false,
            overdue_since: None,
        }
    }

    /// Whether it was begun to be taken out of service.
    pub fn is_begun(&self) -> bool {
        self.since.is_some()
    }

    /// Whether it is announced that it is taken out of service, without a known outcome.
    pub(super) fn is_being_entered(&self) -> bool {
        matches!(self.state, VisitState::UnderWay { done } if done.is_none_or(|done| done < Phase::Enter))
    }

    /// Whether it is still to have its turn.
    pub(super) fn is_waiting(&self) -> bool {
        !self.is_begun() && matches!(self.state, VisitState::Waiting { .. })
    }

    /// Since when the word of both judges on it counts, while none of it was started.
    pub(super) fn approved(&self) -> Option<Timestamp> {
        if let VisitState::Waiting { approved, .. } = self.state {
            approved
        } else {
            None
        }
    }

    fn approve(&mut self, at: Option<Timestamp>) {
        if let VisitState::Waiting { approved, .. } = &mut self.state {
            *approved = at;
        }
    }

    /// The last completed phase of a visit in progress.
    pub fn last_done(&self) -> Option<Phase> {
        match self.state {
            VisitState::Waiting { prepared, .. } => prepared.then_some(Phase::Prepare),
            VisitState::UnderWay { done } => done,
            VisitState::Done => Some(Phase::Leave),
            VisitState::Unprepared { .. }
            | VisitState::Failed { .. }
            | VisitState::Stuck { .. }
            | VisitState::NotEntered { .. }
            | VisitState::Lost { .. } => None,
        }
    }

    /// Why something of it failed, if it did.
    pub fn failed(&self) -> Option<&str> {
        match &self.state {
            VisitState::Unprepared { why }
            | VisitState::Failed { why, .. }
            | VisitState::Stuck { why }
            | VisitState::NotEntered { why }
            | VisitState::Lost { why, .. } => Some(why),
            VisitState::Waiting { .. } | VisitState::UnderWay { .. } | VisitState::Done => None,
        }
    }

    /// Why it fails its wave, if it does.
    pub(super) fn broken(&self) -> Option<&str> {
        if let VisitState::Failed { why, .. } | VisitState::Stuck { why } = &self.state {
            Some(why)
        } else {
            None
        }
    }

    /// Whether the change was done to it.
    pub fn is_changed(&self) -> bool {
        self.last_done() >= Some(Phase::Change)
    }

    /// Whether it is surely as it was: none of it was started, or it was left again.
    pub(super) fn is_untouched(&self) -> bool {
        self.is_waiting()
            || matches!(
                self.state,
                VisitState::Unprepared { .. } | VisitState::NotEntered { .. }
            )
    }

    /// What it must be for its wave to pass.
    pub(super) fn expected<'a>(&self, stage: &'a StageSpec) -> ExpectedUnit<'a> {
        match self.state {
            VisitState::Lost { .. } | VisitState::Unprepared { .. } => ExpectedUnit::Nothing,
            VisitState::NotEntered { .. } => ExpectedUnit::Serving,
            VisitState::Waiting { .. }
            | VisitState::UnderWay { .. }
            | VisitState::Failed { .. }
            | VisitState::Stuck { .. }
            | VisitState::Done => ExpectedUnit::On(&stage.revision),
        }
    }

    /// Why it is not done when its wave passes, if it is not: it is set aside.
    pub(super) fn set_aside_for(&self) -> Option<Reason> {
        match &self.state {
            VisitState::NotEntered { why } => Some(Reason::new(Code::CouldNotBeEntered, why)),
            VisitState::Lost { why, .. } => Some(Reason::new(Code::HostOff, why)),
            VisitState::Unprepared { why } => Some(Reason::new(Code::CouldNotBePrepared, why)),
            VisitState::Waiting { .. }
            | VisitState::UnderWay { .. }
            | VisitState::Failed { .. }
            | VisitState::Stuck { .. }
            | VisitState::Done => None,
        }
    }

    /// Whether it could be neither entered nor left.
    pub(super) fn is_stuck(&self) -> bool {
        matches!(self.state, VisitState::Stuck { .. })
    }

    /// Whether that phase may be announced now.
    pub(super) fn may_announce(&self, phase: Phase) -> bool {
        match (&self.state, phase) {
            (VisitState::Waiting { prepared, .. }, Phase::Prepare) => !prepared,
            (VisitState::Waiting { .. }, Phase::Enter | Phase::Change | Phase::Leave)
            | (VisitState::Stuck { .. }, Phase::Leave) => true,
            (VisitState::UnderWay { done }, _) => done.is_none_or(|done| phase > done),
            (VisitState::Failed { phase: failed, .. }, Phase::Leave) => *failed == Phase::Enter,
            (
                VisitState::Unprepared { .. }
                | VisitState::Failed { .. }
                | VisitState::Stuck { .. }
                | VisitState::NotEntered { .. }
                | VisitState::Lost { .. }
                | VisitState::Done,
                _,
            ) => false,
        }
    }

    /// Whether it may be started once more: it had its turn, and a phase of it failed or it does not serve.
    pub(super) fn may_be_restarted(&self) -> bool {
        match self.state {
            VisitState::Failed { phase, .. } => phase != Phase::Enter,
            VisitState::NotEntered { .. } | VisitState::Done => true,
            VisitState::Waiting { .. }
            | VisitState::Unprepared { .. }
            | VisitState::UnderWay { .. }
            | VisitState::Stuck { .. }
            | VisitState::Lost { .. } => false,
        }
    }

    /// It is announced that it is taken out of service.
    pub(super) fn begin(&mut self, at: Timestamp) {
        self.since.get_or_insert(at);
        if let VisitState::Waiting { prepared, .. } = self.state {
            let done = prepared.then_some(Phase::Prepare);
            self.state = VisitState::UnderWay { done };
        }
    }

    /// What was announced was not begun: it waits once more.
    pub(super) fn mark_not_begun(&mut self) {
        if let VisitState::UnderWay { done } = self.state
            && done.is_none_or(|done| done == Phase::Prepare)
        {
            self.since = None;
            self.state = VisitState::Waiting {
                prepared: done.is_some(),
                approved: None,
            };
        }
    }

    /// It is unknown whether an entered unit still is entered: it counts as one that could not be.
    pub(super) fn mark_enter_in_doubt(&mut self, why: &str) {
        if let VisitState::UnderWay {
            done: Some(Phase::Enter),
        } = self.state
        {
            self.state = VisitState::Failed {
                phase: Phase::Enter,
                why: why.to_owned(),
            };
        }
    }

    /// Whether it was begun, and neither finished nor left nor brought back.
    pub(super) fn is_not_over(&self) -> bool {
        let is_over = self.state == VisitState::Done || self.is_untouched() || self.went_back == Some(Ok(()));
        self.is_begun() && !is_over
    }

    /// A phase was done, or failed. `is_last`: no phase of its stage comes after it.
    pub(super) fn settle_phase(&mut self, phase: Phase, is_last: bool, failed: Option<String>) {
        let approved = self.approved();
        let before = std::mem::replace(&mut self.state, VisitState::Done);
        self.state = match (before, phase, failed) {
            (_, Phase::Prepare, None) => VisitState::Waiting {
                prepared: true,
                approved,
            },
            (_, Phase::Prepare, Some(why)) => VisitState::Unprepared { why },
            (VisitState::Failed { why, .. } | VisitState::Stuck { why }, Phase::Leave, None) => {
                VisitState::NotEntered { why }
            }
            (VisitState::Failed { .. }, Phase::Leave, Some(why)) => VisitState::Stuck { why },
            (VisitState::Stuck { .. }, Phase::Leave, Some(why)) => {
                self.corrected = true;
                VisitState::Stuck { why }
            }
            (_, _, None) if is_last => VisitState::Done,
            (_, phase, None) => VisitState::UnderWay { done: Some(phase) },
            (_, phase, Some(why)) => VisitState::Failed { phase, why },
        };
    }

    /// It was started once more, or could not be.
    pub(super) fn restarted(&mut self, failed: Option<String>) {
        self.corrected = true;
        match (failed, &mut self.state) {
            (None, VisitState::NotEntered { .. }) => {}
            (None, state) => *state = VisitState::Done,
            (Some(why), VisitState::Failed { why: before, .. } | VisitState::Stuck { why: before }) => {
                *before = why;
            }
            (Some(why), state) => {
                *state = VisitState::Failed {
                    phase: Phase::Change,
                    why,
                };
            }
        }
    }

    /// Its host is off, as confirmed by an operator. A unit that was not stopped yet has not changed, and is
    /// planned again.
    pub(super) fn mark_lost(&mut self, prepared: bool, why: &str) {
        if self.is_begun() {
            let why = why.to_owned();
            self.state = VisitState::Lost { prepared, why };
        }
    }

    /// It serves on the target after all: the rest of its visit proceeds. `is_last`: no phase follows the
    /// change.
    pub(super) fn mark_recovered(&mut self, is_last: bool) {
        if self.broken().is_some() {
            self.state = if is_last {
                VisitState::Done
            } else {
                VisitState::UnderWay {
                    done: Some(Phase::Change),
                }
            };
        }
    }

    /// The operator requests a retry. `others`: its wave proceeds with others.
    fn retry(&mut self, others: bool) {
        self.corrected = false;
        self.giving_back = UndrainRetry::default();
        match &mut self.state {
            // Its host may be back, and it may serve there: both judges are asked about all of its turn.
            VisitState::Lost { prepared, .. } if others => {
                self.since = None;
                self.state = VisitState::Waiting {
                    prepared: *prepared,
                    approved: None,
                };
            }
            VisitState::Lost { why, .. } => {
                self.state = VisitState::Failed {
                    phase: Phase::Change,
                    why: std::mem::take(why),
                };
            }
            VisitState::Waiting { .. }
            | VisitState::Unprepared { .. }
            | VisitState::UnderWay { .. }
            | VisitState::Failed { .. }
            | VisitState::Stuck { .. }
            | VisitState::NotEntered { .. }
            | VisitState::Done => {}
        }
        if matches!(self.went_back, Some(Err(_))) {
            self.went_back = None;
        }
    }
}
