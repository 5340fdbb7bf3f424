//! Random clusters whose nodes are drained, crash, come back and heal, with evictions between any two
//! changes of a budget: what Kubernetes grants by the budgets that there are never takes down more failure
//! domains with data than the pools bear, and in the end every drain gets through and nothing is left behind.

#![allow(clippy::unwrap_used, reason = "test code")]

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;
use stagger_rook::drains::budgets::{Budget, Selects, Step, steps};
use stagger_rook::drains::{Groups, Memory, Osd, Seen, decide};

/// What happens next; the numbers choose a node or an OSD.
#[derive(Debug, Clone, Copy)]
enum Op {
    Cordon(u8),
    Uncordon(u8),
    Crash(u8),
    Repair(u8),
    /// So many minutes pass: what is down and not under `noout` is marked out and recovers elsewhere.
    Pass(u8),
    /// A client of a drain asks for an eviction.
    Evict(u8),
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        2 => any::<u8>().prop_map(Op::Cordon),
        1 => any::<u8>().prop_map(Op::Uncordon),
        1 => any::<u8>().prop_map(Op::Crash),
        2 => any::<u8>().prop_map(Op::Repair),
        3 => (1..45_u8).prop_map(Op::Pass),
        8 => any::<u8>().prop_map(Op::Evict),
    ]
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pod {
    Runs,
    /// Its eviction was granted, and it has its time to end: Ceph has its OSD up, and all is clean with it.
    Going,
    Evicted,
    Crashed,
}

/// A cluster: `domains` domains of two nodes with two OSDs each. OSD 0 holds no placement group.
struct World {
    domains: usize,
    /// How many domains the pools bear to be without.
    bears: usize,
    pods: Vec<Pod>,
    cordoned: BTreeSet<usize>,
    /// OSDs whose data others have taken over.
    replaced: BTreeSet<usize>,
    now: i64,
    budgets: BTreeMap<String, Budget>,
    noout: BTreeSet<String>,
    memory: Memory,
    granted: usize,
}

fn node_of(osd: usize) -> usize {
    osd / 2
}

fn domain_of(osd: usize) -> String {
    format!("d{}", osd / 4)
}

impl World {
    fn new(domains: usize, bears: usize) -> Self {
        let mut world = Self {
            domains,
            bears,
            pods: vec![Pod::Runs; domains * 4],
            cordoned: BTreeSet::new(),
            replaced: BTreeSet::new(),
            now: 0,
            budgets: BTreeMap::new(),
            noout: BTreeSet::new(),
            memory: Memory::default(),
            granted: 0,
        };
        world.reconcile(&mut Vec::new());
        world
    }

    fn holds_data(&self, osd: usize) -> bool {
        osd != 0 && !self.replaced.contains(&osd)
    }

    /// The domains of those among `osds` that hold data.
    fn without(&self, osds: impl IntoIterator<Item = usize>) -> BTreeSet<String> {
        osds.into_iter()
            .filter(|osd| self.holds_data(*osd))
            .map(domain_of)
            .collect()
    }

    fn down(&self) -> Vec<usize> {
        (0..self.pods.len())
            .filter(|osd| self.pods[*osd] != Pod::Runs)
            .collect()
    }

    /// As the eviction API grants: one budget at most may be over a pod, and must have one to spare.
    fn evict(&mut self, osd: usize) {
        if self.pods[osd] != Pod::Runs || !self.cordoned.contains(&node_of(osd)) {
            return;
        }
        let over =
            |budget: &&Budget, osd: usize| budget.covers(u32::try_from(osd).unwrap(), Some(&domain_of(osd)));
        let mine: Vec<&Budget> = self.budgets.values().filter(|budget| over(budget, osd)).collect();
        if mine.len() > 1 {
            return;
        }
        if let Some(budget) = mine.first() {
            let all = (0..self.pods.len()).filter(|osd| over(budget, *osd));
            let gone = all.filter(|osd| self.pods[*osd] != Pod::Runs).count();
            if gone + 1 > budget.max_unavailable as usize {
                return;
            }
        }
        let after = self.without(self.down().into_iter().chain([osd]));
        assert!(
            !self.holds_data(osd) || after.len() <= self.bears,
            "osd.{osd} was evicted while {:?} were down; then without data: {after:?}, budgets {:?}",
            self.down(),
            self.budgets.keys()
        );
        self.pods[osd] = Pod::Going;
        self.granted += 1;
    }

    /// One pass of the controller; between any two of its changes evictions are tried.
    fn reconcile(&mut self, between: &mut Vec<u8>) {
        let osds: Vec<Osd> = (0..self.pods.len())
            .map(|osd| Osd {
                id: u32::try_from(osd).unwrap(),
                domain: Some(domain_of(osd)),
                serves: self.pods[osd] == Pod::Runs,
                leaving: self.pods[osd] == Pod::Going,
                up: matches!(self.pods[osd], Pod::Runs | Pod::Going),
                cordoned: self.cordoned.contains(&node_of(osd)),
                replaced: false,
            })
            .collect();
        let missing = self.without(
            self.down()
                .into_iter()
                .filter(|osd| self.pods[*osd] != Pod::Going),
        );
        let groups = if missing.is_empty() {
            Groups::Clean
        } else {
            Groups::NotClean {
                why: format!("groups of {missing:?} lack copies"),
            }
        };
        let may = |set: &BTreeSet<u32>| self.without(set.iter().map(|osd| *osd as usize)).len() <= self.bears;
        let wanted = decide(
            Seen {
                now: Timestamp::from_second(self.now).unwrap(),
                managed: true,
                level: Some("zone"),
                osds: &osds,
                groups: &groups,
                maintenance: SignedDuration::from_mins(30),
                wave: None,
                proven: &may,
            },
            &self.memory,
        );
        for step in steps(&self.budgets, &wanted.budgets) {
            match step {
                Step::Apply(budget) => drop(self.budgets.insert(budget.name.clone(), budget)),
                Step::Delete(name) => drop(self.budgets.remove(&name)),
            }
            if let Some(osd) = between.pop() {
                self.evict(osd as usize % self.pods.len());
            }
        }
        self.noout = wanted.noout.into_keys().collect();
        self.memory = wanted.memory;
    }

