//! What may be down together, as the cluster says it.

use std::collections::BTreeMap;

use stagger_core::model::{Budgets, BudgetsBuilder, Ix};

use super::SimulatedCluster;
use super::placement::{self, PlacedPg};
use crate::scenario::SERVICE_KINDS;

/// Daemons of one kind that stand in for each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StandbyGroup {
    pub(crate) kind: &'static str,
    pub(crate) group: u32,
    pub(crate) name: &'static str,
    /// How many there are.
    pub(crate) all: u32,
    /// How many of them have to serve.
    pub(crate) need: u32,
}

const SERVICES: [(&str, &str); 4] = [
    ("mon", "quorum of the monitors"),
    ("mgr", "managers, one of them active"),
    ("mds", "metadata servers for all ranks"),
    ("rgw", "object gateways, one of them up"),
];

impl SimulatedCluster {
    /// All services that are not storage.
    pub(crate) fn services(&self) -> Vec<StandbyGroup> {
        let mut all = Vec::new();
        for (kind, name) in SERVICES.into_iter().chain(SERVICE_KINDS) {
            let groups = match kind {
                "rgw" => self.spec.rgw_groups.max(1),
                "conductor" => self.conductor_groups(),
                _ => 1,
            };
            for group in 0..groups {
                let members = self.daemons.iter();
                let members = members.filter(|d| d.kind.as_str() == kind && d.group == group);
                let count = members.count() as u32;
                let need = match kind {
                    "mon" => count / 2 + 1,
                    "mds" => self.spec.mds_ranks.min(count),
                    _ => 1,
                };
                if count > 0 {
                    all.push(StandbyGroup {
                        kind,
                        group,
                        name,
                        all: count,
                        need,
                    });
                }
            }
        }
        all
    }

    fn conductor_groups(&self) -> u32 {
        let groups = self.spec.balanced.iter().flat_map(|spec| &spec.conductors);
        groups.max().map_or(0, |last| last + 1)
    }

    /// The daemons of a service, by their places in the world.
    pub(crate) fn members(&self, service: StandbyGroup) -> impl Iterator<Item = usize> + '_ {
        let all = self.daemons.iter().enumerate();
        all.filter(move |(_, d)| d.kind.as_str() == service.kind && d.group == service.group)
            .map(|(at, _)| at)
    }

    /// What may be down together now; `place` is where each daemon stands among the units.
    pub(crate) fn may_be_down(&self, unknown: Option<&'static str>, place: &[Ix]) -> Budgets {
        let groups = (0..self.pgs.len()).map(|pg| (pg, self.said_missing(pg)));
        self.budgets(unknown, place, groups)
    }

    /// What may be down together once all groups that recover by themselves have done so.
    pub(crate) fn may_be_down_once_recovered(&self, place: &[Ix]) -> Budgets {
        let groups = (0..self.pgs.len()).map(|pg| {
            let recovered = self.recovers(pg);
            (pg, if recovered { &[] } else { self.said_missing(pg) })
        });
        self.budgets(None, place, groups)
    }

    /// Whether a group lacks objects, and all OSDs that lack them are up: then it recovers by itself.
    pub(crate) fn recovers(&self, pg: usize) -> bool {
        let shards = self.pgs[pg].shards.iter().zip(self.said_missing(pg));
        let lacking = shards.filter_map(|(osd, missing)| osd.filter(|_| *missing));
        let mut lacking = lacking.peekable();
        lacking.peek().is_some() && lacking.all(|osd| self.daemons[osd as usize].up)
    }

    /// What besides `min_size` a group of a stretch pool asks, as the Ceph backend reckons it: OSDs that are up, and how
    /// many of them may go.
    fn may_leave_their_sites(&self, pg: &PlacedPg, place: &[Ix]) -> Vec<(Vec<(Ix, u32)>, u32)> {
        let needed = self.spec.pools[pg.pool].sites;
        if needed == 0 {
            return Vec::new();
        }
        let mut sites: BTreeMap<u32, Vec<(Ix, u32)>> = BTreeMap::new();
        let mut all = Vec::new();
        for osd in pg.shards.iter().flatten() {
            let daemon = &self.daemons[*osd as usize];
            let member = (place[*osd as usize], 1);
            all.push(member);
            let site = placement::site_of(&self.spec, daemon.host).filter(|_| daemon.up);
            if let Some(site) = site {
                sites.entry(site).or_default().push(member);
            }
        }
        let Some(to_spare) = (sites.len() as u32).checked_sub(needed) else {
            return vec![(all, 0)];
        };
        if to_spare > 0 && sites.values().any(|of_it| of_it.len() == 1) {
            return vec![(all, to_spare)];
        }
        let stays_one = |of_it: Vec<_>| {
            let limit = of_it.len() as u32 - 1;
            (of_it, limit)
        };
        sites.into_values().map(stays_one).collect()
    }

    fn budgets<'a>(
        &self,
        unknown: Option<&'static str>,
        place: &[Ix],
        groups: impl Iterator<Item = (usize, &'a [bool])>,
    ) -> Budgets {
        let mut budgets = BudgetsBuilder::default();
        for service in self.services() {
            let members = self.members(service).map(|at| (place[at], 1));
            let members: Vec<(Ix, u32)> = members.collect();
            budgets.add_for(
                0,
                service.name,
                "",
                service.all.saturating_sub(service.need),
                &members,
            );
        }
        self.pairs(&mut budgets, place);
        let pools = self.spec.pools.iter();
        let names: Vec<String> = pools
            .map(|pool| format!("placement group of pool {}", pool.name))
            .collect();
        for (at, missing) in groups {
            let pg = &self.pgs[at];
            let members = |complete: bool| -> Vec<(Ix, u32)> {
                let shards = pg.shards.iter().enumerate();
                shards
                    .filter(|(shard, _)| !(complete && missing.get(*shard) == Some(&true)))
                    .filter_map(|(_, osd)| osd.map(|osd| (place[osd as usize], 1)))
                    .collect()
            };
            let all = members(false);
            // Nobody could tell: then nothing of it may go.
            let limit = |members: &[(Ix, u32)]| match unknown {
                Some(_) => 0,
                None => (members.len() as u32).saturating_sub(self.spec.pools[pg.pool].min_size),
            };
            budgets.add(&names[pg.pool], &self.pg_name(at), limit(&all), &all);
            let sites = self.may_leave_their_sites(pg, place);
            for (number, (members, limit)) in (1..).zip(sites) {
                let limit = unknown.map_or(limit, |_| 0);
                let name = format!("{} by site {number}", self.pg_name(at));
                budgets.add_for(0, &names[pg.pool], &name, limit, &members);
            }
            // It serves with those that are up, and keeps its data on those that are complete.
            if missing.contains(&true) {
                let complete = members(true);
                let name = format!("{} without missing objects", self.pg_name(at));
                budgets.add_for(0, &names[pg.pool], &name, limit(&complete), &complete);
            }
        }
        budgets.build()
    }
}
