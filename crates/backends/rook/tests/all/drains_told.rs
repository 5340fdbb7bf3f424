//! The design's own example, and each known failure of what there was before.

#![allow(clippy::unwrap_used, reason = "test code")]

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use stagger_rook::disruption::drains::{
    DesiredBudgets, DrainInput, DrainMemory, EvictableOsds, Groups, Judge, OsdDisruptionBudget, OsdState,
    decide,
};

/// Zones x, y and z with a node and two OSDs each.
struct World {
    osds: Vec<OsdState>,
    groups: Groups,
    now: i64,
    level: Option<&'static str>,
    wave: Option<BTreeSet<u32>>,
    /// So many zones may be down together, those with an OSD that has not caught up included.
    proven: usize,
    /// OSDs that are up and lack objects.
    behind: BTreeSet<u32>,
    /// What was let go when this was seen; nothing, so that what may go does at once.
    open: EvictableOsds,
}

impl World {
    fn new() -> Self {
        let osd = |id: u32| OsdState {
            id,
            domain: Some(["x", "y", "z"][id as usize / 2].to_owned()),
            serves: true,
            leaving: false,
            up: true,
            cordoned: None,
            replaced: false,
        };
        Self {
            osds: (0..6).map(osd).collect(),
            groups: Groups::Clean,
            now: 1_000,
            level: Some("zone"),
            wave: None,
            proven: 1,
            behind: BTreeSet::new(),
            open: EvictableOsds::Only(BTreeSet::new()),
        }
    }

    fn cordon(mut self, ids: &[u32]) -> Self {
        for id in ids {
            self.osds[*id as usize].cordoned = Some(format!("n{}", id / 2));
        }
        self
    }

    fn down(mut self, ids: &[u32]) -> Self {
        for id in ids {
            self.osds[*id as usize].serves = false;
            self.osds[*id as usize].up = false;
        }
        self
    }

    fn unclean(mut self) -> Self {
        self.groups = Groups::NotClean {
            why: "4 placement groups are undersized".to_owned(),
        };
        self
    }

    fn seen<'a>(&'a self, judge: &'a dyn Judge) -> DrainInput<'a> {
        DrainInput {
            now: Timestamp::from_second(self.now).unwrap(),
            level: self.level,
            osds: &self.osds,
            groups: &self.groups,
            maintenance: SignedDuration::from_mins(30),
            wave: self.wave.as_ref(),
            judge,
            open: &self.open,
        }
    }

    fn decide(&self, memory: &DrainMemory) -> DesiredBudgets {
        decide(self.seen(self), memory)
    }
}

impl Judge for World {
    fn may_go(&self, gone: &BTreeSet<u32>, set: &BTreeSet<u32>) -> Result<(), String> {
        let all = gone.iter().chain(&self.behind).chain(set);
        let zones: BTreeSet<u32> = all.map(|id| id / 2).collect();
        if set.is_empty() || zones.len() <= self.proven {
            return Ok(());
        }
        Err(format!("{} zones would be down", zones.len()))
    }

    fn any_one_may_go(&self, gone: &BTreeSet<u32>, set: &BTreeSet<u32>) -> Result<(), String> {
        set.iter()
            .try_for_each(|osd| self.may_go(gone, &BTreeSet::from([*osd])))
    }
}

/// The OSDs of the six that nothing holds back, one at a time or all together.
fn free(wanted: &DesiredBudgets) -> Vec<u32> {
    let Some(budget) = &wanted.budget else {
        return (0..6).collect();
    };
    let over = |osd: &u32| !budget.without.contains(osd);
    (0..6)
        .filter(|osd| !over(osd) || budget.max_unavailable > 0)
        .collect()
}

#[expect(clippy::unnecessary_wraps, reason = "as it is compared")]
fn default_without(ids: &[u32]) -> Option<OsdDisruptionBudget> {
    Some(OsdDisruptionBudget {
        without: ids.iter().copied().collect(),
        max_unavailable: 1,
    })
}

#[expect(clippy::unnecessary_wraps, reason = "as it is compared")]
fn closed_but_for(ids: &[u32]) -> Option<OsdDisruptionBudget> {
    Some(OsdDisruptionBudget {
        without: ids.iter().copied().collect(),
        max_unavailable: 0,
    })
}

fn blocked(wanted: &DesiredBudgets) -> Vec<&str> {
    wanted.blocked.keys().map(String::as_str).collect()
}

