//! The online migrations: D7 and D8, and a database that goes away.

use stagger_core::run::Ending;
use stagger_engine::hosts::Ran;

use crate::common::setup;
use crate::lives::{End, Lives, all_is_well};

#[tokio::test]
async fn d7_a_database_that_goes_away_is_waited_for_and_is_not_more_to_do() {
    let setup = setup("26.1.6");
    {
        let mut inner = setup.lab.now();
        let broken = "Error while running update_to_latest_versions: (2003, \"Can't connect\").\nTraceback (most recent call last):";
        inner.faults.push((
            "migrate".to_owned(),
            Ran {
                code: 1,
                output: broken.to_owned(),
            },
        ));
    }
    let mut lives = Lives::new(&setup);
    lives.until_done("away").await;
    all_is_well(&setup.lab.now(), "29.0.6", 2);
    let calls = setup
        .lab
        .log()
        .iter()
        .filter(|command| *command == "migrate 5")
        .count();
    assert_eq!(calls, 4, "one was broken off");
}

#[tokio::test]
async fn a_migration_that_is_always_broken_off_ends_and_holds() {
    let setup = setup("26.1.6");
    for _ in 0..10 {
        let ran = Ran {
            code: 1,
            output: "Traceback (most recent call last):\nKeyError: 'version'".to_owned(),
        };
        setup.lab.now().faults.push(("migrate".to_owned(), ran));
    }
    let mut lives = Lives::new(&setup);
    let End::Held(reason) = lives.live().await else {
        panic!("it should have been held")
    };
    assert!(reason.detail.contains("KeyError"), "{reason}");
    let calls = setup
        .lab
        .log()
        .iter()
        .filter(|command| *command == "migrate 5")
        .count();
    assert_eq!(calls, 3);
}

#[tokio::test]
async fn d8_migrations_that_make_no_progress_are_not_repeated_without_an_end() {
    let setup = setup("26.1.6");
    setup.lab.now().stuck = true;
    let mut lives = Lives::new(&setup);
    let End::Held(reason) = lives.live().await else {
        panic!("it should have been held")
    };
    assert!(
        reason.detail.contains("10 rows are of older versions"),
        "{reason}"
    );
    let calls = setup
        .lab
        .log()
        .iter()
        .filter(|command| *command == "migrate 5")
        .count();
    assert_eq!(calls, 2);
    // A person has helped; whoever resumes goes on.
    setup.lab.now().stuck = false;
    lives.processes.ask(&stagger_core::run::Command::Resume).await;
    let End::Over(Ending::Done) = lives.live().await else {
        panic!("it should have come to its end")
    };
    all_is_well(&setup.lab.now(), "29.0.6", 2);
}

#[tokio::test]
async fn rows_that_the_tool_refuses_hold_the_run_with_better_advice_than_its_own() {
    let setup = setup("26.1.6");
    setup.lab.now().faults.push((
        "migrate".to_owned(),
        Ran {
            code: 2,
            output: "run online_data_migrations using the previous release".to_owned(),
        },
    ));
    let End::Held(reason) = Lives::new(&setup).live().await else {
        panic!("it should have been held")
    };
    assert!(reason.detail.contains("does not help"), "{reason}");
}
