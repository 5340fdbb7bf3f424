//! One writer for each cluster.

use std::time::Duration;

use stagger_conformance::lock;
use stagger_core::model::RunId;
use stagger_engine::cluster::{Lock, LockError};
use stagger_ganeti::lock::{hand_over, same_host};

use crate::common::{Setup, claim, setup};
use crate::double::World;

async fn world() -> Setup {
    let mut world = World::with_nodes(2);
    world.lag = 2;
    setup(world).await
}

#[tokio::test]
async fn its_lock_has_the_laws_of_every_lock() {
    let setup = world().await;
    let (one, other) = (setup.backend(None), setup.backend(None));
    lock::one_writer_at_a_time(&one, &other).await;
    lock::a_silent_holder_is_waited_out(&one, &other).await;
    let crowd: Vec<_> = (0..8).map(|_| setup.backend(None)).collect();
    let crowd: Vec<&dyn Lock> = crowd.iter().map(|backend| backend as &dyn Lock).collect();
    lock::of_a_crowd_one_has_it(&crowd, Duration::from_secs(20)).await;
}

/// What is written may be read a moment later: whoever reads it has taken the lock in between, and has seen that.
#[tokio::test]
async fn the_place_of_the_journal_outlives_it() {
    let setup = setup(World::with_nodes(2)).await;
    lock::the_anchor_outlives_the_lock(&setup.backend(None)).await;
}

/// However two contenders' requests interleave, they never both hold it. Side by side both give up.
#[tokio::test]
async fn two_at_once_never_both_hold_it() {
    let mut both_gave_up = 0;
    for lag in 0..6 {
        for later in 0..5 {
            let mut setup = world().await;
            setup.world().lag = lag;
            // Nobody renews here, and nobody is to wait until the other's claim is old.
            setup.settings.pace.lock = Duration::from_mins(1);
            let (one, other) = (setup.backend(None), setup.backend(None));
            let (first, second) = (claim("aaaa", "ops1"), claim("bbbb", "ops2"));
            let soon = Duration::from_millis(400);
            let second_comes_later = async {
                tokio::time::sleep(Duration::from_millis(later * 2)).await;
                other.lock(&second, 0).await
            };
            let (a, b) = tokio::join!(
                tokio::time::timeout(soon, one.lock(&first, 0)),
                tokio::time::timeout(soon, second_comes_later)
            );
            let held = |ended: Result<Result<u64, LockError>, _>| ended.is_ok_and(|locked| locked.is_ok());
            let (a, b) = (held(a), held(b));
            assert!(!(a && b), "both hold it");
            both_gave_up += u32::from(!a && !b);
        }
    }
    assert!(both_gave_up < 30, "nobody ever gets it");
}

#[tokio::test]
async fn a_run_that_was_handed_over_goes_on_there_only() {
    let setup = world().await;
    let backend = setup.backend(None);
    let token = backend.lock(&claim("aaaa", "n1"), 0).await.unwrap();
    let run = RunId::new("run-1").unwrap();
    hand_over(&setup.rapi(), &run, "n2.example.org", token)
        .await
        .unwrap();
    let lost = backend.renew(&claim("aaaa", "n1"), token).await.unwrap_err();
    assert!(matches!(lost, LockError::Lost(_)), "{lost:?}");
    backend.unlock(&claim("aaaa", "n1"), token).await.unwrap();

    let LockError::Backend(error) = backend.lock(&claim("bbbb", "n1"), token).await.unwrap_err() else {
        panic!("the journal that stayed behind went on");
    };
    assert!(error.why.contains("n2.example.org"), "{error}");
    let there = claim("cccc", "n2");
    let newer = backend.lock(&there, token).await.unwrap();
    assert!(newer > token + 1);
    backend.unlock(&there, newer).await.unwrap();
}

#[test]
fn hosts_are_the_same_by_their_short_names_only_where_one_is_short() {
    assert!(same_host("n1", "n1.example.org"));
    assert!(same_host("n1.example.org", "n1.example.org"));
    assert!(!same_host("n1.a.org", "n1.b.org"));
    assert!(!same_host("n1", "n2"));
}
