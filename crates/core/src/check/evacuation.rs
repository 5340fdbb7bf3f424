//! Checks that the guests of each wave have a destination: every guest that must move does, no other guest
//! moves, and all of it fits.
//!
//! Everything is recomputed from the snapshot and the plan. The only code shared with the planner is the
//! constraint predicate ([`Capacity::permit`]).

use std::collections::{BTreeMap, BTreeSet};

use super::{Fault, Finding, IndependentCheck};
use crate::model::{
    Capacity, Evacuate, GuestHandling, Ix, Maintenance, Migration, MoveKind, SharedGuests, Snapshot,
    Standbys, Storage, UnitId, UnitState,
};
use crate::plan::{Move, PlanningInput, Schedule, Wave};

/// A schedule is a forecast: overlapping visits are checked up to this many units. Each wave of a larger plan
/// is checked in any case.
const SCHEDULED: usize = 1_000;

impl IndependentCheck<'_> {
    /// All that a maintenance asks beside what every stage does.
    pub(super) fn maintenance(&self, findings: &mut Vec<Finding>) {
        let Some((maintenance, planned)) = self.stage.maintenance.as_ref().zip(self.planned) else {
            return;
        };
        if let Some(last) = &maintenance.last {
            let early = planned.waves.iter().rev().skip(1);
            for _ in early.filter(|wave| wave.units.contains(last)) {
                findings.push(self.found(Fault::LastNotLast, last.as_str()));
            }
        }
        let snapshot = self.ask.snapshot;
        let names = snapshot.capacity().map_or_else(BTreeMap::new, by_name);
        let down = snapshot
            .capacity()
            .map_or_else(Vec::new, |capacity| not_serving(snapshot, capacity));
        for (at, wave) in planned.waves.iter().enumerate() {
            let name = format!("wave {}", at + 1);
            let mut said = Vec::new();
            exclusive_hosts(snapshot, maintenance, &wave.units, &mut said);
            if let Some(capacity) = snapshot.capacity() {
                let wave_judge = WaveJudge {
                    down: &down,
                    capacity,
                    maintenance,
                    names: &names,
                };
                wave_judge.check_wave(wave, &mut said);
            }
            for (fault, detail) in said {
                findings.push(self.found(fault, format!("{name}: {detail}")));
            }
        }
        if let Some(schedule) = &planned.schedule {
            let units: usize = planned.waves.iter().map(|wave| wave.units.len()).sum();
            let turns: BTreeSet<&UnitId> = schedule.turns.iter().map(|turn| &turn.unit).collect();
            if turns.len() != units || schedule.turns.len() != units {
                let detail = format!("{} turns for {units} units", schedule.turns.len());
                findings.push(self.found(Fault::ScheduleBroken, detail));
            } else if let Some(last) = &maintenance.last
                && let Some(turn) = schedule.turns.iter().find(|turn| turn.unit == *last)
                && schedule.turns.iter().any(|other| other.start > turn.start)
            {
                findings.push(self.found(Fault::LastNotLast, format!("{last} in the schedule")));
            } else if units <= SCHEDULED {
                self.schedule(maintenance, schedule, (&down, &names), findings);
            }
        }
    }

    /// Whatever is down at any time of a schedule may be down together.
    fn schedule(
        &self,
        maintenance: &Maintenance,
        schedule: &Schedule,
        (hosts_down, names): (&[u32], &BTreeMap<&str, u32>),
        findings: &mut Vec<Finding>,
    ) {
        let Some(planned) = self.planned else { return };
        let PlanningInput { snapshot, policy, .. } = *self.ask;
        let before = self.ask.earned.get(&self.stage.name).copied().unwrap_or(0);
        let ends: BTreeMap<&UnitId, u32> = schedule
            .turns
            .iter()
            .map(|turn| (&turn.unit, turn.end()))
            .collect();
        // When the last of each wave is done.
        let done = |wave: &Wave| {
            let ends = wave.units.iter().map(|unit| ends.get(unit).copied());
            ends.map(|end| end.unwrap_or(u32::MAX)).max().unwrap_or(0)
        };
        let waves: Vec<u32> = planned.waves.iter().map(done).collect();
        let mut moves: BTreeMap<&UnitId, Vec<&Move>> = BTreeMap::new();
        for a_move in planned.waves.iter().flat_map(|wave| &wave.moves) {
            moves.entry(&a_move.from).or_default().push(a_move);
        }
        for turn in &schedule.turns {
            // Most are down right after one has begun.
            let at = turn.start;
            let down: Vec<UnitId> = schedule
                .turns
                .iter()
                .filter(|other| other.start <= at && at < other.end().max(other.start + 1))
                .map(|other| other.unit.clone())
                .collect();
            let mut said = Vec::new();
            exclusive_hosts(snapshot, maintenance, &down, &mut said);
            let set: Vec<Ix> = down.iter().filter_map(|unit| snapshot.find(unit)).collect();
            let budgets = snapshot.budgets_once_recovered();
            if let Err(violation) = budgets.permit(&snapshot.down(), &set) {
                let text = snapshot.describe_violation(budgets, &violation);
                said.push((Fault::OverBudget, text));
            }
            let passed = waves.iter().filter(|end| **end <= at).count();
            let earned = before.saturating_add(passed as u32);
            said.extend(self.against_policy(policy, &set, earned));
            if let Some(capacity) = snapshot.capacity() {
                let moves = down
                    .iter()
                    .flat_map(|unit| moves.get(unit).into_iter().flatten())
                    .map(|a_move| (*a_move).clone())
                    .collect();
                let wave = Wave {
                    units: down,
                    door: None,
                    seconds: 0,
                    moves,
                };
                let judge = WaveJudge {
                    down: hosts_down,
                    capacity,
                    maintenance,
                    names,
                };
                judge.check_wave(&wave, &mut said);
            }
            if let Some((fault, detail)) = said.first() {
                let detail = format!("when {} starts: {fault}: {detail}", turn.unit);
                findings.push(self.found(Fault::ScheduleBroken, detail));
                return;
            }
        }
    }
}