#[test]
fn the_example_of_the_design() {
    let calm = World::new().decide(&DrainMemory::default());
    assert_eq!(calm.budget, default_without(&[]));
    assert!(calm.noout.is_empty());

    let mut world = World::new().cordon(&[0, 1]).down(&[0]).unclean();
    let draining = world.decide(&DrainMemory::default());
    // What is left of the zone may go, the pod of what is down as well, and nothing else.
    assert_eq!(draining.budget, closed_but_for(&[0, 1]));
    assert_eq!(draining.noout.keys().collect::<Vec<_>>(), ["x"]);
    assert_eq!(
        draining.blocked["y"],
        "osd.0 down (x may go on draining); 4 placement groups are undersized"
    );
    // By the time that this is written osd.2 may be going by what the default one let go: so the zone that drains is
    // blocked too, until all that is seen with everything closed.
    world.open = calm.open.clone();
    let closed = world.decide(&DrainMemory::default());
    assert_eq!(closed.blocked, draining.blocked);
    assert_eq!(closed.budget, closed_but_for(&[]));
    assert!(closed.again && !draining.again);

    // Back, and behind: nothing of another zone may go before it has caught up. Healed: as before.
    let mut healing = World::new().unclean();
    healing.behind = BTreeSet::from([0]);
    let wanted = healing.decide(&draining.memory);
    assert_eq!(wanted.budget, closed_but_for(&[]));
    assert_eq!(blocked(&wanted), ["x", "y", "z"]);
    assert_eq!(
        wanted.blocked["y"],
        "4 placement groups are undersized; 2 zones would be down"
    );
    assert!(wanted.noout.is_empty() && wanted.memory == DrainMemory::default());
    // The next node may be asked for meanwhile: it waits, and is told for what.
    let next = healing.cordon(&[2, 3]).decide(&draining.memory);
    assert!(free(&next).is_empty());
    assert_eq!(
        next.blocked["y"],
        "4 placement groups are undersized; 2 zones would be down; without y: 2 zones would be down"
    );
    assert_eq!(World::new().decide(&draining.memory).budget, default_without(&[]));
}

#[test]
fn the_first_domain_is_not_let_go_where_that_is_not_proven() {
    // A disk of zone z is dead, too: x was let go by the default budget, and its second OSD would be one too many.
    let world = World::new().cordon(&[0, 1]).down(&[0, 4]).unclean();
    let wanted = world.decide(&DrainMemory::default());
    assert_eq!(wanted.budget, closed_but_for(&[0, 4]));
    assert_eq!(blocked(&wanted), ["x", "y", "z"]);
    // Pools that bear no loss at all: not even the default budget lets one go.
    let mut world = World::new();
    world.proven = 0;
    let wanted = world.decide(&DrainMemory::default());
    assert_eq!(wanted.budget, closed_but_for(&[]));
    assert_eq!(wanted.blocked["x"], "1 zones would be down");
}

#[test]
fn a_drain_that_could_not_come_to_its_end_is_not_begun_and_one_that_has_begun_goes_on() {
    struct OneOf(World);
    impl Judge for OneOf {
        fn may_go(&self, gone: &BTreeSet<u32>, set: &BTreeSet<u32>) -> Result<(), String> {
            // Two of them share a placement group.
            if set.is_superset(&BTreeSet::from([2, 3])) {
                return Err("1.0 would be lost".to_owned());
            }
            self.0.may_go(gone, set)
        }

        fn any_one_may_go(&self, _: &BTreeSet<u32>, _: &BTreeSet<u32>) -> Result<(), String> {
            Err("a placement group recovers".to_owned())
        }
    }
    // It is not begun, as it could not come to its end.
    let world = World::new().cordon(&[2, 3]).unclean();
    let mut judge = OneOf(World::new());
    judge.0.proven = 2;
    let wanted = decide(world.seen(&judge), &DrainMemory::default());
    assert!(free(&wanted).is_empty());
    assert!(
        wanted.blocked["y"].ends_with("; without y: 1.0 would be lost"),
        "{:?}",
        wanted.blocked
    );
    // It has begun, by what the default budget let go: what can go does.
    let mut world = World::new().cordon(&[2, 3]).unclean();
    world.osds.push(OsdState {
        id: 6,
        domain: Some("y".to_owned()),
        serves: false,
        leaving: false,
        up: false,
        cordoned: Some("n3".to_owned()),
        replaced: false,
    });
    let wanted = decide(world.seen(&judge), &DrainMemory::default());
    assert_eq!(wanted.budget, closed_but_for(&[2, 6]));
}

