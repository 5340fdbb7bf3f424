//! What lies on OSDs: what is written while some are down, and how it comes back.

use std::collections::BTreeSet;

use super::placement::{self, PlacedPg};
use super::{ScheduledEvent, SimulatedCluster};

impl SimulatedCluster {
    /// Clients write without a pause: where a placement group of this OSD serves, what is written is
    /// missing on those of its shards that are down.
    pub(super) fn write_on(&mut self, unit: usize) {
        let Some(osd) = self.daemons[unit].osd else { return };
        for (pg, _) in &self.on_osd[osd as usize] {
            let pg = *pg as usize;
            let pool = &self.spec.pools[self.pgs[pg].pool];
            if (self.complete(pg).count() as u32) < pool.min_size
                || (pool.sites > 0 && self.sites(self.complete(pg)) < pool.sites)
            {
                continue;
            }
            for shard in 0..self.pgs[pg].shards.len() {
                let down = self.pgs[pg].shards[shard].is_some_and(|osd| !self.daemons[osd as usize].up);
                self.pgs[pg].missing[shard] |= down;
            }
        }
    }

    pub(super) fn recover(&mut self, unit: usize) {
        let Some(osd) = self.daemons[unit].osd else { return };
        let mut again = false;
        for (pg, shard) in self.on_osd[osd as usize].clone() {
            let pool = &self.spec.pools[self.pgs[pg as usize].pool];
            let sources = self.complete(pg as usize).count();
            let group = &mut self.pgs[pg as usize];
            if sources >= pool.k as usize || group.is_last_shard(shard) {
                group.missing[shard as usize] = false;
            } else {
                again |= group.missing[shard as usize];
            }
        }
        self.write_on(unit);
        self.watched.touched = true;
        self.daemons[unit].ours &= again;
        self.settle(unit);
        if again {
            let turn = self.daemons[unit].turn;
            let recovery = u64::from(self.spec.seconds.recovery.max(1)) * 1000;
            self.due(recovery, ScheduledEvent::Recovered { unit, turn });
        }
        self.generation += 1;
    }

    /// The OSDs that are up and have all objects of a placement group.
    pub(crate) fn complete(&self, pg: usize) -> impl Iterator<Item = u32> + '_ {
        let pg = &self.pgs[pg];
        pg.shards
            .iter()
            .zip(&pg.missing)
            .filter_map(|(osd, missing)| osd.filter(|osd| !missing && self.daemons[*osd as usize].up))
    }

    /// In how many sites these OSDs stand.
    pub(crate) fn sites(&self, osds: impl Iterator<Item = u32>) -> u32 {
        if self.spec.sites == 0 {
            return 0;
        }
        let sites = osds.filter_map(|osd| placement::site_of(&self.spec, self.daemons[osd as usize].host));
        sites.collect::<BTreeSet<u32>>().len() as u32
    }

    /// Makes a unit's data anew: all of it is missing until it is backfilled.
    pub(crate) fn wipe(&mut self, unit: usize) {
        self.changes += 1;
        if let Some(osd) = self.daemons[unit].osd {
            for (pg, shard) in &self.on_osd[osd as usize] {
                self.pgs[*pg as usize].missing[*shard as usize] = true;
            }
        }
    }
}

impl PlacedPg {
    /// Whether a shard is the only one that there is: then nothing was written while it was away.
    fn is_last_shard(&self, shard: u32) -> bool {
        let others = self.shards.iter().enumerate();
        others
            .filter(|(at, osd)| osd.is_some() && *at as u32 != shard)
            .count()
            == 0
    }
}
