//! Laws over maps made at random.

use std::collections::BTreeMap;

use proptest::prelude::*;
use stagger_ceph::facts::CephFacts;
use stagger_ceph::facts::osd::{OsdMap, Stretch};
use stagger_ceph::facts::pg::PgMap;
use stagger_ceph::facts::tree::CrushTree;
use stagger_ceph::oktostop::{Maps, Oracle};
use stagger_ceph::translate::{HealthPolicy, Permitted, translate};
use stagger_core::model::{ClusterName, Fact, Ix, UnitId};

use crate::cluster::recorded;

const STATES: [&str; 9] = [
    "active+clean",
    "active+clean",
    "active+clean",
    "active+clean+scrubbing+deep",
    "active+undersized+degraded",
    "active+recovery_wait+degraded",
    "active+remapped+backfilling",
    "peering",
    "stale+active+clean",
];

#[derive(Debug, Clone)]
struct Group {
    state: usize,
    acting: Vec<u32>,
    complete: Vec<u32>,
    hole: bool,
}

fn group(osds: u32) -> impl Strategy<Value = Group> {
    let some = proptest::collection::btree_set(0..osds, 0..5);
    (
        0..STATES.len(),
        some,
        proptest::collection::btree_set(0..osds, 0..4),
        any::<bool>(),
        any::<bool>(),
    )
        .prop_map(|(state, acting, other, inside, hole)| {
            let acting: Vec<u32> = acting.into_iter().collect();
            let complete = if inside {
                acting.iter().copied().filter(|osd| other.contains(osd)).collect()
            } else {
                other.into_iter().collect()
            };
            Group {
                state,
                acting,
                complete,
                hole,
            }
        })
}

#[derive(Debug, Clone)]
pub(crate) struct World {
    groups: Vec<(u32, Group)>,
    down: Vec<u32>,
    set: Vec<u32>,
}

impl World {
    /// No placement group, and all OSDs up.
    pub(crate) fn empty() -> Self {
        Self {
            groups: Vec::new(),
            down: Vec::new(),
            set: Vec::new(),
        }
    }
}

pub(crate) const OSDS: u32 = 9;

pub(crate) fn world() -> impl Strategy<Value = World> {
    let groups = proptest::collection::vec((1..4_u32, group(OSDS)), 0..12);
    let few = proptest::collection::btree_set(0..OSDS, 0..2);
    let set = proptest::collection::btree_set(0..OSDS, 1..4);
    (groups, few, set).prop_map(|(groups, down, set)| World {
        groups,
        set: set.into_iter().filter(|osd| !down.contains(osd)).collect(),
        down: down.into_iter().collect(),
    })
}

pub(crate) fn maps(world: &World) -> Maps {
    let osds: Vec<_> = (0..OSDS)
        .map(|id| serde_json::json!({ "osd": id, "up": u8::from(!world.down.contains(&id)), "in": 1 }))
        .collect();
    // Pool 3 is gone.
    let pool = |id: u32, size, min_size| {
        serde_json::json!({ "pool": id, "pool_name": format!("p{id}"), "type": 1, "size": size,
            "min_size": min_size, "pg_num": 1 })
    };
    let dump =
        serde_json::json!({ "epoch": 1, "fsid": "f", "osds": osds, "pools": [pool(1, 3, 2), pool(2, 4, 1)] });
    let mut seeds: BTreeMap<u32, u32> = BTreeMap::new();
    let groups: Vec<_> = world
        .groups
        .iter()
        .map(|(pool, group)| {
            // A pool that is gone has few groups.
            let pool = if *pool == 3 && group.state != 0 { 1 } else { *pool };
            let seed = seeds.entry(pool).or_default();
            *seed += 1;
            let mut acting = group.acting.clone();
            if group.hole {
                acting.push(2_147_483_647);
            }
            let complete: Vec<String> = group.complete.iter().map(|osd| format!("{osd}(1)")).collect();
            serde_json::json!({ "pgid": format!("{pool}.{seed:x}"), "state": STATES[group.state],
                "acting": acting, "avail_no_missing": complete })
        })
        .collect();
    let hosts: Vec<_> = (0..3)
        .map(|h| {
            serde_json::json!({ "id": -2 - h, "name": format!("h {h}/ä"), "type": "host",
            "children": [3 * h, 3 * h + 1, 3 * h + 2] })
        })
        .collect();
    let mut nodes =
        vec![serde_json::json!({ "id": -1, "name": "default", "type": "root", "children": [-2, -3, -4] })];
    nodes.extend(hosts);
    nodes.extend((0..OSDS).map(|id| serde_json::json!({ "id": id, "name": "", "type": "osd" })));
    let read = |value: serde_json::Value| value.to_string().into_bytes();
    Maps {
        pgs: PgMap::read_slice(&read(groups.into()), "groups").unwrap(),
        osds: OsdMap::read(&read(dump), "dump").unwrap(),
        tree: CrushTree::read(&read(serde_json::json!({ "nodes": nodes })), "tree").unwrap(),
    }
}

