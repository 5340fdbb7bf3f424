//! The design's own example, and each known failure of what there was before.

#![allow(clippy::unwrap_used, reason = "test code")]

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use stagger_rook::drains::budgets::{Budget, Selects, Step, steps};
use stagger_rook::drains::{Groups, Memory, Open, Osd, Seen, Wanted, decide};

/// Zones x, y and z with a node and two OSDs each.
struct World {
    osds: Vec<Osd>,
    groups: Groups,
    now: i64,
    level: Option<&'static str>,
    managed: bool,
    wave: Option<BTreeSet<u32>>,
    /// So many zones may be down together.
    proven: usize,
    /// What was let go when this was seen; nothing, so that what may go does at once.
    open: Open,
}

impl World {
    fn new() -> Self {
        let osd = |id: u32| Osd {
            id,
            domain: Some(["x", "y", "z"][id as usize / 2].to_owned()),
            serves: true,
            leaving: false,
            up: true,
            cordoned: false,
            replaced: false,
        };
        Self {
            osds: (0..6).map(osd).collect(),
            groups: Groups::Clean,
            now: 1_000,
            level: Some("zone"),
            managed: true,
            wave: None,
            proven: 1,
            open: Open::Domains(BTreeSet::new()),
        }
    }

    fn cordon(mut self, ids: &[u32]) -> Self {
        for id in ids {
            self.osds[*id as usize].cordoned = true;
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

    fn decide(&self, memory: &Memory) -> Wanted {
        let zones = |set: &BTreeSet<u32>| {
            let zones: BTreeSet<u32> = set.iter().map(|id| id / 2).collect();
            zones.len() <= self.proven
        };
        decide(
            Seen {
                now: Timestamp::from_second(self.now).unwrap(),
                managed: self.managed,
                level: self.level,
                osds: &self.osds,
                groups: &self.groups,
                maintenance: SignedDuration::from_mins(30),
                wave: self.wave.as_ref(),
                proven: &zones,
                open: &self.open,
            },
            memory,
        )
    }
}

fn names(wanted: &Wanted) -> Vec<&str> {
    wanted.budgets.iter().map(|budget| budget.name.as_str()).collect()
}

fn there(wanted: &Wanted) -> BTreeMap<String, Budget> {
    wanted
        .budgets
        .iter()
        .map(|budget| (budget.name.clone(), budget.clone()))
        .collect()
}

const Y_AND_Z: [&str; 2] = ["rook-ceph-osd-zone-y", "rook-ceph-osd-zone-z"];

#[test]
fn the_example_of_the_design() {
    let calm = World::new().decide(&Memory::default());
    assert_eq!(names(&calm), ["rook-ceph-osd"]);
    assert_eq!((calm.budgets[0].max_unavailable, calm.noout.len()), (1, 0));

    let mut world = World::new().cordon(&[0, 1]).down(&[0]).unclean();
    let draining = world.decide(&Memory::default());
    assert_eq!(names(&draining), Y_AND_Z);
    assert!(draining.budgets.iter().all(|budget| budget.max_unavailable == 0));
    assert_eq!(draining.noout.keys().collect::<Vec<_>>(), ["x"]);
    assert_eq!(
        draining.blocked["y"],
        "osd.0 down (x may go on draining); 4 placement groups are undersized"
    );
    // Those that block exist before the default one goes, and by then osd.2 may be going by what it let go: so
    // the domain that drains is blocked too, until all that is seen with everything closed.
    world.open = calm.open.clone();
    let closed = world.decide(&Memory::default());
    assert_eq!(closed.blocked, draining.blocked);
    let order = steps(&there(&calm), &closed.budgets);
    assert!(
        matches!(&order[..], [Step::Apply(_), Step::Apply(_), Step::Apply(_), Step::Delete(name)] if name == "rook-ceph-osd")
    );
    assert!(closed.again && !draining.again);
    let order = steps(&there(&closed), &draining.budgets);
    assert_eq!(order, [Step::Delete("rook-ceph-osd-zone-x".to_owned())]);

    // Back, and healing: as before. Healed: the default one before they go.
    let healing = World::new().unclean().decide(&draining.memory);
    assert_eq!(names(&healing), ["rook-ceph-osd"]);
    let order = steps(&there(&draining), &calm.budgets);
    assert!(
        matches!(&order[..], [Step::Apply(all), Step::Delete(_), Step::Delete(_)] if all.name == "rook-ceph-osd")
    );
}

/// A pod that is told to end has its time for it, and Ceph shows its OSD up and everything clean until then.
#[test]
fn who_is_on_the_way_out_is_no_osd_without_which_all_is_clean() {
    let mut world = World::new().cordon(&[0, 1, 2, 3]);
    world.osds[0].leaving = true;
    let going = world.decide(&Memory::default());
    assert_eq!(names(&going), Y_AND_Z);
    assert_eq!(
        going.blocked["y"],
        "osd.0 down (x may go on draining); the placement groups are clean, but still with osd.0"
    );
    // It held nothing that others would miss.
    let gone = world.down(&[0]).decide(&going.memory);
    assert_eq!(gone.budgets[0].selects, Selects::AllBut(BTreeSet::from([0])));
}

#[test]
fn down_osds_are_left_out_when_all_groups_are_clean() {
    let wanted = World::new().down(&[1, 3]).decide(&Memory::default());
    assert_eq!(wanted.budgets[0].selects, Selects::AllBut(BTreeSet::from([1, 3])));
    assert!(wanted.noout.is_empty() && wanted.blocked.is_empty());
}

#[test]
fn noout_is_only_for_a_drained_node_and_only_for_its_time() {
    let failed = World::new().down(&[0]).unclean().decide(&Memory::default());
    assert!(failed.noout.is_empty());
    assert_eq!(names(&failed), Y_AND_Z);

    let mut world = World::new().cordon(&[0, 1]).down(&[0]).unclean();
    let first = world.decide(&Memory::default());
    world.now += 29 * 60;
    let then = world.decide(&first.memory);
    assert_eq!(then.noout, first.noout);
    world.now += 60;
    let over = world.decide(&then.memory);
    assert!(over.noout.is_empty());
    assert_eq!(names(&over), Y_AND_Z);
}

#[test]
fn a_cordon_alone_blocks_nobody() {
    let wanted = World::new().cordon(&[0, 1, 2, 3]).decide(&Memory::default());
    assert_eq!(names(&wanted), ["rook-ceph-osd"]);
}

#[test]
fn two_drains_at_once_let_one_go_on_and_say_why_the_other_waits() {
    let both = World::new().cordon(&[0, 1, 2, 3]).down(&[0, 2]).unclean();
    let wanted = both.decide(&Memory::default());
    // Two zones have fallen: nothing more may go, until that is proven or healed.
    assert_eq!(wanted.blocked.keys().collect::<Vec<_>>(), ["x", "y", "z"]);
    assert_eq!(wanted.memory.draining.keys().collect::<Vec<_>>(), ["x"]);
    // One of them is back: the other goes on.
    let one = World::new()
        .cordon(&[0, 1, 2, 3])
        .down(&[2])
        .unclean()
        .decide(&wanted.memory);
    assert_eq!(one.blocked.keys().collect::<Vec<_>>(), ["x", "z"]);
}

#[test]
fn the_domain_is_kept_though_another_sorts_before_it() {
    let first = World::new()
        .cordon(&[2, 3])
        .down(&[2])
        .unclean()
        .decide(&Memory::default());
    assert_eq!(first.blocked.keys().collect::<Vec<_>>(), ["x", "z"]);
    let mut later = World::new().cordon(&[0, 1, 2, 3]).down(&[0, 2]).unclean();
    later.proven = 2;
    let wanted = later.decide(&first.memory);
    assert!(wanted.memory.draining.contains_key("y"));
    assert_eq!(wanted.memory.draining["y"], first.memory.draining["y"]);
}

#[test]
fn where_it_is_proven_two_domains_drain() {
    let mut world = World::new().cordon(&[0, 1, 2, 3]).down(&[0]).unclean();
    assert_eq!(names(&world.decide(&Memory::default())), Y_AND_Z);
    world.proven = 2;
    assert_eq!(names(&world.decide(&Memory::default())), ["rook-ceph-osd-zone-z"]);
}

#[test]
fn a_first_drained_osd_without_groups_lets_the_drain_go_on() {
    // Everything is clean without it, so the default budget leaves it out and lets the next one go.
    let wanted = World::new().cordon(&[0, 1]).down(&[0]).decide(&Memory::default());
    assert_eq!(names(&wanted), ["rook-ceph-osd"]);
    assert!(!wanted.budgets[0].covers(0, Some("x")) && wanted.budgets[0].covers(1, Some("x")));
}

#[test]
fn a_node_that_stays_drained_blocks_nobody() {
    let world = World::new().cordon(&[0, 1]).down(&[0, 1]);
    let draining = World::new()
        .cordon(&[0, 1])
        .down(&[0, 1])
        .unclean()
        .decide(&Memory::default());
    let healed = world.decide(&draining.memory);
    assert_eq!(names(&healed), ["rook-ceph-osd"]);
    assert_eq!(healed.memory, Memory::default());
}

#[test]
fn nothing_is_left_behind_when_what_it_was_for_is_gone() {
    let mut world = World::new().cordon(&[0, 1]).down(&[0]).unclean();
    let before = world.decide(&Memory::default());
    // Management is switched off; or the last pool is gone.
    world.managed = false;
    let off = world.decide(&before.memory);
    assert_eq!((off.budgets.len(), off.noout.len()), (0, 0));
    assert_eq!(steps(&there(&before), &off.budgets).len(), 2);
    world.managed = true;
    world.level = None;
    assert_eq!(world.decide(&before.memory), Wanted::default());
    // The lowest level changes: those of the old one go.
    world.level = Some("host");
    let order = steps(&there(&before), &world.decide(&before.memory).budgets);
    let gone: Vec<_> = order
        .iter()
        .filter(|step| matches!(step, Step::Delete(_)))
        .collect();
    assert_eq!(gone.len(), 2, "{order:?}");
    // A domain disappears.
    world.level = Some("zone");
    world.osds.truncate(4);
    let order = steps(&there(&before), &world.decide(&before.memory).budgets);
    assert_eq!(order, [Step::Delete("rook-ceph-osd-zone-z".to_owned())]);
}

#[test]
fn an_edited_budget_is_repaired() {
    let wanted = World::new()
        .cordon(&[0, 1])
        .down(&[0])
        .unclean()
        .decide(&Memory::default());
    let mut edited = there(&wanted);
    edited.get_mut("rook-ceph-osd-zone-y").unwrap().max_unavailable = 1;
    assert_eq!(
        steps(&edited, &wanted.budgets),
        [Step::Apply(wanted.budgets[0].clone())]
    );
}

#[test]
fn what_has_no_place_is_blocked_with_the_others_and_named() {
    let mut world = World::new().cordon(&[0, 1]).down(&[0]).unclean();
    world.osds[5].domain = None;
    let wanted = world.decide(&Memory::default());
    assert_eq!(wanted.unplaced, BTreeSet::from([5]));
    assert!(wanted.budgets.iter().any(|budget| budget.covers(5, None)));
}

#[test]
fn beside_an_open_wave_nothing_goes_that_is_not_proven() {
    let mut world = World::new().cordon(&[2, 3]);
    world.wave = Some(BTreeSet::from([0, 1]));
    assert_eq!(world.decide(&Memory::default()).blocked.len(), 3);
    world.proven = 2;
    let wanted = world.decide(&Memory::default());
    assert_eq!(wanted.blocked.keys().collect::<Vec<_>>(), ["x", "z"]);
    assert!(wanted.memory.draining.is_empty());
}

#[test]
fn what_was_open_is_closed_before_anything_else_is_opened() {
    let mut world = World::new().cordon(&[2, 3]);
    world.wave = Some(BTreeSet::from([3]));
    world.open = Open::Domains(BTreeSet::from(["x".to_owned()]));
    let closed = world.decide(&Memory::default());
    assert_eq!((closed.budgets.len(), closed.again), (3, true));
    world.open = closed.open;
    let opened = world.decide(&Memory::default());
    assert_eq!((names(&opened).len(), opened.again), (2, false));
    assert_eq!(opened.open, Open::Domains(BTreeSet::from(["y".to_owned()])));
    // Beside what stays open more may be opened at once: what is proven counts all of it as gone.
    world.open = opened.open;
    world.proven = 2;
    let world = world.cordon(&[0]);
    assert_eq!(names(&world.decide(&Memory::default())), ["rook-ceph-osd-zone-z"]);
}

/// One of the wave cannot come back, as its node was cordoned in mid-wave; the others of the wave are back.
#[test]
fn a_node_that_is_cordoned_in_mid_wave_drains_beside_those_of_the_wave_that_are_back() {
    let mut world = World::new().cordon(&[0, 1]).down(&[0]).unclean();
    world.wave = Some(BTreeSet::from([0, 2]));
    // While osd.2 is down too, two zones would be.
    assert_eq!(world.decide(&Memory::default()).blocked.len(), 3);
    world.wave = Some(BTreeSet::from([0]));
    let wanted = world.decide(&Memory::default());
    assert_eq!(wanted.blocked.keys().collect::<Vec<_>>(), ["y", "z"]);
    assert!(wanted.blocked["y"].starts_with("osd.0 of an upgrade's wave"));
    // The other of that node was evicted: it is a drain, and has noout for its time.
    let drained = world.down(&[1]).decide(&wanted.memory);
    assert_eq!(drained.blocked.keys().collect::<Vec<_>>(), ["y", "z"]);
    assert_eq!(drained.noout.keys().collect::<Vec<_>>(), ["x"]);
}

/// What was just started again has not caught up: the budget that lets one go anywhere waits for the wave's end.
#[test]
fn a_wave_that_is_back_is_not_over() {
    let mut world = World::new().unclean();
    world.wave = Some(BTreeSet::new());
    let wanted = world.decide(&Memory::default());
    assert_eq!(wanted.blocked.len(), 3);
    assert_eq!(
        wanted.blocked["x"],
        "an upgrade's wave is not over, though its OSDs are back; 4 placement groups are undersized"
    );
    world.wave = None;
    assert_eq!(names(&world.decide(&Memory::default())), ["rook-ceph-osd"]);
}

#[test]
fn one_that_is_being_replaced_is_no_drain() {
    let mut world = World::new().down(&[0]).unclean();
    world.osds[0].replaced = true;
    assert_eq!(names(&world.decide(&Memory::default())), ["rook-ceph-osd"]);
}
