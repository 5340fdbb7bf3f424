//! The largest set that may stop: by Ceph's own walk, by stagger's search, and an upper bound.

use std::collections::BTreeSet;

use super::oracle::split;
use super::{NoSuchOsd, OkToStopVerdict, Oracle};
use crate::facts::pg_state::PgState;

/// A set that may stop, to which nothing can be added, or `max` of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Largest {
    /// The answer on that set.
    pub verdict: OkToStopVerdict,
    /// How many Ceph's own walk along the CRUSH tree finds, under the same rules.
    pub by_ceph_walk: u32,
    /// No set with the OSDs asked about in it can be larger. In each pool, the members that stopped OSDs
    /// have in its groups cannot be more than the groups can spare together; so at most as many OSDs may
    /// stop as fit when those with the fewest groups are taken.
    pub upper_bound: u32,
}

impl Oracle<'_> {
    /// A set that may stop with `seed` in it, of at most `max` OSDs, to which nothing can be added
    /// unless it has `max`. It is never smaller than what Ceph's own walk finds. If `seed` itself may
    /// not stop, it is the answer.
    ///
    /// # Errors
    /// An OSD that does not exist.
    pub fn largest(&self, seed: &[u32], max: u32) -> Result<Largest, NoSuchOsd> {
        let verdict = self.ask(seed)?;
        let seed = verdict.osds.clone();
        let max = (max as usize).max(seed.len());
        if !verdict.ok() || seed.is_empty() {
            return Ok(Largest {
                verdict,
                by_ceph_walk: seed.len() as u32,
                upper_bound: seed.len() as u32,
            });
        }
        let walked = self.walk(&seed, max);
        let by_ceph_walk = walked.len() as u32;
        let by_number: Vec<u32> = self.osds.osds.keys().copied().collect();
        let mut by_groups = by_number.clone();
        by_groups.sort_by_key(|osd| (self.groups_of(*osd).len(), *osd));
        let mut best = Vec::new();
        for (start, order) in [(&walked, &by_number), (&seed, &by_groups), (&seed, &by_number)] {
            let mut set = Growing::new(self, start);
            for osd in order {
                if set.members.len() < max {
                    set.try_add(*osd);
                }
            }
            if set.members.len() > best.len() {
                best = set.members.into_iter().collect();
            }
        }
        Ok(Largest {
            by_ceph_walk,
            upper_bound: self.upper_bound(&seed).min(max as u32),
            verdict: self.ask(&best)?,
        })
    }

    /// Ceph's own walk: from the lowest OSD of the seed up the CRUSH tree, at each level adding what may
    /// be added in the order of the numbers, until a level where something could not.
    fn walk(&self, seed: &[u32], max: usize) -> Vec<u32> {
        let mut set = Growing::new(self, seed);
        let parent = seed.first().and_then(|osd| self.tree.parents.get(osd)?.first());
        for (bucket, _) in parent.into_iter().flat_map(|bucket| self.tree.upwards(*bucket)) {
            let mut failed = false;
            for osd in self.tree.descendants(bucket) {
                if set.members.len() >= max {
                    return set.members.into_iter().collect();
                }
                if self.is_up(osd) && !set.members.contains(&osd) {
                    failed |= !set.try_add(osd);
                }
            }
            if failed {
                break;
            }
        }
        set.members.into_iter().collect()
    }

    fn upper_bound(&self, seed: &[u32]) -> u32 {
        let alone = Growing::new(self, &[]);
        let candidates: Vec<u32> = self.osds.osds.keys().copied().collect();
        let others = candidates
            .iter()
            .copied()
            .filter(|osd| seed.binary_search(osd).is_err() && self.is_up(*osd) && alone.may_add(*osd));
        let others: Vec<u32> = others.collect();
        let mut bound = seed.len() + others.len();
        for pool in self.osds.pools.keys() {
            let spare: u64 = alone.spare_of_pool(*pool);
            let degree = |osd: u32| alone.counted(osd, *pool);
            let used: u64 = seed.iter().map(|osd| degree(*osd)).sum();
            let mut degrees: Vec<u64> = others.iter().map(|osd| degree(*osd)).collect();
            degrees.sort_unstable();
            let mut left = spare.saturating_sub(used);
            let fit = degrees.iter().take_while(|degree| {
                let fits = **degree <= left;
                left = left.saturating_sub(**degree);
                fits
            });
            bound = bound.min(seed.len() + fit.count());
        }
        bound as u32
    }
}

