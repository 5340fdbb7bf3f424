//! What may be down together.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use stagger_core::model::{Budgets, BudgetsBuilder, Ix};

use crate::facts::osd::Pool;
use crate::facts::pg::{HOLE, Pg, PgMap};
use crate::facts::pg_state::PgState;
use crate::facts::{Facts, Known};

/// The budgets of a cluster over units at these places.
///
/// | what | members | how many may be down |
/// |---|---|---|
/// | a placement group | its acting OSDs | how many it has over its pool's `min_size` |
/// | a degraded one | those of them that lack no object | how many there are over `min_size` |
/// | one that does not serve, whose report is stale or unknown, whose pool is gone, or that has no complete member | all of them | none |
/// | the monitors' quorum | all in the map | as many as leave more than half |
/// | managers | all | all but one; one, if there is only one: Ceph works without a manager for a while |
/// | metadata servers of a file system | its own and the common standbys | as many as stand by; one, if none does: clients wait while it restarts |
/// | object gateways | all | all but one; one, if there is only one |
///
/// Groups of one pool with the same members and limit are one budget, named after the first.
/// Where the placement groups are not known, no OSD may stop.
pub fn budgets(facts: &Facts, places: &BTreeMap<&str, u32>) -> Budgets {
    let mut builder = BudgetsBuilder::default();
    match &facts.pgs {
        Known::Yes(pgs) => placement_groups(facts, pgs, places, &mut builder),
        Known::No(_) => {
            let osds: Vec<(Ix, u32)> = of_kind("osd.", places).collect();
            builder.add("placement groups", "unknown", 0, &osds);
        }
    }
    daemons(facts, places, &mut builder);
    builder.build()
}

fn of_kind<'a>(
    prefix: &'a str,
    places: &'a BTreeMap<&str, u32>,
) -> impl Iterator<Item = (Ix, u32)> + use<'a> {
    places
        .iter()
        .filter(move |(id, _)| id.starts_with(prefix))
        .map(|(_, at)| (Ix(*at), 1))
}

fn daemons(facts: &Facts, places: &BTreeMap<&str, u32>, builder: &mut BudgetsBuilder) {
    let mons: Vec<(Ix, u32)> = of_kind("mon.", places).collect();
    let count = mons.len() as u32;
    builder.add_for(
        NONE,
        "monitors",
        "quorum",
        count.saturating_sub(count / 2 + 1),
        &mons,
    );
    let mgrs: Vec<(Ix, u32)> = of_kind("mgr.", places).collect();
    builder.add_for(
        NONE,
        "managers",
        "one stays",
        (mgrs.len() as u32).saturating_sub(1).max(1),
        &mgrs,
    );
    for fs in &facts.fs.filesystems {
        let followers = fs.servers.iter().filter(|mds| mds.follows());
        let standbys = facts.fs.standbys.len() + followers.count();
        let names = fs.servers.iter().map(|mds| &mds.name).chain(&facts.fs.standbys);
        let members: Vec<(Ix, u32)> = names
            .filter_map(|name| places.get(format!("mds.{name}").as_str()))
            .map(|at| (Ix(*at), 1))
            .collect();
        let name = format!("ranks of {}", fs.name);
        builder.add_for(
            NONE,
            "metadata servers",
            &name,
            (standbys as u32).max(1),
            &members,
        );
    }
    let rgws: Vec<(Ix, u32)> = of_kind("rgw.", places).collect();
    if !rgws.is_empty() {
        builder.add_for(
            NONE,
            "object gateways",
            "one stays",
            (rgws.len() as u32 - 1).max(1),
            &rgws,
        );
    }
}

/// Daemons are no placement groups.
const NONE: u32 = 0;

/// One line of the table above: so many of these may be down.
struct Row {
    limit: u32,
    /// How many placement groups it stands for: none, where another line stands for the same group.
    share: u32,
    /// Where its members start and end in the flat list.
    start: u32,
    end: u32,
    seed: u32,
}

/// Ceph takes any character in the name of a pool; here it stands in sentences.
fn on_one_line(name: &str) -> Cow<'_, str> {
    if !name.contains(char::is_control) {
        return Cow::Borrowed(name);
    }
    let tame = |c: char| {
        if c.is_control() {
            c.escape_default().to_string()
        } else {
            c.to_string()
        }
    };
    Cow::Owned(name.chars().map(tame).collect())
}

