//! Random clusters, targets and policies, from a seed.
#![allow(
    dead_code,
    missing_docs,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::type_complexity,
    reason = "each test uses a part of it, and it is test code"
)]

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use stagger_core::model::{
    Budgets, BudgetsBuilder, Condition, Door, Doors, Gate, GoingBack, Growth, GuardScope, GuardSpec, Ix,
    Limit, OnFailure, Order, Part, Phase, Policy, Reason, Retry, Search, Snapshot, StageSpec, StepSpec,
    Target, Unit, UnitId, UnitState, Verdict, Width,
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
    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len() as u64) as usize]
    }
}

pub const OLD: &str = "18";
pub const NEW: &str = "20";

/// A cluster as plain facts, so that tests can change them.
#[derive(Clone)]
pub struct Facts {
    pub units: Vec<Unit>,
    /// Group, name, limit, members.
    pub budgets: Vec<(String, String, u32, Vec<(Ix, u32)>)>,
    pub conditions: BTreeMap<String, Verdict>,
    pub generation: u64,
    pub target: Target,
    pub policy: Policy,
}

pub const HEALTH: [&str; 3] = ["quorum", "pgs-clean", "mgr-active"];
pub const DONE: &str = "require-osd-release-20";

fn gates() -> Vec<Gate> {
    HEALTH
        .iter()
        .map(|name| Gate {
            condition: name.parse().unwrap(),
            hold: SignedDuration::from_secs(2),
            timeout: SignedDuration::from_secs(30),
        })
        .collect()
}

fn door(name: &str) -> Door {
    Door {
        name: name.parse().unwrap(),
        why: "it cannot be undone".to_owned(),
    }
}

fn stage(kind: &str) -> StageSpec {
    StageSpec {
        name: kind.parse().unwrap(),
        kind: kind.parse().unwrap(),
        revision: NEW.parse().unwrap(),
        width: Width::Policy,
        phases: Phase::all(),
        guards: Vec::new(),
        gates: gates(),
        door_before_last: None,
        may_be_left: false,
        going_back: GoingBack::Restart,
        maintenance: None,
    }
}

pub fn target(rng: &mut Rng) -> Target {
    let phases = if rng.percent(50) {
        [vec![Phase::Prepare], Phase::all()].concat()
    } else {
        Phase::all()
    };
    let may_be_left = rng.percent(80);
    let guard = GuardSpec {
        name: "noout".parse().unwrap(),
        scope: GuardScope::Wave,
        expiry: SignedDuration::from_secs(3600),
        why: String::new(),
    };
    let stage_guard = GuardSpec {
        name: "watch".parse().unwrap(),
        scope: GuardScope::Stage,
        ..guard.clone()
    };
    Target {
        title: "18 to 20".to_owned(),
        parts: vec![
            Part::Stage(StageSpec {
                width: Width::Single,
                door_before_last: Some(door("last-mon")),
                ..stage("mon")
            }),
            Part::Stage(StageSpec {
                may_be_left,
                ..stage("mgr")
            }),
            Part::Stage(StageSpec {
                phases,
                guards: vec![guard, stage_guard],
                ..stage("osd")
            }),
            Part::Step(StepSpec {
                name: "require".parse().unwrap(),
                done_when: DONE.parse().unwrap(),
                before: gates(),
                door: Some(door("require")),
                why: String::new(),
            }),
        ],
        only: None,
    }
}

/// Everything serves on the old release.
pub fn healthy(rng: &mut Rng) -> Facts {
    let (mons, mgrs) = (*rng.pick(&[1, 3, 3, 5]), 1 + rng.below(3));
    let (hosts, per_host) = (2 + rng.below(6), 1 + rng.below(3));
    let mut units = Vec::new();
    let mut add = |id: String, kind: &str, host: u64, precedence: u32| {
        let domains = [("host", format!("h{host}")), ("rack", format!("r{}", host % 3))];
        units.push(Unit {
            id: id.parse().unwrap(),
            kind: kind.parse().unwrap(),
            state: UnitState::Serving,
            revision: Some(OLD.parse().unwrap()),
            domains: domains
                .into_iter()
                .map(|(level, name)| (level.to_owned(), name))
                .collect(),
            precedence,
            untouchable: None,
        });
    };
    for mon in 0..mons {
        add(format!("mon.{mon}"), "mon", mon, 0);
    }
    for mgr in 0..mgrs {
        add(format!("mgr.{mgr}"), "mgr", mgr, u32::from(mgr == 0));
    }
    for osd in 0..hosts * per_host {
        add(format!("osd.{osd}"), "osd", osd / per_host, 0);
    }
    let of = |kind: &str| -> Vec<(Ix, u32)> {
        let all = units
            .iter()
            .enumerate()
            .filter(|(_, unit)| unit.kind.as_str() == kind);
        all.map(|(at, _)| (Ix(at as u32), 1)).collect()
    };
    let mut budgets = vec![(
        "quorum".to_owned(),
        String::new(),
        (mons as u32 - 1) / 2,
        of("mon"),
    )];
    budgets.push(("managers".to_owned(), String::new(), mgrs as u32 - 1, of("mgr")));
    let osds = of("osd");
    for pg in 0..rng.below(30) {
        let mut members: Vec<(Ix, u32)> = Vec::new();
        for _ in 0..2 + rng.below(3) {
            let member = rng.pick(&osds).0;
            if members.iter().all(|(unit, _)| *unit != member) {
                members.push((member, 1));
            }
        }
        let limit = 1 + rng.below(members.len() as u64) as u32 / 2;
        budgets.push(("placement group".to_owned(), format!("1.{pg:x}"), limit, members));
    }
    let conditions = HEALTH
        .iter()
        .map(|name| ((*name).to_owned(), Verdict::Yes))
        .collect();
    Facts {
        units,
        budgets,
        conditions,
        generation: 1,
        target: target(rng),
        policy: policy(rng),
    }
}

