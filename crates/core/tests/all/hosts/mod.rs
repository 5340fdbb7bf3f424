//! Random clusters of hosts and guests, and maintenances of them, from a seed.
#![allow(
    dead_code,
    missing_docs,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::cast_possible_wrap,
    clippy::too_many_lines,
    reason = "each test uses a part of it, and it is test code"
)]

use std::collections::BTreeMap;

use jiff::Timestamp;
use stagger_core::model::{
    BudgetsBuilder, Capacity, Evacuate, EvacuationPolicy, GoingBack, Growth, Guest, Host, Ix, Kind, Limit,
    LocalGuests, Maintenance, OneAtATime, Part, Phase, Policy, Search, SharedGuests, Snapshot, Spare,
    StageSpec, Standbys, Storage, Target, Unit, UnitId, UnitState, Width,
};
use stagger_core::plan::{Plan, PlanningInput, plan};

pub struct Rng(pub u64);

impl Rng {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n.max(1)
    }
    pub fn percent(&mut self, p: u64) -> bool {
        self.below(100) < p
    }
    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }
}

/// A cluster with what is wanted of it.
#[derive(Clone)]
pub struct Case {
    pub units: Vec<Unit>,
    pub hosts: Vec<Host>,
    pub guests: Vec<Guest>,
    pub pools: u32,
    pub maintenance: Maintenance,
    pub policy: Policy,
}

pub fn name(at: u64) -> UnitId {
    format!("node{at}").parse().unwrap()
}

/// Which guests there are.
#[derive(Debug, Clone, Copy)]
pub struct Mix {
    pub hosts: u64,
    pub guests_a_host: u64,
    /// Of a hundred guests: with two copies, on shared storage; the others are local.
    pub copied: u64,
    pub shared: u64,
    /// Of a hundred hosts, units in trouble.
    pub trouble: u64,
}

pub fn case(rng: &mut Rng, mix: Mix) -> Case {
    let pools = 1 + rng.below(2);
    let pool_of = |host: u64| host * pools / mix.hosts;
    let size = [1000, 40, 40, 1000];
    let roomy = rng.pick(&[50, 100, 200, 400]);
    let mut guests: Vec<Guest> = Vec::new();
    for host in 0..mix.hosts {
        let peers: Vec<u64> = (0..mix.hosts)
            .filter(|peer| *peer != host && pool_of(*peer) == pool_of(host))
            .collect();
        for _ in 0..rng.below(mix.guests_a_host + 1) {
            let drawn = rng.below(100);
            let storage = match drawn {
                _ if drawn < mix.copied && !peers.is_empty() => Storage::Copied,
                _ if drawn < mix.copied + mix.shared => Storage::Shared,
                _ => Storage::Local,
            };
            guests.push(Guest {
                name: format!("web{}", guests.len()),
                host: host as u32,
                standby: (storage == Storage::Copied).then(|| rng.pick(&peers) as u32),
                storage,
                runs: rng.percent(85),
                reserved: rng.percent(90),
                takes: [
                    10 * (1 + rng.below(10) as i64),
                    1 + rng.below(4) as i64,
                    1,
                    10 + rng.below(50) as i64,
                ],
                apart: if rng.percent(10) {
                    vec![rng.below(2) as u32]
                } else {
                    Vec::new()
                },
                stuck: rng.percent(2).then(|| "its policy forbids it".to_owned()),
                elsewhere: false,
            });
        }
    }
    // Its own numbers, so that the others stay as they are.
    let mut lost = Rng(rng.0 ^ 0x5eed);
    if lost.percent(4) && !guests.is_empty() {
        let at = lost.below(guests.len() as u64) as usize;
        guests[at].stuck = Some("it runs elsewhere".to_owned());
        guests[at].elsewhere = true;
    }
    let hosts: Vec<Host> = (0..mix.hosts)
        .map(|host| {
            let scarce = if rng.percent(20) { 10 } else { 100 };
            Host {
                unit: name(host),
                pool: pool_of(host) as u32,
                takes: rng.percent(96),
                size,
                free: [
                    rng.below(3 * roomy) as i64,
                    rng.below(20) as i64 * scarce / 100,
                    20,
                    rng.below(3 * roomy) as i64,
                ],
            }
        })
        .collect();
    let units: Vec<Unit> = hosts
        .iter()
        .map(|host| Unit {
            id: host.unit.clone(),
            kind: "node".parse().unwrap(),
            state: if rng.percent(mix.trouble) {
                rng.pick(&[UnitState::Down, UnitState::Unknown])
            } else {
                UnitState::Serving
            },
            revision: Some("before".parse().unwrap()),
            domains: BTreeMap::from([("pool".to_owned(), host.pool.to_string())]),
            precedence: 0,
            untouchable: None,
        })
        .collect();
    let maintenance = Maintenance {
        only: rng.percent(30).then(|| {
            let mut only: Vec<UnitId> = (0..mix.hosts).filter(|_| rng.percent(60)).map(name).collect();
            only.sort();
            only
        }),
        last: rng.percent(60).then(|| name(rng.below(mix.hosts))),
        one_at_a_time: if rng.percent(10) {
            let mut units: Vec<UnitId> = (0..mix.hosts).filter(|_| rng.percent(50)).map(name).collect();
            units.sort();
            vec![OneAtATime {
                why: "storage on the hosts' own disks".to_owned(),
                units,
            }]
        } else {
            Vec::new()
        },
        moving: EvacuationPolicy {
            as_if_down: rng.percent(5),
            local: rng.pick(&[LocalGuests::Skip, LocalGuests::Accept, LocalGuests::Relocate]),
            shared: rng.pick(&[
                SharedGuests::Sets,
                SharedGuests::Sets,
                SharedGuests::One,
                SharedGuests::Rolling,
            ]),
            standbys: rng.pick(&[Standbys::Capacity, Standbys::Capacity, Standbys::Exclude]),
            spare: rng.pick(&[Spare::Keep, Spare::Spend]),
            evacuate: rng.pick(&[Evacuate::Guests, Evacuate::Guests, Evacuate::Everything]),
        },
        flowing: false,
    };
    let policy = Policy {
        max_in_parallel: rng.pick(&[Limit::Percent(100), Limit::Percent(50), Limit::Count(3)]),
        growth: rng.pick(&[Growth::None, Growth::None, Growth::Double]),
        search: Search {
            seed: 1,
            steps: 2_000,
        },
        ..Policy::default()
    };
    Case {
        units,
        hosts,
        guests,
        pools: pools as u32,
        maintenance,
        policy,
    }
}

