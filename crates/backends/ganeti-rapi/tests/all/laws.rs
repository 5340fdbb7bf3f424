//! Laws of a visit, on random clusters, with batches applied to the facts themselves.

use std::collections::BTreeMap;

use jiff::Timestamp;
use proptest::prelude::*;
use stagger_core::model::ClusterName;
use stagger_ganeti_rapi::config::{NonRedundant, Visits};
use stagger_ganeti_rapi::facts::{Doing, Facts, Instance, Node, Role, Storage};
use stagger_ganeti_rapi::notes::Notes;
use stagger_ganeti_rapi::translate::{Memory, translate};
use stagger_ganeti_rapi::visit::{Batch, Leaving, Places, enter, leave, may_reboot};

use crate::common::rebooted;

const NODES: usize = 5;

fn name(at: usize) -> String {
    format!("n{}", at % NODES + 1)
}

#[derive(Debug, Clone)]
struct Made {
    storage: Storage,
    doing: Doing,
    primary: usize,
    /// 1 to 4: so many further on.
    other: usize,
    /// In a full evacuation its second copy goes away too.
    evacuated: bool,
}

fn instance() -> impl Strategy<Value = Made> {
    let storage = prop_oneof![
        4 => Just(Storage::Mirrored),
        2 => Just(Storage::Shared),
        1 => Just(Storage::Local),
    ];
    let doing = prop_oneof![4 => Just(Doing::Up), 1 => Just(Doing::Down), 1 => Just(Doing::Failed)];
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

fn cluster() -> impl Strategy<Value = (Facts, Places)> {
    let roles = proptest::collection::vec(prop_oneof![Just(Role::Candidate), Just(Role::Regular)], NODES - 1);
    (proptest::collection::vec(instance(), 0..12), roles).prop_map(|(made, roles)| {
        let nodes = (0..NODES).map(|at| {
            let node = Node {
                name: name(at),
                role: match at {
                    0 => Role::Master,
                    // Somebody can become master.
                    1 => Role::Candidate,
                    _ => roles[at - 1],
                },
                group: "g1".to_owned(),
                vm_capable: true,
                notes: Notes::default(),
                boot: Some("before".to_owned()),
            };
            (name(at), node)
        });
        let mut places = Places::default();
        let instances = made.into_iter().enumerate().map(|(at, made)| {
            let (primary, other) = (name(made.primary), name(made.primary + made.other));
            let id = format!("i{at}");
            if made.storage == Storage::Shared {
                places
                    .guests
                    .entry(primary.clone())
                    .or_default()
                    .insert(id.clone(), other.clone());
            }
            if made.evacuated && made.storage == Storage::Mirrored {
                // To a third node, from either of the two.
                let third = (0..NODES)
                    .map(name)
                    .find(|node| *node != primary && *node != other);
                for node in [&primary, &other] {
                    places
                        .copies
                        .entry(node.clone())
                        .or_default()
                        .insert(id.clone(), third.clone().unwrap());
                }
            }
            let instance = Instance {
                name: id.clone(),
                uuid: format!("uuid-{at}"),
                primary,
                secondary: (made.storage == Storage::Mirrored).then_some(other),
                storage: made.storage,
                template: "any".to_owned(),
                doing: made.doing,
                status: "any".to_owned(),
            };
            (id, instance)
        });
        let instances: BTreeMap<_, _> = instances.collect();
        let facts = Facts {
            at: Timestamp::UNIX_EPOCH,
            cluster: "cluster".to_owned(),
            master: name(0),
            release: "3.0.2".to_owned(),
            nodes: nodes.collect(),
            instances,
            groups: BTreeMap::from([("g1".to_owned(), "default".to_owned())]),
            jobs: Vec::new(),
            filters: Vec::new(),
        };
        (facts, places)
    })
}

fn visits() -> Visits {
    Visits {
        non_redundant: NonRedundant::Stop,
        failover: Some("true".to_owned()),
        ..Visits::default()
    }
}

/// What a batch does when all of it works; `only`: of what is done to several, so many.
fn apply(facts: &mut Facts, node: &str, batch: &Batch, only: usize) {
    let this = facts.nodes.get_mut(node).unwrap();
    match batch {
        Batch::Failover { to } => {
            this.role = Role::Candidate;
            facts.nodes.get_mut(to).unwrap().role = Role::Master;
            facts.master.clone_from(to);
        }
        Batch::Note(notes) => {
            this.notes.away.extend(notes.away.iter().cloned());
            this.notes.copies.extend(notes.copies.iter().cloned());
            this.notes.stopped.extend(notes.stopped.iter().cloned());
            this.notes.was = this.notes.was.or(notes.was);
        }
        Batch::Drain => this.role = Role::Drained,
        Batch::Return(was) => {
            this.role = match was.as_role() {
                "regular" => Role::Regular,
                _ => Role::Candidate,
            };
        }
        Batch::Move(moves) => {
            for each in moves.iter().take(only) {
                let of = facts.instances.get_mut(&each.instance).unwrap();
                assert_eq!(of.primary, each.from, "nothing is moved that is elsewhere");
                assert_eq!(of.doing, Doing::Up, "nothing is moved that does not run");
                if of.secondary.is_some() {
                    assert_eq!(of.secondary.as_ref(), Some(&each.to));
                    of.secondary = Some(each.from.clone());
                }
                of.primary.clone_from(&each.to);
            }
        }
        Batch::Replace(copies) => {
            for each in copies.iter().take(only) {
                let of = facts.instances.get_mut(&each.instance).unwrap();
                assert_eq!(of.secondary.as_ref(), Some(&each.from));
                assert_ne!(of.primary, each.to);
                of.secondary = Some(each.to.clone());
            }
        }
        Batch::Stop(names) => {
            for name in names.iter().take(only) {
                facts.instances.get_mut(name).unwrap().doing = Doing::Down;
            }
        }
        Batch::Start(names) => {
            for name in names.iter().take(only) {
                facts.instances.get_mut(name).unwrap().doing = Doing::Up;
            }
        }
        Batch::Sync(_) => {}
        Batch::Forget(_) => this.notes = Notes::default(),
    }
}

fn entered(facts: &mut Facts, node: &str, places: &Places, batches: usize, only: usize) {
    for at in 0..batches {
        let Some(batch) = enter(facts, node, &visits(), places).unwrap() else {
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

fn left(facts: &mut Facts, node: &str) {
    let mut leaving = Leaving::default();
    for _ in 0..12 {
        let Some(batch) = leave(facts, node, &leaving).unwrap() else {
            return;
        };
        if let Batch::Sync(names) = &batch {
            leaving.synced.extend(names.iter().cloned());
        }
        apply(facts, node, &batch, usize::MAX);
    }
    panic!("it never ends");
}

proptest! {
    #[test]
    fn what_was_entered_is_out_of_service_and_what_was_left_is_as_before((before, places) in cluster(), at in 0..NODES) {
        let node = name(at);
        let mut facts = before.clone();
        entered(&mut facts, &node, &places, usize::MAX, usize::MAX);
        prop_assert!(may_reboot(&facts, &node, &visits(), &places).is_ok());
        prop_assert!(facts.instances.values().all(|of| of.primary != node || of.doing != Doing::Up));
        prop_assert_ne!(&facts.master, &node);
        let stays = |of: &Instance| of.doing == Doing::Up && of.touches(&node);
        for of in facts.instances.values().filter(|of| stays(of)) {
            let evacuated = places.copies.get(&node).is_some_and(|copies| copies.contains_key(&of.name));
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
        prop_assert_eq!(&facts.nodes[&node].notes, &Notes::default());
        let role = match before.nodes[&node].role {
            Role::Master => Role::Candidate,
            other => other,
        };
        prop_assert_eq!(facts.nodes[&node].role, role);
    }

    /// However far an enter has come, and whatever part of its last batch worked, leave undoes it.
    #[test]
    fn what_was_half_entered_is_left_as_before(
        (before, places) in cluster(), at in 0..NODES, batches in 0..7_usize, only in 0..5_usize,
    ) {
        let node = name(at);
        let mut facts = before.clone();
        entered(&mut facts, &node, &places, batches, only);
        left(&mut facts, &node);
        prop_assert_eq!(&facts.instances, &before.instances);
        prop_assert_eq!(&facts.nodes[&node].notes, &Notes::default());
        prop_assert_ne!(facts.nodes[&node].role, Role::Drained);
    }

    /// A leave that was interrupted goes on from where it was.
    #[test]
    fn a_half_left_node_is_left_by_the_next((before, places) in cluster(), at in 0..NODES, batches in 0..6_usize, only in 0..5_usize) {
        let node = name(at);
        let mut facts = before.clone();
        entered(&mut facts, &node, &places, usize::MAX, usize::MAX);
        let mut leaving = Leaving::default();
        for _ in 0..batches {
            let Some(batch) = leave(&facts, &node, &leaving).unwrap() else { break };
            if let Batch::Sync(names) = &batch {
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
        let cluster = ClusterName::new("lab").unwrap();
        let memory = Memory::of(&facts, rebooted());
        let snapshot = translate(&cluster, &facts, Some(&memory), &visits()).unwrap();
        let again = translate(&cluster, &facts, Some(&memory), &visits()).unwrap();
        prop_assert_eq!(snapshot.digest(), again.digest());
        let ix = |at: usize| snapshot.find(&stagger_core::model::UnitId::new(name(at)).unwrap()).unwrap();
        let paired = facts.instances.values().any(|of| {
            of.secondary.is_some() && of.touches(&name(one)) && of.touches(&name(other))
        });
        let candidates = facts.nodes.values().filter(|node| node.role != Role::Regular).count();
        let both_candidates = [one, other].iter().all(|at| facts.nodes[&name(*at)].role != Role::Regular);
        let last = candidates == 2 && both_candidates;
        let may = stagger_core::check::may_stop(&snapshot, &[ix(one), ix(other)]).is_ok();
        prop_assert_eq!(may, !paired && !last);
    }
}
