//! Applies an event to the state: which event may follow, and its effect.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use super::event::{Action, Command, Entry, Event, Outcome, Seq};
use super::join;
use super::state::{Aside, Gates, IllegalEvent, LastWave, LatestVerdicts, SetVerdicts, State};
use super::visit::{GateWait, OpenWave, Visit, VisitDirection, VisitState, WaveFailure, WavePhase};
use crate::model::{Code, ConditionName, OnFailure, Phase, Reason, UnitId};

impl State {
    /// The state after one more event: the whole legal history in one match.
    #[expect(clippy::too_many_lines, reason = "the whole legal history in one match")]
    pub(super) fn apply(&mut self, entry: Entry) -> Result<(), IllegalEvent> {
        let Entry { seq, at, event } = entry;
        let illegal = |why| Err(IllegalEvent { seq, why });
        if seq != self.seq + 1 {
            return illegal("its place is not the next one");
        }
        if self.ended.is_some() && !matches!(event, Event::LeaseTaken { .. }) {
            return illegal("the run is over");
        }
        let of_the_holder = !matches!(
            event,
            Event::Started(_) | Event::LeaseTaken { .. } | Event::Asked { .. }
        );
        match event {
            Event::Started(_) => return illegal("a run starts once"),
            Event::LeaseTaken { fence, holder } => {
                if fence <= self.fence {
                    return illegal("a fencing token only grows");
                }
                self.fence = fence;
                self.taken.insert(fence);
                self.holder = holder;
                // It may have been started since, and have a call of another holder.
                self.off.clear();
                // What the process before saw and waited for is not ours.
                self.changed = seq;
                self.gates = None;
                self.judged = None;
                self.plan_is_fresh = false;
                self.refusals_are_old();
                // Until when something may begin was written by the clock of another machine.
                for deadline in self.deadlines.values_mut() {
                    *deadline = Timestamp::MIN;
                }
                if let Some(wave) = &mut self.wave {
                    wave.reset_approvals(at);
                }
            }
            Event::JournalBehind => {
                if self.ruled_out >= self.fence {
                    return illegal("the holder of the lock has already continued");
                }
                self.changed = seq;
                self.judged = None;
                self.plan_is_fresh = false;
                self.mark_enters_in_doubt(at);
            }
            Event::Planned { plan } => {
                if self.wave.as_ref().is_some_and(|wave| !wave.is_agreed()) {
                    return illegal("a wave is open that is not agreed to");
                }
                self.plan = Some(plan);
                self.plan_is_fresh = true;
            }
            Event::WaveOpened {
                stage,
                units,
                not_serving,
            } => {
                if self.wave.is_some() {
                    return illegal("another wave is open");
                }
                self.gates = None;
                self.judged = None;
                self.held = None;
                let revision = self.stage(&stage).map(|stage| stage.revision.clone());
                let fresh = |(unit, before)| {
                    let is_prepared = revision.is_some() && self.prepared.get(&unit) == revision.as_ref();
                    (unit, Visit::fresh(before, is_prepared, None))
                };
                let units: BTreeMap<UnitId, Visit> = units.into_iter().map(fresh).collect();
                self.owed.retain(|unit| !units.contains_key(unit));
                // It is the first of the plan that was written right before.
                let planned = self.plan.as_ref().and_then(|plan| plan.stage(&stage));
                let moves = planned.and_then(|stage| Some(stage.waves.first()?.moves.clone()));
                self.wave = Some(OpenWave {
                    stage,
                    units,
                    not_serving,
                    moves: moves.unwrap_or_default(),
                    opened: at,
                    way: self
                        .going_back
                        .as_ref()
                        .map_or(VisitDirection::There, |_| VisitDirection::Back),
                    phase: WavePhase::Opened,
                    waiting: None,
                });
            }
            Event::WaveJoined { units, passed } => {
                let plan = self.plan.as_deref().filter(|_| self.plan_is_fresh);
                let Some(wave) = self.wave.as_mut().filter(|wave| wave.is_proceeding()) else {
                    return illegal("there is no wave that could be joined");
                };
                if units.iter().any(|(unit, _)| wave.units.contains_key(unit)) {
                    return illegal("a unit joins that is in the wave");
                }
                let is_done = |unit| {
                    wave.units
                        .get(unit)
                        .is_some_and(|visit| visit.state == VisitState::Done)
                };
                if !passed.iter().all(is_done) {
                    return illegal("a unit leaves the wave whose visit is not over");
                }
                if !passed.is_empty() {
                    let since = wave.waiting.take().map_or(at, |waiting| waiting.since);
                    self.gates = None;
                    for unit in passed {
                        if let Some(visit) = wave.units.remove(&unit) {
                            self.aside.remove(&unit);
                            self.done.entry(unit).or_insert(visit.before);
                        }
                    }
                    for visit in wave.units.values_mut() {
                        visit.overdue_since.get_or_insert(since);
                    }
                }
                let planned = plan.and_then(|plan| join::first_wave(plan, wave));
                wave.moves.extend(
                    planned
                        .into_iter()
                        .flat_map(|planned| planned.moves.iter().cloned()),
                );
                // They join right after both judges agreed to them.
                let set: Vec<UnitId> = units.iter().map(|(unit, _)| unit.clone()).collect();
                self.owed.retain(|unit| !set.contains(unit));
                let said = self
                    .judged
                    .take()
                    .and_then(|mut judged| judged.answers.remove(&set));
                let approved = said.filter(SetVerdicts::is_yes).map(|said| said.since);
                let joins = |(unit, before)| (unit, Visit::fresh(before, false, approved));
                wave.units.extend(units.into_iter().map(joins));
            }
            Event::Judged {
                units,
                ours,
                theirs,
                facts,
            } if self.wave.is_some() => {
                let said = SetVerdicts {
                    ours,
                    theirs,
                    at,
                    since: facts.map_or(at, |facts| facts.min(at)),
                };
                if !said.is_yes() {
                    self.refused = seq;
                }
                self.apply_verdicts(seq, units, said);
            }
            Event::Judged { .. } => return illegal("no wave is open whose units could be judged"),
            Event::WaveDropped { .. } => {
                if self.wave.take_if(|wave| !wave.is_begun()).is_none() {
                    return illegal("there is no wave that could be dropped");
                }
                self.plan_is_fresh = false;
            }
            Event::Intent { action, before } => {
                if let Some(why) = self.announcement_violation(&action) {
                    return illegal(why);
                }
                self.changed = seq;
                if let Action::Visit { unit, phase, .. } = &action
                    && *phase > Phase::Prepare
                    && let Some(visit) = self.visit(unit)
                {
                    visit.begin(at);
                }
                if let Action::GoBack { unit, .. } = &action
                    && let Some(visit) = self.visit(unit)
                {
                    visit.since.get_or_insert(at);
                }
                self.open.insert(seq, action);
                self.announced.insert(seq, self.fence);
                self.deadlines.extend(before.map(|before| (seq, before)));
            }
            Event::Settled { intent, outcome } => {
                if !self.settle(at, intent, outcome) {
                    return illegal("it settles what is not open");
                }
                self.changed = seq;
            }
            Event::GatesTurned { shut } => {
                if let Some(wave) = &mut self.wave {
                    let is_other_why = self
                        .gates
                        .as_ref()
                        .is_some_and(|before| !shut.is_empty() && names(&before.shut) == names(&shut));
                    let waiting = wave.waiting.get_or_insert(GateWait {
                        since: at,
                        prolonged: 0,
                    });
                    waiting.prolonged += u32::from(is_other_why);
                }
                self.gates = Some(Gates { shut, since: at });
            }
            Event::WaveFailed { units, reason, alone } => {
                let is_idle = self.open.is_empty();
                let wave = self.wave.as_mut();
                let Some(wave) = wave.filter(|wave| is_idle && wave.is_begun()) else {
                    return illegal("there is no wave at rest that could fail");
                };
                if wave.is_proceeding() {
                    wave.phase = WavePhase::Failed(WaveFailure {
                        blamed: units,
                        reason,
                        alone,
                        collected: false,
                    });
                    wave.waiting = None;
                    self.gates = None;
                } else if !(alone && wave.confine_failure_to(&units)) {
                    return illegal(
                        "a failed wave fails again only because the change never came to the units",
                    );
                }
            }
            Event::WaveRecovered => {
                let is_last = self.is_last(Phase::Change);
                let Some(wave) = self.wave.as_mut().filter(|wave| wave.failure().is_some()) else {
                    return illegal("there is no wave that has failed");
                };
                wave.clear_failure();
                for visit in wave.units.values_mut() {
                    visit.mark_recovered(is_last);
                }
                self.gates = None;
                self.held = None;
            }
            Event::WavePassed => {
                let is_idle = self.open.is_empty();
                let Some(wave) = self.wave.take_if(|wave| is_idle && wave.all_visits_over()) else {
                    return illegal("there is no wave at rest that could pass");
                };
                let changes = wave.units.values().any(|visit| visit.set_aside_for().is_none());
                let earned = self.earned.entry(wave.stage).or_insert(0);
                self.last_wave = Some(LastWave {
                    at,
                    canary: *earned == 0,
                });
                *earned += 1;
                for (unit, visit) in wave.units {
                    if visit.is_not_over() {
                        self.owed.insert(unit.clone());
                    }
                    if visit.set_aside_for().is_some() {
                        continue;
                    }
                    self.aside.remove(&unit);
                    // What it ran before the run, not before a second try.
                    self.done.entry(unit).or_insert(visit.before);
                }
                if changes {
                    self.refusals_are_old();
                }
                self.gates = None;
                self.plan_is_fresh = false;
            }
            Event::WaveWentBack => {
                let is_idle = self.open.is_empty();
                let Some(wave) = self
                    .wave
                    .take_if(|wave| is_idle && (wave.is_rollback() || wave.failure().is_some()))
                else {
                    return illegal("there is no wave at rest that could be back");
                };
                if wave.is_rollback() {
                    *self.earned.entry(wave.stage).or_insert(0) += 1;
                } else if self.start.policy.on_failure != OnFailure::Continue
                    && let WavePhase::Failed(WaveFailure { reason, .. }) = wave.phase
                {
                    self.rolled_back = Some(reason);
                }
                for (unit, visit) in wave.units {
                    if visit.is_not_over() {
                        self.owed.insert(unit.clone());
                    }
                    if visit.went_back == Some(Ok(())) {
                        self.done.remove(&unit);
                        self.prepared.remove(&unit);
                    } else if visit.is_changed() {
                        self.done.entry(unit).or_insert(visit.before);
                    }
                }
                self.last_wave = Some(LastWave { at, canary: false });
                self.gates = None;
                self.plan_is_fresh = false;
            }
            Event::StepPassed { step } => {
                if self.wave.is_some() {
                    return illegal("a step is passed in the middle of a wave");
                }
                self.steps.insert(step);
                self.held = None;
                self.step = None;
                self.gates = None;
                self.plan_is_fresh = false;
            }
            Event::SetAside { unit, reason, until } => {
                let tries = self.attempts_before(&unit, &reason) + 1;
                if let Some(wave) = &mut self.wave {
                    if wave.units.get(&unit).is_some_and(Visit::is_begun) {
                        return illegal("a unit is set aside in the middle of its visit");
                    }
                    wave.units.remove(&unit);
                }
                self.aside.insert(unit, Aside { reason, until, tries });
                self.plan_is_fresh = false;
            }
            Event::Asked { command, by } => self.apply_command(seq, at, command, &by),
            Event::Held { reason } => self.held = Some((reason, at)),
            Event::Released => {
                let Some((held, _)) = self.held.take() else {
                    return illegal("it is not held");
                };
                let by_itself = [Code::FaultOutsideTheWave, Code::WaveLeftAlone, Code::GatesShut];
                if let Some(wave) = &mut self.wave
                    && by_itself.contains(&held.code)
                {
                    // Recovery after the fault has its own time.
                    wave.waiting = None;
                    self.gates = None;
                }
            }
            Event::Ended { outcome } => {
                if self.wave.is_some() || !self.open.is_empty() {
                    return illegal("something is still open");
                }
                self.ended = Some(outcome);
                self.ended_at = Some(at);
                self.held = None;
            }
        }
        if of_the_holder {
            self.ruled_out = self.fence;
            self.taken.clear();
        }
        self.seq = seq;
        Ok(())
    }

