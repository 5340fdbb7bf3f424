//! Laws of a visit, on random clusters, with batches applied to the facts themselves.

use std::collections::BTreeMap;

use jiff::Timestamp;
use proptest::prelude::*;
use stagger_core::model::Storage;
use stagger_core::model::{ClusterName, MoveKind, UnitId};
use stagger_core::plan::Move;
use stagger_ganeti::config::Visits;
use stagger_ganeti::facts::notes::NodeNotes;
use stagger_ganeti::facts::{GanetiFacts, InstanceFacts, NodeFacts, NodeRole, RunState};
use stagger_ganeti::goal::EvacuationGoal;
use stagger_ganeti::memory::GanetiMemory;
use stagger_ganeti::model;
use stagger_ganeti::model::{AllocPolicy, GanetiCluster, GroupIx, NodeIx, Resources, Status, Template};
use stagger_ganeti::translate::live::live_snapshot;
use stagger_ganeti::visit::{JobBatch, LeaveProgress, PlannedMoves, enter, leave, may_reboot};

use crate::common::rebooted;

const NODES: usize = 5;

fn name(at: usize) -> String {
    format!("n{}", at % NODES + 1)
}

#[derive(Debug, Clone)]
struct Made {
    storage: Storage,
    doing: RunState,
    primary: usize,
    /// 1 to 4: so many further on.
    other: usize,
    /// In a full evacuation its second copy goes away too.
    evacuated: bool,
}

fn instance() -> impl Strategy<Value = Made> {
    let storage = prop_oneof![
        4 => Just(Storage::Copied),
        2 => Just(Storage::Shared),
        1 => Just(Storage::Local),
    ];
    let doing = prop_oneof![4 => Just(RunState::Up), 1 => Just(RunState::Down), 1 => Just(RunState::Failed)];
    (storage, doing, 0..NODES, 1..NODES, proptest::bool::ANY).prop_map(
        |(storage, doing, primary, other, evacuated)| Made {
            storage,
            doing,
            primary,
            other,
            evacuated,
        },
    )
}

/// What is planned for each node.
type Plans = BTreeMap<String, PlannedMoves>;

fn unit(name: &str) -> UnitId {
    UnitId::new(name).unwrap()
}

fn cluster() -> impl Strategy<Value = (GanetiFacts, Plans)> {
    let roles = proptest::collection::vec(
        prop_oneof![Just(NodeRole::Candidate), Just(NodeRole::Regular)],
        NODES - 1,
    );
    let as_if_down = prop_oneof![4 => Just(false), 1 => Just(true)];
    let made = proptest::collection::vec(instance(), 0..12);
    (made, roles, as_if_down).prop_map(|(made, roles, as_if_down)| {
        let nodes = (0..NODES).map(|at| {
            let node = NodeFacts {
                name: name(at),
                role: match at {
                    0 => NodeRole::Master,
                    // Somebody can become master.
                    1 => NodeRole::Candidate,
                    _ => roles[at - 1],
                },
                group: "g1".to_owned(),
                vm_capable: true,
                notes: NodeNotes::default(),
                boot: Some("before".to_owned()),
            };
            (name(at), node)
        });
        let mut plans: Plans = (0..NODES)
            .map(|at| {
                let planned = PlannedMoves {
                    as_if_down,
                    ..PlannedMoves::default()
                };
                (name(at), planned)
            })
            .collect();
        let mut plan = |guest: &str, how, from: &str, to: &str| {
            let moves = &mut plans.get_mut(from).unwrap().moves;
            if !as_if_down {
                moves.push(Move {
                    guest: guest.to_owned(),
                    how,
                    from: unit(from),
                    to: unit(to),
                });
            }
        };
        let instances = made.into_iter().enumerate().map(|(at, made)| {
            let (primary, other) = (name(made.primary), name(made.primary + made.other));
            let id = format!("i{at}");
            let how = match made.storage {
                Storage::Copied | Storage::Shared => MoveKind::Migrate,
                Storage::Local => MoveKind::Relocate,
            };
            plan(&id, how, &primary, &other);
            if made.evacuated && made.storage == Storage::Copied {
                // To a third node, from either of the two.
                let third = (0..NODES)
                    .map(name)
                    .find(|node| *node != primary && *node != other);
                for node in [&primary, &other] {
                    plan(&id, MoveKind::ReplaceStandby, node, third.as_ref().unwrap());
                }
            }
            let instance = InstanceFacts {
                name: id.clone(),
                uuid: format!("uuid-{at}"),
                primary,
                secondary: (made.storage == Storage::Copied).then_some(other),
                storage: made.storage,
                template: "any".to_owned(),
                always_failover: false,
                doing: made.doing,
                status: "any".to_owned(),
            };
            (id, instance)
        });
        let instances: BTreeMap<_, _> = instances.collect();
        let facts = GanetiFacts {
            at: Timestamp::UNIX_EPOCH,
            cluster: "cluster".to_owned(),
            master: name(0),
            release: "3.0.2".to_owned(),
            nodes: nodes.collect(),
            instances,
            groups: BTreeMap::from([("g1".to_owned(), "default".to_owned())]),
            candidates: Some(10),
        };
        (facts, plans)
    })
}

