//! Guards to take, renew and clear.

use jiff::Timestamp;

use super::decide::Decision;
use super::event::Action;
use super::state::State;
use crate::model::{GuardName, GuardScope, GuardSpec, Part, PartName, UnitId};

/// How often giving a guard back is tried before it is left to its expiry.
const DROPS: u32 = 3;

/// After this part of a guard's time a renewal that failed is tried again.
const AGAIN: i32 = 20;

impl State {
    /// Whether guards of a wave that is over are still to be given back.
    pub(super) fn has_uncleared_guards(&self) -> bool {
        let owed = |units: &[UnitId], drops: u32| !units.is_empty() && drops < DROPS;
        self.wave.is_none()
            && self
                .guards
                .iter()
                .any(|((_, units), taken)| owed(units, taken.drops))
    }

    /// Guards that are no longer needed. `next_stage`: the next stage, if it is known.
    pub(super) fn clear_guards(&self, next_stage: Option<&PartName>) -> Option<Decision> {
        // A rollback, or a run that ends after one, has no next stage.
        let over = self.aborting || self.going_back.is_some() || self.rolled_back.is_some();
        let undecided = next_stage.is_none() && !self.plan_is_fresh && !over;
        let wanted = |guard: &GuardName| {
            let mut scopes = self.start.target.parts.iter().filter_map(|part| match part {
                Part::Stage(stage) => stage
                    .guards
                    .iter()
                    .find(|spec| spec.name == *guard)
                    .map(|spec| (stage, spec)),
                Part::Step(_) => None,
            });
            scopes.any(|(stage, spec)| {
                spec.scope == GuardScope::Stage && (undecided || (!over && next_stage == Some(&stage.name)))
            })
        };
        let fresh: Vec<_> = self
            .guards
            .iter()
            .filter(|((guard, _), taken)| !wanted(guard) && taken.drops < DROPS)
            .map(|((guard, units), _)| Action::DropGuard {
                guard: guard.clone(),
                units: units.clone(),
            })
            .collect();
        (!fresh.is_empty()).then(|| Decision::act(fresh))
    }

    /// Guards that a stage wants for these units and that are not there or soon go by themselves.
    pub(super) fn missing_guards(
        &self,
        now: Timestamp,
        specs: &[GuardSpec],
        units: &[UnitId],
    ) -> Vec<Action> {
        specs
            .iter()
            .filter_map(|spec| {
                let units = match spec.scope {
                    GuardScope::Stage => Vec::new(),
                    // Nothing more is begun before a person has been there.
                    GuardScope::WorkingWave if self.held.is_some() => return None,
                    GuardScope::Wave | GuardScope::WorkingWave => units.to_vec(),
                };
                let half = spec.expiry / 2;
                let fine = self
                    .guards
                    .get(&(spec.name.clone(), units.clone()))
                    .is_some_and(|taken| {
                        let in_time =
                            |from: Timestamp, more| from.saturating_add(more).unwrap_or(Timestamp::MAX);
                        let again = taken.tried.map(|tried| in_time(tried, spec.expiry / AGAIN));
                        in_time(now, half) < taken.until
                            || now < taken.until && again.is_some_and(|again| now < again)
                    });
                let expires = u32::try_from(spec.expiry.as_secs()).unwrap_or(u32::MAX);
                (!fine).then(|| Action::TakeGuard {
                    guard: spec.name.clone(),
                    units,
                    expires,
                })
            })
            .collect()
    }

    /// Guards that are not kept while a person is waited for; `None`: there are none, or they do not let go.
    pub(super) fn clear_guards_while_held(&self) -> Option<Decision> {
        self.held.as_ref()?;
        let stage = self.stage(&self.wave.as_ref()?.stage)?;
        let of_work = |guard: &GuardName| {
            let mut specs = stage.guards.iter();
            specs.any(|spec| spec.name == *guard && spec.scope == GuardScope::WorkingWave)
        };
        let fresh: Vec<_> = self
            .guards
            .iter()
            .filter(|((guard, _), taken)| of_work(guard) && taken.drops < DROPS)
            .map(|((guard, units), _)| Action::DropGuard {
                guard: guard.clone(),
                units: units.clone(),
            })
            .collect();
        (!fresh.is_empty()).then(|| Decision::act(fresh))
    }

    /// Guards of the open wave that soon go by themselves while effects are under way, which may take longer than
    /// a guard lasts. Those of which that is being done already are not among them.
    pub(super) fn renewals(&self, now: Timestamp) -> Vec<Action> {
        let Some(wave) = self.wave.as_ref().filter(|wave| wave.is_agreed()) else {
            return Vec::new();
        };
        let Some(stage) = self.stage(&wave.stage) else {
            return Vec::new();
        };
        let units: Vec<UnitId> = wave.units.keys().cloned().collect();
        let mut due = self.missing_guards(now, &stage.guards, &units);
        due.retain(|action| {
            let Action::TakeGuard { guard, units, .. } = action else {
                return false;
            };
            let is_held = self.guards.contains_key(&(guard.clone(), units.clone()));
            is_held && !self.open.values().any(|open| open == action)
        });
        due
    }
}
