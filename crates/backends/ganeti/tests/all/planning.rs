//! Plans for Ganetis: what is left alone and why, the three ways, the master, storage on nodes.

use std::collections::BTreeMap;

use jiff::Timestamp;
use stagger_core::check::check;
use stagger_core::explain::explain;
use stagger_core::model::{
    Evacuate, EvacuationPolicy, Growth, Limit, LocalGuests, MoveKind, Policy, SharedGuests, Snapshot, Spare,
    Standbys, Target, UnitId,
};
use stagger_core::plan::{Plan, PlanningInput, plan};
use stagger_ganeti::goal::GanetiRebootGoal;
use stagger_ganeti::loaders::generated::{ClusterRng, Layout, MIRRORED, MOVABLE, Shape, cluster};
use stagger_ganeti::loaders::text::read;
use stagger_ganeti::model::{GanetiCluster, Template};
use stagger_ganeti::selection::NodeSelection;
use stagger_ganeti::target::reboot;
use stagger_ganeti::translate::{View, snapshot};

/// Name, memory, status, primary, secondary, template, tags.
type Row<'a> = (&'a str, u32, &'a str, u32, Option<u32>, &'a str, &'a str);

/// A cluster with nodes of 16 GiB in one group, and these instances.
pub(crate) fn made(nodes: u32, instances: &[Row<'_>]) -> GanetiCluster {
    use std::fmt::Write as _;
    let mut text = "default|u1|preferred||\n\n".to_owned();
    for node in 1..=nodes {
        let used: u32 = instances
            .iter()
            .filter(|(_, _, status, on, ..)| *on == node && *status == "running")
            .map(|(_, memory, ..)| memory)
            .sum();
        let flag = if node == 1 { "M" } else { "N" };
        let _ = writeln!(
            text,
            "node{node}|16384|384|{}|409600|204800|8|{flag}|u1",
            16000 - used
        );
    }
    text += "\n";
    for (name, memory, status, on, standby, template, tags) in instances {
        let standby = standby.map_or(String::new(), |standby| format!("node{standby}"));
        let _ = writeln!(
            text,
            "{name}|{memory}|1024|1|{status}|Y|node{on}|{standby}|{template}|{tags}"
        );
    }
    text += "\nhtools:iextags:service\n\n";
    read(&text).unwrap()
}

pub(crate) fn view() -> View {
    View {
        name: "lab".parse().unwrap(),
        at: Timestamp::UNIX_EPOCH,
        durations: BTreeMap::new(),
        ignore_ipolicy: false,
    }
}

pub(crate) fn bold() -> Policy {
    Policy {
        max_in_parallel: Limit::Percent(100),
        growth: Growth::None,
        ..Policy::default()
    }
}

pub(crate) fn planned(cluster: &GanetiCluster, wish: &GanetiRebootGoal) -> (Snapshot, Target, Plan) {
    planned_by(cluster, wish, &bold())
}

pub(crate) fn planned_by(
    cluster: &GanetiCluster,
    wish: &GanetiRebootGoal,
    policy: &Policy,
) -> (Snapshot, Target, Plan) {
    let (snapshot, target) = (
        snapshot(cluster, &view()).unwrap(),
        reboot(cluster, wish).unwrap(),
    );
    let (aside, earned) = (BTreeMap::new(), BTreeMap::new());
    let ask = PlanningInput {
        snapshot: &snapshot,
        target: &target,
        policy,
        aside: &aside,
        earned: &earned,
        parent: None,
    };
    let made = plan(&ask);
    let findings = check(&ask, &made);
    assert!(findings.is_empty(), "{findings:#?}");
    (snapshot, target, made)
}

/// The waves as names, with what is left alone behind.
pub(crate) fn told(cluster: &GanetiCluster, wish: &GanetiRebootGoal) -> String {
    let (_, _, made) = planned(cluster, wish);
    let waves = made.stages().flat_map(|stage| &stage.waves).map(|wave| {
        let names: Vec<&str> = wave.units.iter().map(UnitId::as_str).collect();
        names.join(",")
    });
    let left = made
        .left_alone
        .iter()
        .map(|left| format!("{}:{}", left.unit, left.reason.code));
    let left: Vec<String> = left.collect();
    format!("{} | {}", waves.collect::<Vec<_>>().join(" "), left.join(" "))
}

pub(crate) fn with(moving: EvacuationPolicy) -> GanetiRebootGoal {
    GanetiRebootGoal {
        moving,
        ..GanetiRebootGoal::default()
    }
}

#[test]
fn the_judge_finds_nothing_in_plans_for_random_clusters() {
    for seed in 0..400 {
        let mut rng = ClusterRng(seed);
        let shape = Shape::small_cluster(&mut rng);
        let cluster = cluster(&mut rng, &shape);
        let wish = with(EvacuationPolicy {
            as_if_down: rng.percent(10),
            local: rng.pick(&[LocalGuests::Skip, LocalGuests::Accept, LocalGuests::Relocate]),
            shared: rng.pick(&[SharedGuests::Sets, SharedGuests::One, SharedGuests::Rolling]),
            standbys: rng.pick(&[Standbys::Capacity, Standbys::Exclude]),
            spare: rng.pick(&[Spare::Keep, Spare::Spend]),
            evacuate: rng.pick(&[Evacuate::Guests, Evacuate::Everything]),
        });
        planned(&cluster, &wish);
    }
}

#[test]
fn the_two_nodes_of_an_instance_go_apart_also_when_it_is_down() {
    for status in [
        "running",
        "ADMIN_down",
        "ERROR_down",
        "USER_down",
        "ADMIN_offline",
    ] {
        let cluster = made(2, &[("web", 1024, status, 1, Some(2), "drbd", "")]);
        assert_eq!(
            told(&cluster, &GanetiRebootGoal::default()),
            "node2 node1 | ",
            "{status}"
        );
        let (_, _, made) = planned(&cluster, &GanetiRebootGoal::default());
        let moves = made
            .stages()
            .flat_map(|stage| &stage.waves)
            .flat_map(|wave| &wave.moves)
            .count();
        assert_eq!(moves, usize::from(status == "running"), "{status}");
    }
}

#[test]
fn the_secondary_has_room_for_both_or_they_go_apart() {
    let both = |memory| {
        made(
            3,
            &[
                ("a", memory, "running", 1, Some(3), "drbd", ""),
                ("b", memory, "running", 2, Some(3), "drbd", ""),
            ],
        )
    };
    let exclude = with(EvacuationPolicy {
        standbys: Standbys::Exclude,
        ..EvacuationPolicy::default()
    });
    assert_eq!(
        told(&both(1024), &GanetiRebootGoal::default()),
        "node3 node1,node2 | "
    );
    assert_eq!(told(&both(1024), &exclude).matches(' ').count(), 4, "three waves");
    // 9000 and 9000 are more than 16000: node3 could not take over one while it has the other.
    assert_eq!(
        told(&both(9000), &GanetiRebootGoal::default()),
        "node3 | node1:no-room node2:no-room"
    );
    let spend = with(EvacuationPolicy {
        spare: Spare::Spend,
        ..EvacuationPolicy::default()
    });
    assert_eq!(
        told(&both(9000), &spend)
            .split(" | ")
            .next()
            .unwrap()
            .split(' ')
            .count(),
        3
    );
    assert!(told(&both(9000), &spend).ends_with(" | "));
}

#[test]
fn what_has_one_copy_is_skipped_accepted_while_down_or_moved() {
    let cluster = |status| made(2, &[("web", 1024, status, 2, None, "plain", "")]);
    let local = |local| {
        with(EvacuationPolicy {
            local,
            ..EvacuationPolicy::default()
        })
    };
    for status in ["running", "ADMIN_down"] {
        assert_eq!(
            told(&cluster(status), &local(LocalGuests::Skip)),
            "node1 | node2:non-redundant"
        );
    }
    assert_eq!(
        told(&cluster("ADMIN_down"), &local(LocalGuests::Accept)),
        "node1,node2 | "
    );
    assert_eq!(
        told(&cluster("running"), &local(LocalGuests::Accept)),
        "node1 | node2:non-redundant-running"
    );
    let as_if_down = with(EvacuationPolicy {
        local: LocalGuests::Accept,
        as_if_down: true,
        ..EvacuationPolicy::default()
    });
    assert_eq!(told(&cluster("running"), &as_if_down), "node1,node2 | ");
    let (_, _, moved) = planned(&cluster("running"), &local(LocalGuests::Relocate));
    let moves: Vec<_> = moved
        .stages()
        .flat_map(|stage| &stage.waves)
        .flat_map(|wave| &wave.moves)
        .collect();
    assert_eq!(moves.len(), 1);
    assert_eq!(
        (moves[0].how, moves[0].to.as_str()),
        (MoveKind::Relocate, "node1")
    );
}

#[test]
fn guests_on_shared_storage_go_in_three_ways() {
    let instances: Vec<(String, u32)> = (1..=6).map(|node| (format!("web{node}"), node)).collect();
    let instances: Vec<_> = instances
        .iter()
        .map(|(name, node)| (name.as_str(), 4096, "running", *node, None, "ext", ""))
        .collect();
    let cluster = made(6, &instances);
    let way = |shared| {
        let (_, _, made) = planned(
            &cluster,
            &with(EvacuationPolicy {
                shared,
                ..EvacuationPolicy::default()
            }),
        );
        made
    };
    assert_eq!(way(SharedGuests::One).waves(), 6);
    let sets = way(SharedGuests::Sets);
    assert_eq!(sets.waves(), 2, "five nodes' guests have no room on one");
    // Balanced: no node gets more than its share.
    for wave in sets.stages().flat_map(|stage| &stage.waves) {
        let mut to: BTreeMap<&str, usize> = BTreeMap::new();
        for a_move in &wave.moves {
            *to.entry(a_move.to.as_str()).or_default() += 1;
        }
        let share = wave.moves.len().div_ceil(6 - wave.units.len());
        assert!(to.values().all(|count| *count <= share), "{:?}", wave.moves);
    }
    assert!(way(SharedGuests::Rolling).waves() <= 6);
}

#[test]
fn guests_that_are_kept_apart_stay_apart() {
    let cluster = made(
        3,
        &[
            ("dns1", 1024, "running", 1, None, "rbd", "service:dns"),
            ("dns2", 1024, "running", 2, None, "rbd", "service:dns"),
        ],
    );
    let (_, _, made) = planned(&cluster, &GanetiRebootGoal::default());
    for wave in made.stages().flat_map(|stage| &stage.waves) {
        assert!(wave.moves.len() < 2, "{:?}", wave.moves);
        assert!(wave.moves.iter().all(|a_move| a_move.to.as_str() == "node3"));
    }
}

#[test]
fn full_evacuation_gives_second_copies_a_new_place() {
    let cluster = made(3, &[("web", 1024, "running", 1, Some(2), "drbd", "")]);
    let everything = with(EvacuationPolicy {
        evacuate: Evacuate::Everything,
        ..EvacuationPolicy::default()
    });
    let (_, _, made) = planned(&cluster, &everything);
    let of = |unit: &str| -> Vec<String> {
        let mut waves = made.stages().flat_map(|stage| &stage.waves);
        let wave = waves
            .find(|wave| wave.units.iter().any(|id| id.as_str() == unit))
            .unwrap();
        wave.moves
            .iter()
            .map(|a_move| format!("{:?} {} {}", a_move.how, a_move.from, a_move.to))
            .collect()
    };
    assert_eq!(of("node1"), ["Migrate node1 node2", "ReplaceStandby node1 node3"]);
    assert_eq!(of("node2"), ["ReplaceStandby node2 node3"]);
    assert_eq!(of("node3"), [""; 0]);
    // Of two nodes neither can be emptied.
    let two = crate::planning::made(2, &[("web", 1024, "running", 1, Some(2), "drbd", "")]);
    assert_eq!(
        told(&two, &everything),
        " | node1:no-room-for-copies node2:no-room-for-copies"
    );
}

/// Clusters of more nodes than all splits are tried for, in which the greedy cut of the solver's waves has one wave more.
#[test]
fn refining_the_sets_saves_waves() {
    for (seed, nodes, waves) in [(1, 12, 4), (3, 16, 4), (16, 18, 3), (36, 14, 3)] {
        let mut rng = ClusterRng(seed);
        let shape = Shape {
            nodes: 11 + rng.below(8),
            instances_a_node: 2 + rng.below(3),
            layout: rng.pick(&[Layout::Random, Layout::Ring]),
            templates: rng.pick(&[MIRRORED, MOVABLE]),
            roomy: rng.pick(&[140, 200, 300]),
            ..Shape::PLAIN
        };
        let cluster = cluster(&mut rng, &shape);
        let everything = with(EvacuationPolicy {
            evacuate: Evacuate::Everything,
            spare: rng.pick(&[Spare::Keep, Spare::Spend]),
            ..EvacuationPolicy::default()
        });
        let (_, _, made) = planned(&cluster, &everything);
        assert_eq!((shape.nodes, made.waves()), (nodes, waves), "seed {seed}");
    }
}

#[test]
fn the_master_is_last_and_there_is_one() {
    let cluster = made(4, &[("web", 1024, "running", 1, Some(2), "drbd", "")]);
    assert!(
        told(&cluster, &GanetiRebootGoal::default())
            .split(" | ")
            .next()
            .unwrap()
            .ends_with("node1,node3,node4")
    );
    let mut two = cluster.clone();
    two.nodes[1].master = true;
    assert_eq!(
        reboot(&two, &GanetiRebootGoal::default())
            .unwrap_err()
            .to_string(),
        "there are 2 masters in this cluster: node1, node2; it has one when it is well"
    );
    let mut none = cluster;
    none.nodes[0].master = false;
    assert!(
        reboot(&none, &GanetiRebootGoal::default())
            .unwrap_err()
            .to_string()
            .starts_with("there are 0 masters")
    );
}

#[test]
fn pools_on_the_nodes_own_disks_go_one_node_at_a_time() {
    let cluster = made(3, &[("web", 1024, "running", 2, None, "rbd", "")]);
    let wish = GanetiRebootGoal {
        local_storage: vec![Template::Rbd],
        ..GanetiRebootGoal::default()
    };
    assert_eq!(
        told(&cluster, &wish)
            .split(" | ")
            .next()
            .unwrap()
            .split(' ')
            .count(),
        3
    );
    assert_eq!(
        told(&cluster, &GanetiRebootGoal::default())
            .split(" | ")
            .next()
            .unwrap()
            .split(' ')
            .count(),
        2
    );
    let wrong = GanetiRebootGoal {
        local_storage: vec![Template::Gluster],
        ..GanetiRebootGoal::default()
    };
    assert!(
        reboot(&cluster, &wrong)
            .unwrap_err()
            .to_string()
            .starts_with("no instance has the disk template gluster")
    );
}

#[test]
fn only_what_is_selected_is_visited_and_emptied() {
    let cluster = made(
        4,
        &[
            ("a", 1024, "running", 2, None, "ext", ""),
            ("b", 1024, "running", 3, None, "ext", ""),
        ],
    );
    let wish = GanetiRebootGoal {
        selection: NodeSelection {
            nodes: vec!["node2".to_owned()],
            ..NodeSelection::default()
        },
        ..GanetiRebootGoal::default()
    };
    let (snapshot, target, made) = planned(&cluster, &wish);
    let guests: Vec<_> = made
        .stages()
        .flat_map(|stage| &stage.waves)
        .flat_map(|wave| &wave.moves)
        .map(|a_move| a_move.guest.as_str())
        .collect();
    assert_eq!((made.units(), guests), (1, vec!["a"]));
    let said = explain(&snapshot, &target, &made, &"node3".parse().unwrap()).unwrap();
    assert_eq!(said.place, "node3 was not selected");
}

#[test]
fn trouble_is_left_alone_with_its_reason() {
    let mut cluster = made(
        4,
        &[
            ("lost", 1024, "ERROR_nodedown", 2, None, "ext", ""),
            ("web", 1024, "running", 3, Some(4), "drbd", ""),
        ],
    );
    cluster.nodes[3].drained = true;
    assert_eq!(
        told(&cluster, &GanetiRebootGoal::default()),
        "node1 | node2:guest-stuck node3:guest-stuck node4:node-drained"
    );
    cluster.nodes[3].offline = true;
    assert_eq!(
        told(&cluster, &GanetiRebootGoal::default()),
        "node1 | node2:guest-stuck node3:never-ok-to-stop node4:unit-down"
    );
    cluster.nodes[3].offline = false;
    cluster.nodes[3].resources = None;
    cluster.nodes[3].drained = false;
    assert!(
        told(&cluster, &GanetiRebootGoal::default()).ends_with("node3:never-ok-to-stop node4:unit-unknown")
    );
}

/// As `hbal --print-nodes` counts them: a node with one processor for itself and two virtual ones of instances has 3 in use.
#[test]
fn processors_of_the_node_itself_are_in_use() {
    let cluster = made(
        2,
        &[
            ("web1", 1024, "running", 1, Some(2), "drbd", ""),
            ("web2", 1024, "running", 1, Some(2), "drbd", ""),
        ],
    );
    let free = |cluster: &GanetiCluster| {
        let snapshot = snapshot(cluster, &view()).unwrap();
        let capacity = snapshot.capacity().unwrap();
        capacity
            .hosts()
            .iter()
            .map(|host| host.free[1])
            .collect::<Vec<_>>()
    };
    // 8 processors, and four virtual ones for each.
    assert_eq!(free(&cluster), [32 - 3, 32 - 1]);
    let mut all = cluster;
    for has in all.nodes.iter_mut().filter_map(|node| node.resources.as_mut()) {
        has.cpus_own = 8;
    }
    assert_eq!(free(&all), [32 - 10, 32 - 8]);
}
