//! Budgets: what may be down together.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use stagger_core::model::{Budgets, BudgetsBuilder, Fact, Ix, Snapshot, SnapshotError};

use super::interruptions::{self, Permitted, on_one_line, pool_name, serves_only_when_clean, single_server};
use super::sites::{self, Sites};
use crate::facts::CephFacts;
use crate::facts::osd::Pool;
use crate::facts::pg::{HOLE, Pg, PgId, PgMap};
use crate::facts::pg_state::PgState;
use crate::facts::rgw::Gateway;

/// The budgets of a cluster over units at these places.
///
/// | what | members | how many may be down |
/// |---|---|---|
/// | a placement group | its acting OSDs | how many it has over its pool's `min_size`; one, where all of them are there, the pool needs all, and a person permits that it is interrupted |
/// | a degraded one | those of them that lack no object | how many there are over `min_size` |
/// | one of a stretch pool, besides | its acting OSDs by site | see [`Sites`] |
/// | one that does not serve, whose report is stale or unknown, whose pool is gone, or that has no complete member | all of them | none |
/// | the monitors' quorum | all in the map | as many as leave more than half; of one or two one, if a person permits it |
/// | in stretch mode the monitors of a site, besides | all of the site | one |
/// | in stretch mode OSDs, while a site is missing or not clean yet, besides | all | none |
/// | managers | all | all but one; the only one, if a person permits it |
/// | metadata servers of a file system | its own and the common standbys | as many as stand by; one where there are several ranks, of which one is left when their turn comes; the only one, if a person permits it |
/// | object gateways | those of one service and zone | all but one; the only one, if a person permits it |
///
/// Groups of one pool with the same members and limit are one budget, named after the first.
/// Where the placement groups are not known, no OSD may stop.
pub fn budgets(facts: &CephFacts, places: &BTreeMap<&str, u32>, permitted: &Permitted) -> Budgets {
    of(facts, known_pg_map(facts), places, permitted)
}

/// The snapshot with the budgets once recovery is finished, where any placement group recovers by itself: on OSDs that
/// are up, as many as its pool wants.
///
/// # Errors
/// None for a snapshot of these facts.
pub fn with_recovered(
    snapshot: Snapshot,
    facts: &CephFacts,
    permitted: &Permitted,
) -> Result<Snapshot, SnapshotError> {
    let is_whole = |pool: u32, up: &[u32]| {
        let serves = |osd: &u32| facts.osds.osds.get(osd).is_some_and(|osd| osd.up);
        let pool = facts.osds.pools.get(&pool);
        pool.is_some_and(|pool| up.len() == pool.size as usize) && up.iter().all(serves)
    };
    let Some(pgs) = known_pg_map(facts).and_then(|pgs| pgs.after_recovery(is_whole)) else {
        return Ok(snapshot);
    };
    let sorted = snapshot.units().iter().enumerate();
    let places = sorted.map(|(at, unit)| (unit.id.as_str(), at as u32)).collect();
    let budgets = of(facts, Some(&pgs), &places, permitted);
    snapshot.with_recovered(budgets)
}

fn known_pg_map(facts: &CephFacts) -> Option<&PgMap> {
    match &facts.pgs {
        Fact::Yes(pgs) => Some(pgs),
        Fact::No(_) => None,
    }
}