/// A broken node has been cordoned for days, with an OSD that is dead and whose data are elsewhere: the drain that begins
/// now is not its.
#[test]
fn who_was_down_before_begins_no_drain() {
    let mut world = World::new().cordon(&[0, 1]).down(&[0]);
    world.proven = 2;
    let quiet = world.decide(&DrainMemory::default());
    assert_eq!(quiet.budget, default_without(&[0]));
    let world = world.cordon(&[2, 3]).down(&[2]).unclean();
    let wanted = world.decide(&quiet.memory);
    assert!(wanted.memory.draining.keys().eq(["y"]), "{wanted:?}");
    assert!(wanted.noout.keys().eq(["y"]), "{wanted:?}");
    // Without that knowledge it is the first of them.
    let stranger = world.decide(&DrainMemory::default());
    assert_eq!(
        stranger.memory.draining.keys().next().map(String::as_str),
        Some("x")
    );
    // It comes back, and falls again: then it is missed.
    let mut back = world.cordon(&[]);
    back.osds[0].serves = true;
    let back = back.decide(&wanted.memory);
    assert!(back.memory.empty.is_empty());
}

/// In a rack of which two nodes are to be drained one of them may go, though both may not.
#[test]
fn what_of_a_domain_cannot_go_together_goes_node_by_node() {
    struct NotBoth(World);
    impl Judge for NotBoth {
        fn may_go(&self, gone: &BTreeSet<u32>, set: &BTreeSet<u32>) -> Result<(), String> {
            if set.contains(&2) && set.contains(&6) {
                return Err("2.0 would be lost".to_owned());
            }
            self.0.may_go(gone, set)
        }

        fn any_one_may_go(&self, gone: &BTreeSet<u32>, set: &BTreeSet<u32>) -> Result<(), String> {
            self.0.any_one_may_go(gone, set)
        }
    }
    let mut world = World::new().cordon(&[2, 3]).unclean();
    world.osds.push(OsdState {
        id: 6,
        domain: Some("y".to_owned()),
        serves: true,
        leaving: false,
        up: true,
        cordoned: Some("n3".to_owned()),
        replaced: false,
    });
    let world = world.down(&[4]);
    let judge = NotBoth(World {
        proven: 3,
        ..World::new()
    });
    let wanted = decide(world.seen(&judge), &DrainMemory::default());
    assert_eq!(wanted.budget, closed_but_for(&[2, 3, 4, 5]));
}

/// A pod that is told to end has its time for it, and Ceph shows its OSD up and everything clean until then.
#[test]
fn who_is_on_the_way_out_is_no_osd_without_which_all_is_clean() {
    let mut world = World::new().cordon(&[0, 1, 2, 3]);
    world.osds[0].leaving = true;
    let going = world.decide(&DrainMemory::default());
    assert_eq!(free(&going), [1]);
    assert!(
        going.blocked["y"].starts_with(
            "osd.0 down (x may go on draining); the placement groups are clean, but still with osd.0"
        ),
        "{:?}",
        going.blocked
    );
    // It held nothing that others would miss.
    world.proven = 2;
    let gone = world.down(&[0]).decide(&going.memory);
    assert_eq!(gone.budget, default_without(&[0]));
}

#[test]
fn down_osds_are_left_out_when_all_groups_are_clean() {
    let mut world = World::new().down(&[1, 3]);
    // They hold nothing.
    world.proven = 3;
    let wanted = world.decide(&DrainMemory::default());
    assert_eq!(wanted.budget, default_without(&[1, 3]));
    assert!(wanted.noout.is_empty() && wanted.blocked.is_empty());
}

#[test]
fn noout_is_only_for_a_drained_node_and_only_for_its_time() {
    let failed = World::new().down(&[0]).unclean().decide(&DrainMemory::default());
    assert!(failed.noout.is_empty());
    assert_eq!(free(&failed), [0, 1]);

    let mut world = World::new().cordon(&[0, 1]).down(&[0]).unclean();
    let first = world.decide(&DrainMemory::default());
    world.now += 29 * 60;
    let then = world.decide(&first.memory);
    assert_eq!(then.noout, first.noout);
    world.now += 60;
    let over = world.decide(&then.memory);
    assert!(over.noout.is_empty());
    assert_eq!(free(&over), [0, 1]);
}

