//! An approval has an age. The agreement of both checks counts for [`Policy::approval_age`] since the facts
//! arrived that stagger's own check used. Units whose stop has not started by then are checked again,
//! together with those that are under way.
//!
//! A wide wave is therefore sent in parts: the driver and the hosts refuse to start on an approval that is
//! too old, the journal records that nothing was started, and this module requests checks for the rest.
//!
//! [`Policy::approval_age`]: crate::model::Policy::approval_age

use jiff::{SignedDuration, Timestamp};

use super::decide::{Decision, TimedObservation};
use super::event::{Action, Answer, Effect, Event};
use super::state::{SetVerdicts, State};
use super::visit::{OpenWave, Visit};
use crate::model::{Code, Phase, Reason, Snapshot, StageSpec, UnitId};

/// How many approvals must expire unused before the run reports it.
const IN_VAIN: u32 = 5;

/// How long a unit that was left out of its wave waits at least before it is planned again.
const SOON: SignedDuration = SignedDuration::from_secs(1);

impl State {
    /// Until when may begin what was agreed to by facts of that time.
    pub(super) fn approved_until(&self, at: Timestamp) -> Timestamp {
        let age = SignedDuration::from_secs(i64::from(self.start.policy.approval_age));
        at.saturating_add(age).unwrap_or(Timestamp::MAX)
    }

    /// That effect on a unit to which both judges agreed by facts of that time.
    pub(super) fn approved(&self, action: Action, at: Timestamp) -> Effect {
        Effect {
            action,
            before: Some(self.approved_until(at)),
        }
    }

    /// Units of the open wave that have not been started, and whose approval has expired.
    pub(super) fn units_to_reapprove(&self, now: Timestamp, wave: &OpenWave) -> Vec<UnitId> {
        let waits = |(unit, visit): (&UnitId, &Visit)| {
            let approved = visit.approved().is_some_and(|at| now < self.approved_until(at));
            (visit.is_waiting() && !self.has_open_call(unit) && !approved).then(|| unit.clone())
        };
        wave.units.iter().filter_map(waits).collect()
    }

    /// While others of the wave are under way, both checks cover the rest together with every unit that may
    /// still be going down. `None`: there is no rest, or it waits until the others are done.
    pub(super) fn approve_rest(
        &self,
        now: Timestamp,
        seen: Option<TimedObservation<'_>>,
    ) -> Option<Decision> {
        let wave = self.wave.as_ref().filter(|wave| wave.is_proceeding())?;
        let stage = self.stage(&wave.stage)?;
        let rest = self.units_to_reapprove(now, wave);
        // Where guests find room depends on who else is away: that is planned for a set as a whole.
        if rest.is_empty() || self.is_asked_to_stop() || stage.maintenance.is_some() {
            return None;
        }
        let Some(TimedObservation { snapshot, .. }) = seen.filter(|seen| seen.as_of >= self.facts_since())
        else {
            return Some(Decision::Observe);
        };
        let set = self.with_open_calls(&rest);
        if self.may_stop(snapshot, &set).is_err() {
            return None;
        }
        match self.judgement(&set) {
            None => Some(Decision::Judge(vec![set])),
            // It was said of this set, and is too old by now, or it was no.
            Some(said) if said.is_yes() && self.approved_until(said.since) <= now => {
                Some(Decision::Judge(vec![set]))
            }
            Some(_) => None,
        }
    }