/// A mix with at most so many hosts.
pub fn mix(rng: &mut Rng, hosts: u64) -> Mix {
    Mix {
        hosts: 1 + rng.below(hosts),
        guests_a_host: rng.below(5),
        copied: rng.pick(&[0, 50, 80, 100]),
        shared: rng.pick(&[0, 20, 50]),
        trouble: rng.pick(&[0, 0, 5]),
    }
}

impl Case {
    pub fn capacity(&self) -> Capacity {
        let pools = (0..self.pools).map(|pool| format!("pool{pool}")).collect();
        Capacity::new(
            self.hosts.clone(),
            self.guests.clone(),
            pools,
            vec!["dns".to_owned(), "web".to_owned()],
        )
        .unwrap()
    }

    pub fn snapshot(&self) -> Snapshot {
        let mut budgets = BudgetsBuilder::default();
        for guest in &self.guests {
            if let Some(standby) = guest.standby {
                budgets.add("pair", &guest.name, 1, &[(Ix(guest.host), 1), (Ix(standby), 1)]);
            }
        }
        Snapshot::new(
            "random".parse().unwrap(),
            Timestamp::UNIX_EPOCH,
            "config 1".to_owned(),
            self.units.clone(),
            budgets.build(),
            Vec::new(),
            BTreeMap::new(),
        )
        .unwrap()
        .with_capacity(self.capacity())
        .unwrap()
    }

    pub fn target(&self) -> Target {
        let kind: Kind = "node".parse().unwrap();
        Target {
            title: "reboot".to_owned(),
            parts: vec![Part::Stage(StageSpec {
                name: "reboot".parse().unwrap(),
                kind,
                revision: "after".parse().unwrap(),
                width: Width::Policy,
                phases: Phase::all(),
                guards: Vec::new(),
                gates: Vec::new(),
                door_before_last: None,
                may_be_left: false,
                going_back: GoingBack::Restart,
                maintenance: Some(self.maintenance.clone()),
            })],
            only: None,
        }
    }

    /// Calls back with all that a plan is a function of.
    pub fn ask<T>(&self, parent: Option<&Plan>, f: impl FnOnce(&PlanningInput<'_>) -> T) -> T {
        let (snapshot, target) = (self.snapshot(), self.target());
        let (aside, earned) = (BTreeMap::new(), BTreeMap::new());
        f(&PlanningInput {
            snapshot: &snapshot,
            target: &target,
            policy: &self.policy,
            aside: &aside,
            earned: &earned,
            parent,
        })
    }

    pub fn plan(&self) -> Plan {
        self.ask(None, plan)
    }
}