#[test]
fn a_cordon_alone_blocks_nobody() {
    let wanted = World::new().cordon(&[0, 1, 2, 3]).decide(&DrainMemory::default());
    assert_eq!(wanted.budget, default_without(&[]));
}

#[test]
fn two_drains_at_once_let_one_go_on_and_say_why_the_other_waits() {
    let both = World::new().cordon(&[0, 1, 2, 3]).down(&[0, 2]).unclean();
    let wanted = both.decide(&DrainMemory::default());
    // Two zones have fallen: nothing more may go, until that is proven or healed.
    assert_eq!(blocked(&wanted), ["x", "y", "z"]);
    assert_eq!(wanted.memory.draining.keys().collect::<Vec<_>>(), ["x"]);
    // One of them is back: the other goes on.
    let one = World::new()
        .cordon(&[0, 1, 2, 3])
        .down(&[2])
        .unclean()
        .decide(&wanted.memory);
    assert_eq!(blocked(&one), ["x", "z"]);
}

#[test]
fn the_domain_is_kept_though_another_sorts_before_it() {
    let first = World::new()
        .cordon(&[2, 3])
        .down(&[2])
        .unclean()
        .decide(&DrainMemory::default());
    assert_eq!(blocked(&first), ["x", "z"]);
    let mut later = World::new().cordon(&[0, 1, 2, 3]).down(&[0, 2]).unclean();
    later.proven = 2;
    let wanted = later.decide(&first.memory);
    assert!(wanted.memory.draining.contains_key("y"));
    assert_eq!(wanted.memory.draining["y"], first.memory.draining["y"]);
}

#[test]
fn where_it_is_proven_two_domains_drain() {
    let mut world = World::new().cordon(&[0, 1, 2, 3]).down(&[0]).unclean();
    assert_eq!(free(&world.decide(&DrainMemory::default())), [0, 1]);
    world.proven = 2;
    assert_eq!(free(&world.decide(&DrainMemory::default())), [0, 1, 2, 3]);
}

#[test]
fn a_first_drained_osd_without_groups_lets_the_drain_go_on() {
    // Everything is clean without it, so the default budget leaves it out and lets the next one go.
    let wanted = World::new()
        .cordon(&[0, 1])
        .down(&[0])
        .decide(&DrainMemory::default());
    assert_eq!(blocked(&wanted), ["y", "z"]);
    // As far as anybody can tell by its zone. It holds nothing, so that another zone may go beside it:
    let mut world = World::new().cordon(&[0, 1]).down(&[0]);
    world.proven = 2;
    assert_eq!(
        world.decide(&DrainMemory::default()).budget,
        default_without(&[0])
    );
}

#[test]
fn a_node_that_stays_drained_blocks_nobody() {
    let draining = World::new()
        .cordon(&[0, 1])
        .down(&[0, 1])
        .unclean()
        .decide(&DrainMemory::default());
    let mut world = World::new().cordon(&[0, 1]).down(&[0, 1]);
    world.proven = 2;
    let healed = world.decide(&draining.memory);
    assert_eq!(healed.budget, default_without(&[0, 1]));
    assert!(healed.memory.draining.is_empty());
}

#[test]
fn nothing_is_left_behind_when_what_it_was_for_is_gone() {
    let mut world = World::new().cordon(&[0, 1]).down(&[0]).unclean();
    let before = world.decide(&DrainMemory::default());
    // The last pool is gone.
    world.level = None;
    assert_eq!(world.decide(&before.memory), DesiredBudgets::default());
}

#[test]
fn what_has_no_place_is_blocked_with_the_others() {
    let mut world = World::new().cordon(&[0, 1]).down(&[0]).unclean();
    world.osds[5].domain = None;
    let wanted = world.decide(&DrainMemory::default());
    assert!(!free(&wanted).contains(&5));
}

#[test]
fn beside_an_open_wave_nothing_goes_that_is_not_proven() {
    let mut world = World::new().cordon(&[2, 3]);
    world.wave = Some(BTreeSet::from([0, 1]));
    assert!(free(&world.decide(&DrainMemory::default())).is_empty());
    world.proven = 2;
    let wanted = world.decide(&DrainMemory::default());
    assert_eq!(free(&wanted), [2, 3]);
    assert!(wanted.memory.draining.is_empty());
}

