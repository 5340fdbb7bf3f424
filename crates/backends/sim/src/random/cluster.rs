//! Random clusters.

use stagger_core::model::{IdError, UnitId};

use crate::SimSpec;
use crate::rng::Rng;
use crate::scenario::{Level, PoolSpec, Seconds};

pub(super) fn cluster(rng: &mut Rng, seed: u64) -> Result<SimSpec, IdError> {
    let (racks, hosts, osds) = loop {
        let shape = (rng.between(1, 5), rng.between(1, 4), rng.between(1, 3));
        if shape.0 * shape.1 * shape.2 >= 3 {
            break shape;
        }
    };
    let all = racks * hosts * osds;
    let some = |rng: &mut Rng, most: u64| -> Result<Vec<UnitId>, IdError> {
        let count = rng.below(most + 1);
        (0..count)
            .map(|_| UnitId::new(format!("osd.{}", rng.below(all))))
            .collect()
    };
    let mut out = if rng.percent(25) {
        some(rng, 3)?
    } else {
        Vec::new()
    };
    let mut down = if rng.percent(15) {
        some(rng, 2)?
    } else {
        Vec::new()
    };
    // Dead for long: its data lies elsewhere.
    if rng.percent(15) {
        for dead in some(rng, 2)? {
            out.push(dead.clone());
            down.push(dead);
        }
    }
    let destroyed = if rng.percent(10) {
        some(rng, 2)?
    } else {
        Vec::new()
    };
    let rgws = *rng.pick(&[0, 0, 0, 2, 4, 6]);
    let recovering = if rng.percent(20) {
        rng.between(1, 12) as u32
    } else {
        0
    };
    let wide = LevelCounts {
        racks,
        hosts: racks * hosts,
        osds: all,
    };
    let pools = (0..rng.between(1, 4)).map(|at| pool(rng, at, &wide)).collect();
    Ok(SimSpec {
        name: format!("random-{seed}").parse()?,
        release: "18.2.7".parse()?,
        seed,
        racks: racks as u32,
        sites: 0,
        hosts_per_rack: hosts as u32,
        osds_per_host: osds as u32,
        mons: if rng.percent(4) {
            1
        } else {
            *rng.pick(&[3, 3, 3, 3, 4, 5])
        },
        mgrs: if rng.percent(4) { 1 } else { 2 },
        mds: *rng.pick(&[0, 0, 2, 2, 3]),
        mds_ranks: 1,
        rgws,
        rgw_groups: if rgws > 2 { *rng.pick(&[1, 2]) } else { 1 },
        destroyed,
        recovering,
        pools,
        out,
        down,
        guests: None,
        balanced: None,
        seconds: Seconds {
            restart: 5,
            restart_osd: rng.between(2, 20) as u32,
            recovery: rng.between(1, 30) as u32,
            blind: *rng.pick(&[0, 5, 40]),
            call: *rng.pick(&[0, 0, 0, 1, 3]),
            ask: *rng.pick(&[0, 0, 1, 4]),
            install: *rng.pick(&[0, 0, 20, 300]),
            poll: 10,
            lock: 30,
        },
    })
}

/// The same without anything that stores.
pub(super) fn without_storage(spec: SimSpec) -> SimSpec {
    SimSpec {
        osds_per_host: 0,
        mons: 0,
        mgrs: 0,
        mds: 0,
        rgws: 0,
        destroyed: Vec::new(),
        recovering: 0,
        pools: Vec::new(),
        out: Vec::new(),
        down: Vec::new(),
        ..spec
    }
}

/// How many of each level there are.
struct LevelCounts {
    racks: u64,
    hosts: u64,
    osds: u64,
}

fn pool(rng: &mut Rng, at: u64, wide: &LevelCounts) -> PoolSpec {
    let level = *rng.pick(&[Level::Osd, Level::Host, Level::Host, Level::Rack]);
    let room = |level| match level {
        Level::Osd => wide.osds,
        Level::Host => wide.hosts,
        Level::Rack => wide.racks,
    };
    // Most people give a pool no more copies than it has places, and let it serve with one less.
    let careless = rng.percent(4);
    let domain = if careless || room(level) >= 3 {
        level
    } else {
        Level::Osd
    };
    let most = if careless { 8 } else { room(domain) };
    let (size, min_size, k) = if rng.percent(70) || most < 4 {
        let size = if careless {
            rng.between(1, 5)
        } else {
            rng.between(2, most.min(5))
        };
        let least = if careless { size } else { size - 1 };
        (size, rng.between(1, least), 1)
    } else {
        let m = rng.between(1, 3.min(most - 2));
        let k = rng.between(2, (most - m).min(8));
        (k + m, k + rng.below(m.min(2)), k)
    };
    PoolSpec {
        name: format!("p{at}"),
        size: size as u32,
        min_size: min_size as u32,
        k: k as u32,
        sites: 0,
        domain,
        pgs: rng.between(1, 8) as u32,
    }
}