pub(crate) fn facts(maps: &Maps) -> CephFacts {
    CephFacts {
        osds: maps.osds.clone(),
        tree: maps.tree.clone(),
        pgs: Fact::Yes(maps.pgs.clone()),
        ..recorded("18.2.7")
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    /// The oracle and the planner's constraint are written apart, and say the same.
    #[test]
    fn the_oracle_and_the_budgets_agree(world in world()) {
        thread_local!(static BASE: CephFacts = recorded("18.2.7"));
        let maps = maps(&world);
        let facts = BASE.with(|base| CephFacts {
            osds: maps.osds.clone(),
            tree: maps.tree.clone(),
            pgs: Fact::Yes(maps.pgs.clone()),
            ..base.clone()
        });
        let cluster = ClusterName::new("c").unwrap();
        let snapshot = translate(&cluster, &facts, &HealthPolicy::default(), None, BTreeMap::new(), &Permitted::default()).unwrap();
        let set: Vec<Ix> = world
            .set
            .iter()
            .map(|osd| snapshot.find(&UnitId::new(format!("osd.{osd}")).unwrap()).unwrap())
            .collect();
        let permitted = snapshot.budgets().permit(&snapshot.down(), &set);
        let verdict = maps.oracle().ask(&world.set).unwrap();
        prop_assert_eq!(permitted.is_ok(), verdict.ok(), "{:?} {:?}", permitted, verdict);
    }

    #[test]
    fn the_largest_set_holds_and_nothing_can_be_added(world in world(), max in 1..10_u32) {
        let maps = maps(&world);
        let oracle = maps.oracle();
        let Some(seed) = world.set.first().copied() else { return Ok(()) };
        let largest = oracle.largest(&[seed], max).unwrap();
        let set = &largest.verdict.osds;
        prop_assert!(set.contains(&seed));
        prop_assert_eq!(largest.verdict.ok(), oracle.ask(&[seed]).unwrap().ok());
        if !largest.verdict.ok() {
            return Ok(());
        }
        let size = set.len() as u32;
        prop_assert!(largest.by_ceph_walk <= size && size <= largest.upper_bound && size <= max);
        if size < max {
            for osd in (0..OSDS).filter(|osd| !set.contains(osd) && !world.down.contains(osd)) {
                let more: Vec<u32> = set.iter().copied().chain([osd]).collect();
                prop_assert!(!oracle.ask(&more).unwrap().ok(), "osd.{} could be added to {:?}", osd, set);
            }
        }
    }
}

#[test]
fn odd_names_in_the_tree_are_kept() {
    let world = World {
        groups: Vec::new(),
        down: Vec::new(),
        set: Vec::new(),
    };
    let facts = facts(&maps(&world));
    let snapshot = translate(
        &ClusterName::new("c").unwrap(),
        &facts,
        &HealthPolicy::default(),
        None,
        BTreeMap::new(),
        &Permitted::default(),
    )
    .unwrap();
    let osd = snapshot.find(&UnitId::new("osd.4").unwrap()).unwrap();
    assert_eq!(snapshot.unit(osd).domains["host"], "h 1/ä");
}

/// A pool over three sites: `needed` of them must have an OSD of each group, and site 0 perhaps always.
fn stretched(world: &World, needed: u32, mandatory: bool) -> CephFacts {
    let mut facts = facts(&maps(world));
    let site = |bucket: i64| -2 - bucket;
    for pool in facts.osds.pools.values_mut() {
        pool.stretch = Some(Stretch {
            buckets: needed,
            barrier: 1,
            mandatory: mandatory.then_some(site(0)),
        });
    }
    for bucket in facts.tree.buckets.values_mut() {
        bucket.level_number = (bucket.level == "host").then_some(1);
    }
    facts
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    /// Whatever the budgets or the oracle let go, each group that it touches keeps OSDs in as many sites as it needs. The
    /// two are written apart; the oracle counts what is left, and lets go no less than the budgets do.
    #[test]
    fn no_wave_leaves_a_group_of_a_stretch_pool_in_too_few_sites(
        world in world(), needed in 1..4_u32, mandatory in any::<bool>(),
    ) {
        let facts = stretched(&world, needed, mandatory);
        let cluster = ClusterName::new("c").unwrap();
        let none = Permitted::default();
        let snapshot =
            translate(&cluster, &facts, &HealthPolicy::default(), None, BTreeMap::new(), &none).unwrap();
        let at = |osd: &u32| snapshot.find(&UnitId::new(format!("osd.{osd}")).unwrap()).unwrap();
        let set: Vec<Ix> = world.set.iter().map(at).collect();
        let Fact::Yes(pgs) = &facts.pgs else { panic!("the groups are known") };
        let judged = Oracle::new(pgs, &facts.osds, &facts.tree).ask(&world.set).unwrap().ok();
        let permitted = snapshot.budgets().permit(&snapshot.down(), &set).is_ok();
        prop_assert!(judged || !permitted, "the budgets permit what the oracle refuses");
        if !judged {
            return Ok(());
        }
        for pg in pgs.iter() {
            let members: Vec<u32> = pg.acting.iter().copied().filter(|osd| *osd < OSDS).collect();
            if !members.iter().any(|osd| world.set.contains(osd)) {
                continue;
            }
            let left = members.iter().filter(|osd| !world.set.contains(osd) && !world.down.contains(osd));
            let sites: std::collections::BTreeSet<u32> = left.map(|osd| osd / 3).collect();
            prop_assert!(sites.len() >= needed as usize, "{} keeps {:?}", pg.id, sites);
            prop_assert!(!mandatory || sites.contains(&0), "{} loses its site", pg.id);
        }
    }
}

/// Four copies over two sites, as Ceph lays them out: any one may go, and no site may.
#[test]
fn one_of_each_site_may_go_and_no_site_may() {
    let group = Group {
        state: 0,
        acting: vec![0, 1, 3, 4],
        complete: vec![],
        hole: false,
    };
    let world = World {
        groups: vec![(2, group)],
        down: vec![],
        set: vec![],
    };
    let facts = stretched(&world, 2, false);
    let cluster = ClusterName::new("c").unwrap();
    let none = Permitted::default();
    let snapshot = translate(
        &cluster,
        &facts,
        &HealthPolicy::default(),
        None,
        BTreeMap::new(),
        &none,
    )
    .unwrap();
    let permits = |osds: &[u32]| {
        let at = |osd: &u32| {
            snapshot
                .find(&UnitId::new(format!("osd.{osd}")).unwrap())
                .unwrap()
        };
        let set: Vec<Ix> = osds.iter().map(at).collect();
        snapshot.budgets().permit(&snapshot.down(), &set).is_ok()
    };
    assert!(
        permits(&[0]) && permits(&[0, 3]),
        "min_size is 1, and a site keeps one of two"
    );
    assert!(!permits(&[0, 1]) && !permits(&[3, 4]), "a site that is gone");
}