/// As [`healthy`], with what is found in real clusters: some down, some done, some unknown.
pub fn facts(rng: &mut Rng) -> Facts {
    let mut facts = healthy(rng);
    for unit in &mut facts.units {
        match rng.below(40) {
            0 => unit.state = UnitState::Down,
            1 => unit.state = UnitState::Unknown,
            2 => unit.revision = None,
            3 => unit.untouchable = Some(Reason::of_backend("being-replaced", "by hand")),
            4..=6 => unit.revision = Some(NEW.parse().unwrap()),
            _ => {}
        }
    }
    facts
}

/// How many placement groups a budget of that name stands for: one, several, or none.
pub fn share(group: &str, name: &str) -> u32 {
    match (group, name.bytes().last()) {
        ("placement group", Some(last)) => u32::from(last) % 4,
        _ => 0,
    }
}

pub fn policy(rng: &mut Rng) -> Policy {
    let mut max_domains = BTreeMap::new();
    if rng.percent(30) {
        max_domains.insert((*rng.pick(&["host", "rack"])).to_owned(), 1 + rng.below(3) as u32);
    }
    Policy {
        max_in_parallel: *rng.pick(&[
            Limit::Percent(15),
            Limit::Percent(50),
            Limit::Percent(100),
            Limit::Count(3),
        ]),
        growth: *rng.pick(&[Growth::Double, Growth::None]),
        order: rng
            .pick(&[
                Order::FewestWaves,
                Order::FewestWaves,
                Order::ByDomain("rack".to_owned()),
            ])
            .clone(),
        max_domains,
        max_reduced_redundancy: if rng.percent(20) {
            Some(10 + rng.below(60) as u32)
        } else {
            None
        },
        canary_soak: 3,
        gate_hold: 2,
        gate_timeout: 30,
        doors: *rng.pick(&[Doors::AutoAfter(1), Doors::Ask]),
        on_failure: *rng.pick(&[OnFailure::Rollback, OnFailure::Stop, OnFailure::Continue]),
        retry: Retry {
            first: 5,
            longest: 20,
            tries: 3,
        },
        search: Search { seed: 1, steps: 200 },
        partial: rng.percent(20),
        ..Policy::default()
    }
}

impl Facts {
    pub fn budgets(&self) -> Budgets {
        let mut builder = BudgetsBuilder::default();
        for (group, name, limit, members) in &self.budgets {
            builder.add_for(share(group, name), group, name, *limit, members);
        }
        builder.build()
    }

    pub fn snapshot(&self, at: Timestamp) -> Snapshot {
        let conditions = self
            .conditions
            .iter()
            .map(|(name, verdict)| Condition::new(name.parse().unwrap(), *verdict, ""));
        Snapshot::new(
            "random".parse().unwrap(),
            at,
            format!("map {}", self.generation),
            self.units.clone(),
            self.budgets(),
            conditions.collect(),
            BTreeMap::new(),
        )
        .unwrap()
    }

    /// The plan from here.
    pub fn plan(&self, earned: &BTreeMap<stagger_core::model::PartName, u32>, parent: Option<&Plan>) -> Plan {
        let snapshot = self.snapshot(Timestamp::UNIX_EPOCH);
        let aside = BTreeMap::new();
        plan(&PlanningInput {
            snapshot: &snapshot,
            target: &self.target,
            policy: &self.policy,
            aside: &aside,
            earned,
            parent,
        })
    }

    pub fn unit(&mut self, id: &UnitId) -> &mut Unit {
        self.units.iter_mut().find(|unit| unit.id == *id).unwrap()
    }
}
