//! The rules, over an index from OSDs to their placement groups.

use std::collections::BTreeSet;

use super::{NoSuchOsd, OkToStopVerdict};
use crate::facts::osd::{OsdMap, Pool, Stretch};
use crate::facts::pg::{HOLE, Pg, PgMap};
use crate::facts::pg_state::PgState;
use crate::facts::tree::CrushTree;

/// Answers whether sets of OSDs may stop. Made once a map, then a question costs as much as the set has
/// placement groups.
#[derive(Debug)]
pub struct Oracle<'a> {
    pub(super) pgs: &'a PgMap,
    pub(super) osds: &'a OsdMap,
    pub(super) tree: &'a CrushTree,
    /// All OSDs that the map or a group names, sorted; their place here is their index below.
    ids: Vec<u32>,
    /// OSD `n` is in the groups `groups[starts[n]..starts[n+1]]`.
    starts: Vec<u32>,
    groups: Vec<u32>,
    unknown: Vec<u32>,
    /// Whether Ceph's rules say all there is to say of a group: it serves, whole, on OSDs that are up.
    plain: Vec<bool>,
}

impl<'a> Oracle<'a> {
    /// An oracle on these maps.
    pub fn new(pgs: &'a PgMap, osds: &'a OsdMap, tree: &'a CrushTree) -> Self {
        let mut ids: Vec<u32> = osds.osds.keys().copied().collect();
        let members = |pg: Pg<'a>| {
            let complete = pg.complete.unwrap_or_default();
            pg.acting
                .iter()
                .chain(complete)
                .copied()
                .filter(|osd| *osd != HOLE)
        };
        let mut named = BTreeSet::new();
        for pg in pgs.iter() {
            named.extend(members(pg).filter(|osd| ids.binary_search(osd).is_err()));
        }
        ids.extend(named);
        ids.sort_unstable();
        let place = |osd: u32| ids.binary_search(&osd).unwrap_or(0);
        let mut starts = vec![0_u32; ids.len() + 1];
        for pg in pgs.iter() {
            for osd in members(pg) {
                starts[place(osd) + 1] += 1;
            }
        }
        for at in 1..starts.len() {
            starts[at] += starts[at - 1];
        }
        let mut next = starts.clone();
        let mut groups = vec![0_u32; starts.last().map_or(0, |end| *end as usize)];
        let mut unknown = Vec::new();
        let up: Vec<bool> = ids
            .iter()
            .map(|osd| osds.osds.get(osd).is_some_and(|osd| osd.up))
            .collect();
        let mut plain = Vec::with_capacity(pgs.len());
        for (at, pg) in pgs.iter().enumerate() {
            if !pg.state.is_known() {
                unknown.push(at as u32);
            }
            let pool = osds.pools.get(&pg.id.pool);
            plain.push(
                pool.is_none_or(|pool| pool.stretch.is_none())
                    && pg.state.is_reliable()
                    && pg.state.has(PgState::ACTIVE)
                    && !pg.state.has(PgState::DEGRADED)
                    && pg.live().all(|osd| up[place(osd)]),
            );
            for osd in members(pg) {
                let slot = &mut next[place(osd)];
                groups[*slot as usize] = at as u32;
                *slot += 1;
            }
        }
        Self {
            pgs,
            osds,
            tree,
            ids,
            starts,
            groups,
            unknown,
            plain,
        }
    }

    /// The places of the groups that an OSD is a member of; one may come twice.
    pub(super) fn groups_of(&self, osd: u32) -> &[u32] {
        match self.ids.binary_search(&osd) {
            Ok(at) => &self.groups[self.starts[at] as usize..self.starts[at + 1] as usize],
            Err(_) => &[],
        }
    }

    /// Whether the state of every group is known.
    pub(super) fn all_known(&self) -> bool {
        self.unknown.is_empty()
    }

    pub(super) fn is_up(&self, osd: u32) -> bool {
        self.osds.osds.get(&osd).is_some_and(|osd| osd.up)
    }

    pub(super) fn pool(&self, pg: &Pg<'_>) -> Option<&'a Pool> {
        self.osds.pools.get(&pg.id.pool)
    }

    /// Sorted, each once, and all of them OSDs that exist.
    ///
    /// # Errors
    /// The first that does not.
    pub fn checked(&self, set: &[u32]) -> Result<Vec<u32>, NoSuchOsd> {
        let mut sorted = set.to_vec();
        sorted.sort_unstable();
        sorted.dedup();
        match sorted.iter().find(|osd| !self.osds.osds.contains_key(osd)) {
            None => Ok(sorted),
            Some(id) => {
                let mut nearest: Vec<u32> = self.osds.osds.keys().copied().collect();
                nearest.sort_by_key(|osd| (osd.abs_diff(*id), *osd));
                nearest.truncate(3);
                Err(NoSuchOsd { id: *id, nearest })
            }
        }
    }

    /// Whether these OSDs may stop together.
    ///
    /// # Errors
    /// An OSD that does not exist.
    pub fn ask(&self, set: &[u32]) -> Result<OkToStopVerdict, NoSuchOsd> {
        let set = self.checked(set)?;
        let mut touched: Vec<u32> = set
            .iter()
            .flat_map(|osd| self.groups_of(*osd))
            .copied()
            .filter(|at| self.unknown.binary_search(at).is_err())
            .collect();
        touched.sort_unstable();
        touched.dedup();
        let mut verdict = OkToStopVerdict {
            unknown: self
                .unknown
                .iter()
                .map(|at| self.pgs.at(*at as usize).id)
                .collect(),
            ..OkToStopVerdict::default()
        };
        for at in touched {
            let pg = self.pgs.at(at as usize);
            match self.by_ceph(&pg, &set) {
                Some(ByCeph::NoPool) => verdict.bad_no_pool.push(pg.id),
                Some(ByCeph::Inactive) => verdict.bad_already_inactive.push(pg.id),
                Some(ByCeph::BecomesInactive) => verdict.bad_become_inactive.push(pg.id),
                Some(ByCeph::MoreDegraded) => verdict.ok_become_more_degraded.push(pg.id),
                Some(ByCeph::Degraded) => verdict.ok_become_degraded.push(pg.id),
                None => {}
            }
            let refused = verdict.bad_no_pool.last() == Some(&pg.id)
                || verdict.bad_already_inactive.last() == Some(&pg.id)
                || verdict.bad_become_inactive.last() == Some(&pg.id);
            if !refused && !self.plain[at as usize] && !self.safe(&pg, &set) {
                verdict.also_unsafe.push(pg.id);
            }
        }
        verdict.osds = set;
        Ok(verdict)
    }

    /// What Ceph 16 and 18 say of one group; `None` where they pass over it.
    fn by_ceph(&self, pg: &Pg<'_>, set: &[u32]) -> Option<ByCeph> {
        let degraded = pg.state.has(PgState::DEGRADED);
        let members = if degraded {
            pg.complete.unwrap_or_default()
        } else {
            pg.acting
        };
        let (found, left) = split(members, |osd| set.binary_search(&osd).is_ok());
        if found == 0 {
            return None;
        }
        let Some(pool) = self.pool(pg) else {
            return Some(ByCeph::NoPool);
        };
        Some(if !pg.state.has(PgState::ACTIVE) {
            ByCeph::Inactive
        } else if left < pool.min_size {
            ByCeph::BecomesInactive
        } else if degraded {
            ByCeph::MoreDegraded
        } else {
            ByCeph::Degraded
        })
    }

    /// Whether the group goes on by our rules, see [`super`].
    fn safe(&self, pg: &Pg<'_>, set: &[u32]) -> bool {
        let stops = |osd: u32| self.is_up(osd) && set.binary_search(&osd).is_ok();
        let enough = |members: &[u32], min_size: u32| {
            let (stopping, _) = split(members, stops);
            let (_, left) = split(members, |osd| stops(osd) || !self.is_up(osd));
            stopping == 0 || left >= min_size
        };
        let complete = pg.complete.unwrap_or_default();
        let touched = pg
            .acting
            .iter()
            .chain(complete)
            .any(|osd| *osd != HOLE && stops(*osd));
        if !touched {
            return true;
        }
        let Some(pool) = self.pool(pg) else {
            return false;
        };
        if !pg.state.is_reliable() || !pg.state.has(PgState::ACTIVE) || !enough(pg.acting, pool.min_size) {
            return false;
        }
        if pg.state.has(PgState::DEGRADED) && (complete.is_empty() || !enough(complete, pool.min_size)) {
            return false;
        }
        self.keeps_sites(pg, |osd| set.binary_search(&osd).is_ok())
    }

    /// Whether a group of a stretch pool can peer without those that are asked about. Of a degraded group that holds for the
    /// complete members too.
    pub(super) fn keeps_sites(&self, pg: &Pg<'_>, asked: impl Fn(u32) -> bool) -> bool {
        let Some(stretch) = self.pool(pg).and_then(|pool| pool.stretch) else {
            return true;
        };
        let can_peer = |members: &[u32]| {
            let mut up = members.iter().filter(|osd| self.is_up(**osd));
            if !up.any(|osd| asked(*osd)) {
                return true;
            }
            let sites = self.sites(members, stretch, &asked);
            sites.len() >= stretch.buckets as usize
                && stretch.mandatory.is_none_or(|site| sites.contains(&site))
        };
        can_peer(pg.acting) && (!pg.state.has(PgState::DEGRADED) || can_peer(pg.complete.unwrap_or_default()))
    }

    /// In how many sites members are left, and in how many there must be some, where those are too few.
    pub(super) fn too_few_sites(&self, members: &[u32], pool: &Pool, set: &[u32]) -> Option<(u32, u32)> {
        let stretch = pool.stretch?;
        let left = self.sites(members, stretch, |osd| set.binary_search(&osd).is_ok());
        let left = left.len() as u32;
        (left < stretch.buckets).then_some((left, stretch.buckets))
    }

    /// Below which buckets of the barrier's level members are left. A group peers with as many as its pool asks, the
    /// mandatory one among them: `PeeringState::stretch_set_can_peer` of Ceph.
    fn sites(&self, members: &[u32], stretch: Stretch, asked: impl Fn(u32) -> bool) -> BTreeSet<i64> {
        let left = members.iter().filter(|osd| self.is_up(**osd) && !asked(**osd));
        left.filter_map(|osd| self.tree.above(*osd, stretch.barrier))
            .collect()
    }
}

enum ByCeph {
    NoPool,
    Inactive,
    BecomesInactive,
    Degraded,
    MoreDegraded,
}

/// How many distinct members are picked, and how many are not. Holes are neither.
pub(super) fn split(members: &[u32], picked: impl Fn(u32) -> bool) -> (u32, u32) {
    let (mut yes, mut no) = (0, 0);
    for (at, osd) in members.iter().enumerate() {
        if *osd == HOLE || members[..at].contains(osd) {
            continue;
        }
        if picked(*osd) {
            yes += 1;
        } else {
            no += 1;
        }
    }
    (yes, no)
}
