//! Planning, in the order of its steps.
//!
//! 1. [`eligible`]: which units of each stage are visited, and why the others are not;
//! 2. [`order`]: which units come before which, as groups;
//! 3. [`problem`]: the constraints in the solver's form;
//! 4. [`waves`]: the fewest waves for each group, and their lower bound;
//! 5. [`evacuation`]: where the guests of hosts go, for a maintenance of hosts.
//!
//! Stages are never batched together. The plan names skipped units, and what then waits for them:
//! [`reachability`].

pub(crate) mod eligible;
mod maintenance;
mod order;
pub(crate) mod problem;
mod reachability;
mod selection;
pub mod waves;

use std::collections::BTreeSet;

pub use crate::model::{
    Interrupted, LeftAlone, Move, Plan, PlannedPart, PlannedStage, PlannedStep, PlanningInput, Schedule,
    ScheduledVisit, USUAL_VISIT, Wave,
};
pub use reachability::blocking_reasons;
pub use selection::{Selection, SelectionError};

use crate::evacuation;
use crate::model::{
    Capacity, Down, Ix, Migration, MoveKind, Part, Policy, Reason, Search, Snapshot, StageSpec, StepSpec,
    UnitId, Verdict, Width,
};

/// The plan that leads from the snapshot to the target.
pub fn plan(ask: &PlanningInput<'_>) -> Plan {
    planned(ask, true, None)
}

/// The same plan, with a search that continues until `stop` returns true. The plan records the number of
/// steps; a policy with that number gives the same plan again.
///
/// `None` if one number of steps cannot reproduce it: `stop` ended more than one search, or hosts are
/// emptied, which takes searches of its own.
pub fn plan_until(ask: &PlanningInput<'_>, stop: &mut dyn FnMut() -> bool) -> Option<Plan> {
    if ask.target.stages().any(|stage| stage.maintenance.is_some()) {
        return None;
    }
    let mut clock = Clock {
        stop,
        stopped: Vec::new(),
        most: 1,
    };
    let mut plan = planned(ask, true, Some(&mut clock));
    let Clock { stopped, most, .. } = clock;
    plan.search.steps = most;
    (stopped.is_empty() || stopped == [most]).then(|| plan.identified())
}

/// What ends a search.
struct Clock<'a> {
    stop: &'a mut dyn FnMut() -> bool,
    /// The steps of each search that was ended.
    stopped: Vec<u64>,
    /// The steps of the longest search.
    most: u64,
}

/// The same plan without a schedule, which takes longer to compute than the waves.
pub fn plan_waves(ask: &PlanningInput<'_>) -> Plan {
    planned(ask, false, None)
}

fn planned(ask: &PlanningInput<'_>, scheduled: bool, mut clock: Option<&mut Clock<'_>>) -> Plan {
    let PlanningInput {
        snapshot,
        target,
        policy,
        ..
    } = *ask;
    let mut parts = Vec::new();
    let mut left_alone = Vec::new();
    for part in &target.parts {
        match part {
            Part::Stage(stage) => {
                let (planned, left) = plan_stage(ask, stage, scheduled, clock.as_deref_mut());
                left_alone.extend(left);
                parts.extend(planned.map(PlannedPart::Stage));
            }
            Part::Step(step) => parts.extend(plan_step(snapshot, step).map(PlannedPart::Step)),
        }
    }
    let interruptions = reachability::interrupted(snapshot, &parts, &left_alone);
    reachability::note_waits(target, &parts, &mut left_alone);
    Plan {
        document: Plan::DOCUMENT.to_owned(),
        version: Plan::VERSION,
        id: String::new(),
        parent: ask.parent.map(|parent| parent.id.clone()),
        cluster: snapshot.cluster().clone(),
        title: target.title.clone(),
        generation: snapshot.generation().to_owned(),
        parts,
        left_alone,
        absent: snapshot.absent().to_vec(),
        interruptions,
        bystanders: snapshot.bystanders().to_vec(),
        search: Search {
            seed: policy.search.seed,
            steps: policy.search.steps,
        },
    }
    .identified()
}

fn plan_step(snapshot: &Snapshot, step: &StepSpec) -> Option<PlannedStep> {
    let done = snapshot.condition(&step.done_when).verdict == Verdict::Yes;
    (!done).then(|| PlannedStep {
        name: step.name.clone(),
        door: step.door.clone(),
        why: step.why.clone(),
    })
}