    pub(super) fn visit(&mut self, unit: &UnitId) -> Option<&mut Visit> {
        self.wave.as_mut().and_then(|wave| wave.units.get_mut(unit))
    }

    /// Why this effect must not be announced now: visits happen only in a wave that both checks approved,
    /// phase after phase, and only a failed wave is rolled back.
    fn announcement_violation(&self, action: &Action) -> Option<&'static str> {
        let of_unit = action
            .unit()
            .map(|unit| self.wave.as_ref().map(|wave| (wave, wave.units.get(unit))));
        match (action, of_unit) {
            // What no wave has in hand may be given back.
            (Action::TakeGuard { .. } | Action::DropGuard { .. }, _)
            | (
                Action::Visit {
                    phase: Phase::Leave, ..
                },
                Some(None),
            ) => None,
            (Action::Step { .. }, _) => self
                .wave
                .is_some()
                .then_some("a step is taken in the middle of a wave"),
            (Action::Collect { .. }, _) => {
                let failed = self.wave.as_ref().is_some_and(|wave| wave.failure().is_some());
                (!failed).then_some("nothing has failed of which anything could be gathered")
            }
            (_, None | Some(None | Some((_, None)))) => Some("a unit is visited that is in no open wave"),
            (Action::Visit { phase, .. }, Some(Some((wave, Some(visit))))) => {
                let is_given_back = *phase == Phase::Leave && visit.is_stuck();
                if wave.is_rollback() || (wave.failure().is_some() && !is_given_back) {
                    Some("a unit is visited whose wave is rolled back")
                } else if !wave.is_agreed() && *phase > Phase::Prepare {
                    Some("a unit is visited that the checks have not approved")
                } else {
                    (!visit.may_announce(*phase)).then_some("that phase of a visit is not its next")
                }
            }
            (Action::Restart { .. }, Some(Some((wave, Some(visit))))) => (!wave.is_proceeding()
                || !visit.may_be_restarted())
            .then_some("a unit is restarted that has not been visited"),
            (Action::GoBack { .. }, Some(Some((wave, _)))) => {
                let may = wave.failure().is_some() || wave.is_rollback() && wave.is_agreed();
                (!may).then_some("a unit is rolled back whose wave has not failed")
            }
        }
    }

    /// Whether the open wave's stage has no phase after that one.
    pub(super) fn is_last(&self, phase: Phase) -> bool {
        let stage = self.wave.as_ref().and_then(|wave| self.stage(&wave.stage));
        stage.is_some_and(|stage| stage.phases.iter().all(|other| *other <= phase))
    }

    /// The knowledge of entered units is outdated: each *enter* is settled as failed, and entered units are
    /// left again. A *change* keeps its outcome: its host knows whether an earlier call did it.
    fn mark_enters_in_doubt(&mut self, at: Timestamp) {
        const WHY: &str = "what happened to it after it was entered is not in the journal";
        let is_enter = |action: &Action| {
            matches!(
                action,
                Action::Visit {
                    phase: Phase::Enter,
                    ..
                }
            )
        };
        let open = self.open.iter().filter(|(_, action)| is_enter(action));
        let open: Vec<Seq> = open.map(|(seq, _)| *seq).collect();
        for intent in open {
            let why = WHY.to_owned();
            self.settle(at, intent, Outcome::Failed { why });
        }
        let busy: BTreeSet<UnitId> = self.open.values().filter_map(Action::unit).cloned().collect();
        let visits = self.wave.iter_mut().flat_map(|wave| &mut wave.units);
        for (_, visit) in visits.filter(|(unit, _)| !busy.contains(unit)) {
            visit.mark_enter_in_doubt(WHY);
        }
    }

    /// Whatever was announced there has ended so; `false`: it is not open.
    pub(super) fn settle(&mut self, at: Timestamp, intent: Seq, outcome: Outcome) -> bool {
        let Some(action) = self.open.remove(&intent) else {
            return false;
        };
        self.deadlines.remove(&intent);
        self.announced.remove(&intent);
        self.apply_settled(at, action, outcome);
        true
    }

    fn apply_verdicts(&mut self, seq: Seq, units: Vec<UnitId>, said: SetVerdicts) {
        let at = said.at;
        if said.is_yes() {
            let until = self.approved_until(said.since);
            if let Some(wave) = &mut self.wave {
                wave.record_approval(&units, said.since);
            }
            // What was announced and may not have begun may begin for so long once more.
            for (seq, deadline) in &mut self.deadlines {
                let of_it = self.open.get(seq).and_then(Action::unit);
                if of_it.is_some_and(|unit| units.contains(unit)) {
                    *deadline = until.max(*deadline);
                }
            }
        }
        let judged = self.judged.get_or_insert(LatestVerdicts {
            seq,
            at,
            answers: BTreeMap::new(),
        });
        judged.seq = seq;
        judged.at = at;
        judged.answers.insert(units, said);
    }

    fn apply_command(&mut self, seq: Seq, at: Timestamp, command: Command, by: &str) {
        match command {
            Command::Pause => self.paused = true,
            Command::Resume => {
                self.paused = false;
                // A person looked: what was given up is tried again.
                self.aside.retain(|_, aside| aside.until.is_some());
                self.step = None;
                self.held = None;
                self.plan_is_fresh = false;
                // The operator may have installed another release there.
                self.prepared.clear();
                for taken in self.guards.values_mut().filter(|taken| taken.failed.is_some()) {
                    taken.failed = None;
                    taken.tried = None;
                    taken.until = Timestamp::MIN;
                }
                if let Some(wave) = &mut self.wave {
                    wave.retry();
                }
                self.gates = None;
            }
            Command::Approve { door } => {
                // An interruption that is permitted makes another plan.
                if !self.start.target.approval_names().any(|word| word == door) {
                    self.plan_is_fresh = false;
                }
                self.doors.insert(door);
                self.held = None;
            }
            Command::Abort => {
                self.aborting = true;
                self.paused = false;
                self.held = None;
                if let Some(wave) = &mut self.wave {
                    wave.gives_up();
                }
            }
            Command::Rollback => {
                let reason = Reason::new(Code::AskedToGoBack, format!("{by} requested it"));
                self.going_back.get_or_insert(reason);
                self.paused = false;
                self.held = None;
                self.plan_is_fresh = false;
            }
            Command::Confirm { host, ended } => self.apply_off(seq, at, host, ended, by),
            Command::Settle { intent, done } => self.apply_confirmation(seq, at, intent, done, by),
        }
    }
}

fn names(shut: &[(ConditionName, String)]) -> Vec<&ConditionName> {
    shut.iter().map(|(name, _)| name).collect()
}
