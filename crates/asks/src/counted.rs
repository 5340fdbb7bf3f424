//! The claims that count, as units of what was observed.

use std::collections::BTreeSet;

use jiff::SignedDuration;
use stagger_core::model::{Ix, Snapshot, UnitId, UnitState};

use crate::ask::{Ask, AskAnswer};
use crate::claim::ClaimRecord;
use crate::places::HostPlaces;
use crate::queue::Queued;
use crate::scene::Blocked;

/// One who waits, as the queue has it.
pub(crate) fn queued(ask: &Ask, answer: &AskAnswer, set: Vec<Ix>) -> Queued {
    Queued {
        set,
        asked: ask.asked,
        until: ask.wanted.until.filter(|_| !ask.wanted.lapses),
        is_patient: ask.wanted.run.is_none(),
        hold: SignedDuration::from_secs(i64::from(ask.wanted.hold)),
        kept_free_since: answer.kept_free_since,
        unfit_since: answer.unfit_since,
    }
}

/// All claims of both: one that ended since the cluster was observed may have left what nobody has seen yet.
pub(crate) fn counted(before: &[ClaimRecord], now: &[ClaimRecord]) -> Vec<ClaimRecord> {
    let known: BTreeSet<u64> = now.iter().map(|claim| claim.fence).collect();
    let ended = before.iter().filter(|claim| !known.contains(&claim.fence));
    let mut all: Vec<ClaimRecord> = ended.chain(now).cloned().collect();
    all.sort_by_key(|claim| claim.fence);
    all
}

/// Of each claim its fence and its units.
pub(crate) fn sets(claims: &[ClaimRecord], places: &HostPlaces, snapshot: &Snapshot) -> Vec<(u64, Vec<Ix>)> {
    claims
        .iter()
        .map(|claim| (claim.fence, places.units_of(&claim.claim, snapshot)))
        .collect()
}

/// What of these claims is still up, as the oracle is asked about it. A daemon that was claimed by itself is asked about by
/// itself, also where hosts are the units: its host stays up.
pub(crate) fn still_up(claims: &[ClaimRecord], places: &HostPlaces, snapshot: &Snapshot) -> Vec<UnitId> {
    let serves = |at: Ix| snapshot.unit(at).state == UnitState::Serving;
    let mut all = Vec::new();
    for ClaimRecord { claim, .. } in claims {
        if claim.hosts.is_empty() {
            let up = |unit: &&UnitId| snapshot.find(unit).is_none_or(serves);
            all.extend(claim.units.iter().filter(up).cloned());
        } else {
            let units = places.units_of(claim, snapshot).into_iter();
            all.extend(
                units
                    .filter(|at| serves(*at))
                    .map(|at| snapshot.unit(at).id.clone()),
            );
        }
    }
    all
}

/// Why one waits, and for whom.
pub(crate) fn with_holder(
    words: &str,
    blocked: &Blocked,
    claims: &[ClaimRecord],
    places: &HostPlaces,
    snapshot: &Snapshot,
) -> String {
    let holders: Vec<String> = match blocked {
        Blocked::Claimed(unit) => claims
            .iter()
            .filter(|claim| places.units_of(&claim.claim, snapshot).contains(unit))
            .map(|claim| format!("{} has it until {:.0}", claim.holder, claim.expires))
            .collect(),
        Blocked::Budget(violation) => {
            let members: Vec<Ix> = snapshot
                .budgets()
                .members(violation.budget)
                .map(|(unit, _)| unit)
                .collect();
            claims
                .iter()
                .filter(|claim| {
                    let down = places.units_of(&claim.claim, snapshot);
                    down.iter().any(|unit| members.contains(unit))
                })
                .take(3)
                .map(|claim| format!("{} until {:.0}", claim.holder, claim.expires))
                .collect()
        }
        Blocked::Unknown(_) | Blocked::KeptFree(_) | Blocked::KeptUnit(_) => Vec::new(),
    };
    if holders.is_empty() {
        words.to_owned()
    } else {
        format!("{words} ({})", holders.join(", "))
    }
}