/// The same as planning takes it.
fn described(facts: &GanetiFacts) -> GanetiCluster {
    let place = |name: &str| NodeIx(facts.nodes.keys().position(|node| node == name).unwrap() as u32);
    let nodes = facts.nodes.values().map(|node| model::GanetiNode {
        name: node.name.clone(),
        resources: Some(Resources {
            memory: 64_000,
            memory_own: 1_000,
            memory_free: 50_000,
            disk: 1_000_000,
            disk_free: 900_000,
            cpus: 32,
            spindles: 4,
            spindles_free: 4,
            cpus_own: 1,
            cpu_speed: 1.0,
        }),
        offline: false,
        drained: false,
        vm_capable: true,
        master: node.role == NodeRole::Master,
        group: GroupIx(0),
        tags: Vec::new(),
        exclusive_storage: false,
    });
    let instances = facts.instances.values().map(|of| model::Instance {
        name: of.name.clone(),
        memory: 1_000,
        maxmem: 1_000,
        disk: 1_000,
        vcpus: 1,
        status: match of.doing {
            RunState::Up => Status::Running,
            _ => Status::AdminDown,
        },
        auto_balance: true,
        primary: place(&of.primary),
        secondary: of.secondary.as_deref().map(place),
        template: match of.storage {
            Storage::Copied => Template::Drbd,
            Storage::Shared => Template::Rbd,
            Storage::Local => Template::Plain,
        },
        tags: Vec::new(),
        spindle_use: 1,
        disk_spindles: None,
        forthcoming: false,
    });
    GanetiCluster {
        groups: vec![model::NodeGroup {
            name: "default".to_owned(),
            uuid: "g1".to_owned(),
            alloc_policy: AllocPolicy::Preferred,
            tags: Vec::new(),
            networks: Vec::new(),
            ipolicy: None,
        }],
        nodes: nodes.collect(),
        instances: instances.collect(),
        ..GanetiCluster::default()
    }
}

fn visits() -> Visits {
    Visits {
        failover: Some("true".to_owned()),
        ..Visits::default()
    }
}

/// What a batch does when all of it works; `only`: of what is done to several, so many.
fn apply(facts: &mut GanetiFacts, node: &str, batch: &JobBatch, only: usize) {
    let this = facts.nodes.get_mut(node).unwrap();
    match batch {
        JobBatch::Failover { to } => {
            this.role = NodeRole::Candidate;
            facts.nodes.get_mut(to).unwrap().role = NodeRole::Master;
            facts.master.clone_from(to);
        }
        JobBatch::Note(notes) => {
            let mut noted = this.notes.of(None);
            noted.written.clear();
            noted.away.extend(notes.away.iter().cloned());
            noted.copies.extend(notes.copies.iter().cloned());
            noted.stopped.extend(notes.stopped.iter().cloned());
            noted.was = noted.was.or(notes.was);
            this.notes = NodeNotes::read(&noted.tags());
        }
        JobBatch::Drain { .. } => this.role = NodeRole::Drained,
        JobBatch::Return(was) => {
            this.role = match was.as_role() {
                "regular" => NodeRole::Regular,
                _ => NodeRole::Candidate,
            };
        }
        JobBatch::Move(moves) => {
            for each in moves.iter().take(only) {
                let of = facts.instances.get_mut(&each.instance).unwrap();
                assert_eq!(of.primary, each.from, "nothing is moved that is elsewhere");
                assert_eq!(of.doing, RunState::Up, "nothing is moved that does not run");
                if of.secondary.is_some() {
                    assert_eq!(of.secondary.as_ref(), Some(&each.to));
                    of.secondary = Some(each.from.clone());
                }
                of.primary.clone_from(&each.to);
            }
        }
        JobBatch::Replace(copies) => {
            for each in copies.iter().take(only) {
                let of = facts.instances.get_mut(&each.instance).unwrap();
                assert_eq!(of.secondary.as_ref(), Some(&each.from));
                assert_ne!(of.primary, each.to);
                of.secondary = Some(each.to.clone());
            }
        }
        JobBatch::Stop(names) => {
            for name in names.iter().take(only) {
                facts.instances.get_mut(name).unwrap().doing = RunState::Down;
            }
        }
        JobBatch::Start(names) => {
            for name in names.iter().take(only) {
                facts.instances.get_mut(name).unwrap().doing = RunState::Up;
            }
        }
        JobBatch::Sync(_) => {}
        // The next look tells.
        JobBatch::Look(_) => {
            for of in facts
                .instances
                .values_mut()
                .filter(|of| of.doing == RunState::Unclear)
            {
                of.doing = RunState::Up;
            }
        }
        JobBatch::Forget(_) => this.notes = NodeNotes::default(),
    }
}

fn entered(facts: &mut GanetiFacts, node: &str, plans: &Plans, batches: usize, only: usize) {
    for at in 0..batches {
        let Some(batch) = enter(facts, node, &visits(), &plans[node]).unwrap() else {
            return;
        };
        assert!(at < 10, "it never ends: {batch:?}");
        apply(
            facts,
            node,
            &batch,
            if at + 1 == batches { only } else { usize::MAX },
        );
    }
}

