//! Random clusters whose nodes are drained, crash, come back and heal, while a run restarts OSDs wave by wave, with
//! evictions between any two changes of a budget: what Kubernetes grants by the budgets that there are never takes down
//! more failure domains with data than the pools bear, and in the end every drain gets through, every wave is over
//! and nothing is left behind.

#![allow(clippy::unwrap_used, reason = "test code")]

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;
use stagger_rook::drains::budgets::{Budget, Selects, Step, steps};
use stagger_rook::drains::{Groups, Memory, Open, Osd, Seen, decide};

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
    /// A run opens a wave of the OSDs of that node, or of one of them.
    Open(u8, bool),
    /// What of the wave can start does; once all have, it is over.
    Start,
    /// The run stops one of the wave once more.
    Again(u8),
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        2 => any::<u8>().prop_map(Op::Cordon),
        1 => any::<u8>().prop_map(Op::Uncordon),
        1 => any::<u8>().prop_map(Op::Crash),
        2 => any::<u8>().prop_map(Op::Repair),
        3 => (1..45_u8).prop_map(Op::Pass),
        8 => any::<u8>().prop_map(Op::Evict),
        2 => (any::<u8>(), any::<bool>()).prop_map(|(node, both)| Op::Open(node, both)),
        2 => Just(Op::Start),
        1 => any::<u8>().prop_map(Op::Again),
    ]
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pod {
    Runs,
    /// Its eviction was granted, and it has its time to end: Ceph has its OSD up, and all is clean with it.
    Going,
    Evicted,
    Crashed,
    /// The run has stopped it, and its new pod waits for its node.
    Stopped,
}

/// The open wave of a run.
#[derive(Debug, Clone, Default)]
struct OpenWave {
    all: BTreeSet<usize>,
    /// Those that are stopped, or about to be.
    exposed: BTreeSet<usize>,
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
    wave: Option<OpenWave>,
    open: Open,
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
            wave: None,
            open: Open::default(),
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
        let wave: Option<BTreeSet<u32>> = self.wave.as_ref().map(|wave| {
            wave.exposed
                .iter()
                .map(|osd| u32::try_from(*osd).unwrap())
                .collect()
        });
        let wanted = decide(
            Seen {
                now: Timestamp::from_second(self.now).unwrap(),
                managed: true,
                level: Some("zone"),
                osds: &osds,
                groups: &groups,
                maintenance: SignedDuration::from_mins(30),
                wave: wave.as_ref(),
                proven: &may,
                open: &self.open,
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
        self.open = wanted.open;
        self.noout = wanted.noout.into_keys().collect();
        self.memory = wanted.memory;
    }

    /// As a run does it: first the budgets are closed for them, then it is judged, then they are stopped. Those that
    /// it may not stop are left as they are.
    fn stop(&mut self, osds: &BTreeSet<usize>, between: &mut Vec<u8>) -> bool {
        let Some(wave) = &mut self.wave else { return false };
        wave.exposed.extend(osds);
        self.reconcile(between);
        let others_stay = !self.pods.contains(&Pod::Going);
        let after = self.without(self.down().into_iter().chain(osds.iter().copied()));
        let may = others_stay && after.len() <= self.bears;
        if may {
            for osd in osds {
                self.pods[*osd] = Pod::Stopped;
            }
        }
        may
    }

    fn open(&mut self, node: usize, both: bool, between: &mut Vec<u8>) {
        let osds: BTreeSet<usize> = [2 * node, 2 * node + 1]
            .into_iter()
            .take(if both { 2 } else { 1 })
            .collect();
        let serve = osds.iter().all(|osd| self.pods[*osd] == Pod::Runs);
        if self.wave.is_some() || self.cordoned.contains(&node) || !serve {
            return;
        }
        self.wave = Some(OpenWave {
            all: osds.clone(),
            exposed: BTreeSet::new(),
        });
        if !self.stop(&osds, between) {
            self.wave = None;
        }
    }

    /// What is stopped starts where its node takes pods.
    fn start(&mut self) {
        let Some(wave) = &mut self.wave else { return };
        for osd in wave.all.clone() {
            if self.pods[osd] == Pod::Stopped && !self.cordoned.contains(&node_of(osd)) {
                self.pods[osd] = Pod::Runs;
                self.replaced.remove(&osd);
            }
            if self.pods[osd] == Pod::Runs {
                wave.exposed.remove(&osd);
            }
        }
        if wave.all.iter().all(|osd| self.pods[*osd] == Pod::Runs) {
            self.wave = None;
        }
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
            Op::Open(node, both) => self.open(node as usize % nodes, both, between),
            Op::Start => self.start(),
            Op::Again(osd) => {
                let mine = self.wave.iter().flat_map(|wave| &wave.all).copied();
                let serve: Vec<usize> = mine.filter(|osd| self.pods[*osd] == Pod::Runs).collect();
                if let Some(osd) = serve.get(osd as usize % serve.len().max(1)) {
                    self.stop(&BTreeSet::from([*osd]), between);
                }
            }
            Op::Crash(_) | Op::Repair(_) => {}
        }
        match op {
            // What fails or comes back by itself the controller can but follow: no eviction falls in between.
            Op::Crash(_) | Op::Repair(_) | Op::Uncordon(_) => self.reconcile(&mut Vec::new()),
            Op::Cordon(_) | Op::Pass(_) | Op::Evict(_) | Op::Open(..) | Op::Start | Op::Again(_) => {
                self.reconcile(between);
            }
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
            self.start();
            self.reconcile(&mut Vec::new());
            if self.cordoned.is_empty() && self.down().is_empty() && self.wave.is_none() {
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