    fn pass(&mut self, minutes: i64) {
        self.now += minutes * 60;
        for pod in self.pods.iter_mut().filter(|pod| **pod == Pod::Going) {
            *pod = Pod::Evicted;
        }
        let up: BTreeSet<String> = (0..self.pods.len())
            .filter(|osd| self.pods[*osd] == Pod::Runs)
            .map(domain_of)
            .collect();
        for osd in self.down() {
            // Elsewhere there must be room for as many copies in distinct domains.
            if minutes >= 10 && !self.noout.contains(&domain_of(osd)) && up.len() > 2 {
                self.replaced.insert(osd);
            }
        }
        // Those that are up have what they should have.
        let runs: BTreeSet<usize> = (0..self.pods.len())
            .filter(|osd| self.pods[*osd] == Pod::Runs)
            .collect();
        self.replaced.retain(|osd| !runs.contains(osd));
    }

    fn uncordon(&mut self, node: usize) {
        self.cordoned.remove(&node);
        for osd in [2 * node, 2 * node + 1] {
            if matches!(self.pods[osd], Pod::Going | Pod::Evicted) {
                self.pods[osd] = Pod::Runs;
                self.replaced.remove(&osd);
            }
        }
    }

    fn carry_out(&mut self, op: Op, between: &mut Vec<u8>) {
        let nodes = self.domains * 2;
        let osds = self.pods.len();
        match op {
            Op::Cordon(node) => drop(self.cordoned.insert(node as usize % nodes)),
            Op::Uncordon(node) => self.uncordon(node as usize % nodes),
            Op::Crash(osd) if self.pods[osd as usize % osds] == Pod::Runs => {
                self.pods[osd as usize % osds] = Pod::Crashed;
            }
            Op::Repair(osd) if self.pods[osd as usize % osds] == Pod::Crashed => {
                self.pods[osd as usize % osds] = Pod::Runs;
                self.replaced.remove(&(osd as usize % osds));
            }
            Op::Pass(minutes) => self.pass(i64::from(minutes)),
            Op::Evict(osd) => self.evict(osd as usize % osds),
            Op::Crash(_) | Op::Repair(_) => {}
        }
        match op {
            // What fails or comes back by itself the controller can but follow: no eviction falls in between.
            Op::Crash(_) | Op::Repair(_) | Op::Uncordon(_) => self.reconcile(&mut Vec::new()),
            Op::Cordon(_) | Op::Pass(_) | Op::Evict(_) => self.reconcile(between),
        }
        // What was granted in between is seen as well.
        self.reconcile(between);
    }

    /// Everything that crashed is repaired; drained nodes are worked on, and come back one by one.
    fn settle(&mut self) {
        for osd in 0..self.pods.len() {
            if self.pods[osd] == Pod::Crashed {
                self.pods[osd] = Pod::Runs;
                self.replaced.remove(&osd);
            }
        }
        for _ in 0..200 {
            self.reconcile(&mut Vec::new());
            if self.cordoned.is_empty() && self.down().is_empty() {
                return;
            }
            for osd in 0..self.pods.len() {
                self.evict(osd);
                self.reconcile(&mut Vec::new());
            }
            self.pass(1);
            let empty = self.cordoned.iter().copied().find(|node| {
                [2 * node, 2 * node + 1]
                    .iter()
                    .all(|osd| self.pods[*osd] != Pod::Runs)
            });
            if let Some(node) = empty {
                self.uncordon(node);
                self.pass(1);
            }
        }
        panic!(
            "drains hang: nodes {:?} are cordoned, {:?} down, budgets {:?}",
            self.cordoned,
            self.down(),
            self.budgets.keys()
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, ..ProptestConfig::default() })]

    #[test]
    fn evictions_are_safe_and_drains_get_through(
        domains in 3..6_usize,
        bears in 1..3_usize,
        ops in prop::collection::vec(op(), 1..80),
        mut between in prop::collection::vec(any::<u8>(), 0..40),
    ) {
        let mut world = World::new(domains, bears);
        for op in ops {
            world.carry_out(op, &mut between);
        }
        world.settle();
        prop_assert!(world.noout.is_empty());
        prop_assert_eq!(&world.memory, &Memory::default());
        let budgets: Vec<&Budget> = world.budgets.values().collect();
        prop_assert_eq!(budgets.len(), 1);
        prop_assert_eq!(&budgets[0].selects, &Selects::AllBut(BTreeSet::new()));
    }
}

#[test]
fn a_drain_of_every_node_in_turn_is_granted_in_full() {
    let mut world = World::new(3, 1);
    for node in 0..6 {
        world.carry_out(Op::Cordon(node), &mut Vec::new());
    }
    world.settle();
    assert_eq!(world.granted, 12);
}
