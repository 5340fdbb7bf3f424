//! Random storage that is stretched over sites, with a tiebreaker beside them.

use crate::SimSpec;
use crate::rng::Rng;
use crate::scenario::{Level, PoolSpec};

/// The same cluster in two sites, or three.
pub(super) fn stretched(rng: &mut Rng, mut spec: SimSpec) -> SimSpec {
    let sites = *rng.pick(&[2, 2, 3]);
    spec.sites = sites;
    spec.racks = sites * *rng.pick(&[1, 1, 2]);
    spec.hosts_per_rack = rng.between(2, 3) as u32;
    spec.osds_per_host = rng.between(1, 2) as u32;
    // Two in each site, or one, and the tiebreaker.
    spec.mons = *rng.pick(&[sites + 1, 2 * sites + 1]);
    let osds = spec.osds();
    let is_there = |unit: &stagger_core::model::UnitId| {
        let number = unit
            .as_str()
            .strip_prefix("osd.")
            .and_then(|n| n.parse::<u32>().ok());
        number.is_some_and(|number| number < osds)
    };
    for list in [&mut spec.out, &mut spec.down, &mut spec.destroyed] {
        list.retain(is_there);
    }
    spec.pools = (0..rng.between(1, 3)).map(|at| pool(rng, at, sites)).collect();
    spec
}

fn pool(rng: &mut Rng, at: u64, sites: u32) -> PoolSpec {
    // Two copies in each site; one pool in ten is careless, and has one there.
    let in_each = if rng.percent(10) { 1 } else { 2 };
    let size = sites * in_each;
    PoolSpec {
        name: format!("p{at}"),
        size,
        min_size: (size / 2).max(1),
        k: 1,
        domain: *rng.pick(&[Level::Host, Level::Host, Level::Osd]),
        // One of them is not stretched.
        sites: if rng.percent(85) { 2 } else { 0 },
        pgs: rng.between(1, 8) as u32,
    }
}