/// Whether hosts may be emptied together now, and what they carry finds its place: the judge's word on one wave,
/// on fresh facts.
///
/// # Errors
/// The first thing that is wrong with it.
pub fn may_empty(
    snapshot: &Snapshot,
    maintenance: &Maintenance,
    units: &[UnitId],
    moves: Vec<Move>,
) -> Result<(), String> {
    let mut said = Vec::new();
    exclusive_hosts(snapshot, maintenance, units, &mut said);
    if let Some(capacity) = snapshot.capacity() {
        let judge = WaveJudge {
            down: &not_serving(snapshot, capacity),
            capacity,
            maintenance,
            names: &by_name(capacity),
        };
        let wave = Wave {
            units: units.to_vec(),
            door: None,
            seconds: 0,
            moves,
        };
        judge.check_wave(&wave, &mut said);
    }
    match said.into_iter().next() {
        None => Ok(()),
        Some((fault, detail)) => Err(format!("{fault}: {detail}")),
    }
}

fn exclusive_hosts(
    snapshot: &Snapshot,
    maintenance: &Maintenance,
    units: &[UnitId],
    said: &mut Vec<(Fault, String)>,
) {
    let serves = |unit: &UnitId| {
        let found = snapshot.find(unit);
        found.is_some_and(|ix| snapshot.unit(ix).state == UnitState::Serving)
    };
    for one in &maintenance.one_at_a_time {
        let of_these = |unit: &&UnitId| one.units.contains(unit);
        let visited: Vec<_> = units.iter().filter(of_these).map(UnitId::as_str).collect();
        let down = one.units.iter().filter(|unit| !serves(unit));
        if visited.len() + down.count() > 1 && !visited.is_empty() {
            said.push((Fault::TwoAtOnce, format!("{}: {}", visited.join(" "), one.why)));
        }
    }
}

