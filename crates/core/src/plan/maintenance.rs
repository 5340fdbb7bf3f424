//! Waves of hosts whose guests are evacuated.

use super::problem::{Frame, Posed, build};
use super::waves;
use super::{Group, GroupWave, PlanningInput};
use crate::evacuation::{HostBudget, Partition, PlacementContext, WavePlacement};
use crate::model::{Code, Down, Ix, Maintenance, Reason, SharedGuests, UnitId};

/// Plans one group of hosts. `before` are the waves that a parent had left, by places in `units`.
pub(super) fn group(
    ask: &PlanningInput<'_>,
    maintenance: &Maintenance,
    world: &PlacementContext<'_>,
    down: &Down,
    frame: Frame,
    units: &[Ix],
    before: Option<&[Vec<u32>]>,
) -> Group {
    let hosts = world.hosts_of(ask.snapshot, units);
    let mut limits = world.limits(&hosts);
    limits.extend(exclusive_budgets(ask, maintenance, down, units));
    let posed = build(ask.snapshot, down, ask.policy, frame, units, &limits);
    let loose = posed.relaxed(&limits);
    let never: Vec<u32> = posed
        .problem
        .impossible()
        .iter()
        .map(|found| found.unit)
        .collect();
    let (first_bound, first_kept) = bound_without(&loose, &never);
    let mut group = Group {
        waves: Vec::new(),
        left: Vec::new(),
        at_least: 0,
        because: String::new(),
    };
    let permits = |wave: &[u32]| loose.permits(wave).is_ok();
    let cap = |place: usize| posed.problem.cap(place);
    let partition = Partition {
        world,
        hosts: &hosts,
        permits: &permits,
        cap: &cap,
        steps: ask.policy.search.steps,
        at_least: first_bound.waves as usize,
    };
    let found = match enumerate_waves(&partition, &loose, &posed, units, &mut group) {
        Some(found) => found,
        None => search_waves(ask, &partition, &posed, units, before, &mut group),
    };
    let mut found = within_growth(&partition, &posed, found);
    // A plan that is carried on never gets longer.
    if let Some(before) = before
        && before.iter().map(Vec::len).sum::<usize>()
            == found.iter().map(|wave| wave.hosts.len()).sum::<usize>()
        && before.len() <= found.len()
        && before
            .iter()
            .enumerate()
            .all(|(place, wave)| permits(wave) && wave.len() <= cap(place) as usize)
        && let Some(kept) = partition.place_waves(before)
    {
        found = kept;
    }
    if maintenance.moving.shared == SharedGuests::Rolling {
        found = partition.place_ahead(found);
    }
    let left: Vec<u32> = (0_u32..)
        .zip(units)
        .filter(|(_, unit)| group.left.iter().any(|(left, _)| left == *unit))
        .map(|(at, _)| at)
        .collect();
    let (bound, kept) = if left == never {
        (first_bound, first_kept)
    } else {
        bound_without(&loose, &left)
    };
    if bound.waves > 0 {
        let kept: Vec<Ix> = kept.iter().map(|at| units[*at as usize]).collect();
        group.at_least = bound.waves;
        group.because = posed.bound(&bound.why, &kept);
    }
    group.waves = found
        .into_iter()
        .map(|placed| GroupWave {
            units: placed.hosts.iter().map(|at| units[*at as usize]).collect(),
            migrations: placed.migrations,
        })
        .collect();
    group
}

/// How few waves the others need at best, and who they are.
fn bound_without(loose: &waves::Problem, left: &[u32]) -> (waves::LowerBound, Vec<u32>) {
    let mut is_left = vec![false; loose.units as usize];
    for at in left {
        is_left[*at as usize] = true;
    }
    let kept: Vec<u32> = (0..loose.units).filter(|at| !is_left[*at as usize]).collect();
    (waves::bound(&loose.restricted_to(&kept)), kept)
}

/// All ways to split few hosts.
fn enumerate_waves(
    partition: &Partition<'_>,
    loose: &waves::Problem,
    posed: &Posed<'_>,
    units: &[Ix],
    group: &mut Group,
) -> Option<Vec<WavePlacement>> {
    if !partition.is_small() {
        return None;
    }
    let impossible = loose.impossible();
    let mut possible = Vec::new();
    for at in 0..units.len() as u32 {
        if let Some(found) = impossible.iter().find(|found| found.unit == at) {
            group.left.push((units[at as usize], posed.reason(found.rule)));
            continue;
        }
        match partition.cut(&[at]).2 {
            Some((_, why)) => group.left.push((units[at as usize], why)),
            None => possible.push(at),
        }
    }
    partition.exact(&possible)
}

