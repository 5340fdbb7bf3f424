//! Maintenance other than a reboot: nodes are emptied in turn, a command is run for each, and they are given back.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use stagger_core::run::Ending;
use stagger_ganeti::goal::Task;

use crate::common::{Setup, setup};
use crate::double::{Dies, World};
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
    setup
}

/// A command that writes down for which nodes it was run.
fn writes(setup: &Setup) -> (Task, PathBuf) {
    let file = setup.folder.path().join("maintained");
    let command = format!("echo {{node}} >> {}", file.display());
    (Task::Command(command), file)
}

fn lines(file: &PathBuf) -> BTreeMap<String, usize> {
    let mut count = BTreeMap::new();
    for line in std::fs::read_to_string(file).unwrap_or_default().lines() {
        *count.entry(line.to_owned()).or_default() += 1;
    }
    count
}

/// All is where it was, no node was rebooted, and each says by which one call it was maintained last.
fn all_is_maintained(world: &World, what: &str) {
    assert_eq!(world.violations, [""; 0], "{what}");
    assert_eq!(world.layout(), small().layout(), "{what}");
    assert!(world.powercycles.is_empty(), "{what}: {:?}", world.powercycles);
    for (name, node) in &world.now.nodes {
        assert_ne!(node.role, "D", "{what}: {name}");
        let ours: Vec<&String> = node
            .tags
            .iter()
            .filter(|tag| tag.starts_with("stagger:"))
            .collect();
        assert!(
            matches!(ours.as_slice(), [one] if one.starts_with("stagger:done:run-1-")),
            "{what}: {name} has {ours:?}"
        );
    }
}

fn each(times: usize) -> BTreeMap<String, usize> {
    ["n1", "n2", "n3"].map(|node| (node.to_owned(), times)).into()
}

#[tokio::test]
async fn a_command_is_run_once_for_each_empty_node_and_again_by_the_next_run() {
    let setup = made().await;
    let (task, file) = writes(&setup);
    let mut lives = Lives::new(&setup);
    lives.task = task.clone();
    let end = lives.live().await;
    assert!(matches!(end, End::Over(Ending::Done)), "{end:?}");
    assert_eq!(lines(&file), each(1));
    all_is_maintained(&setup.world(), "once");
    let left = setup.backend(None).leftovers().await.unwrap();
    assert!(left.is_restored(), "{left:?}");

    // What was noted by the run before is not taken for a turn in this one.
    let journal = lives.processes.journal.clone();
    std::fs::remove_file(&journal).unwrap();
    let mut again = Lives::new(&setup);
    again.task = task;
    let end = again.live().await;
    assert!(matches!(end, End::Over(Ending::Done)), "{end:?}");
    assert_eq!(lines(&file), each(2));
    all_is_maintained(&setup.world(), "twice");
}

#[tokio::test]
async fn a_node_is_not_maintained_by_a_command_that_fails() {
    let setup = made().await;
    let (Task::Command(writes), file) = writes(&setup) else {
        unreachable!("a command")
    };
    let fails = format!("{writes}; test {{node}} != n3 || {{ echo the disk is full; exit 1; }}");
    let mut lives = Lives::new(&setup);
    lives.task = Task::Command(fails);
    let end = lives.live().await;
    let End::Held(reason) = &end else {
        panic!("{end:?}")
    };
    assert!(reason.to_string().contains("the disk is full"), "{reason}");
    assert_eq!(
        lines(&file).get("n3"),
        Some(&2),
        "it is tried once more, as a reboot is"
    );
    let world = setup.world();
    assert_eq!(world.now.nodes["n3"].role, "D", "it stays empty");
    assert!(
        !world
            .layout()
            .values()
            .any(|(node, _, runs)| node == "n3" && *runs)
    );
    assert_eq!(world.violations, [""; 0]);
    let done = |node: &str| {
        let tags = &world.now.nodes[node].tags;
        tags.iter().any(|tag| tag.starts_with("stagger:done:"))
    };
    assert!(!done("n3"), "{:?}", world.now.nodes["n3"].tags);
}

/// Seen: a command ended with a reboot that had not begun when it was over, and instances went home to a node that then went down.
#[tokio::test]
async fn a_node_that_its_command_reboots_is_waited_for() {
    for ends_with in [0, 255] {
        let setup = made().await;
        let (Task::Command(writes), file) = writes(&setup) else {
            unreachable!("a command")
        };
        let mut lives = Lives::new(&setup);
        lives.task = Task::Command(format!("{writes}; exit {ends_with}"));
        let reboots = async {
            let mut rebooted = Vec::new();
            loop {
                tokio::time::sleep(Duration::from_millis(1)).await;
                for node in lines(&file).into_keys() {
                    if !rebooted.contains(&node) {
                        setup.world().powercycle(&node);
                        rebooted.push(node);
                    }
                }
            }
        };
        let end = tokio::select! {
            end = lives.live() => end,
            () = reboots => unreachable!("it goes on"),
        };
        assert!(matches!(end, End::Over(Ending::Done)), "{ends_with}: {end:?}");
        assert_eq!(lines(&file), each(1), "{ends_with}: nothing is run twice");
        let world = setup.world();
        assert_eq!(world.violations, [""; 0], "{ends_with}");
        assert_eq!(world.layout(), small().layout(), "{ends_with}");
    }
}

/// How many points to leave out between two; the environment may ask for all (`EVERY=1`).
fn stride(usual: usize) -> usize {
    let every = std::env::var("EVERY").ok().and_then(|every| every.parse().ok());
    every.unwrap_or(usual)
}

#[tokio::test]
async fn killed_at_any_request_each_command_is_run_once() {
    let undisturbed = made().await;
    let before = undisturbed.world().requests;
    let mut lives = Lives::new(&undisturbed);
    lives.task = writes(&undisturbed).0;
    assert!(matches!(lives.live().await, End::Over(Ending::Done)));
    let points = undisturbed.world().requests - before;
    let mut killed = 0;
    for (number, point) in (1..=points).step_by(stride(23)).enumerate() {
        let dies = [Dies::Before, Dies::After, Dies::Late(9)][number % 3];
        let what = format!("killed at request {point}, {dies:?}");
        let setup = made().await;
        let (task, file) = writes(&setup);
        let mut lives = Lives::new(&setup);
        lives.task = task;
        let at = setup.world().requests + point;
        setup.world().kill = Some((at, dies));
        let mut ended = None;
        for _ in 0..10 {
            match lives.live().await {
                End::Killed => killed += 1,
                other => {
                    ended = Some(other);
                    break;
                }
            }
        }
        assert!(
            matches!(ended, Some(End::Over(Ending::Done))),
            "{what}: {ended:?}"
        );
        for _ in 0..20 {
            setup.world().tick();
        }
        assert_eq!(lines(&file), each(1), "{what}");
        all_is_maintained(&setup.world(), &what);
    }
    println!("{killed} killed of {points} points");
    assert!(killed > 5, "{killed}");
}