fn of(
    facts: &CephFacts,
    pgs: Option<&PgMap>,
    places: &BTreeMap<&str, u32>,
    permitted: &Permitted,
) -> Budgets {
    let mut builder = BudgetsBuilder::default();
    if let Some(pgs) = pgs {
        placement_groups(facts, pgs, places, permitted, &mut builder);
    } else {
        let osds: Vec<(Ix, u32)> = of_kind("osd.", places).collect();
        builder.add("placement groups", "unknown", 0, &osds);
    }
    daemons(facts, places, permitted, &mut builder);
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

fn daemons(
    facts: &CephFacts,
    places: &BTreeMap<&str, u32>,
    permitted: &Permitted,
    builder: &mut BudgetsBuilder,
) {
    // None is spared where nothing stands in for it, unless a person permits that for each.
    let lone = |sort: &str, prefix: &str| -> u32 {
        let mut names = places.keys().filter(|id| id.starts_with(prefix));
        u32::from(names.all(|name| permitted.has(sort, name)))
    };
    let mons: Vec<(Ix, u32)> = of_kind("mon.", places).collect();
    let count = mons.len() as u32;
    let spare = match count {
        1 | 2 => lone("mon", "mon."),
        _ => count.saturating_sub(count / 2 + 1),
    };
    builder.add_for(NONE, "monitors", "quorum", spare, &mons);
    sites::of_mode(facts, places, builder);
    let mgrs: Vec<(Ix, u32)> = of_kind("mgr.", places).collect();
    let spare = match mgrs.len() as u32 {
        1 => lone("mgr", "mgr."),
        count => count.saturating_sub(1),
    };
    builder.add_for(NONE, "managers", "one stays", spare, &mgrs);
    for fs in &facts.fs.filesystems {
        let followers = fs.servers.iter().filter(|mds| mds.follows());
        let standbys = facts.fs.standbys.len() + followers.count();
        let names = fs.servers.iter().map(|mds| &mds.name).chain(&facts.fs.standbys);
        let members: Vec<(Ix, u32)> = names
            .filter_map(|name| places.get(format!("mds.{name}").as_str()))
            .map(|at| (Ix(*at), 1))
            .collect();
        let name = format!("ranks of {}", fs.name);
        let spare = match single_server(fs, &facts.fs) {
            Some(server) => u32::from(permitted.has("mds", &format!("mds.{server}"))),
            // Before any of them stops, all but one of the ranks have: their servers stand by then.
            None if fs.ranks() > 1 => (standbys as u32).max(1),
            None => standbys as u32,
        };
        builder.add_for(NONE, "metadata servers", &name, spare, &members);
    }
    gateways(facts, places, permitted, builder);
}

/// Gateways stand in for those of their own service and zone. One that is stopped has left the map, and nobody can tell
/// any more of which it was: it counts in each group.
fn gateways(
    facts: &CephFacts,
    places: &BTreeMap<&str, u32>,
    permitted: &Permitted,
    builder: &mut BudgetsBuilder,
) {
    let groups = interruptions::gateways(facts);
    let known: BTreeSet<String> = facts
        .gateways
        .iter()
        .map(|rgw| format!("rgw.{}", rgw.name))
        .collect();
    let gone: Vec<(Ix, u32)> = places
        .iter()
        .filter(|(id, _)| id.starts_with("rgw.") && !known.contains(**id))
        .map(|(_, at)| (Ix(*at), 1))
        .collect();
    for (group, members) in groups {
        let at = |rgw: &&Gateway| places.get(format!("rgw.{}", rgw.name).as_str());
        let mut units: Vec<(Ix, u32)> = members.iter().filter_map(at).map(|at| (Ix(*at), 1)).collect();
        units.extend(&gone);
        let spare = match (&members[..], gone.is_empty()) {
            ([only], true) => u32::from(permitted.has("rgw", &format!("rgw.{}", only.name))),
            (_, _) => (units.len() as u32).saturating_sub(1),
        };
        let name = format!("one stays{}", interruptions::of_group(group));
        builder.add_for(NONE, "object gateways", &name, spare, &units);
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

fn placement_groups(
    facts: &CephFacts,
    pgs: &PgMap,
    places: &BTreeMap<&str, u32>,
    permitted: &Permitted,
    builder: &mut BudgetsBuilder,
) {
    let place = Places::new(facts, places);
    let mut scratch = Scratch::default();
    let mut name = String::new();
    let mut costs: Vec<(Ix, u32)> = Vec::new();
    let counts = pgs.counts();
    let mut at = 0;
    while at < pgs.len() {
        let pool_id = pgs.at(at).id.pool;
        let pool = facts.osds.pools.get(&pool_id);
        let group = match pool {
            Some(pool) => format!("placement group of pool {}", on_one_line(&pool.name)),
            None => format!("placement group of pool {pool_id}, which is gone"),
        };
        let of_pool = OfPool {
            pool,
            may_be_interrupted: pool
                .is_some_and(|pool| serves_only_when_clean(pool) && permitted.has("pool", &pool_name(pool))),
            sites: pool
                .and_then(|pool| pool.stretch)
                .map(|stretch| Sites::new(facts, stretch, |osd| place.of(osd))),
        };
        let groups = counts.get(&pool_id).copied().unwrap_or(0) as usize;
        let mut rows = Vec::with_capacity(groups);
        let mut flat = Vec::with_capacity(groups * pool.map_or(0, |pool| pool.size as usize));
        for pg in pgs.iter_from(at).take_while(|pg| pg.id.pool == pool_id) {
            rows_of(&pg, &of_pool, &place, &mut scratch, &mut rows, &mut flat);
            at += 1;
        }
        let rows = distinct(rows, &flat);
        builder.reserve(
            rows.len(),
            rows.iter().map(|row| (row.end - row.start) as usize).sum(),
        );
        for row in rows {
            costs.clear();
            costs.extend(members(&row, &flat).iter().map(|at| (Ix(*at), 1)));
            let id = PgId {
                pool: pool_id,
                seed: row.seed,
            };
            name.clear();
            // Writing to a text never fails.
            write!(name, "{id}").unwrap_or_default();
            builder.add_for(row.share, &group, &name, row.limit, &costs);
        }
    }
}

fn members<'a>(row: &Row, flat: &'a [u32]) -> &'a [u32] {
    &flat[row.start as usize..row.end as usize]
}

/// Each set of members and limit once, under the first name; in the order of the names.
fn distinct(mut rows: Vec<Row>, flat: &[u32]) -> Vec<Row> {
    // Places in a table by a hash, a free one after each that is taken: a million lists are slow to sort.
    let mut table = vec![FREE; (rows.len() * 2).next_power_of_two()];
    let last = table.len() - 1;
    let mut repeated = vec![false; rows.len()];
    for at in 0..rows.len() {
        let (limit, share) = (rows[at].limit, rows[at].share);
        let own = members(&rows[at], flat);
        let mut place = hash(limit, own) as usize & last;
        while table[place] != FREE {
            let first = &mut rows[table[place] as usize];
            if first.limit == limit && members(first, flat) == own {
                first.share += share;
                repeated[at] = true;
                break;
            }
            place = (place + 1) & last;
        }
        if !repeated[at] {
            table[place] = at as u32;
        }
    }
    let mut repeated = repeated.into_iter();
    rows.retain(|_| !repeated.next().unwrap_or_default());
    rows
}

/// No row.
const FREE: u32 = u32::MAX;

/// Any numbers that differ where lists do, nearly always.
fn hash(limit: u32, members: &[u32]) -> u64 {
    members.iter().fold(u64::from(limit), |hash, member| {
        let mixed = (hash.rotate_left(26) ^ u64::from(*member)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        mixed ^ (mixed >> 32)
    })
}

/// The places of the OSDs among the units, by their numbers.
struct Places {
    /// `NOWHERE` where there is none.
    near: Vec<u32>,
    /// Numbers beyond those, with their places. Ascending.
    far: Vec<(u32, u32)>,
}

const NOWHERE: u32 = u32::MAX;
/// Numbers of OSDs are small unless somebody has chosen them; from here on they are searched for.
const FAR: u32 = 1 << 20;

impl Places {
    fn new(facts: &CephFacts, places: &BTreeMap<&str, u32>) -> Self {
        let (mut near, mut far) = (Vec::new(), Vec::new());
        for id in facts.osds.osds.keys().copied() {
            if let Some(place) = places.get(format!("osd.{id}").as_str()).copied() {
                if id < FAR {
                    near.resize(id as usize + 1, NOWHERE);
                    near[id as usize] = place;
                } else {
                    far.push((id, place));
                }
            }
        }
        Self { near, far }
    }

    fn of(&self, osd: u32) -> Option<u32> {
        if osd < FAR {
            let place = self.near.get(osd as usize).copied();
            return place.filter(|place| *place != NOWHERE);
        }
        let at = self.far.binary_search_by_key(&osd, |(id, _)| *id).ok()?;
        Some(self.far[at].1)
    }

    /// Where these stand: sorted, each once.
    fn existing(&self, osds: &[u32], found: &mut Vec<u32>) {
        found.clear();
        found.extend(
            osds.iter()
                .filter(|osd| **osd != HOLE)
                .filter_map(|osd| self.of(*osd)),
        );
        found.sort_unstable();
        found.dedup();
    }
}

/// Lists kept between groups, so that they are not allocated a million times.
#[derive(Default)]
struct Scratch {
    acting: Vec<u32>,
    complete: Vec<u32>,
}

/// What all groups of a pool have in common.
struct OfPool<'a> {
    pool: Option<&'a Pool>,
    may_be_interrupted: bool,
    sites: Option<Sites>,
}

fn rows_of(
    pg: &Pg<'_>,
    of_pool: &OfPool<'_>,
    place: &Places,
    scratch: &mut Scratch,
    rows: &mut Vec<Row>,
    flat: &mut Vec<u32>,
) {
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
    let Scratch { acting, complete } = scratch;
    place.existing(pg.acting, acting);
    place.existing(pg.complete.unwrap_or_default(), complete);
    let degraded = pg.state.has(PgState::DEGRADED);
    let serves =
        pg.state.is_reliable() && pg.state.has(PgState::ACTIVE) && !(degraded && complete.is_empty());
    let Some(pool) = of_pool.pool.filter(|_| serves) else {
        acting.append(complete);
        acting.sort_unstable();
        acting.dedup();
        add(acting, 0);
        return;
    };
    let over = |members: &[u32]| (members.len() as u32).saturating_sub(pool.min_size);
    if !degraded {
        // One of a group that is whole, and no second: its data stays on the others, or on it.
        let whole = acting.len() as u32 == pool.size;
        add(
            acting,
            over(acting).max(u32::from(of_pool.may_be_interrupted && whole)),
        );
        for (members, limit) in of_pool.sites.iter().flat_map(|sites| sites.budgets(acting)) {
            add(&members, limit);
        }
        return;
    }
    add(complete, over(complete));
    // It stops serving too when too few act in it, complete or not. The budget above does not say so:
    // where its own members are down already, it is not asked about one that lacks objects.
    if acting != complete {
        add(acting, over(acting));
    }
    for members in [&*complete, &*acting] {
        for (members, limit) in of_pool.sites.iter().flat_map(|sites| sites.budgets(members)) {
            add(&members, limit);
        }
    }
}
