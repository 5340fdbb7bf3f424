//! Explanations: why a unit is where it is, what blocks it, and what would unblock it.

use crate::model::{
    GuestHandling, Ix, Maintenance, SharedGuests, Snapshot, StageSpec, Standbys, Target, UnitId, UnitState,
};
use crate::plan::{Move, Plan, PlannedStage};

/// Where a unit stands in a plan and what holds it there.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Explanation {
    /// Which unit.
    pub unit: UnitId,
    /// One sentence: in which wave it is, or that it is skipped.
    pub place: String,
    /// What holds it: the constraint, with its members.
    pub held_by: Vec<String>,
    /// What would free it.
    pub freed_by: Vec<String>,
}

/// Why a unit is where it is. `None`: there is no such unit in the snapshot.
pub fn explain(snapshot: &Snapshot, target: &Target, plan: &Plan, unit: &UnitId) -> Option<Explanation> {
    if let Some(absent) = snapshot.absent().iter().find(|absent| absent.unit == *unit) {
        return Some(Explanation {
            unit: unit.clone(),
            place: format!("{unit} is absent ({})", absent.reason.code),
            held_by: vec![absent.reason.detail.clone()],
            freed_by: vec!["its coming back: then it is planned for".to_owned()],
        });
    }
    let ix = snapshot.find(unit)?;
    if let Some(left) = plan.left_alone.iter().find(|left| left.unit == *unit) {
        return Some(Explanation {
            unit: unit.clone(),
            place: format!("{unit} is skipped ({})", left.reason.code),
            held_by: vec![left.reason.detail.clone()],
            freed_by: vec![left.reason.code.remedy(snapshot.terms())],
        });
    }
    let found = plan.stages().find_map(|stage| {
        let wave = stage.waves.iter().position(|wave| wave.units.contains(unit))?;
        Some((stage, wave))
    });
    let Some((stage, wave)) = found else {
        let unit_now = snapshot.unit(ix);
        let stages: Vec<&StageSpec> = target
            .stages()
            .filter(|stage| stage.kind == unit_now.kind)
            .collect();
        let is_there = stages
            .iter()
            .any(|stage| unit_now.revision.as_ref() == Some(&stage.revision));
        let is_left_out = target.only.as_ref().is_some_and(|only| !only.contains(unit))
            || stages.iter().any(|stage| !target.is_for(stage, unit));
        if is_left_out && !is_there {
            return Some(Explanation {
                unit: unit.clone(),
                place: format!("{unit} was not selected"),
                held_by: Vec::new(),
                freed_by: vec!["selecting it".to_owned()],
            });
        }
        let revision = snapshot
            .unit(ix)
            .revision
            .as_ref()
            .map_or("an unknown revision", |r| r.as_str());
        return Some(Explanation {
            unit: unit.clone(),
            place: format!("{unit} is up to date: it runs {revision}"),
            held_by: Vec::new(),
            freed_by: Vec::new(),
        });
    };
    let mut held_by = Vec::new();
    let mut freed_by = Vec::new();
    let maintenance = target
        .stage(&stage.name)
        .and_then(|stage| stage.maintenance.as_ref());
    for (earlier, other) in stage.waves[..wave].iter().enumerate() {
        match why_not(snapshot, stage, maintenance, ix, &other.units) {
            WhyNot::Broken(text, mates) => {
                held_by.push(format!("not in wave {}: {text}", earlier + 1));
                freed_by.push(format!(
                    "wave {} passing its gates: then {mates} again",
                    earlier + 1
                ));
            }
            WhyNot::NoRoom(text) => held_by.push(format!("not in wave {}: {text}", earlier + 1)),
            WhyNot::Full => held_by.push(format!(
                "not in wave {}: it is full ({} of at most {})",
                earlier + 1,
                other.units.len(),
                stage.parallel
            )),
            WhyNot::Free => held_by.push(format!(
                "not in wave {}: growth, order, or no gain by it",
                earlier + 1
            )),
        }
        if held_by.len() == 5 {
            break;
        }
    }
    if maintenance.is_some_and(|maintenance| maintenance.last.as_ref() == Some(unit)) {
        held_by.push("it is in the last wave, as requested".to_owned());
    }
    held_by.extend(moved(&stage.waves[wave].moves, unit));
    Some(Explanation {
        unit: unit.clone(),
        place: format!(
            "{unit} is in wave {} of {} of stage {}",
            wave + 1,
            stage.waves.len(),
            stage.name
        ),
        held_by,
        freed_by,
    })
}

