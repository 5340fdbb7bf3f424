//! Converts a Ceph cluster's facts into the simulator's input.

use std::collections::BTreeMap;

use stagger_ceph::facts::CephFacts;
use stagger_ceph::facts::pg::{HOLE, Pg};
use stagger_ceph::facts::pg_state::PgState;
use stagger_ceph::memory::hosts_of;
use stagger_ceph::translate::hosts::host_unit;
use stagger_core::model::{Fact, Ix, Snapshot, UnitId};
use stagger_sim::ClusterCopy;
use stagger_sim::copy::{CopiedGroup, CopiedPool};

/// A copy of the cluster that these facts and this snapshot of them speak of. Where nobody could tell how
/// the placement groups lie there are none, and the snapshot forbids each stop.
pub(super) fn of(facts: &CephFacts, snapshot: Snapshot, poll: u32) -> ClusterCopy {
    let units = |osd: &UnitId| Some(osd.clone());
    by_units(facts, snapshot, poll, &units)
}

/// The same where hosts are the units: each stands for its OSDs.
pub(super) fn of_hosts(facts: &CephFacts, snapshot: Snapshot, poll: u32) -> ClusterCopy {
    let hosts = hosts_of(facts);
    by_units(facts, snapshot, poll, &|osd| host_unit(hosts.get(osd)?).ok())
}

fn by_units(
    facts: &CephFacts,
    snapshot: Snapshot,
    poll: u32,
    unit_of: &dyn Fn(&UnitId) -> Option<UnitId>,
) -> ClusterCopy {
    let mut places = BTreeMap::new();
    for osd in facts.osds.osds.keys() {
        let found = UnitId::new(format!("osd.{osd}")).ok();
        let found = found.and_then(|osd| unit_of(&osd));
        if let Some(ix) = found.and_then(|id| snapshot.find(&id)) {
            places.insert(*osd, ix);
        }
    }
    let pools = facts.osds.pools.iter().map(|(number, pool)| CopiedPool {
        number: *number,
        name: pool.name.clone(),
        size: pool.size,
        min_size: pool.min_size,
        // What is not known is taken for the worst that it can be.
        k: pool.data_shards.unwrap_or(pool.min_size),
    });
    let place_of_pool: BTreeMap<u32, usize> = facts.osds.pools.keys().copied().zip(0..).collect();
    let groups = match &facts.pgs {
        Fact::Yes(pgs) => pgs
            .iter()
            .filter_map(|pg| Some(group(&pg, *place_of_pool.get(&pg.id.pool)?, &places)))
            .collect(),
        Fact::No(_) => Vec::new(),
    };
    ClusterCopy {
        snapshot,
        pools: pools.collect(),
        groups,
        poll,
        drains: false,
        comes_with: Vec::new(),
    }
}

fn group(pg: &Pg<'_>, pool: usize, places: &BTreeMap<u32, Ix>) -> CopiedGroup {
    let complete = pg.complete.filter(|_| pg.state.has(PgState::DEGRADED));
    let missing = |osd: &u32| *osd != HOLE && complete.is_some_and(|whole| !whole.contains(osd));
    CopiedGroup {
        pool,
        seed: pg.id.seed,
        shards: pg.acting.iter().map(|osd| places.get(osd).copied()).collect(),
        missing: pg.acting.iter().map(missing).collect(),
    }
}
