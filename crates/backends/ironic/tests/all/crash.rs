//! A process that is killed at any command or append, and another that carries on, come to the same end.

use std::collections::BTreeMap;

use crate::common::setup;
use crate::double::{Dies, Inner};
use crate::lives::{Lives, all_is_well};

fn upgraded(inner: &Inner) {
    all_is_well(inner, "29.0.6", 2);
    assert_eq!(inner.schema, "21c48150dea9");
    assert_eq!(inner.rows["nodes"], BTreeMap::from([("1.41".to_owned(), 12)]));
    let schema = inner.log.iter().filter(|command| command.starts_with("schema"));
    assert_eq!(schema.count(), 1, "{:#?}", inner.log);
}

/// How many points to leave out between two; the environment may ask for all (`EVERY=1`).
pub fn stride(usual: usize) -> usize {
    std::env::var("EVERY")
        .ok()
        .and_then(|every| every.parse().ok())
        .unwrap_or(usual)
}

#[tokio::test]
async fn undisturbed_it_leads_from_one_release_to_the_next_and_there_is_nothing_to_do_then() {
    let setup = setup("26.1.6");
    let mut lives = Lives::new(&setup);
    assert_eq!(lives.until_done("undisturbed").await, 1);
    upgraded(&setup.lab.now());
    let log = setup.lab.log();
    let at = |wanted: &str| {
        log.iter()
            .position(|command| command == wanted)
            .unwrap_or_else(|| panic!("{wanted}: {log:#?}"))
    };
    let order = [
        "hook before",
        "hook ramdisk 29.0.6",
        "check",
        "schema 29.0.6",
        "pin c1 26.1",
        "set rpc1 c1 drain",
        "install c1 29.0.6",
        "stop c1",
        "start c1",
        "set rpc1 c1 ready",
        "install c2 29.0.6",
        "install a1 29.0.6",
        "install a2 29.0.6",
        "unpin c1",
        "unpin c2",
        "unpin a1",
        "unpin a2",
        "migrate 5",
        "hook clients",
        "hook after",
    ];
    for pair in order.windows(2) {
        assert!(
            at(pair[0]) < at(pair[1]),
            "{} comes after {}: {log:#?}",
            pair[0],
            pair[1]
        );
    }
    // 12 nodes, of which traffic has touched two: two batches of five, and one call that finds nothing.
    assert_eq!(
        log.iter().filter(|command| *command == "migrate 5").count(),
        3,
        "{log:#?}"
    );
    let backend = setup.backend(None);
    let facts = backend.collect_facts().await;
    let upgrade = setup.upgrade(&facts, "29.0.6", &lives.policy).unwrap();
    let snapshot = backend.snapshot(&facts, Some(&upgrade.goal)).unwrap();
    let plan = stagger_core::plan::plan(&stagger_core::plan::PlanningInput {
        snapshot: &snapshot,
        target: &upgrade.target,
        policy: &lives.policy,
        aside: &BTreeMap::new(),
        earned: &BTreeMap::new(),
        parent: None,
    });
    assert!(plan.is_empty(), "{plan:#?}");
}

#[tokio::test]
async fn killed_at_any_append_it_comes_to_the_same_end() {
    let undisturbed = setup("26.1.6");
    let mut lives = Lives::new(&undisturbed);
    lives.until_done("undisturbed").await;
    let points = lives.processes.touches;
    assert!(points > 100, "{points}");
    println!("{points} appends");
    let mut killed = 0;
    for point in (1..=points).step_by(stride(7)) {
        let setup = setup("26.1.6");
        let mut lives = Lives::new(&setup);
        lives.processes.dies_at = point;
        killed += u32::from(lives.until_done(&format!("killed at append {point}")).await > 1);
        println!("killed at append {point}");
        upgraded(&setup.lab.now());
    }
    assert!(killed > 10, "{killed}");
}

#[tokio::test]
async fn killed_at_any_command_it_comes_to_the_same_end() {
    let undisturbed = setup("26.1.6");
    Lives::new(&undisturbed).until_done("undisturbed").await;
    let points = undisturbed.lab.now().commands;
    println!("{points} commands");
    let mut killed = 0;
    for (number, point) in (1..=points).step_by(stride(5)).enumerate() {
        let late = [1, 3, 8, 30][number % 4];
        for dies in [Dies::Before, Dies::After, Dies::Late(late)] {
            let setup = setup("26.1.6");
            let mut lives = Lives::new(&setup);
            setup.lab.now().kill = Some((point, dies));
            let what = format!("killed at command {point}, {dies:?}");
            killed += u32::from(lives.until_done(&what).await > 1);
            setup.lab.all_late_comes();
            println!("{what}");
            upgraded(&setup.lab.now());
        }
    }
    assert!(killed > 10, "{killed}");
}