fn left(facts: &mut GanetiFacts, node: &str) {
    let mut leaving = LeaveProgress::default();
    for _ in 0..12 {
        let Some(batch) = leave(facts, node, None, &leaving).unwrap() else {
            return;
        };
        if let JobBatch::Sync(names) = &batch {
            leaving.synced.extend(names.iter().cloned());
        }
        apply(facts, node, &batch, usize::MAX);
    }
    panic!("it never ends");
}

proptest! {
    #[test]
    fn what_was_entered_is_out_of_service_and_what_was_left_is_as_before((before, plans) in cluster(), at in 0..NODES) {
        let node = name(at);
        let mut facts = before.clone();
        entered(&mut facts, &node, &plans, usize::MAX, usize::MAX);
        prop_assert!(may_reboot(&facts, &node, &visits(), &plans[&node]).is_ok());
        prop_assert!(facts.instances.values().all(|of| of.primary != node || of.doing != RunState::Up));
        prop_assert_ne!(&facts.master, &node);
        let stays = |of: &InstanceFacts| of.doing == RunState::Up && of.uses_node(&node);
        for of in facts.instances.values().filter(|of| stays(of)) {
            let leaves = |of_plan: &Move| of_plan.guest == of.name && of_plan.how == MoveKind::ReplaceStandby;
            let evacuated = plans[&node].moves.iter().any(leaves);
            prop_assert!(!evacuated, "{} still has a copy there", of.name);
        }
        // Whoever runs elsewhere was left alone.
        for (name, of) in &facts.instances {
            if before.instances[name].primary != node {
                prop_assert_eq!(&of.primary, &before.instances[name].primary);
                prop_assert_eq!(of.doing, before.instances[name].doing);
            }
        }
        facts.nodes.get_mut(&node).unwrap().boot = Some("after".to_owned());
        left(&mut facts, &node);
        prop_assert_eq!(&facts.instances, &before.instances);
        prop_assert!(facts.nodes[&node].notes.is_empty());
        let role = match before.nodes[&node].role {
            NodeRole::Master => NodeRole::Candidate,
            other => other,
        };
        prop_assert_eq!(facts.nodes[&node].role, role);
    }

    /// However far an enter has come, and whatever part of its last batch worked, leave undoes it.
    #[test]
    fn what_was_half_entered_is_left_as_before(
        (before, plans) in cluster(), at in 0..NODES, batches in 0..7_usize, only in 0..5_usize,
    ) {
        let node = name(at);
        let mut facts = before.clone();
        entered(&mut facts, &node, &plans, batches, only);
        left(&mut facts, &node);
        prop_assert_eq!(&facts.instances, &before.instances);
        prop_assert!(facts.nodes[&node].notes.is_empty());
        prop_assert_ne!(facts.nodes[&node].role, NodeRole::Drained);
    }

    /// A leave that was interrupted goes on from where it was.
    #[test]
    fn a_half_left_node_is_left_by_the_next((before, plans) in cluster(), at in 0..NODES, batches in 0..6_usize, only in 0..5_usize) {
        let node = name(at);
        let mut facts = before.clone();
        entered(&mut facts, &node, &plans, usize::MAX, usize::MAX);
        let mut leaving = LeaveProgress::default();
        for _ in 0..batches {
            let Some(batch) = leave(&facts, &node, None, &leaving).unwrap() else { break };
            if let JobBatch::Sync(names) = &batch {
                leaving.synced.extend(names.iter().cloned());
            }
            apply(&mut facts, &node, &batch, only);
        }
        left(&mut facts, &node);
        prop_assert_eq!(&facts.instances, &before.instances);
    }

    /// The same facts give the same snapshot, and what our check permits breaks no pair.
    #[test]
    fn no_pair_of_copies_goes_together((facts, _) in cluster(), one in 0..NODES, other in 0..NODES) {
        prop_assume!(one != other);
        let lab = ClusterName::new("lab").unwrap();
        let goal = EvacuationGoal::default();
        let memory = GanetiMemory::of(&facts, rebooted(), goal.clone());
        let cluster = described(&facts);
        let make = || live_snapshot(&lab, &facts, &cluster, Some(&memory), &goal, &visits()).unwrap();
        let (snapshot, again) = (make(), make());
        prop_assert_eq!(snapshot.digest(), again.digest());
        let ix = |at: usize| snapshot.find(&unit(&name(at))).unwrap();
        let paired = facts.instances.values().any(|of| {
            of.secondary.is_some() && of.uses_node(&name(one)) && of.uses_node(&name(other))
        });
        let candidates = facts.nodes.values().filter(|node| node.role != NodeRole::Regular).count();
        let both_candidates = [one, other].iter().all(|at| facts.nodes[&name(*at)].role != NodeRole::Regular);
        let last = candidates == 2 && both_candidates;
        let may = stagger_core::check::may_stop(&snapshot, &[ix(one), ix(other)]).is_ok();
        prop_assert_eq!(may, !paired && !last);
    }
}
