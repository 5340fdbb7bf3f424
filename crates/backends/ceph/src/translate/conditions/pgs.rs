//! The conditions on placement groups.

use stagger_core::model::{Fact, Verdict};

use super::{VerdictReason, short_list, verdict_if};
use crate::facts::CephFacts;
use crate::facts::pg::{Pg, PgMap};
use crate::facts::pg_state::PgState;

/// `pgs-known`, `pg-stats-fresh`, `pgs-clean` and `pgs-not-degraded`.
pub(super) fn all(facts: &CephFacts) -> Vec<(&'static str, VerdictReason)> {
    let pgs = match &facts.pgs {
        Fact::Yes(pgs) => pgs,
        Fact::No(why) => {
            let unknown = || {
                (
                    Verdict::Unknown,
                    format!("the placement groups cannot be read: {why}"),
                )
            };
            return ["pgs-known", "pg-stats-fresh", "pgs-clean", "pgs-not-degraded"]
                .map(|name| (name, unknown()))
                .to_vec();
        }
    };
    let known = known(facts, pgs);
    let fresh = fresh(facts, pgs);
    let clean = every(pgs, "clean", PgState::clean, &known, &fresh);
    let whole = every(
        pgs,
        "active with all copies",
        PgState::has_all_copies,
        &known,
        &fresh,
    );
    vec![
        ("pgs-known", known),
        ("pg-stats-fresh", fresh),
        ("pgs-clean", clean),
        ("pgs-not-degraded", whole),
    ]
}

/// `2.1f peering, 2.3 active+undersized and 12 more`.
fn group_list<'a>(pgs: impl Iterator<Item = Pg<'a>>) -> String {
    short_list(pgs.map(|pg| format!("{} {}", pg.id, pg.state)))
}

fn known(facts: &CephFacts, pgs: &PgMap) -> VerdictReason {
    let open: Vec<Pg<'_>> = pgs.iter().filter(|pg| !pg.state.is_reliable()).collect();
    if !open.is_empty() {
        let why = format!(
            "{} of {} placement groups are not reported: {}",
            open.len(),
            pgs.len(),
            group_list(open.into_iter())
        );
        return (Verdict::Unknown, why);
    }
    let counts = pgs.counts();
    let short = facts.osds.pools.iter().filter_map(|(id, pool)| {
        let count = counts.get(id).copied().unwrap_or(0);
        (count != pool.pg_num).then(|| format!("{} has {count} of {}", pool.name, pool.pg_num))
    });
    let short: Vec<String> = short.collect();
    if !short.is_empty() {
        let why = format!(
            "the reports do not match the pools' placement groups: {}",
            short_list(short)
        );
        return (Verdict::Unknown, why);
    }
    (
        Verdict::Yes,
        format!("all {} placement groups are reported", pgs.len()),
    )
}

/// The epochs at which the OSDs came up that are up. A million groups ask, three times each.
struct CameUp<'a> {
    /// By number.
    near: Vec<Option<u32>>,
    facts: &'a CephFacts,
}

/// Numbers of OSDs are small unless somebody has chosen them; from here on they are searched for.
const FAR: u32 = 1 << 20;

impl<'a> CameUp<'a> {
    fn of(facts: &'a CephFacts) -> Self {
        let near = facts.osds.osds.range(..FAR);
        let mut found = vec![None; near.clone().next_back().map_or(0, |(last, _)| *last as usize + 1)];
        for (id, osd) in near.filter(|(_, osd)| osd.up) {
            found[*id as usize] = Some(osd.up_from);
        }
        Self { near: found, facts }
    }

    fn at(&self, osd: u32) -> Option<u32> {
        if osd < FAR {
            return self.near.get(osd as usize).copied().flatten();
        }
        let osd = self.facts.osds.osds.get(&osd)?;
        osd.up.then_some(osd.up_from)
    }
}

/// For some seconds a manager may show a group as it was before one of its OSDs went down and came back.
/// A report made after that OSD came up cannot be from before.
fn fresh(facts: &CephFacts, pgs: &PgMap) -> VerdictReason {
    let came_up = CameUp::of(facts);
    let old: Vec<Pg<'_>> = pgs
        .iter()
        .filter(|pg| {
            pg.live()
                .any(|osd| came_up.at(osd).is_none_or(|epoch| pg.reported < epoch))
        })
        .collect();
    if old.is_empty() {
        return (
            Verdict::Yes,
            format!("all {} reports are from after the OSDs came up", pgs.len()),
        );
    }
    let why = format!(
        "{} of {} placement groups have not been reported since one of their OSDs changed: {}",
        old.len(),
        pgs.len(),
        group_list(old.into_iter())
    );
    (Verdict::Unknown, why)
}

fn every(
    pgs: &PgMap,
    what: &str,
    holds: fn(PgState) -> bool,
    known: &VerdictReason,
    fresh: &VerdictReason,
) -> VerdictReason {
    let bad: Vec<Pg<'_>> = pgs
        .iter()
        .filter(|pg| pg.state.is_reliable() && !holds(pg.state))
        .collect();
    if !bad.is_empty() {
        let count = bad.len();
        let why = format!(
            "{count} of {} placement groups are not {what}: {}",
            pgs.len(),
            group_list(bad.into_iter())
        );
        return (Verdict::No, why);
    }
    for open in [known, fresh] {
        if open.0 != Verdict::Yes {
            return open.clone();
        }
    }
    (
        verdict_if(true),
        format!("all {} placement groups are {what}", pgs.len()),
    )
}
