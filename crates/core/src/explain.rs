//! The words: why a unit is where it is, what holds it, and what would free it.

use crate::model::{
    Budgets, Code, Ix, Maintenance, SharedGuests, Snapshot, StageSpec, Standbys, Target, Terms, Turn, UnitId,
    UnitState, Violation,
};
use crate::plan::{Move, Plan, PlannedStage};

/// A budget in words: `placement group of pool rbd 2.1f (osd.0 osd.7 osd.9): 1 may be down`.
/// It is one of `budgets`, over the units of the snapshot.
pub fn budget(snapshot: &Snapshot, budgets: &Budgets, budget: usize) -> String {
    let mut members: Vec<_> = budgets.members(budget).map(|(unit, _)| unit).collect();
    members.sort_unstable();
    let (shown, rest) = members.split_at(members.len().min(12));
    let names: Vec<_> = shown
        .iter()
        .map(|unit| snapshot.unit(*unit).id.as_str())
        .collect();
    let more = if rest.is_empty() {
        String::new()
    } else {
        format!(" and {} more", rest.len())
    };
    let may = match budgets.limit(budget) {
        0 => "none may be down".to_owned(),
        limit => format!("{limit} may be down"),
    };
    let group = budgets.group(budget);
    let name = budgets.name(budget);
    let label = if name.is_empty() {
        group.to_owned()
    } else {
        format!("{group} {name}")
    };
    format!("{label} ({}{more}): {may}", names.join(" "))
}

/// In words, what breaks one of `budgets`.
pub fn violation(snapshot: &Snapshot, budgets: &Budgets, violation: &Violation) -> String {
    let Violation {
        budget: at,
        down,
        adds,
        limit: _,
    } = violation;
    let already = if *down > 0 {
        format!(", {down} down already")
    } else {
        String::new()
    };
    format!(
        "{}{already}, and this takes {adds} more",
        budget(snapshot, budgets, *at)
    )
}

/// Where a unit stands in a plan and what holds it there.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Explanation {
    /// Which unit.
    pub unit: UnitId,
    /// One sentence: in which wave it is, or that it is left alone.
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
            place: format!("{unit} is left alone ({})", left.reason.code),
            held_by: vec![left.reason.detail.clone()],
            freed_by: vec![freed_by_reason(&left.reason.code, snapshot.terms())],
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
            place: format!("{unit} has nothing to do: it serves on {revision}"),
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
        held_by.push("its wave is the last: it was asked to be visited last".to_owned());
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

/// Where the guests of a unit go meanwhile.
fn moved(moves: &[Move], unit: &UnitId) -> Vec<String> {
    moves
        .iter()
        .filter(|a_move| a_move.from == *unit)
        .map(|a_move| {
            use crate::model::How;
            let what = match a_move.how {
                How::Migrate => "moves",
                How::Relocate => "is stopped, copied and started, and so moves",
                How::ReplaceStandby => "gets its second copy made anew, and that moves",
            };
            format!("its turn: {} {what} to {}", a_move.guest, a_move.to)
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
                violation(snapshot, budgets, &found),
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
    use crate::model::{How, Migration};
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
    let guests = |host: u32| capacity.on(host).iter().map(|at| (*at, capacity.guest(*at)));
    if moving.shared == SharedGuests::One {
        let mut pools: Vec<u32> = hosts
            .iter()
            .filter(|host| {
                guests(**host)
                    .any(|(_, guest)| matches!(moving.turn(guest), Turn::Anywhere | Turn::WithDowntime))
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
            if let (Turn::ToStandby, Some(to)) = (moving.turn(guest), guest.standby) {
                senders.push((to, *host));
                migrations.push(Migration {
                    guest: at,
                    how: How::Migrate,
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

#[expect(clippy::wildcard_enum_match_arm, reason = "most reasons say it themselves")]
pub(crate) fn freed_by_reason(code: &Code, terms: &Terms) -> String {
    let Terms {
        host, guest, standby, ..
    } = terms;
    let said = match code {
        Code::NeverOkToStop => {
            "more members of that budget serving, or a lower min_size where that is safe for your data"
        }
        Code::UnitDown => {
            "starting it, or removing it from the cluster; an OSD that is marked out is not waited for"
        }
        Code::UnitUnknown | Code::RevisionUnknown => {
            "an observation that tells: see the conditions in `stagger observe`"
        }
        Code::NonRedundant => {
            return format!("--accept-non-redundant once no such {guest} runs, or --move-non-redundant");
        }
        Code::NonRedundantRunning => {
            return format!("stopping it, or --move-non-redundant: such {guest}s are down meanwhile");
        }
        Code::NoRoom => {
            return format!(
                "memory on the {standby}, or --spend-spare where only what is kept for a failure is lacking"
            );
        }
        Code::NoRoomAnywhere | Code::NoRoomForCopies => return format!("room on other {host}s of the group"),
        Code::GuestStuck => return format!("what keeps the {guest} there: see its reason"),
        Code::InterruptionNotPermitted => "a person's word: --interrupt, or interruptions in [policy]",
        Code::OneAtATime => "the other one serving again",
        Code::MaxInParallelUsedUp => "what is down coming back, or a larger max_in_parallel",
        _ => "what its reason names; see docs/reference/reasons.md",
    };
    said.to_owned()
}
