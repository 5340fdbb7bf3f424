//! Continuous waves of hosts with guests: more units join the open wave as soon as others of it are done and
//! have freed capacity.
//!
//! The units that join are the first wave of a plan on fresh facts, in which units under way count as down.
//! That plan is only valid while nothing moves: units join while all units under way are in their change, and
//! none is being entered or left. Both checks decide about them, as about a wave.

use std::borrow::Cow;

use jiff::{SignedDuration, Timestamp};

use super::decide::{Decision, TimedObservation};
use super::event::Event;
use super::gate::{self, ExpectedUnit};
use super::state::State;
use super::visit::{OpenWave, VisitState};
use crate::check::may_empty;
use crate::model::{Phase, Snapshot, StageSpec, UnitId, UnitState};
use crate::plan::{Move, Plan, PlannedPart, PlanningInput, Wave, plan};

impl State {
    /// The next step to let more units join; `None`: none joins now.
    pub(super) fn join(&self, now: Timestamp, seen: Option<TimedObservation<'_>>) -> Option<Decision> {
        let (wave, _) = self.continuous_wave()?;
        changing_and_done(wave)?;
        let Some(TimedObservation { snapshot, .. }) = seen.filter(|seen| seen.as_of >= self.facts_since())
        else {
            return Some(Decision::Observe);
        };
        let plan = self.joining_plan(snapshot)?;
        let first = first_wave(&plan, wave)?;
        let end = end_of(now, first);
        if !self.may_run(now, end) {
            return None;
        }
        // An answer counts for what it was asked about, while nothing has changed since.
        let judged = self.judged.as_ref().filter(|judged| judged.seq > self.changed);
        match judged.and_then(|judged| judged.answers.get(&first.units)) {
            None => Some(Decision::Judge(vec![first.units.clone()])),
            Some(said) if said.is_yes() => {
                let units = first.units.iter().filter_map(|id| {
                    let unit = snapshot.unit(snapshot.find(id)?);
                    Some((id.clone(), unit.revision.clone()?))
                });
                let joined = Event::WaveJoined {
                    units: units.collect(),
                    passed: Vec::new(),
                };
                Some(Decision::Record(vec![
                    Event::Planned { plan: Box::new(plan) },
                    joined,
                ]))
            }
            Some(_) => None,
        }
    }

    /// The open wave and its stage, if units may join it at all.
    fn continuous_wave(&self) -> Option<(&OpenWave, Cow<'_, StageSpec>)> {
        let wave = self.wave.as_ref()?;
        let is_asked = self.paused || self.aborting || self.going_back.is_some() || self.held.is_some();
        let stage = self.stage(&wave.stage)?;
        let barrier = self.start.policy.barrier;
        let flows = stage
            .maintenance
            .as_ref()
            .is_some_and(|wished| wished.flowing || !barrier);
        (wave.is_proceeding() && !is_asked && flows).then_some((wave, stage))
    }

    /// Stagger's own check of units that would join: on the current state, and again together with all units
    /// under way as if their guests were at home. What is down together is always what one wave could be.
    pub(super) fn may_join(&self, snapshot: &Snapshot, units: &[UnitId]) -> Result<(), String> {
        let none = || "no plan has them together now".to_owned();
        let (wave, stage) = self.continuous_wave().ok_or_else(none)?;
        let (changing, _) = changing_and_done(wave).ok_or_else(none)?;
        let plan = self.joining_plan(snapshot).ok_or_else(none)?;
        let first = first_wave(&plan, wave).filter(|first| first.units == units);
        let first = first.ok_or_else(none)?;
        let maintenance = stage.maintenance.as_ref().ok_or_else(none)?;
        may_empty(snapshot, maintenance, units, first.moves.clone())?;

        let away = wave
            .moves
            .iter()
            .filter(|a_move| changing.contains(&&a_move.from));
        let away: Vec<Move> = away.cloned().collect();
        let all: Vec<UnitId> = changing.into_iter().chain(units).cloned().collect();
        let moves = [away.clone(), first.moves.clone()].concat();
        may_empty(&at_home(snapshot, &all, &away)?, maintenance, &all, moves)
    }

