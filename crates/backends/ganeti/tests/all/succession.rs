//! Which run goes on on a node by itself.

use std::time::Duration;

use stagger_core::model::RunId;
use stagger_engine::cluster::{Anchor, Lock as _};
use stagger_ganeti::lock::hand_over;
use stagger_ganeti::takeover::Succession;

use crate::common::{Setup, claim, setup};
use crate::double::World;

async fn made() -> Setup {
    setup(World::with_nodes(3)).await
}

/// The first that may go on there; `None`: no run is open.
async fn first(setup: &Setup, host: &str) -> Option<Succession> {
    let all = setup.backend(None).succession(host).await.unwrap();
    all.into_iter().next()
}

async fn on(setup: &Setup, host: &str) -> Succession {
    first(setup, host).await.expect("a run is open")
}

fn run() -> RunId {
    RunId::new("run-1").unwrap()
}

#[tokio::test]
async fn nothing_goes_on_where_no_run_is_open_or_another_node_is_the_master() {
    let setup = made().await;
    assert_eq!(first(&setup, "n1").await, None);
    let master = "n1".to_owned();
    assert_eq!(on(&setup, "n2").await, Succession::NotMaster { master });
}

/// A process that ends in an orderly way gives its lock back: a person decides when the run goes on.
#[tokio::test]
async fn what_a_dead_process_has_left_goes_on_on_the_master_and_what_was_given_back_does_not() {
    let setup = made().await;
    let backend = setup.backend(None);
    let by = claim("aaaa", "n1");
    let token = backend.lock(&by, 0).await.unwrap();
    let anchor = Anchor {
        run: run(),
        seq: 17,
        sum: "abc".to_owned(),
    };
    backend.anchor(&anchor).await.unwrap();
    let claimed = Succession::Claimed {
        by: Box::new(by.clone()),
        anchor: Some(anchor),
    };
    assert_eq!(on(&setup, "n1.example.org").await, claimed);
    let elsewhere = on(&setup, "n3").await;
    assert!(matches!(elsewhere, Succession::NotMaster { .. }), "{elsewhere:?}");
    backend.unlock(&by, token).await.unwrap();
    assert_eq!(first(&setup, "n1").await, None);
}

/// Seen: a master died in mid-wave with its journal, the unit on the next one took its claim for that of a process at work elsewhere,
/// and the queue stayed paused.
#[tokio::test]
async fn a_claim_that_nobody_renews_is_of_a_dead_process() {
    let mut setup = made().await;
    setup.settings.pace.lock = Duration::from_millis(600);
    let backend = setup.backend(None);
    let by = claim("aaaa", "n1");
    let token = backend.lock(&by, 0).await.unwrap();
    let (lives, renewed) = tokio::join!(backend.lives(&by), async {
        tokio::time::sleep(Duration::from_millis(200)).await;
        backend.renew(&by, token).await
    });
    renewed.unwrap();
    assert!(lives.unwrap(), "it was renewed");
    assert!(!backend.lives(&by).await.unwrap(), "nobody renews it any more");
    backend.unlock(&by, token).await.unwrap();
    assert!(
        backend.lives(&by).await.unwrap(),
        "it was given back in an orderly way"
    );
}

#[tokio::test]
async fn what_was_handed_over_goes_on_there_once_that_node_is_the_master_and_nowhere_else() {
    let setup = made().await;
    let backend = setup.backend(None);
    let by = claim("aaaa", "n1");
    let token = backend.lock(&by, 0).await.unwrap();
    hand_over(&setup.rapi(), &run(), "n2", token).await.unwrap();
    // The failover is still to come.
    let away = Succession::HandedAway {
        by: Box::new(by),
        to: "n2".to_owned(),
    };
    assert_eq!(on(&setup, "n1").await, away);
    assert!(matches!(on(&setup, "n2").await, Succession::NotMaster { .. }));
    setup.world().now.master = "n2".to_owned();
    setup.world().changed();
    assert_eq!(on(&setup, "n2").await, Succession::HandedOver { run: run() });
    for other in ["n1", "n3"] {
        assert!(
            matches!(on(&setup, other).await, Succession::NotMaster { .. }),
            "{other}"
        );
    }
    // It has gone on there, and is over.
    backend.unlock(&claim("aaaa", "n1"), token).await.unwrap();
    let there = claim("cccc", "n2");
    let newer = backend.lock(&there, token).await.unwrap();
    backend.unlock(&there, newer).await.unwrap();
    assert_eq!(first(&setup, "n2").await, None);
}