    /// Once nothing of the wave is under way: asks about the rest of it, or leaves that for another wave.
    pub(super) fn ask_about_rest(
        &self,
        now: Timestamp,
        snapshot: &Snapshot,
        wave: &OpenWave,
        closing: bool,
    ) -> Option<Decision> {
        let rest = self.units_to_reapprove(now, wave);
        if rest.is_empty() {
            return None;
        }
        if closing || self.is_asked_to_stop() {
            return Some(leave_out(
                now,
                &rest,
                &Code::AskedToStop,
                "none of it was started",
            ));
        }
        if let Err(why) = self.may_stop(snapshot, &rest) {
            return Some(leave_out(now, &rest, &Code::WorldHasMoved, &why));
        }
        if let Some(hold) = self.hold_for_stale_approvals(wave) {
            return Some(hold);
        }
        Some(
            match self.judgement(&rest).map(|said| (&said.ours, &said.theirs)) {
                Some((Answer::No { why } | Answer::Unknown { why }, _)) => {
                    leave_out(now, &rest, &Code::WorldHasMoved, why)
                }
                Some((_, Answer::No { why })) => leave_out(now, &rest, &Code::OracleSaysNo, why),
                Some((_, Answer::Unknown { why })) => leave_out(now, &rest, &Code::OracleUnknown, why),
                Some(_) | None => Decision::Judge(vec![rest]),
            },
        )
    }

    /// Holds where both judges have agreed again and again, and each time it was too late to begin.
    pub(super) fn hold_for_stale_approvals(&self, wave: &OpenWave) -> Option<Decision> {
        let age = self.start.policy.approval_age;
        (wave.stale_approvals() >= IN_VAIN).then(|| {
            let run = &self.start.run;
            self.hold(Reason::new(
                Code::ApprovalTooShort,
                format!(
                    "both checks have agreed {IN_VAIN} times, and nothing could be started within approval_age, {age} s: \
                     `stagger resume {run}` tries again; for a longer approval_age `stagger abort {run}` and start a new run"
                ),
            ))
        })
    }

    /// What was said of that set since the world last changed.
    fn judgement(&self, units: &[UnitId]) -> Option<&SetVerdicts> {
        let judged = self.judged.as_ref().filter(|judged| judged.seq > self.changed)?;
        judged.answers.get(units)
    }

    fn is_asked_to_stop(&self) -> bool {
        self.paused || self.aborting || self.going_back.is_some()
    }

    /// These units, and all units that an open call may still take down.
    fn with_open_calls(&self, rest: &[UnitId]) -> Vec<UnitId> {
        let stops = |action: &Action| {
            let is_harmless = matches!(
                action,
                Action::Visit {
                    phase: Phase::Prepare | Phase::Leave,
                    ..
                }
            );
            action.unit().filter(|_| !is_harmless).cloned()
        };
        let mut set: Vec<UnitId> = self.open.values().filter_map(stops).collect();
        set.extend_from_slice(rest);
        set.sort();
        set.dedup();
        set
    }

    /// Whether something that is done to that unit was announced and is not settled.
    pub(super) fn has_open_call(&self, unit: &UnitId) -> bool {
        self.open.values().any(|action| action.unit() == Some(unit))
    }

    /// The effect of that phase: the first that takes the unit out of service has to begin while what was agreed to
    /// is fresh. `None`: it is not fresh now.
    pub(super) fn phase(
        &self,
        now: Timestamp,
        visit: &Visit,
        phase: Phase,
        action: Action,
    ) -> Option<Effect> {
        if [Phase::Prepare, Phase::Leave].contains(&phase) || visit.is_begun() {
            return Some(action.into());
        }
        let effect = self.approved(action, visit.approved()?);
        (effect.before > Some(now)).then_some(effect)
    }
}

/// The phase after `done` among those that the stage's visits have.
pub(super) fn next_phase(stage: &StageSpec, done: Option<Phase>) -> Option<Phase> {
    let mut phases = stage.phases.iter().copied();
    phases.find(|phase| done.is_none_or(|done| *phase > done))
}

/// They were not begun and leave the open wave; a later plan has them.
fn leave_out(now: Timestamp, units: &[UnitId], code: &Code, why: &str) -> Decision {
    let aside = units.iter().map(|unit| Event::SetAside {
        unit: unit.clone(),
        reason: Reason::new(code.clone(), why),
        until: now.saturating_add(SOON).ok(),
    });
    Decision::Record(aside.collect())
}