/// A set that grows, with what each group can still spare.
struct Growing<'a> {
    oracle: &'a Oracle<'a>,
    members: BTreeSet<u32>,
    /// How many more of its acting members each group can lose.
    spare: Vec<i32>,
    /// How many more of its complete members each degraded group can lose.
    spare_complete: Vec<i32>,
}

/// A group that can spare nothing, whatever else is asked of it.
const BLOCKED: i32 = i32::MIN / 2;
/// No limit of that sort.
const FREE: i32 = i32::MAX / 2;

impl<'a> Growing<'a> {
    fn new(oracle: &'a Oracle<'a>, seed: &[u32]) -> Self {
        let count = |members: &[u32]| split(members, |osd| oracle.is_up(osd)).0.cast_signed();
        let (mut spare, mut spare_complete) = (Vec::new(), Vec::new());
        for pg in oracle.pgs.iter() {
            let pool = oracle.pool(&pg).filter(|_| {
                let degraded = pg.state.has(PgState::DEGRADED);
                let incomplete = degraded && pg.complete.unwrap_or_default().is_empty();
                pg.state.is_reliable() && pg.state.has(PgState::ACTIVE) && !incomplete
            });
            let Some(pool) = pool else {
                spare.push(BLOCKED);
                spare_complete.push(BLOCKED);
                continue;
            };
            spare.push(count(pg.acting) - pool.min_size.cast_signed());
            spare_complete.push(if pg.state.has(PgState::DEGRADED) {
                count(pg.complete.unwrap_or_default()) - pool.min_size.cast_signed()
            } else {
                FREE
            });
        }
        let mut growing = Self {
            oracle,
            members: BTreeSet::new(),
            spare,
            spare_complete,
        };
        for osd in seed {
            growing.add(*osd);
        }
        growing
    }

    /// The groups of an OSD, each once, with whether it acts in it and whether it is complete there.
    fn roles(&self, osd: u32) -> impl Iterator<Item = (usize, bool, bool)> + use<'a> {
        let oracle = self.oracle;
        let mut before = None;
        oracle
            .groups_of(osd)
            .iter()
            .map(|at| *at as usize)
            .filter(move |at| before.replace(*at) != Some(*at))
            .map(move |at| {
                let pg = oracle.pgs.at(at);
                let complete = pg.complete.unwrap_or_default();
                (at, pg.acting.contains(&osd), complete.contains(&osd))
            })
    }

    fn may_add(&self, osd: u32) -> bool {
        self.oracle.all_known()
            && self.roles(osd).all(|(at, acts, complete)| {
                (!acts || self.spare[at] >= 1)
                    && (!complete || self.spare_complete[at] >= 1)
                    && self.spare[at] > BLOCKED / 2
                    && self.keeps_sites(at, osd)
            })
    }

    /// Whether the group at that place can peer without this one too.
    fn keeps_sites(&self, at: usize, osd: u32) -> bool {
        let pg = self.oracle.pgs.at(at);
        self.oracle
            .keeps_sites(&pg, |asked| asked == osd || self.members.contains(&asked))
    }

    fn try_add(&mut self, osd: u32) -> bool {
        if self.members.contains(&osd) {
            return true;
        }
        let may = self.oracle.is_up(osd) && self.may_add(osd);
        if may {
            self.add(osd);
        }
        may
    }

    fn add(&mut self, osd: u32) {
        self.members.insert(osd);
        if !self.oracle.is_up(osd) {
            return;
        }
        let roles: Vec<_> = self.roles(osd).collect();
        for (at, acts, complete) in roles {
            self.spare[at] -= i32::from(acts);
            self.spare_complete[at] -= i32::from(complete);
        }
    }

    /// How many members the groups of a pool can spare together.
    fn spare_of_pool(&self, pool: u32) -> u64 {
        let pgs = self
            .oracle
            .pgs
            .iter()
            .enumerate()
            .filter(|(_, pg)| pg.id.pool == pool);
        pgs.map(|(at, _)| u64::try_from(self.spare[at].max(0)).unwrap_or(0))
            .sum()
    }

    /// In how many groups of a pool an OSD acts.
    fn counted(&self, osd: u32, pool: u32) -> u64 {
        let acts = self
            .roles(osd)
            .filter(|(at, acts, _)| *acts && self.oracle.pgs.at(*at).id.pool == pool);
        acts.count() as u64
    }
}