/// The plan of one group of a stage.
struct Group {
    waves: Vec<GroupWave>,
    left: Vec<(Ix, Reason)>,
    at_least: u32,
    because: String,
}

/// A wave of a group, with the moves of its hosts' guests.
struct GroupWave {
    units: Vec<Ix>,
    migrations: Vec<Migration>,
}

fn plan_stage(
    ask: &PlanningInput<'_>,
    stage: &StageSpec,
    scheduled: bool,
    mut clock: Option<&mut Clock<'_>>,
) -> (Option<PlannedStage>, Vec<LeftAlone>) {
    let PlanningInput { snapshot, policy, .. } = *ask;
    let selected = eligible::select(snapshot, ask.target, stage, ask.aside);
    let parallel = match stage.width {
        Width::Single => 1,
        Width::Policy => policy.parallel(&stage.kind, selected.all),
    };
    let parent = ask.parent.and_then(|plan| plan.stage(&stage.name));
    let down = snapshot.down();
    let hosts = stage.maintenance.as_ref().zip(snapshot.capacity());
    let world = hosts.map(|(maintenance, capacity)| {
        (
            maintenance,
            evacuation::PlacementContext::new(snapshot, capacity, &maintenance.moving),
        )
    });
    let mut left_alone = selected.left_alone;
    let mut waves: Vec<GroupWave> = Vec::new();
    let (mut at_least, mut because) = (0, Vec::new());
    let mut earned = ask.earned.get(&stage.name).copied().unwrap_or(0);

    let groups = order::groups(snapshot, stage, policy, &selected.todo);
    let last = order::last(snapshot, stage);
    let last_alone = last.filter(|last| groups.len() == 2 && groups[1] == [*last]);
    for units in groups {
        let frame = problem::Frame {
            parallel,
            down: selected.down,
            earned,
        };
        let before = parent.map(|stage| remaining(snapshot, stage, &units));
        let before = before.as_deref();
        let group = match &world {
            Some((maintenance, world)) => {
                maintenance::group(ask, maintenance, world, &down, frame, &units, before)
            }
            None => plan_group(ask, &down, frame, &units, before, clock.as_deref_mut()),
        };
        left_alone.extend(group.left);
        if group.at_least > 0 {
            at_least += group.at_least;
            because.push(group.because);
        }
        earned += group.waves.len() as u32;
        waves.extend(group.waves);
    }
    if let Some(last) = last {
        waves.sort_by_key(|wave| wave.units.contains(&last));
    }

    left_alone.sort_by_key(|(unit, _)| *unit);
    let left = left_alone
        .iter()
        .map(|(unit, reason)| LeftAlone {
            unit: snapshot.unit(*unit).id.clone(),
            stage: stage.name.clone(),
            reason: reason.clone(),
            needed_by: None,
        })
        .collect();
    if waves.is_empty() {
        return (None, left);
    }
    let last = waves.len() - 1;
    let planned = waves
        .into_iter()
        .enumerate()
        .map(|(at, wave)| {
            let moves = moves(snapshot, &wave.migrations);
            let seconds = wave_seconds(snapshot, stage, policy, &moves);
            Wave {
                // Whatever is left alone keeps the door shut: it stands before the last unit of all.
                door: stage
                    .door_before_last
                    .clone()
                    .filter(|_| at == last && left_alone.is_empty()),
                units: wave
                    .units
                    .into_iter()
                    .map(|unit| snapshot.unit(unit).id.clone())
                    .collect(),
                seconds: seconds.saturating_add(soak_seconds(policy, at == 0 && is_first_wave(ask, stage))),
                moves,
            }
        })
        .collect();
    let mut planned = PlannedStage {
        name: stage.name.clone(),
        kind: stage.kind.clone(),
        revision: stage.revision.clone(),
        all: selected.all,
        parallel,
        waves: planned,
        at_least,
        at_least_because: wave_count_reason(&because, last_alone.map(|last| &snapshot.unit(last).id)),
        going_back: stage.going_back.clone(),
        schedule: None,
    };
    if scheduled && (world.is_some() || !policy.barrier) {
        planned.schedule = Some(evacuation::schedule(ask, stage, &planned));
    }
    (Some(planned), left)
}

/// Why a stage takes this many waves, from the reasons of its groups. The second of two groups may be a
/// single unit that is ordered last.
fn wave_count_reason(groups: &[String], last: Option<&UnitId>) -> String {
    match (groups, last) {
        ([others, alone], Some(last)) if others != alone => format!("{others}, and {last} last"),
        ([one, rest @ ..], _) if rest.iter().all(|other| other == one) => one.clone(),
        _ => "serial by policy".to_owned(),
    }
}

