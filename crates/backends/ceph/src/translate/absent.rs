//! OSDs in the map that nothing counts on.

use stagger_core::model::{Absent, IdError, Kind, Reason, UnitId};

use super::Baseline;
use crate::facts::CephFacts;
use crate::facts::osd::Osd;

/// The OSDs of the map that are no units: dead and out, destroyed, or never started. A large cluster has one nearly
/// always, and is healthy. One that served before the run is down and not absent, whatever became of it since, unless
/// a person has destroyed it.
///
/// # Errors
/// None that could be met: the names are numbers.
pub fn absent(facts: &CephFacts, baseline: Option<&Baseline>) -> Result<Vec<Absent>, IdError> {
    let mut all = Vec::new();
    for (id, osd) in &facts.osds.osds {
        if let Some(reason) = why_absent(facts, baseline, *id, osd) {
            all.push(Absent {
                unit: UnitId::new(format!("osd.{id}"))?,
                kind: Kind::new("osd")?,
                reason,
            });
        }
    }
    Ok(all)
}

/// Whether nothing counts on an OSD.
pub(crate) fn is_absent(facts: &CephFacts, baseline: Option<&Baseline>, id: u32, osd: &Osd) -> bool {
    why_absent(facts, baseline, id, osd).is_some()
}

fn why_absent(facts: &CephFacts, baseline: Option<&Baseline>, id: u32, osd: &Osd) -> Option<Reason> {
    if osd.up {
        return None;
    }
    if osd.destroyed {
        return Some(Reason::of_backend(
            "osd-destroyed",
            "it is destroyed: its number waits for the OSD that takes its place",
        ));
    }
    let served = |baseline: &Baseline| {
        let id = UnitId::new(format!("osd.{id}"));
        id.is_ok_and(|id| baseline.daemons.contains_key(&id))
    };
    if baseline.is_some_and(served) {
        return None;
    }
    let found = facts.osd_metadata.binary_search_by_key(&id, |osd| osd.id);
    let told = found.is_ok_and(|at| facts.osd_metadata[at].version.is_some());
    if osd.up_from == 0 && !told {
        return Some(Reason::of_backend(
            "osd-never-started",
            "it has a number and never started",
        ));
    }
    (!osd.inside).then(|| {
        Reason::of_backend(
            "osd-out",
            "it is down and out: no data is placed on it. If it comes back, it comes back on what its host has installed",
        )
    })
}
