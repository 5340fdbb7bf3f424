//! Up to the unpin a service that fails goes back to the old code; behind it nothing does.

use stagger_core::model::Code;
use stagger_core::run::{Command, Ending};
use stagger_engine::hosts::Ran;

use crate::common::setup;
use crate::double::Service;
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
            End::Held(reason) if reason.code == Code::OneWayDoor => {
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
                lives
                    .processes
                    .ask(&Command::Approve {
                        door: door.parse().unwrap(),
                    })
                    .await;
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
    lives.processes.ask(&Command::Rollback).await;
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

fn full() -> Ran {
    Ran {
        code: 1,
        output: "no space left".to_owned(),
    }
}

#[tokio::test]
async fn behind_the_unpin_nothing_goes_back() {
    let setup = setup("26.1.6");
    let mut lives = Lives::new(&setup);
    for _ in 0..2 {
        setup.lab.now().faults.push(("unpin c2".to_owned(), full()));
    }
    let end = lives.live().await;
    let log = setup.lab.log();
    let End::Held(reason) = end else {
        panic!("{end:?}\n{log:#?}")
    };
    assert_eq!(reason.code, Code::GoingBackIsImpossible, "{reason}\n{log:#?}");
    {
        let inner = setup.lab.now();
        assert_eq!(inner.violations, [""; 0]);
        let installed = |service: &Service| service.installed == "29.0.6";
        assert!(inner.services.values().all(installed));
    }
    // What kept it from starting is mended.
    lives.processes.ask(&Command::Resume).await;
    lives.until_done("mended").await;
    let inner = setup.lab.now();
    assert_eq!(inner.violations, [""; 0]);
    let free = |service: &Service| service.runs == Some(("29.0.6".to_owned(), None));
    assert!(inner.services.values().all(free), "{:#?}", inner.services);
}

/// The old code is pinned to itself, and looks as the new one does that is held to the old.
#[tokio::test]
async fn a_failed_installation_is_tried_once_more_and_never_taken_for_done() {
    let once = setup("26.1.6");
    once.lab
        .now()
        .faults
        .push(("install c1 29.0.6".to_owned(), full()));
    Lives::new(&once).until_done("installed by the second try").await;
    {
        let inner = once.lab.now();
        assert_eq!(inner.violations, [""; 0]);
        let free = |service: &Service| service.runs == Some(("29.0.6".to_owned(), None));
        assert!(inner.services.values().all(free), "{:#?}", inner.services);
    }

    for (service, patch) in [("c1", None), ("a2", None), ("c1", Some("26.1.7"))] {
        let setup = setup("26.1.6");
        let to = patch.unwrap_or("29.0.6");
        for _ in 0..2 {
            let install = format!("install {service} {to}");
            setup.lab.now().faults.push((install, full()));
        }
        let mut lives = Lives::new(&setup);
        lives.to = to;
        let End::Over(Ending::RolledBack { reason }) = lives.live().await else {
            panic!("{service} to {to}: it should have gone back")
        };
        assert!(reason.detail.contains("no space left"), "{reason}");
        let facts = setup.backend(None).collect_facts().await;
        let records = &facts.records.get().unwrap().services;
        let inner = setup.lab.now();
        assert_eq!(inner.violations, [""; 0]);
        for (name, record) in records {
            let (release, _) = inner.services[name].runs.clone().unwrap();
            assert_eq!(record.release, release, "{name}");
        }
        assert_eq!(records[service].release, "26.1.6");
    }
}

/// An unpinned new service beside old ones writes rows that they cannot read.
#[tokio::test]
async fn a_pin_that_was_not_written_is_written_before_the_next_start() {
    let setup = setup("26.1.6");
    let mut lives = Lives::new(&setup);
    // When c1 is installed somebody's tool empties its pin, and to write it anew does nothing.
    setup.lab.now().emptied.push("c1".to_owned());
    lives.until_done("pinned by the second try").await;
    let inner = setup.lab.now();
    assert_eq!(inner.violations, [""; 0]);
    let tried = inner.log.iter().filter(|command| *command == "pin c1 26.1");
    assert_eq!(tried.count(), 3, "{:#?}", inner.log);
}
