//! Up to the unpin a service that fails goes back to the old code; behind it nothing does.

use stagger_core::run::{Command, Ending};

use crate::common::setup;
use crate::lives::{End, Lives};

#[tokio::test]
async fn a_conductor_that_does_not_come_back_goes_back_to_the_old_code() {
    let setup = setup("26.1.6");
    setup
        .lab
        .now()
        .broken
        .push(("c1".to_owned(), "29.0.6".to_owned()));
    let mut lives = Lives::new(&setup);
    let End::Over(Ending::RolledBack { reason }) = lives.live().await else {
        panic!("it should have gone back")
    };
    assert!(reason.detail.contains("c1"), "{reason}");
    let inner = setup.lab.now();
    assert_eq!(inner.violations, [""; 0]);
    for (name, service) in &inner.services {
        let (release, pin) = service.runs.clone().unwrap();
        assert_eq!(release, "26.1.6", "{name}");
        // An old release that is held to itself is as if it were not.
        assert!(pin.is_none() || pin.as_deref() == Some("26.1"), "{name}: {pin:?}");
    }
    assert!(inner.servers.values().all(|drained| !drained));
}

#[tokio::test]
async fn a_later_failure_takes_back_its_own_wave_only() {
    let setup = setup("26.1.6");
    setup
        .lab
        .now()
        .broken
        .push(("a2".to_owned(), "29.0.6".to_owned()));
    let mut lives = Lives::new(&setup);
    let End::Over(Ending::RolledBack { .. }) = lives.live().await else {
        panic!("it should have gone back")
    };
    let inner = setup.lab.now();
    assert_eq!(inner.violations, [""; 0]);
    assert_eq!(inner.services["a2"].runs.clone().unwrap().0, "26.1.6");
    assert_eq!(
        inner.services["c1"].runs.clone().unwrap().0,
        "29.0.6",
        "the others serve, and stay: the run can be carried on"
    );
}

#[tokio::test]
async fn asked_to_go_back_before_the_unpin_everything_goes_back() {
    let setup = setup("26.1.6");
    let mut lives = Lives::new(&setup);
    lives.policy.doors = stagger_core::model::Doors::Ask;
    let mut doors = Vec::new();
    loop {
        match lives.live().await {
            End::Held(reason) if reason.slug == "one-way-door" => {
                let door = if setup
                    .lab
                    .log()
                    .iter()
                    .any(|command| command.starts_with("schema"))
                {
                    "unpin"
                } else {
                    "schema"
                };
                doors.push(door);
                if door == "unpin" {
                    break;
                }
                lives.ask(&Command::Approve {
                    door: door.parse().unwrap(),
                });
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(doors, ["schema", "unpin"]);
    assert!(
        setup
            .lab
            .now()
            .services
            .values()
            .all(|service| service.installed == "29.0.6")
    );
    lives.ask(&Command::Rollback);
    let End::Over(Ending::RolledBack { reason }) = lives.live().await else {
        panic!("it should have gone back")
    };
    assert!(
        !reason.detail.contains("unpin"),
        "nothing of the unpin was begun: {reason}"
    );
    let inner = setup.lab.now();
    assert_eq!(inner.violations, [""; 0]);
    for (name, service) in &inner.services {
        assert_eq!(service.runs.clone().unwrap().0, "26.1.6", "{name}");
    }
    assert_eq!(inner.schema, "21c48150dea9", "the schema stays");
}

#[tokio::test]
async fn behind_the_unpin_nothing_goes_back() {
    let setup = setup("26.1.6");
    // The first start without a pin fails.
    let mut lives = Lives::new(&setup);
    setup.lab.now().faults.push((
        "unpin c2".to_owned(),
        stagger_engine::hosts::Ran {
            code: 1,
            output: "no space left".to_owned(),
        },
    ));
    let end = lives.live().await;
    let inner_log = setup.lab.log();
    match end {
        // The corrective start once more brings it up, pinned; its wave then is not what it should be.
        End::Held(reason) => assert!(
            ["going-back-is-impossible", "rollback-failed"].contains(&reason.slug.as_str()),
            "{reason}\n{inner_log:#?}"
        ),
        other => panic!("{other:?}\n{inner_log:#?}"),
    }
    let inner = setup.lab.now();
    assert_eq!(inner.violations, [""; 0]);
    assert!(
        inner
            .services
            .values()
            .all(|service| service.installed == "29.0.6")
    );
}