#[test]
fn what_was_open_is_closed_before_anything_else_is_opened() {
    let mut world = World::new().cordon(&[2, 3]);
    world.wave = Some(BTreeSet::from([3]));
    world.open = EvictableOsds::Only(BTreeSet::from([0, 1]));
    let closed = world.decide(&DrainMemory::default());
    assert_eq!((closed.budget, closed.again), (closed_but_for(&[]), true));
    world.open = closed.open;
    let opened = world.decide(&DrainMemory::default());
    assert_eq!((free(&opened), opened.again), (vec![2], false));
    assert_eq!(opened.open, EvictableOsds::Only(BTreeSet::from([2])));
    // Beside what stays open more may be opened at once: what is proven counts all of it as gone.
    world.open = opened.open;
    world.proven = 2;
    let world = world.cordon(&[0]);
    assert_eq!(free(&world.decide(&DrainMemory::default())), [0, 1, 2]);
}

/// One of the wave cannot come back, as its node was cordoned in mid-wave; the others of the wave are back.
#[test]
fn a_node_that_is_cordoned_in_mid_wave_drains_beside_those_of_the_wave_that_are_back() {
    let mut world = World::new().cordon(&[0, 1]).down(&[0]).unclean();
    world.wave = Some(BTreeSet::from([0, 2]));
    // While osd.2 is down too, two zones would be.
    assert!(free(&world.decide(&DrainMemory::default())).is_empty());
    world.wave = Some(BTreeSet::from([0]));
    let wanted = world.decide(&DrainMemory::default());
    assert_eq!(blocked(&wanted), ["y", "z"]);
    assert!(wanted.blocked["y"].starts_with("osd.0 of an upgrade's wave"));
    // The other of that node was evicted: it is a drain, and has noout for its time.
    let drained = world.down(&[1]).decide(&wanted.memory);
    assert_eq!(blocked(&drained), ["y", "z"]);
    assert_eq!(drained.noout.keys().collect::<Vec<_>>(), ["x"]);
}

/// What was just started again has not caught up: the budget that lets one go anywhere waits for the wave's end, and then
/// for what recovers.
#[test]
fn a_wave_that_is_back_is_not_over() {
    let mut world = World::new().unclean();
    world.wave = Some(BTreeSet::new());
    let wanted = world.decide(&DrainMemory::default());
    assert_eq!(blocked(&wanted), ["x", "y", "z"]);
    assert_eq!(
        wanted.blocked["x"],
        "an upgrade's wave is not over, though its OSDs are back; 4 placement groups are undersized"
    );
    world.wave = None;
    world.behind = BTreeSet::from([0]);
    assert!(free(&world.decide(&DrainMemory::default())).is_empty());
    // Where all bear one more it need not be clean.
    world.proven = 2;
    assert_eq!(world.decide(&DrainMemory::default()).budget, default_without(&[]));
}

/// Nor does its pod, which is not ready, use up what the budget lets go.
#[test]
fn one_that_is_being_replaced_is_no_drain() {
    let mut world = World::new().down(&[0]).unclean();
    world.osds[0].replaced = true;
    assert_eq!(
        world.decide(&DrainMemory::default()).budget,
        default_without(&[0])
    );
}

/// An OSD crashes again and again on the node that is drained: its pod is not ready, and would be refused for ever.
#[test]
fn the_pod_of_what_is_down_already_may_be_evicted() {
    let mut world = World::new().cordon(&[0, 1]).down(&[0]).unclean();
    world.proven = 0;
    let wanted = world.decide(&DrainMemory::default());
    assert_eq!(wanted.budget, closed_but_for(&[0]));
    // It is back while that is looked at, and may have been evicted just now: closed first, as all that was open.
    let mut back = World::new().cordon(&[0, 1]).unclean();
    back.open = wanted.open;
    back.behind = BTreeSet::from([0]);
    let wanted = back.decide(&wanted.memory);
    assert_eq!((wanted.budget, wanted.again), (closed_but_for(&[0, 1]), false));
    back.proven = 0;
    let wanted = back.decide(&wanted.memory);
    assert_eq!(wanted.budget, closed_but_for(&[]));
    // What the run has down is the run's.
    let mut world = World::new().down(&[0]).unclean();
    world.wave = Some(BTreeSet::from([0]));
    assert_eq!(world.decide(&DrainMemory::default()).budget, closed_but_for(&[]));
}