/// Waves from the solver; hosts that cannot be emptied beside the others go elsewhere, again and again.
fn search_waves(
    ask: &PlanningInput<'_>,
    partition: &Partition<'_>,
    posed: &Posed<'_>,
    units: &[Ix],
    before: Option<&[Vec<u32>]>,
    group: &mut Group,
) -> Vec<WavePlacement> {
    let search = waves::SearchBudget {
        seed: ask.policy.search.seed,
        steps: ask.policy.search.steps,
    };
    let mut found: Vec<WavePlacement> = Vec::new();
    let mut todo: Vec<u32> = (0..units.len() as u32).collect();
    let narrower = match before {
        Some(_) => None,
        None => standbys_apart(partition, &posed.problem),
    };
    let mut before = before.or(narrower.as_deref());
    while !todo.is_empty() {
        let part = posed.problem.restricted_to(&todo);
        let solution = waves::solve_with(&part, search, waves::Tenure::Long, before.take());
        for impossible in &solution.impossible {
            let at = todo[impossible.unit as usize] as usize;
            group.left.push((units[at], posed.reason(impossible.rule)));
        }
        let mut rest = Vec::new();
        for wave in &solution.waves {
            let wave: Vec<u32> = wave.iter().map(|at| todo[*at as usize]).collect();
            let (placed, more, stuck) = partition.cut(&wave);
            found.extend(placed);
            rest.extend(more);
            if let Some((at, why)) = stuck {
                group.left.push((units[at as usize], why));
            }
        }
        rest.sort_unstable();
        todo = partition.fill(&mut found, rest);
        if todo.len() == part.units as usize {
            // No placement was found: each host is reported alone.
            for at in std::mem::take(&mut todo) {
                let (placed, _, stuck) = partition.cut(&[at]);
                found.extend(placed);
                if let Some((at, why)) = stuck {
                    group.left.push((units[at as usize], why));
                }
            }
        }
    }
    partition.refine(found)
}

/// The waves of hosts without a standby in common. Hosts that have one may share a wave if it has the room, so these
/// are permitted; and where room is scarce it is easier to begin from them than to find them.
fn standbys_apart(partition: &Partition<'_>, problem: &waves::Problem) -> Option<Vec<Vec<u32>>> {
    let apart = partition.world.standbys_apart(partition.hosts);
    if apart.is_empty() {
        return None;
    }
    let mut narrower = problem.clone();
    for limit in &apart {
        narrower.budgets.push_with_costs(&limit.members, limit.most);
    }
    let built = waves::SearchBudget { seed: 0, steps: 0 };
    Some(waves::solve(&narrower, built, None).waves)
}

fn within_growth(
    partition: &Partition<'_>,
    posed: &Posed<'_>,
    found: Vec<WavePlacement>,
) -> Vec<WavePlacement> {
    let keeps =
        |(place, wave): (usize, &WavePlacement)| wave.hosts.len() <= posed.problem.cap(place) as usize;
    if found.iter().enumerate().all(keeps) {
        return found;
    }
    let cut = waves::cut(
        found.iter().map(|wave| wave.hosts.clone()).collect(),
        &posed.problem.caps,
    );
    partition.cut_for_growth(&found, cut)
}

/// Units of which one may be down at a time.
fn exclusive_budgets(
    ask: &PlanningInput<'_>,
    maintenance: &Maintenance,
    down: &Down,
    units: &[Ix],
) -> Vec<HostBudget> {
    let snapshot = ask.snapshot;
    let is_down = |unit: &UnitId| snapshot.find(unit).is_none_or(|unit| down.has(unit));
    maintenance
        .one_at_a_time
        .iter()
        .map(|one| {
            let members = (0_u32..)
                .zip(units)
                .filter(|(_, unit)| one.units.binary_search(&snapshot.unit(**unit).id).is_ok())
                .map(|(at, _)| (at, 1));
            HostBudget {
                members: members.collect(),
                most: u32::from(!one.units.iter().any(is_down)),
                loose: None,
                why: Reason::new(Code::OneAtATime, one.why.clone()),
            }
        })
        .collect()
}
