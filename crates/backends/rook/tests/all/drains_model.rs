//! Random clusters whose nodes are drained, crash, get new disks, come back and recover, while a run restarts OSDs wave by
//! wave, with evictions between any two steps of a look: what Kubernetes grants by the budget that there is never leaves a
//! placement group with fewer complete copies than its `min_size`, and in the end every drain gets through, every wave is
//! over and nothing is left behind.

#![allow(clippy::unwrap_used, reason = "test code")]

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;
use stagger_rook::disruption::drains::{
    DrainInput, DrainMemory, EvictableOsds, Groups, Judge, OsdDisruptionBudget, OsdState, decide,
};

/// What happens next; the numbers choose a node or an OSD.
#[derive(Debug, Clone, Copy)]
enum Op {
    Cordon(u8),
    Uncordon(u8),
    Crash(u8),
    Repair(u8),
    /// What is down gets empty disks, if another copy of all that it has is complete.
    Replace(u8),
    /// So many minutes pass: what is down and not under `noout` is marked out and its groups get members elsewhere.
    Pass(u8),
    /// So many copies are made complete, from the first placement group on.
    Recover(u8),
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
        2 => any::<u8>().prop_map(Op::Uncordon),
        1 => any::<u8>().prop_map(Op::Crash),
        2 => any::<u8>().prop_map(Op::Repair),
        1 => any::<u8>().prop_map(Op::Replace),
        2 => (1..45_u8).prop_map(Op::Pass),
        3 => (1..12_u8).prop_map(Op::Recover),
        8 => any::<u8>().prop_map(Op::Evict),
        2 => (any::<u8>(), any::<bool>()).prop_map(|(node, both)| Op::Open(node, both)),
        2 => Just(Op::Start),
        1 => any::<u8>().prop_map(Op::Again),
    ]
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pod {
    Runs,
    /// Its eviction was granted, and it has its time to end: Ceph has its OSD up, and all is as before with it.
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

/// A copy of a placement group: on which OSD, and whether it has all objects.
#[derive(Debug, Clone, Copy)]
struct Shard {
    osd: usize,
    complete: bool,
}

/// A cluster: `domains` domains of two nodes with two OSDs each. OSD 0 holds no placement group.
struct World {
    domains: usize,
    min_size: usize,
    pods: Vec<Pod>,
    groups: Vec<Vec<Shard>>,
    cordoned: BTreeSet<usize>,
    now: i64,
    budget: Option<OsdDisruptionBudget>,
    noout: BTreeSet<String>,
    memory: DrainMemory,
    granted: usize,
    wave: Option<OpenWave>,
    open: EvictableOsds,
    /// Whether an OSD was ever down on a node that was to be drained, and not by its drain.
    fell_beside_its_drain: bool,
}

fn node_of(osd: usize) -> usize {
    osd / 2
}

fn domain_of(osd: usize) -> String {
    format!("d{}", osd / 4)
}

fn takes_writes(group: &[Shard], up: &BTreeSet<usize>, min_size: usize) -> bool {
    let there: Vec<&Shard> = group.iter().filter(|shard| up.contains(&shard.osd)).collect();
    there.len() >= min_size && there.iter().any(|shard| shard.complete)
}

/// Placement groups as they were when they were looked at.
struct Look {
    groups: Vec<Vec<Shard>>,
    up: BTreeSet<usize>,
    min_size: usize,
}

impl Judge for Look {
    fn may_go(&self, gone: &BTreeSet<u32>, set: &BTreeSet<u32>) -> Result<(), String> {
        let of = |osds: &BTreeSet<u32>, osd: usize| osds.contains(&u32::try_from(osd).unwrap());
        for group in &self.groups {
            let up = |shard: &&Shard| self.up.contains(&shard.osd) && !of(gone, shard.osd);
            let up: Vec<&Shard> = group.iter().filter(up).collect();
            let complete: Vec<&Shard> = up.iter().copied().filter(|shard| shard.complete).collect();
            for there in [up, complete] {
                let left = there.iter().filter(|shard| !of(set, shard.osd)).count();
                if left < there.len() && left < self.min_size {
                    return Err(format!("{left} would be left of {group:?}"));
                }
            }
        }
        Ok(())
    }

    fn any_one_may_go(&self, gone: &BTreeSet<u32>, set: &BTreeSet<u32>) -> Result<(), String> {
        set.iter()
            .try_for_each(|osd| self.may_go(gone, &BTreeSet::from([*osd])))
    }
}

impl World {
    /// `size` copies of each group, all but `bears` of which have to be there.
    fn new(domains: usize, size: usize, bears: usize) -> Self {
        let mut groups = Vec::new();
        for number in 0..domains * 6 {
            let shards = (0..size).map(|copy| {
                let domain = (number + copy * (1 + number % 2)) % domains;
                let osd = domain * 4 + (number / domains + copy * 3) % 4;
                Shard {
                    osd: if osd == 0 { 1 } else { osd },
                    complete: true,
                }
            });
            let shards: Vec<Shard> = shards.collect();
            let apart: BTreeSet<usize> = shards.iter().map(|shard| shard.osd / 4).collect();
            if apart.len() == size {
                groups.push(shards);
            }
        }
        assert!(groups.len() >= domains);
        let mut world = Self {
            domains,
            min_size: size - bears,
            pods: vec![Pod::Runs; domains * 4],
            groups,
            cordoned: BTreeSet::new(),
            now: 0,
            budget: None,
            noout: BTreeSet::new(),
            memory: DrainMemory::default(),
            granted: 0,
            wave: None,
            open: EvictableOsds::default(),
            fell_beside_its_drain: false,
        };
        world.reconcile(&mut Vec::new());
        world
    }

    fn down(&self) -> Vec<usize> {
        (0..self.pods.len())
            .filter(|osd| self.pods[*osd] != Pod::Runs)
            .collect()
    }

    /// The OSDs that Ceph has up.
    fn up(&self) -> BTreeSet<usize> {
        let up = |osd: &usize| matches!(self.pods[*osd], Pod::Runs | Pod::Going);
        (0..self.pods.len()).filter(up).collect()
    }

    fn look(&self) -> Look {
        Look {
            groups: self.groups.clone(),
            up: self.up(),
            min_size: self.min_size,
        }
    }

    /// Whether these may stop beside all that is down or going, by the truth.
    fn bears_to_lose(&self, osds: impl IntoIterator<Item = usize>) -> Result<(), String> {
        let ids = |osds: Vec<usize>| osds.into_iter().map(|osd| u32::try_from(osd).unwrap()).collect();
        self.look()
            .may_go(&ids(self.down()), &ids(osds.into_iter().collect()))
    }

    /// As the eviction API grants: the budget over a pod must have one to spare.
    fn evict(&mut self, osd: usize) {
        let crashed = self.pods[osd] == Pod::Crashed;
        if !(crashed || self.pods[osd] == Pod::Runs) || !self.cordoned.contains(&node_of(osd)) {
            return;
        }
        if let Some(budget) = &self.budget {
            let over = |osd: &usize| !budget.without.contains(&u32::try_from(*osd).unwrap());
            let gone = self.down().iter().filter(|osd| over(osd)).count();
            // One that is not ready goes if there is none too few without it.
            let more = usize::from(!crashed);
            if over(&osd) && gone + more > budget.max_unavailable as usize {
                return;
            }
        }
        if crashed {
            self.pods[osd] = Pod::Evicted;
            self.granted += 1;
            return;
        }
        if let Err(why) = self.bears_to_lose([osd]) {
            panic!(
                "osd.{osd} was evicted while {:?} were down: {why}; budget {:?}",
                self.down(),
                self.budget
            );
        }
        self.pods[osd] = Pod::Going;
        self.granted += 1;
    }

    fn evict_between(&mut self, between: &mut Vec<u8>) {
        if let Some(osd) = between.pop() {
            self.evict(osd as usize % self.pods.len());
        }
    }

    /// One pass of the controller; between its looks, and before its change, evictions are tried.
    fn reconcile(&mut self, between: &mut Vec<u8>) {
        let osds: Vec<OsdState> = (0..self.pods.len())
            .map(|osd| OsdState {
                id: u32::try_from(osd).unwrap(),
                domain: Some(domain_of(osd)),
                serves: self.pods[osd] == Pod::Runs,
                leaving: self.pods[osd] == Pod::Going,
                up: matches!(self.pods[osd], Pod::Runs | Pod::Going),
                cordoned: Some(node_of(osd))
                    .filter(|node| self.cordoned.contains(node))
                    .map(|node| format!("n{node}")),
                replaced: false,
            })
            .collect();
        self.evict_between(between);
        let look = self.look();
        let clean = |shard: &Shard| shard.complete && look.up.contains(&shard.osd);
        let groups = if look.groups.iter().flatten().all(clean) {
            Groups::Clean
        } else {
            Groups::NotClean {
                why: "some lack copies".to_owned(),
            }
        };
        let wave: Option<BTreeSet<u32>> = self.wave.as_ref().map(|wave| {
            wave.exposed
                .iter()
                .map(|osd| u32::try_from(*osd).unwrap())
                .collect()
        });
        self.evict_between(between);
        let wanted = decide(
            DrainInput {
                now: Timestamp::from_second(self.now).unwrap(),
                level: Some("zone"),
                osds: &osds,
                groups: &groups,
                maintenance: SignedDuration::from_mins(30),
                wave: wave.as_ref(),
                judge: &look,
                open: &self.open,
            },
            &self.memory,
        );
        self.evict_between(between);
        self.budget = wanted.budget;
        self.evict_between(between);
        self.open = wanted.open;
        self.noout = wanted.noout.into_keys().collect();
        self.memory = wanted.memory;
    }

    /// As a run does it: first the budget is closed for them, then it is judged, then they are stopped. Those that
    /// it may not stop are left as they are.
    fn stop(&mut self, osds: &BTreeSet<usize>, between: &mut Vec<u8>) -> bool {
        let Some(wave) = &mut self.wave else { return false };
        wave.exposed.extend(osds);
        self.reconcile(between);
        let others_stay = !self.pods.contains(&Pod::Going);
        let may = others_stay && self.bears_to_lose(osds.iter().copied()).is_ok();
        if may {
            for osd in osds {
                self.fall(*osd, Pod::Stopped);
            }
        }
        may
    }

    fn fall(&mut self, osd: usize, how: Pod) {
        self.pods[osd] = how;
        self.write();
    }

    /// Clients write to all groups that take writes: who is not up misses that.
    fn write(&mut self) {
        let (up, min_size) = (self.up(), self.min_size);
        for group in self
            .groups
            .iter_mut()
            .filter(|group| takes_writes(group, &up, min_size))
        {
            for shard in group.iter_mut().filter(|shard| !up.contains(&shard.osd)) {
                shard.complete = false;
            }
        }
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
        for osd in 0..self.pods.len() {
            if self.pods[osd] == Pod::Going {
                self.fall(osd, Pod::Evicted);
            }
        }
        if minutes < 10 {
            return;
        }
        let runs: Vec<usize> = (1..self.pods.len())
            .filter(|osd| self.pods[*osd] == Pod::Runs)
            .collect();
        for out in self
            .down()
            .into_iter()
            .filter(|osd| !self.noout.contains(&domain_of(*osd)))
        {
            for group in self
                .groups
                .iter_mut()
                .filter(|group| group.iter().any(|shard| shard.osd == out))
            {
                let taken: BTreeSet<usize> = group
                    .iter()
                    .filter(|shard| shard.osd != out)
                    .map(|shard| shard.osd / 4)
                    .collect();
                let place = runs.iter().find(|osd| !taken.contains(&(**osd / 4)));
                let shard = group.iter_mut().find(|shard| shard.osd == out);
                // The only complete copy is waited for.
                if let (Some(shard), Some(place)) = (shard.filter(|shard| !shard.complete), place) {
                    shard.osd = *place;
                }
            }
        }
    }

    /// Copies are completed in groups that serve.
    fn recover(&mut self, copies: usize) {
        let (up, min_size) = (self.up(), self.min_size);
        let groups = self.groups.iter_mut();
        groups
            .filter(|group| takes_writes(group, &up, min_size))
            .flatten()
            .filter(|shard| !shard.complete && up.contains(&shard.osd))
            .take(copies)
            .for_each(|shard| shard.complete = true);
    }

    fn uncordon(&mut self, node: usize) {
        self.cordoned.remove(&node);
        for osd in [2 * node, 2 * node + 1] {
            if self.pods[osd] == Pod::Going {
                // Its new pod starts when this one has ended, and that takes long enough to miss something.
                self.fall(osd, Pod::Evicted);
            }
            if self.pods[osd] == Pod::Evicted {
                self.pods[osd] = Pod::Runs;
            }
        }
    }

    fn crash(&mut self, osd: usize) {
        if self.pods[osd] == Pod::Runs {
            self.fall(osd, Pod::Crashed);
        }
    }

    fn replace(&mut self, osd: usize) {
        let down = self.pods[osd] != Pod::Runs && self.pods[osd] != Pod::Going;
        let shards = || self.groups.iter().flatten().filter(|shard| shard.osd == osd);
        if down && shards().all(|shard| !shard.complete) {
            self.repair(osd);
        }
    }

    fn repair(&mut self, osd: usize) {
        if self.pods[osd] == Pod::Crashed {
            self.pods[osd] = Pod::Runs;
        }
    }

    fn carry_out(&mut self, op: Op, between: &mut Vec<u8>) {
        let nodes = self.domains * 2;
        let osds = self.pods.len();
        match op {
            Op::Cordon(node) => drop(self.cordoned.insert(node as usize % nodes)),
            Op::Uncordon(node) => self.uncordon(node as usize % nodes),
            Op::Crash(osd) => self.crash(osd as usize % osds),
            Op::Repair(osd) => self.repair(osd as usize % osds),
            Op::Replace(osd) => self.replace(osd as usize % osds),
            Op::Pass(minutes) => self.pass(i64::from(minutes)),
            Op::Recover(copies) => self.recover(copies.into()),
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
        }
        self.write();
        self.fell_beside_its_drain |= (0..osds).any(|osd| {
            matches!(self.pods[osd], Pod::Crashed | Pod::Stopped) && self.cordoned.contains(&node_of(osd))
        });
        match op {
            // What fails or comes back by itself the controller can but follow: no eviction falls in between.
            Op::Crash(_) | Op::Repair(_) | Op::Replace(_) | Op::Uncordon(_) | Op::Pass(_) => {
                self.reconcile(&mut Vec::new());
            }
            Op::Cordon(_) | Op::Recover(_) | Op::Evict(_) | Op::Open(..) | Op::Start | Op::Again(_) => {
                self.reconcile(between);
            }
        }
        // What was granted in between is seen as well.
        self.reconcile(between);
    }

    /// Everything that crashed is repaired; drained nodes are worked on, and come back one by one. Nobody has to wait for
    /// `noout` to end, unless one had crashed, or was stopped by the run, on a node that was then to be drained: it comes
    /// back on a node that was as good as drained, or cannot, and what went in between could not have gone beside it.
    fn settle(&mut self) {
        for osd in 0..self.pods.len() {
            self.repair(osd);
        }
        for _ in 0..200 {
            self.start();
            self.recover(usize::MAX);
            self.reconcile(&mut Vec::new());
            if self.cordoned.is_empty() && self.down().is_empty() && self.wave.is_none() {
                self.recover(usize::MAX);
                self.reconcile(&mut Vec::new());
                return;
            }
            let before = self.granted;
            for osd in 0..self.pods.len() {
                self.evict(osd);
                self.reconcile(&mut Vec::new());
            }
            let empty = self.cordoned.iter().copied().find(|node| {
                [2 * node, 2 * node + 1]
                    .iter()
                    .all(|osd| self.pods[*osd] != Pod::Runs)
            });
            let moves = self.granted > before || empty.is_some();
            self.pass(if moves || !self.fell_beside_its_drain {
                1
            } else {
                45
            });
            if let Some(node) = empty {
                self.uncordon(node);
            }
            self.reconcile(&mut Vec::new());
        }
        panic!(
            "drains hang: nodes {:?} are cordoned, {:?} down, budget {:?}, memory {:?}, groups {:?}",
            self.cordoned,
            self.down(),
            self.budget,
            self.memory,
            self.groups
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn evictions_are_safe_and_drains_get_through(
        domains in 3..6_usize,
        bears in 1..3_usize,
        ops in prop::collection::vec(op(), 1..80),
        mut between in prop::collection::vec(any::<u8>(), 0..80),
    ) {
        let mut world = World::new(domains, 3, bears);
        for op in ops {
            world.carry_out(op, &mut between);
        }
        world.settle();
        prop_assert!(world.noout.is_empty());
        prop_assert_eq!(&world.memory, &DrainMemory::default());
        prop_assert_eq!(world.budget, Some(OsdDisruptionBudget { without: BTreeSet::new(), max_unavailable: 1 }));
    }
}

#[test]
fn a_drain_of_every_node_in_turn_is_granted_in_full() {
    let mut world = World::new(3, 3, 1);
    for node in 0..6 {
        world.carry_out(Op::Cordon(node), &mut Vec::new());
    }
    world.settle();
    assert_eq!(world.granted, 12);
}

/// Its pod is not ready, and goes as all others do: else the drain would wait for copies that its own `noout` keeps from
/// being made.
#[test]
fn a_node_with_an_osd_that_crashes_again_and_again_is_drained() {
    let mut world = World::new(3, 3, 1);
    let quiet = &mut Vec::new();
    world.carry_out(Op::Crash(2), quiet);
    world.carry_out(Op::Cordon(1), quiet);
    world.carry_out(Op::Evict(3), quiet);
    world.carry_out(Op::Evict(2), quiet);
    assert_eq!(world.pods[2..4], [Pod::Evicted, Pod::Going], "{:?}", world.budget);
}

/// The next node is asked for while the first is back with nothing on its disks: not one of its OSDs goes before the
/// groups that it shares with them have their copies.
#[test]
fn the_next_node_waits_for_one_that_came_back_empty() {
    let mut world = World::new(3, 3, 1);
    let quiet = &mut Vec::new();
    world.carry_out(Op::Cordon(1), quiet);
    world.carry_out(Op::Evict(2), quiet);
    world.carry_out(Op::Evict(3), quiet);
    world.carry_out(Op::Pass(1), quiet);
    assert_eq!(world.granted, 2);
    world.carry_out(Op::Uncordon(1), quiet);
    world.carry_out(Op::Cordon(2), quiet);
    for osd in [4, 5] {
        world.carry_out(Op::Evict(osd), quiet);
    }
    assert_eq!(world.granted, 2, "{:?}", world.budget);
    world.carry_out(Op::Recover(200), quiet);
    for osd in [4, 5] {
        world.carry_out(Op::Evict(osd), quiet);
    }
    assert_eq!(world.granted, 4, "{:?}", world.budget);
}