impl Clock<'_> {
    fn solve(&mut self, problem: &waves::Problem, seed: u64, before: Option<&[Vec<u32>]>) -> waves::Solution {
        let mut stopped = false;
        let mut stop = || {
            stopped = (self.stop)();
            stopped
        };
        let search = waves::SearchBudget {
            seed,
            steps: u64::MAX,
        };
        let solution = waves::solve_until(problem, search, waves::Tenure::Published, before, &mut stop);
        self.most = self.most.max(solution.steps_used);
        if stopped {
            self.stopped.push(solution.steps_used);
        }
        solution
    }
}

/// Plans one group of units that carry nothing that has to be moved.
fn plan_group(
    ask: &PlanningInput<'_>,
    down: &Down,
    frame: problem::Frame,
    units: &[Ix],
    before: Option<&[Vec<u32>]>,
    clock: Option<&mut Clock<'_>>,
) -> Group {
    let posed = problem::build(ask.snapshot, down, ask.policy, frame, units, &[]);
    let seed = ask.policy.search.seed;
    let solution = match clock {
        None => {
            let steps = ask.policy.search.steps;
            waves::solve(&posed.problem, waves::SearchBudget { seed, steps }, before)
        }
        Some(clock) => clock.solve(&posed.problem, seed, before),
    };
    let left = solution
        .impossible
        .iter()
        .map(|impossible| (units[impossible.unit as usize], posed.reason(impossible.rule)));
    let waves = solution.waves.iter().map(|wave| GroupWave {
        units: wave.iter().map(|at| units[*at as usize]).collect(),
        migrations: Vec::new(),
    });
    Group {
        waves: waves.collect(),
        left: left.collect(),
        at_least: solution.bound.waves,
        because: if solution.bound.waves > 0 {
            posed.bound(&solution.bound.why, units)
        } else {
            String::new()
        },
    }
}

/// Moves by names.
fn moves(snapshot: &Snapshot, migrations: &[Migration]) -> Vec<Move> {
    snapshot
        .capacity()
        .map_or_else(Vec::new, |capacity| by_names(capacity, migrations))
}

/// The moves by names.
fn by_names(capacity: &Capacity, migrations: &[Migration]) -> Vec<Move> {
    let unit = |host: u32| capacity.host(host).unit.clone();
    let mut moved: BTreeSet<u32> = BTreeSet::new();
    let name = |migration: &Migration| {
        let guest = capacity.guest(migration.guest);
        // Once a guest has gone to its standby, its second copy is where it came from.
        let from = match (migration.how, guest.standby) {
            (MoveKind::ReplaceStandby, Some(standby)) if !moved.contains(&migration.guest) => standby,
            (MoveKind::ReplaceStandby | MoveKind::Migrate | MoveKind::Relocate, _) => {
                moved.insert(migration.guest);
                guest.host
            }
        };
        Move {
            guest: guest.name.clone(),
            how: migration.how,
            from: unit(from),
            to: unit(migration.to),
        }
    };
    migrations.iter().map(name).collect()
}

fn is_first_wave(ask: &PlanningInput<'_>, stage: &StageSpec) -> bool {
    ask.earned.get(&stage.name).copied().unwrap_or(0) == 0
}

fn soak_seconds(policy: &Policy, canary: bool) -> u32 {
    u32::try_from(policy.soak_after(canary).as_secs()).unwrap_or(u32::MAX)
}

/// How long a wave is expected to take, without its soak: the longest of its visits.
fn wave_seconds(snapshot: &Snapshot, stage: &StageSpec, policy: &Policy, moves: &[Move]) -> u32 {
    evacuation::longest_visit(snapshot, stage, moves).saturating_add(policy.gate_hold)
}

/// The parent's waves of that stage, of units that are still to be visited, as places in `units`.
fn remaining(snapshot: &Snapshot, parent: &PlannedStage, units: &[Ix]) -> Vec<Vec<u32>> {
    let place = |id: &UnitId| {
        let unit = snapshot.find(id)?;
        units
            .binary_search(&unit)
            .ok()
            .or_else(|| units.iter().position(|u| *u == unit))
            .map(|at| at as u32)
    };
    parent
        .waves
        .iter()
        .map(|wave| wave.units.iter().filter_map(place).collect::<Vec<_>>())
        .filter(|wave| !wave.is_empty())
        .collect()
}
