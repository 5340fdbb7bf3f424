//! A schedule without barriers: a unit starts as soon as the units that it conflicts with are done.
//!
//! Moves are those of the waves. What is down at any time satisfies the same budgets, limits and capacity as
//! a wave. Waves that growth keeps small remain barriers, since each must pass before the next.

mod live;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::model::{
    Growth, Ix, Kind, Move, PlannedStage, PlanningInput, Schedule, ScheduledVisit, Snapshot, StageSpec,
    USUAL_VISIT, UnitId,
};
use live::Live;

/// At each end of a visit so many of those that wait are looked at, in their order.
const LOOKED_AT: usize = 256;

/// How long the moves of a unit and the rest of its visit take, in seconds: one move after another, there and back.
fn visit_seconds(snapshot: &Snapshot, stage: &StageSpec, moves: &[&Move]) -> u32 {
    let visit = snapshot.duration(&stage.kind).unwrap_or(USUAL_VISIT).as_secs();
    let moves: i64 = moves
        .iter()
        .map(|a_move| {
            let kind = Kind::new(a_move.how.name()).ok();
            let measured = kind.and_then(|kind| snapshot.duration(&kind));
            2 * measured.unwrap_or(a_move.how.default_duration()).as_secs()
        })
        .sum();
    u32::try_from(visit.saturating_add(moves)).unwrap_or(u32::MAX)
}

/// The moves of each unit: those that empty it.
fn by_unit(moves: &[Move]) -> BTreeMap<&UnitId, Vec<&Move>> {
    let mut by_unit: BTreeMap<&UnitId, Vec<&Move>> = BTreeMap::new();
    for a_move in moves {
        by_unit.entry(&a_move.from).or_default().push(a_move);
    }
    by_unit
}

/// How long a wave with these moves takes: as long as the longest of its visits.
pub(crate) fn longest_visit(snapshot: &Snapshot, stage: &StageSpec, moves: &[Move]) -> u32 {
    by_unit(moves)
        .values()
        .map(|moves| visit_seconds(snapshot, stage, moves))
        .max()
        .unwrap_or_else(|| visit_seconds(snapshot, stage, &[]))
}

/// The schedule of a planned stage.
pub(crate) fn schedule(ask: &PlanningInput<'_>, stage: &StageSpec, planned: &PlannedStage) -> Schedule {
    let PlanningInput { snapshot, policy, .. } = *ask;
    let earned = ask.earned.get(&stage.name).copied().unwrap_or(0);
    let soak = u32::try_from(policy.soak_after(false).as_secs()).unwrap_or(u32::MAX);
    let last = stage
        .maintenance
        .as_ref()
        .and_then(|maintenance| maintenance.last.as_ref());
    let mut live = Live::new(ask, stage, planned);
    let mut turns: Vec<ScheduledVisit> = Vec::new();
    let (mut now, mut index) = (0_u32, 0_usize);
    while index < planned.waves.len() {
        // Growth: one wave, and its end is waited for; then all that are left, freely.
        let cap = policy.growth.cap(earned + index as u32, planned.parallel);
        let grows = policy.growth != Growth::None && cap < planned.parallel;
        let waves = if grows {
            index..index + 1
        } else {
            index..planned.waves.len()
        };
        index = waves.end;
        let mut waiting: VecDeque<Waiting> = VecDeque::new();
        for wave in &planned.waves[waves.clone()] {
            let moves = by_unit(&wave.moves);
            let mut units: Vec<Waiting> = wave
                .units
                .iter()
                .filter_map(|unit| {
                    let moves = moves.get(unit).map_or(&[][..], Vec::as_slice);
                    let seconds = visit_seconds(snapshot, stage, moves)
                        .saturating_add(policy.gate_hold)
                        .saturating_add(soak);
                    Some(Waiting {
                        unit: snapshot.find(unit)?,
                        host: snapshot.capacity().and_then(|capacity| capacity.find(unit)),
                        seconds,
                        is_last: last == Some(unit),
                    })
                })
                .collect();
            // Whatever takes longest begins first, but for the one that is to be last.
            units.sort_by_key(|waiting| (waiting.is_last, std::cmp::Reverse(waiting.seconds)));
            waiting.extend(units);
        }
        now = freely(snapshot, &mut live, waiting, now, &mut turns);
        if grows && index == 1 && earned == 0 {
            let canary = u32::try_from(policy.soak_after(true).as_secs()).unwrap_or(u32::MAX);
            now = now.saturating_add(canary.saturating_sub(soak));
        }
    }
    let by_waves = by_waves(ask, stage, planned);
    if by_waves.seconds < now || turns.len() < by_waves.turns.len() {
        // A unit that starts early may block a longer one.
        return by_waves;
    }
    Schedule { seconds: now, turns }
}

/// The schedule of whole waves, with their barriers.
fn by_waves(ask: &PlanningInput<'_>, stage: &StageSpec, planned: &PlannedStage) -> Schedule {
    let mut seconds = 0_u32;
    let mut turns = Vec::new();
    for wave in &planned.waves {
        let moves = by_unit(&wave.moves);
        turns.extend(wave.units.iter().map(|unit| {
            let moves = moves.get(unit).map_or(&[][..], Vec::as_slice);
            ScheduledVisit {
                unit: unit.clone(),
                start: seconds,
                seconds: visit_seconds(ask.snapshot, stage, moves)
                    .saturating_add(ask.policy.gate_hold)
                    .min(wave.seconds),
            }
        }));
        seconds = seconds.saturating_add(wave.seconds);
    }
    Schedule { seconds, turns }
}

/// A unit that has not begun.
#[derive(Debug, Clone, Copy)]
struct Waiting {
    unit: Ix,
    host: Option<u32>,
    seconds: u32,
    /// It begins when all others have begun.
    is_last: bool,
}

/// Begins each as soon as it may; says when the last is done.
fn freely(
    snapshot: &Snapshot,
    live: &mut Live<'_>,
    mut waiting: VecDeque<Waiting>,
    from: u32,
    turns: &mut Vec<ScheduledVisit>,
) -> u32 {
    let (mut now, mut last) = (from, from);
    // Those that are down now, by when they end.
    let mut down: BTreeSet<(u32, Ix, Option<u32>)> = BTreeSet::new();
    loop {
        let mut still: Vec<Waiting> = Vec::new();
        while still.len() < LOOKED_AT
            && let Some(next) = waiting.pop_front()
        {
            let waits = next.is_last && !(still.is_empty() && waiting.is_empty());
            if waits || !live.start(next.unit, next.host) {
                still.push(next);
                continue;
            }
            let turn = ScheduledVisit {
                unit: snapshot.unit(next.unit).id.clone(),
                start: now,
                seconds: next.seconds,
            };
            last = last.max(turn.end());
            down.insert((turn.end(), next.unit, next.host));
            turns.push(turn);
        }
        for next in still.into_iter().rev() {
            waiting.push_front(next);
        }
        let Some((end, ..)) = down.first().copied() else {
            return last;
        };
        now = end;
        while let Some((at, unit, host)) = down.first().copied().filter(|(at, ..)| *at == end) {
            live.end(unit, host);
            down.remove(&(at, unit, host));
        }
    }
}
