//! Where placement groups lie: a seeded function of the cluster, as CRUSH is.

use std::collections::BTreeMap;

use crate::rng::hash;
use crate::scenario::{Level, SimSpec};

/// A placement group: its pool, and its shards' OSDs (`None`: a hole).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PlacedPg {
    pub(crate) pool: usize,
    pub(crate) number: u32,
    pub(crate) shards: Vec<Option<u32>>,
    /// Of each shard, whether objects are missing on it.
    pub(crate) missing: Vec<bool>,
}

/// The host of an OSD, by number.
pub(crate) fn host_of(spec: &SimSpec, osd: u32) -> u32 {
    osd / spec.osds_per_host.max(1)
}

/// The rack of a host, by number.
pub(crate) fn rack_of(spec: &SimSpec, host: u32) -> u32 {
    host / spec.hosts_per_rack.max(1)
}

/// The site of a host, by number; one that is in no rack, as that of the tiebreaker, is in none.
pub(crate) fn site_of(spec: &SimSpec, host: u32) -> Option<u32> {
    (host < spec.hosts()).then(|| rack_of(spec, host).checked_rem(spec.sites))?
}

fn domain(spec: &SimSpec, level: Level, osd: u32) -> u32 {
    match level {
        Level::Osd => osd,
        Level::Host => host_of(spec, osd),
        Level::Rack => rack_of(spec, host_of(spec, osd)),
    }
}

/// All placement groups; `is_out` tells of an OSD whether nothing lies on it.
pub(crate) fn place(spec: &SimSpec, is_out: &[bool]) -> Vec<PlacedPg> {
    let mut pgs = Vec::new();
    for (at, pool) in spec.pools.iter().enumerate() {
        for number in 0..pool.pgs {
            let draw = |salt: u64, what: u32| {
                hash(&[spec.seed, at as u64, u64::from(number), salt, u64::from(what)])
            };
            // Of each domain its best OSD, then the best domains.
            let mut best: Vec<(u64, u32)> = Vec::new();
            let mut of: BTreeMap<u32, (u64, u32)> = BTreeMap::new();
            for osd in (0..spec.osds()).filter(|osd| !is_out[*osd as usize]) {
                let rank = (draw(2, osd), osd);
                let place = of.entry(domain(spec, pool.domain, osd)).or_insert(rank);
                *place = (*place).max(rank);
            }
            best.extend(of.iter().map(|(domain, (_, osd))| (draw(1, *domain), *osd)));
            best.sort_unstable();
            if pool.sites > 0 {
                best = interleave_sites(spec, &best);
            }
            let shards: Vec<_> = (0..pool.size as usize)
                .map(|shard| best.get(shard).map(|(_, osd)| *osd))
                .collect();
            pgs.push(PlacedPg {
                pool: at,
                number,
                missing: vec![false; shards.len()],
                shards,
            });
        }
    }
    pgs
}

/// The best of each site, then the second of each, and so on.
fn interleave_sites(spec: &SimSpec, best: &[(u64, u32)]) -> Vec<(u64, u32)> {
    let mut taken: BTreeMap<Option<u32>, u32> = BTreeMap::new();
    let mut turns: Vec<(u32, (u64, u32))> = best
        .iter()
        .map(|place| {
            let turn = taken.entry(site_of(spec, host_of(spec, place.1))).or_default();
            *turn += 1;
            (*turn, *place)
        })
        .collect();
    turns.sort_by_key(|(turn, _)| *turn);
    turns.into_iter().map(|(_, place)| place).collect()
}
