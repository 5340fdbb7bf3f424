//! Makes a world: as a scenario describes it, or as the copy of a real cluster.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use stagger_core::model::{Capacity, IdError, Kind, Revision, UnitId, UnitState};

use super::copied_state::{CopiedState, recovery, visit};
use super::ground_truth::GroundTruth;
use super::guests::GuestHosts;
use super::placement::{self, PlacedPg};
use super::restored_journal::JournalState;
use super::{EPOCH, FaultState, ScheduledEvent, SimDaemon, SimulatedCluster};
use crate::copy::ClusterCopy;
use crate::rng::hash;
use crate::scenario::{InjectedFault, Level, NODE, PoolSpec, Seconds, SimSpec, node_name};

fn name(prefix: &str, number: u32) -> Result<UnitId, IdError> {
    let letter = char::from_u32(u32::from('a') + number % 26).unwrap_or('z');
    if number < 26 {
        UnitId::new(format!("{prefix}.{letter}"))
    } else {
        UnitId::new(format!("{prefix}.{letter}{}", number / 26))
    }
}

impl SimulatedCluster {
    /// A healthy cluster, but for what the specification says is down.
    ///
    /// # Errors
    /// A name is not valid.
    pub fn new(spec: SimSpec, faults: Vec<InjectedFault>) -> Result<Self, IdError> {
        let mut daemons = Vec::new();
        let hosts = spec.hosts().max(1);
        let mut add = |id: UnitId, kind: &str, host: u32, osd: Option<u32>| -> Result<(), IdError> {
            let destroyed = spec.destroyed.contains(&id);
            let up = !destroyed && !spec.down.contains(&id);
            daemons.push(SimDaemon {
                destroyed,
                group: 0,
                kind: Kind::new(kind)?,
                host,
                osd,
                out: destroyed || spec.out.contains(&id),
                first: spec.release.clone(),
                installed: spec.release.clone(),
                runs: spec.release.clone(),
                up,
                wanted: up,
                starting: false,
                outages: 0,
                baseline: up,
                ours: false,
                ours_to_give_back: false,
                drained: false,
                drained_by: None,
                begun_by: 0,
                change_failed: false,
                away: Vec::new(),
                leaves_when_up: false,
                failed: false,
                turn: 0,
                id,
            });
            Ok(())
        };
        let nodes = spec
            .guests
            .as_ref()
            .map_or(0, |guests| guests.memory.len() as u32);
        for node in 0..nodes {
            add(node_name(node)?, NODE, node, None)?;
        }
        for osd in 0..spec.osds() {
            let host = placement::host_of(&spec, osd);
            add(UnitId::new(format!("osd.{osd}"))?, "osd", host, Some(osd))?;
        }
        let balanced = spec.balanced.as_ref();
        let kinds = [
            ("mon", spec.mons),
            ("mgr", spec.mgrs),
            ("mds", spec.mds),
            ("rgw", spec.rgws),
            (
                "conductor",
                balanced.map_or(0, |spec| spec.conductors.len() as u32),
            ),
            ("api", balanced.map_or(0, |spec| spec.apis)),
        ];
        for (kind, count) in kinds {
            for number in 0..count {
                // Spread over the racks: the first host of each, then the second.
                let rack = number % spec.racks.max(1);
                let host = (rack * spec.hosts_per_rack + number / spec.racks.max(1)) % hosts;
                // The tiebreaker stands in no site, on the host behind the last.
                let tiebreaker = spec.sites > 0 && kind == "mon" && number + 1 == count;
                let host = if tiebreaker { hosts } else { host };
                add(name(kind, number)?, kind, host, None)?;
            }
        }
        let gateways = daemons.iter_mut().filter(|daemon| daemon.kind.as_str() == "rgw");
        for (number, gateway) in gateways.enumerate() {
            gateway.group = number as u32 % spec.rgw_groups.max(1);
        }
        let conductors = daemons
            .iter_mut()
            .filter(|daemon| daemon.kind.as_str() == "conductor");
        for (conductor, group) in conductors.zip(balanced.iter().flat_map(|spec| &spec.conductors)) {
            conductor.group = *group;
        }
        let is_out: Vec<bool> = daemons.iter().take(spec.osds() as usize).map(|d| d.out).collect();
        let pgs = placement::place(&spec, &is_out);
        let begin = Timestamp::from_second(EPOCH).unwrap_or(Timestamp::UNIX_EPOCH);
        let carried = spec.guests.as_ref().map(GuestHosts::of_spec).transpose()?;
        let mut world = Self::of(spec, daemons, pgs, begin);
        world.carried = carried;
        world.elect();
        world.begin_to_recover();
        world.await_faults(faults);
        Ok(world)
    }