/// Where the guests of a unit are while it is down.
fn moved(moves: &[Move], unit: &UnitId) -> Vec<String> {
    moves
        .iter()
        .filter(|a_move| a_move.from == *unit)
        .map(|a_move| {
            use crate::model::MoveKind;
            let what = match a_move.how {
                MoveKind::Migrate => "moves",
                MoveKind::Relocate => "is stopped, copied and started, and so moves",
                MoveKind::ReplaceStandby => "gets a new second copy, which moves",
            };
            format!("visit: {} {what} to {}", a_move.guest, a_move.to)
        })
        .collect()
}

enum WhyNot {
    NoRoom(String),
    Broken(String, String),
    Full,
    Free,
}

fn why_not(
    snapshot: &Snapshot,
    stage: &PlannedStage,
    maintenance: Option<&Maintenance>,
    unit: Ix,
    wave: &[UnitId],
) -> WhyNot {
    let mut set: Vec<Ix> = wave.iter().filter_map(|id| snapshot.find(id)).collect();
    set.push(unit);
    let budgets = snapshot.budgets_once_recovered();
    match budgets.permit(&snapshot.down(), &set) {
        Err(found) => {
            let mates: Vec<_> = budgets
                .members(found.budget)
                .filter(|(member, _)| *member != unit && set.contains(member))
                .map(|(member, _)| snapshot.unit(member).id.to_string())
                .collect();
            let verb = if mates.len() == 1 { "serves" } else { "serve" };
            WhyNot::Broken(
                snapshot.describe_violation(budgets, &found),
                format!("{} {verb}", mates.join(" and ")),
            )
        }
        Ok(()) if wave.len() as u32 >= stage.parallel => WhyNot::Full,
        Ok(()) => maintenance
            .and_then(|maintenance| no_room(snapshot, maintenance, &set))
            .map_or(WhyNot::Free, WhyNot::NoRoom),
    }
}

/// What speaks against these hosts together, as far as it does not depend on a choice: what their guests do to
/// standbys, and what was asked for.
fn no_room(snapshot: &Snapshot, maintenance: &Maintenance, set: &[Ix]) -> Option<String> {
    use crate::model::{Migration, MoveKind};
    let (capacity, terms) = (snapshot.capacity()?, snapshot.terms());
    let moving = &maintenance.moving;
    let ids = || set.iter().map(|ix| &snapshot.unit(*ix).id);
    if let Some(one) = maintenance
        .one_at_a_time
        .iter()
        .find(|one| ids().filter(|id| one.units.contains(id)).count() > 1)
    {
        return Some(format!("{}: one at a time", one.why));
    }
    let hosts: Vec<u32> = ids().filter_map(|id| capacity.find(id)).collect();
    let guests = |host: u32| {
        capacity
            .guests_on(host)
            .iter()
            .map(|at| (*at, capacity.guest(*at)))
    };
    if moving.shared == SharedGuests::One {
        let mut pools: Vec<u32> = hosts
            .iter()
            .filter(|host| {
                guests(**host).any(|(_, guest)| {
                    matches!(
                        moving.turn(guest),
                        GuestHandling::Anywhere | GuestHandling::WithDowntime
                    )
                })
            })
            .map(|host| capacity.host(*host).pool)
            .collect();
        pools.sort_unstable();
        if let Some(pair) = pools.windows(2).find(|pair| pair[0] == pair[1]) {
            let pool = capacity.pool(pair[0]);
            return Some(format!(
                "{}s of {pool} with {}s on shared storage go one at a time",
                terms.host, terms.guest
            ));
        }
    }
    let mut migrations = Vec::new();
    let mut senders: Vec<(u32, u32)> = Vec::new();
    for host in &hosts {
        for (at, guest) in guests(*host) {
            if let (GuestHandling::ToStandby, Some(to)) = (moving.turn(guest), guest.standby) {
                senders.push((to, *host));
                migrations.push(Migration {
                    guest: at,
                    how: MoveKind::Migrate,
                    to,
                });
            }
        }
    }
    senders.sort_unstable();
    senders.dedup();
    if moving.standbys == Standbys::Exclude
        && let Some(pair) = senders.windows(2).find(|pair| pair[0].0 == pair[1].0)
    {
        let unit = |host: u32| &capacity.host(host).unit;
        return Some(format!(
            "{} is the {} of what runs on {} and on {}",
            unit(pair[0].0),
            terms.standby,
            unit(pair[0].1),
            unit(pair[1].1)
        ));
    }
    let down: Vec<u32> = snapshot
        .units()
        .iter()
        .filter(|unit| unit.state != UnitState::Serving)
        .filter_map(|unit| capacity.find(&unit.id))
        .collect();
    let violation = capacity.permit(moving, &down, &hosts, &migrations).err()?;
    Some(capacity.words(&violation))
}