/// Hosts that do not serve.
fn not_serving(snapshot: &Snapshot, capacity: &Capacity) -> Vec<u32> {
    (0..capacity.hosts().len() as u32)
        .filter(|host| {
            let unit = snapshot.find(&capacity.host(*host).unit);
            unit.is_none_or(|unit| snapshot.unit(unit).state != UnitState::Serving)
        })
        .collect()
}

fn by_name(capacity: &Capacity) -> BTreeMap<&str, u32> {
    (0_u32..)
        .zip(capacity.guests())
        .map(|(at, guest)| (guest.name.as_str(), at))
        .collect()
}

struct WaveJudge<'a> {
    /// Hosts that do not serve.
    down: &'a [u32],
    capacity: &'a Capacity,
    maintenance: &'a Maintenance,
    names: &'a BTreeMap<&'a str, u32>,
}

impl WaveJudge<'_> {
    fn check_wave(&self, wave: &Wave, said: &mut Vec<(Fault, String)>) {
        let (capacity, moving) = (self.capacity, &self.maintenance.moving);
        let set: BTreeSet<u32> = wave.units.iter().filter_map(|unit| capacity.find(unit)).collect();
        let down = self.down;
        for host in &set {
            if let Some(reason) = moving.forbids(capacity, *host) {
                let unit = &capacity.host(*host).unit;
                said.push((Fault::UnitUncalledFor, format!("{unit}: {reason}")));
            }
        }
        let Some(migrations) = self.migrations(wave, said) else {
            return;
        };
        // Where each guest is at that point: running guests must have left, all others must not.
        let mut left: BTreeSet<u32> = BTreeSet::new();
        let mut copies: BTreeSet<u32> = BTreeSet::new();
        let mut runs_on: BTreeMap<u32, u32> = BTreeMap::new();
        for migration in &migrations {
            self.migration(migration, &set, down, &runs_on, said);
            let fresh = match migration.how {
                MoveKind::ReplaceStandby => copies.insert(migration.guest),
                MoveKind::Migrate | MoveKind::Relocate => left.insert(migration.guest),
            };
            if !fresh {
                let name = &capacity.guest(migration.guest).name;
                said.push((Fault::MoveUncalledFor, format!("{name} is moved twice")));
            }
            if migration.how != MoveKind::ReplaceStandby {
                runs_on.insert(migration.guest, migration.to);
            }
        }
        // Guests that run on a host of the wave, or have their second copy there; both only in a faulty plan.
        let touched: BTreeSet<u32> = set
            .iter()
            .flat_map(|host| {
                capacity
                    .guests_on(*host)
                    .iter()
                    .chain(capacity.guests_with_standby(*host))
            })
            .copied()
            .collect();
        for at in touched {
            let guest = capacity.guest(at);
            let goes = set.contains(&guest.host);
            if goes && moving.turn(guest) != GuestHandling::Stays && !left.contains(&at) {
                said.push((
                    Fault::MoveMissing,
                    format!("{} runs on a host of the wave", guest.name),
                ));
            }
            let copy = guest.standby.is_some_and(|standby| set.contains(&standby));
            let bare = moving.evacuate == Evacuate::Everything
                && moving.turn(guest) == GuestHandling::ToStandby
                && (goes || (copy && !down.contains(&guest.host)));
            if bare && !copies.contains(&at) {
                let detail = format!("the second copy of {} is on a host of the wave", guest.name);
                said.push((Fault::MoveMissing, detail));
            }
        }
        let set: Vec<u32> = set.into_iter().collect();
        if let Err(violation) = capacity.permit(moving, down, &set, &migrations) {
            said.push((Fault::OverRoom, capacity.words(&violation)));
        }
        self.against_policy(&set, said);
    }

    /// The moves by places.
    fn migrations(&self, wave: &Wave, said: &mut Vec<(Fault, String)>) -> Option<Vec<Migration>> {
        let mut migrations: Vec<Migration> = Vec::new();
        for a_move in &wave.moves {
            let to = self.capacity.find(&a_move.to);
            let from = self.capacity.find(&a_move.from);
            let guest = self.names.get(a_move.guest.as_str()).copied().filter(|at| {
                let guest = self.capacity.guest(*at);
                Some(guest.host) == from || (a_move.how == MoveKind::ReplaceStandby && guest.standby == from)
            });
            let (Some(guest), Some(to)) = (guest, to) else {
                let Move { guest, from, to, .. } = a_move;
                let detail = format!("there is no guest {guest} on {from}, or no {to}");
                said.push((Fault::MoveUncalledFor, detail));
                return None;
            };
            migrations.push(Migration {
                guest,
                how: a_move.how,
                to,
            });
        }
        Some(migrations)
    }

    /// One move on its own.
    fn migration(
        &self,
        migration: &Migration,
        set: &BTreeSet<u32>,
        down: &[u32],
        runs_on: &BTreeMap<u32, u32>,
        said: &mut Vec<(Fault, String)>,
    ) {
        let capacity = self.capacity;
        let guest = capacity.guest(migration.guest);
        let (name, to) = (&guest.name, capacity.host(migration.to));
        let turn = self.maintenance.moving.turn(guest);
        let goes = set.contains(&guest.host);
        let called_for = match migration.how {
            MoveKind::Migrate => goes && matches!(turn, GuestHandling::ToStandby | GuestHandling::Anywhere),
            MoveKind::Relocate => goes && turn == GuestHandling::WithDowntime,
            MoveKind::ReplaceStandby => {
                self.maintenance.moving.evacuate == Evacuate::Everything
                    && turn == GuestHandling::ToStandby
                    && (goes || guest.standby.is_some_and(|standby| set.contains(&standby)))
            }
        };
        if !called_for {
            said.push((Fault::MoveUncalledFor, format!("{name} to {}", to.unit)));
        }
        let here = runs_on.get(&migration.guest).copied().unwrap_or(guest.host);
        let why = if set.contains(&migration.to) || down.contains(&migration.to) {
            "which is down then"
        } else if migration.to == here {
            "where it is"
        } else if migration.how == MoveKind::Migrate && guest.storage == Storage::Copied {
            if guest.standby == Some(migration.to) {
                return;
            }
            "which has no copy of it"
        } else if !to.takes {
            "which takes none"
        } else if to.pool != capacity.host(guest.host).pool && to.pool != capacity.host(here).pool {
            "which is of another pool"
        } else {
            return;
        };
        said.push((Fault::MoveAstray, format!("{name} to {}, {why}", to.unit)));
    }

    /// Policy beyond what fits.
    fn against_policy(&self, set: &[u32], said: &mut Vec<(Fault, String)>) {
        let (capacity, moving) = (self.capacity, &self.maintenance.moving);
        let mut senders: BTreeMap<u32, BTreeSet<u32>> = BTreeMap::new();
        let mut with_shared: BTreeMap<u32, u32> = BTreeMap::new();
        for host in set {
            let mut shared = false;
            for guest in capacity
                .guests_on(*host)
                .iter()
                .map(|guest| capacity.guest(*guest))
            {
                match moving.turn(guest) {
                    GuestHandling::ToStandby => {
                        if let Some(standby) = guest.standby {
                            senders.entry(standby).or_default().insert(*host);
                        }
                    }
                    GuestHandling::Anywhere | GuestHandling::WithDowntime => shared = true,
                    GuestHandling::Stays => {}
                }
            }
            if shared {
                *with_shared.entry(capacity.host(*host).pool).or_default() += 1;
            }
        }
        if moving.standbys == Standbys::Exclude
            && let Some((standby, from)) = senders.iter().find(|(_, from)| from.len() > 1)
        {
            let detail = format!(
                "{} is the standby of guests on {} hosts",
                capacity.host(*standby).unit,
                from.len()
            );
            said.push((Fault::StandbyShared, detail));
        }
        if moving.shared == SharedGuests::One
            && let Some((pool, count)) = with_shared.iter().find(|(_, count)| **count > 1)
        {
            let detail = format!(
                "{count} hosts of {} with guests on shared storage",
                capacity.pool(*pool)
            );
            said.push((Fault::TwoAtOnce, detail));
        }
    }
}