    /// What is down already misses what was written since, and some groups lack objects that come back by themselves.
    fn begin_to_recover(&mut self) {
        for unit in 0..self.daemons.len() {
            if !self.daemons[unit].up {
                self.write_on(unit);
            }
        }
        let groups = self.pgs.len().min(self.spec.recovering as usize);
        for group in 0..groups {
            let shards = self.pgs[group].shards.clone();
            let there: Vec<(usize, u32)> = shards
                .into_iter()
                .enumerate()
                .filter_map(|(shard, osd)| Some((shard, osd?)))
                .filter(|(_, osd)| self.daemons[*osd as usize].up)
                .collect();
            // With one copy there is nothing to recover from.
            let (Some((shard, osd)), true) = (there.first().copied(), there.len() > 1) else {
                continue;
            };
            self.pgs[group].missing[shard] = true;
            let unit = osd as usize;
            let turn = self.daemons[unit].turn;
            let spread = hash(&[self.spec.seed, 3, group as u64]) % 20;
            let takes = u64::from(self.spec.seconds.recovery) * (1 + spread) * 1000;
            self.due(takes, ScheduledEvent::Recovered { unit, turn });
        }
    }

    /// A cluster like that one. Of its units the OSDs are known by their places among all units.
    ///
    /// # Errors
    /// A name is not valid.
    pub fn copied(copy: &Arc<ClusterCopy>, seed: u64, faults: Vec<InjectedFault>) -> Result<Self, IdError> {
        let unknown = Revision::new("unknown")?;
        let hosts = copy.hosts();
        let places: BTreeMap<&str, u32> = hosts
            .iter()
            .enumerate()
            .map(|(at, host)| (*host, at as u32))
            .collect();
        let units = copy.snapshot.units().iter().enumerate();
        let daemons = units.map(|(at, unit)| {
            let up = unit.state == UnitState::Serving;
            let runs = unit.revision.clone().unwrap_or_else(|| unknown.clone());
            SimDaemon {
                id: unit.id.clone(),
                kind: unit.kind.clone(),
                host: places.get(ClusterCopy::host_of(unit)).copied().unwrap_or(0),
                osd: (unit.kind.as_str() == "osd").then_some(at as u32),
                out: false,
                destroyed: false,
                group: 0,
                first: runs.clone(),
                installed: runs.clone(),
                runs,
                up,
                wanted: up,
                starting: false,
                outages: 0,
                baseline: up,
                ours: false,
                ours_to_give_back: false,
                drained: false,
                drained_by: None,
                begun_by: 0,
                change_failed: false,
                away: Vec::new(),
                leaves_when_up: false,
                failed: false,
                turn: 0,
            }
        });
        let pgs = copy.groups.iter().map(|group| PlacedPg {
            pool: group.pool,
            number: group.seed,
            shards: group.shards.iter().map(|unit| unit.map(|ix| ix.0)).collect(),
            missing: group.missing.clone(),
        });
        let spec = SimSpec {
            name: copy.snapshot.cluster().clone(),
            release: unknown.clone(),
            seed,
            racks: 0,
            sites: 0,
            hosts_per_rack: 0,
            osds_per_host: 0,
            mons: 0,
            mgrs: 0,
            mds: 0,
            mds_ranks: 0,
            rgws: 0,
            destroyed: Vec::new(),
            recovering: 0,
            rgw_groups: 1,
            pools: copied_pools(copy),
            out: Vec::new(),
            down: Vec::new(),
            guests: None,
            balanced: None,
            seconds: Seconds {
                recovery: recovery(visit(&copy.snapshot, &Kind::new("osd")?)),
                poll: copy.poll,
                // Nobody else is there to take it, and a large plan is made in more real time than this.
                lock: 24 * 3600,
                ..Seconds::default()
            },
        };
        let mut world = Self::of(
            spec,
            daemons.collect(),
            pgs.collect(),
            copy.snapshot.observed_at(),
        );
        world.carried = copy
            .snapshot
            .capacity()
            .and_then(|capacity| world.guest_hosts(capacity));
        world.count_down_at_first();
        world.copy = Some(CopiedState::new(Arc::clone(copy)));
        // The one that is active now, and not the first.
        world.active_mgr = copy
            .snapshot
            .units()
            .iter()
            .position(|unit| unit.kind.as_str() == "mgr" && unit.precedence > 0)
            .filter(|at| world.daemons[*at].up);
        world.elect();
        world.stand();
        world.await_faults(faults);
        Ok(world)
    }

