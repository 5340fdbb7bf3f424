//! Maintenance by a person: each node stays empty until that person says that it is done.

use std::collections::BTreeSet;
use std::time::Duration;

use stagger_core::model::RunId;
use stagger_core::run::Ending;
use stagger_ganeti::goal::Task;
use stagger_ganeti::hold::WaitingNode;

use crate::common::{Setup, claim, setup};
use crate::double::World;
use crate::double::queue::Op;
use crate::lives::{End, Lives, with_failover};

fn small() -> World {
    let mut world = World::with_nodes(3);
    world.add("a", "drbd", "n1", Some("n2"));
    world.add("b", "drbd", "n2", Some("n3"));
    world.add("s", "sharedfile", "n2", None);
    world.lag = 1;
    world
}

async fn made() -> Setup {
    let mut setup = setup(small()).await;
    with_failover(&mut setup);
    // Nobody else wants the lock, and on a busy machine a renewal may be late.
    setup.settings.pace.lock = Duration::from_mins(1);
    setup
}

fn lives(setup: &Setup) -> Lives<'_> {
    let mut lives = Lives::new(setup);
    lives.task = Task::Hold;
    lives
}

/// The nodes that wait for a person. Nobody else asks the cluster for it.
async fn someone_waits(setup: &Setup) -> Vec<WaitingNode> {
    loop {
        let tagged = setup.world().now.nodes.values().any(|node| {
            let mut tags = node.tags.iter();
            tags.any(|tag| tag.starts_with("stagger:waits:"))
        });
        if tagged {
            let waiting = setup.backend(None).waiting().await.unwrap();
            if !waiting.is_empty() {
                return waiting;
            }
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// Nothing runs there, nothing new is put there, and jobs of others do not wait for the person.
fn is_empty(world: &World, node: &str) {
    assert_eq!(world.now.nodes[node].role, "D", "{node}");
    let mut instances = world.layout().into_values();
    assert!(!instances.any(|(on, _, runs)| on == node && runs), "{node}");
    let pauses = world
        .now
        .filters
        .values()
        .filter(|filter| filter.action == "PAUSE");
    assert_eq!(pauses.count(), 0, "the queue is not drained");
}

/// Says that nodes are done, for as long as somebody waits for it; returns which, in their order.
async fn person(setup: &Setup, done: &mut Vec<String>) {
    loop {
        for waiting in someone_waits(setup).await {
            is_empty(&setup.world(), &waiting.node);
            setup.backend(None).mark_done(&waiting).await.unwrap();
            done.push(waiting.node);
        }
    }
}

fn all_is_well(world: &World) {
    assert_eq!(world.violations, [""; 0]);
    assert_eq!(world.layout(), small().layout());
    assert!(world.powercycles.is_empty(), "{:?}", world.powercycles);
    for (name, node) in &world.now.nodes {
        assert_ne!(node.role, "D", "{name}");
        let ours: Vec<&String> = node
            .tags
            .iter()
            .filter(|tag| tag.starts_with("stagger:"))
            .collect();
        assert!(
            matches!(ours.as_slice(), [one] if one.starts_with("stagger:done:run-1-")),
            "{name} has {ours:?}"
        );
    }
}

#[tokio::test]
async fn each_node_stays_empty_until_a_person_says_that_it_is_done() {
    let setup = made().await;
    let mut lives = lives(&setup);
    let mut done = Vec::new();
    let end = tokio::select! {
        end = lives.live() => end,
        () = person(&setup, &mut done) => unreachable!("it goes on for ever"),
    };
    assert!(matches!(end, End::Over(Ending::Done)), "{end:?}");
    let each: BTreeSet<&str> = done.iter().map(String::as_str).collect();
    assert_eq!(
        (each, done.len()),
        (BTreeSet::from(["n1", "n2", "n3"]), 3),
        "{done:?}"
    );
    all_is_well(&setup.world());
    assert!(setup.backend(None).leftovers().await.unwrap().is_restored());
}

/// Jobs of others do not wait for a person, and no node waits for jobs of others.
#[tokio::test]
async fn an_export_that_never_ends_keeps_no_node_from_being_entered() {
    let mut setup = made().await;
    setup.settings.pace.job = Duration::from_secs(5);
    let export = setup
        .world()
        .submit(Op::Other { ticks: u32::MAX }, Some("nightly"));
    for _ in 0..5 {
        setup.world().tick();
    }
    let mut lives = lives(&setup);
    let mut done = Vec::new();
    let end = tokio::select! {
        end = lives.live() => end,
        () = person(&setup, &mut done) => unreachable!("it goes on for ever"),
        () = tokio::time::sleep(Duration::from_mins(2)) => panic!("a node waits for the export: {done:?}"),
    };
    assert!(matches!(end, End::Over(Ending::Done)), "{end:?}");
    let world = setup.world();
    assert_eq!(world.jobs[export as usize - 1].status, "running");
    all_is_well(&world);
}

#[tokio::test]
async fn nobody_goes_on_before_that() {
    let setup = made().await;
    let mut lives = lives(&setup);
    let waiting = tokio::select! {
        end = lives.live() => panic!("{end:?}"),
        waiting = someone_waits(&setup) => waiting,
    };
    let before = setup.world().layout();
    let end = tokio::time::timeout(Duration::from_millis(500), lives.live()).await;
    assert!(end.is_err(), "{end:?}");
    is_empty(&setup.world(), &waiting[0].node);
    assert_eq!(setup.world().layout(), before);
    assert_eq!(setup.backend(None).waiting().await.unwrap(), waiting);
}

/// Each time a node waits, its process is killed, and the person says that the node is done while no process lives.
#[tokio::test]
async fn what_a_person_says_while_nobody_lives_is_heard_by_the_next_process() {
    let setup = made().await;
    let mut lives = lives(&setup);
    let mut done = Vec::new();
    let end = loop {
        let waiting = tokio::select! {
            end = lives.live() => break end,
            waiting = someone_waits(&setup) => waiting,
        };
        for node in waiting {
            is_empty(&setup.world(), &node.node);
            setup.backend(None).mark_done(&node).await.unwrap();
            done.push(node.node);
        }
    };
    assert!(matches!(end, End::Over(Ending::Done)), "{end:?}");
    done.sort();
    assert_eq!(done, ["n1", "n2", "n3"], "each once");
    all_is_well(&setup.world());
}

/// The person has taken the node away while it waited, and the process was killed: the next one waits on.
#[tokio::test]
async fn a_node_that_is_away_while_it_waits_is_waited_for() {
    let setup = made().await;
    let mut lives = lives(&setup);
    let waiting = tokio::select! {
        end = lives.live() => panic!("{end:?}"),
        waiting = someone_waits(&setup) => waiting,
    };
    let node = waiting[0].node.clone();
    setup.world().now.nodes.get_mut(&node).unwrap().up = false;
    setup.world().changed();
    setup.backend(None).mark_done(&waiting[0]).await.unwrap();
    let early = tokio::time::timeout(Duration::from_millis(300), lives.live()).await;
    assert!(early.is_err(), "{early:?}");
    is_empty(&setup.world(), &node);
    setup.world().now.nodes.get_mut(&node).unwrap().up = true;
    setup.world().changed();
    let mut done = Vec::new();
    let end = tokio::select! {
        end = lives.live() => end,
        () = person(&setup, &mut done) => unreachable!("it goes on for ever"),
    };
    assert!(matches!(end, End::Over(Ending::Done)), "{end:?}");
    assert!(!done.contains(&node), "{done:?}");
    all_is_well(&setup.world());
}

#[tokio::test]
async fn a_node_that_waits_is_given_back_without_the_journal() {
    let setup = made().await;
    let mut lives = lives(&setup);
    let waiting = tokio::select! {
        end = lives.live() => panic!("{end:?}"),
        waiting = someone_waits(&setup) => waiting,
    };
    std::fs::remove_file(&lives.processes.journal).unwrap();
    let mut claim = claim("recovery", "ops1");
    claim.run = RunId::new("recovery-1").unwrap();
    let recovered = setup.backend(None).recover(&claim, None).await.unwrap();
    assert!(recovered.failed.is_empty(), "{recovered:?}");
    let world = setup.world();
    assert_eq!(world.layout(), small().layout());
    assert_eq!(world.left_behind(), [""; 0], "after {waiting:?}");
    assert!(world.now.nodes.values().all(|node| node.role != "D"));
}