fn placement_groups(facts: &Facts, pgs: &PgMap, places: &BTreeMap<&str, u32>, builder: &mut BudgetsBuilder) {
    // In the order of the numbers.
    let place: Vec<(u32, u32)> = facts
        .osds
        .osds
        .keys()
        .filter_map(|id| Some((*id, *places.get(format!("osd.{id}").as_str())?)))
        .collect();
    let mut at = 0;
    while at < pgs.len() {
        let pool_id = pgs.at(at).id.pool;
        let pool = facts.osds.pools.get(&pool_id);
        let group = match pool {
            Some(pool) => format!("placement group of pool {}", on_one_line(&pool.name)),
            None => format!("placement group of pool {pool_id}, which is gone"),
        };
        let (mut rows, mut flat) = (Vec::new(), Vec::new());
        while at < pgs.len() && pgs.at(at).id.pool == pool_id {
            rows_of(&pgs.at(at), pool, &place, &mut rows, &mut flat);
            at += 1;
        }
        for row in distinct(rows, &flat) {
            let members: Vec<(Ix, u32)> = members(&row, &flat).iter().map(|at| (Ix(*at), 1)).collect();
            let name = crate::facts::pg::PgId {
                pool: pool_id,
                seed: row.seed,
            };
            builder.add_for(row.share, &group, &name.to_string(), row.limit, &members);
        }
    }
}

fn members<'a>(row: &Row, flat: &'a [u32]) -> &'a [u32] {
    &flat[row.start as usize..row.end as usize]
}

/// Each set of members and limit once, under the first name; in the order of the names.
fn distinct(rows: Vec<Row>, flat: &[u32]) -> Vec<Row> {
    // By a hash first: a million lists are slow to compare. Which hash does not show in what comes out.
    let mut rows: Vec<(u64, Row)> = rows
        .into_iter()
        .map(|row| {
            let mut hasher = DefaultHasher::new();
            (row.limit, members(&row, flat)).hash(&mut hasher);
            (hasher.finish(), row)
        })
        .collect();
    let what = |row: &Row| (row.limit, members(row, flat));
    rows.sort_unstable_by(|(a_hash, a), (b_hash, b)| {
        a_hash
            .cmp(b_hash)
            .then_with(|| what(a).cmp(&what(b)))
            .then_with(|| a.seed.cmp(&b.seed))
    });
    rows.dedup_by(|(later_hash, later), (hash, first)| {
        let same = later_hash == hash && what(later) == what(first);
        if same {
            first.share += later.share;
        }
        same
    });
    let mut rows: Vec<Row> = rows.into_iter().map(|(_, row)| row).collect();
    // Both budgets of a degraded group have its name.
    rows.sort_unstable_by_key(|row| (row.seed, row.start));
    rows
}

fn rows_of(pg: &Pg<'_>, pool: Option<&Pool>, place: &[(u32, u32)], rows: &mut Vec<Row>, flat: &mut Vec<u32>) {
    // Sorted, each once.
    let existing = |osds: &[u32]| -> Vec<u32> {
        let places = osds.iter().filter(|osd| **osd != HOLE);
        let at = |osd: &u32| place.binary_search_by_key(osd, |(id, _)| *id).ok();
        let mut places: Vec<u32> = places.filter_map(|osd| Some(place[at(osd)?].1)).collect();
        places.sort_unstable();
        places.dedup();
        places
    };
    let mut share = 1;
    let mut add = |members: &[u32], limit: u32| {
        if members.is_empty() {
            return;
        }
        let start = flat.len() as u32;
        flat.extend(members);
        rows.push(Row {
            limit,
            share: std::mem::take(&mut share),
            start,
            end: flat.len() as u32,
            seed: pg.id.seed,
        });
    };
    let acting = existing(pg.acting);
    let complete = existing(pg.complete.unwrap_or_default());
    let degraded = pg.state.has(PgState::DEGRADED);
    let serves = pg.state.settled() && pg.state.has(PgState::ACTIVE) && !(degraded && complete.is_empty());
    let Some(pool) = pool.filter(|_| serves) else {
        let mut all: Vec<u32> = acting.into_iter().chain(complete).collect();
        all.sort_unstable();
        all.dedup();
        add(&all, 0);
        return;
    };
    let over = |members: &[u32]| (members.len() as u32).saturating_sub(pool.min_size);
    if !degraded {
        add(&acting, over(&acting));
        return;
    }
    add(&complete, over(&complete));
    // It stops serving too when too few act in it, complete or not. The budget above does not say so:
    // where its own members are down already, it is not asked about one that lacks objects.
    if acting != complete {
        add(&acting, over(&acting));
    }
}