    /// The plan whose first wave may join, as far as facts tell.
    pub(super) fn joining_plan(&self, snapshot: &Snapshot) -> Option<Plan> {
        let (wave, stage) = self.continuous_wave()?;
        let (changing, done) = changing_and_done(wave)?;
        let is_down = |unit: &&UnitId| {
            let found = snapshot.find(unit);
            found.is_some_and(|ix| snapshot.unit(ix).state == UnitState::Down)
        };
        if !changing.iter().all(is_down) {
            return None;
        }
        let serve = done
            .into_iter()
            .map(|unit| (unit, ExpectedUnit::On(&stage.revision)));
        if !gate::not_serving(serve, snapshot).is_empty()
            || !gate::closed_gates(&stage.gates, snapshot).is_empty()
        {
            return None;
        }
        self.next_of(snapshot, &stage, wave)
    }

    /// The plan for the rest of that stage; its first wave may join the open one.
    pub(super) fn next_of(&self, snapshot: &Snapshot, stage: &StageSpec, wave: &OpenWave) -> Option<Plan> {
        let aside = self.currently_set_aside(snapshot.observed_at(), snapshot);
        let target = &self.start.target;
        let ask = PlanningInput {
            snapshot,
            target,
            policy: &self.start.policy,
            aside: &aside,
            earned: &self.earned,
            parent: self.plan.as_deref().filter(|plan| plan.title == target.title),
        };
        let plan = plan(&ask);
        let first = first_wave(&plan, wave)?;
        let planned = plan.stage(&wave.stage)?;
        // Each wave that growth keeps small earns the next.
        let earned = self.earned.get(&wave.stage).copied().unwrap_or(0);
        let grown = self.start.policy.growth.cap(earned, planned.parallel) >= planned.parallel;
        let last = stage.maintenance.as_ref().and_then(|wished| wished.last.as_ref());
        let may = grown && first.door.is_none() && !last.is_some_and(|last| first.units.contains(last));
        may.then_some(plan)
    }
}

/// When that wave is over, if it begins now.
pub(super) fn end_of(now: Timestamp, wave: &Wave) -> Timestamp {
    now.saturating_add(SignedDuration::from_secs(i64::from(wave.seconds)))
        .unwrap_or(Timestamp::MAX)
}

/// The first wave of a plan, if it is of the open wave's stage.
pub(super) fn first_wave<'a>(plan: &'a Plan, wave: &OpenWave) -> Option<&'a Wave> {
    match plan.parts.first()? {
        PlannedPart::Stage(stage) if stage.name == wave.stage => stage.waves.first(),
        PlannedPart::Stage(_) | PlannedPart::Step(_) => None,
    }
}

/// The same world with these moves not made, and these units serving.
pub(super) fn at_home(snapshot: &Snapshot, units: &[UnitId], moves: &[Move]) -> Result<Snapshot, String> {
    let home = snapshot.clone().serving(units);
    match snapshot.capacity() {
        None => Ok(home),
        Some(capacity) => home
            .with_capacity(capacity.undone(moves))
            .map_err(|error| error.to_string()),
    }
}

/// The units being changed and those done, if there are both and no unit is in another state.
fn changing_and_done(wave: &OpenWave) -> Option<(Vec<&UnitId>, Vec<&UnitId>)> {
    let (mut changing, mut done) = (Vec::new(), Vec::new());
    for (unit, visit) in &wave.units {
        let entered = VisitState::UnderWay {
            done: Some(Phase::Enter),
        };
        if visit.state == entered {
            changing.push(unit);
        } else if visit.state == VisitState::Done {
            done.push(unit);
        } else {
            return None;
        }
    }
    (!changing.is_empty() && !done.is_empty()).then_some((changing, done))
}