    /// What its units carry that are hosts of guests.
    fn guest_hosts(&self, capacity: &Capacity) -> Option<GuestHosts> {
        let units = capacity
            .hosts()
            .iter()
            .map(|host| self.by_id.get(&host.unit).copied());
        Some(GuestHosts::of_capacity(capacity, units.collect::<Option<_>>()?))
    }

    fn of(spec: SimSpec, daemons: Vec<SimDaemon>, pgs: Vec<PlacedPg>, begin: Timestamp) -> Self {
        let mut on_osd = vec![Vec::new(); daemons.len()];
        for (at, pg) in pgs.iter().enumerate() {
            for (shard, osd) in pg.shards.iter().enumerate() {
                if let Some(osd) = osd {
                    on_osd[*osd as usize].push((at as u32, shard as u32));
                }
            }
        }
        let by_id = daemons
            .iter()
            .enumerate()
            .map(|(at, d)| (d.id.clone(), at))
            .collect();
        Self {
            carried: None,
            wanted: None,
            steps: BTreeSet::new(),
            spec,
            now: 0,
            shown: Arc::default(),
            by_id,
            pgs,
            on_osd,
            agenda: BTreeMap::new(),
            count: 0,
            sleepers: BTreeMap::new(),
            teller: None,
            stuck: false,
            watched: super::monitor::MonitorState::default(),
            grace: super::Tolerance::USUAL,
            healed: false,
            faults: Vec::new(),
            guards: BTreeMap::new(),
            lock: None,
            fence: 0,
            host_fence: BTreeMap::new(),
            anchor: None,
            orphans: BTreeSet::new(),
            said_off: BTreeSet::new(),
            lost: Vec::new(),
            started_by_others: BTreeSet::new(),
            caller: None,
            begun: JournalState::default(),
            taken_by: BTreeMap::new(),
            effects: BTreeSet::new(),
            failed: BTreeMap::new(),
            require: None,
            generation: 1,
            changes: 0,
            shown_last: None,
            blind_until: 0,
            active_mgr: None,
            frozen: None,
            osd_stops: 0,
            truth: GroundTruth::default(),
            begin,
            copy: None,
            daemons,
        }
    }

    fn await_faults(&mut self, faults: Vec<InjectedFault>) {
        for (at, fault) in faults.into_iter().enumerate() {
            let when = fault.when();
            self.faults.push(FaultState {
                fault,
                on: false,
                armed: when.is_some(),
                used: 0,
                hit: Vec::new(),
            });
            if let Some(when) = when.filter(|when| when.osd_stop == 0) {
                self.due(u64::from(when.at) * 1000, ScheduledEvent::FaultOn(at));
                self.faults[at].armed = false;
            }
        }
    }
}

/// The pools of a copy. Where their shards lie is known, so their domain says nothing.
fn copied_pools(copy: &ClusterCopy) -> Vec<PoolSpec> {
    let pools = copy.pools.iter().map(|pool| PoolSpec {
        name: pool.name.clone(),
        size: pool.size,
        min_size: pool.min_size,
        k: pool.k,
        sites: 0,
        // Where its shards lie is known.
        domain: Level::Host,
        pgs: 0,
    });
    pools.collect()
}
