//! The laws of a lock. Each takes handles of one lock, as two processes have them; the last one is about the rows of which a
//! store makes locks.

use std::time::{Duration, Instant};

use futures::future::join_all;
use jiff::Timestamp;
use stagger_core::model::{ClusterName, RunId};
use stagger_engine::cluster::{Anchor, Lock, LockError, LockRecord};
use stagger_engine::store::Locks;

/// A process of another machine, of which nobody can tell whether it lives.
pub fn claim(incarnation: &str) -> LockRecord {
    LockRecord {
        incarnation: incarnation.to_owned(),
        run: RunId::new("run-1").unwrap(),
        host: "ops1".to_owned(),
        process: 1,
        since: Timestamp::UNIX_EPOCH,
        life: None,
    }
}

/// A second is refused as long as the first renews, and told who has it. Once it was returned the second gets it, with a
/// larger token; so tokens are larger than any that a journal has seen.
///
/// # Panics
/// The law is broken.
pub async fn one_writer_at_a_time(one: &dyn Lock, other: &dyn Lock) {
    let (first, second) = (claim("first"), claim("second"));
    let token = one.lock(&first, 41).await.unwrap();
    assert!(token > 41, "{token} is not larger than what the journal has seen");
    let pause = one.lock_expires() / 10;
    let renews = async {
        loop {
            one.renew(&first, token).await.unwrap();
            tokio::time::sleep(pause).await;
        }
    };
    let refused = tokio::select! {
        () = renews => Ok(0),
        refused = other.lock(&second, 0) => refused,
    };
    assert!(
        matches!(&refused, Err(LockError::Held(by)) if **by == first),
        "{refused:?}"
    );
    one.unlock(&first, token).await.unwrap();
    let newer = other.lock(&second, 0).await.unwrap();
    assert!(newer > token, "{newer} after {token}");
    other.unlock(&second, newer).await.unwrap();
}

/// One that is silent is watched for as long as its lock lasts, and then replaced. What it renews later is refused.
///
/// # Panics
/// The law is broken.
pub async fn a_silent_holder_is_waited_out(dead: &dyn Lock, heir: &dyn Lock) {
    let (first, second) = (claim("dead"), claim("heir"));
    let token = dead.lock(&first, 0).await.unwrap();
    let begun = Instant::now();
    let newer = heir.lock(&second, 0).await.unwrap();
    assert!(
        begun.elapsed() >= dead.lock_expires(),
        "it was taken over after {:?}",
        begun.elapsed()
    );
    assert!(newer > token, "{newer} after {token}");
    let late = dead.renew(&first, token).await;
    assert!(
        matches!(&late, Err(LockError::Held(by)) if **by == second),
        "{late:?}"
    );
    heir.unlock(&second, newer).await.unwrap();
}

/// Where a journal stood is kept beside the lock, and outlives it.
///
/// # Panics
/// The law is broken.
pub async fn the_anchor_outlives_the_lock(lock: &dyn Lock) {
    assert_eq!(lock.anchored().await.unwrap(), None);
    let claim = claim("one");
    let token = lock.lock(&claim, 0).await.unwrap();
    for seq in [7, 9] {
        let anchor = Anchor {
            run: claim.run.clone(),
            seq,
            sum: format!("sum {seq}"),
        };
        lock.anchor(&anchor).await.unwrap();
        assert_eq!(lock.anchored().await.unwrap(), Some(anchor));
    }
    lock.unlock(&claim, token).await.unwrap();
    assert_eq!(lock.anchored().await.unwrap().unwrap().seq, 9);
}

/// Of several who want it at once, at most one has it at the end, whatever came between.
///
/// # Panics
/// The law is broken.
pub async fn of_a_crowd_one_has_it(contenders: &[&dyn Lock], patience: Duration) {
    let claims: Vec<LockRecord> = (0..contenders.len())
        .map(|number| claim(&format!("{number}")))
        .collect();
    let all = contenders
        .iter()
        .zip(&claims)
        .map(|(lock, claim)| tokio::time::timeout(patience, lock.lock(claim, 0)));
    let mut held = Vec::new();
    for (at, taken) in join_all(all).await.into_iter().enumerate() {
        if let Ok(Ok(token)) = taken {
            held.push((at, token));
        }
    }
    // Several may have had it one after another, if none renewed it: only the newest still has.
    let newest = held.iter().map(|(_, token)| *token).max();
    for (at, token) in held {
        let has = contenders[at].renew(&claims[at], token).await.is_ok();
        assert_eq!(
            has,
            Some(token) == newest,
            "token {token}, the newest is {newest:?}"
        );
    }
}

/// The locks that a store keeps beside its journals: one has each at a time, and loses it by being late.
///
/// # Panics
/// The law is broken.
pub async fn one_has_it_at_a_time(locks: &dyn Locks) {
    let [c, other] = ["locks-a", "locks-b"].map(|name| ClusterName::new(name).unwrap());
    let (a, b) = (claim("a"), claim("b"));
    let (short, long) = (Duration::from_millis(300), Duration::from_mins(1));
    assert_eq!(locks.lock(&c, &a, 0, short).await.unwrap(), 1);
    let held = locks.lock(&c, &b, 0, short).await.unwrap_err();
    assert_eq!(held, LockError::Held(Box::new(a.clone())));
    // Its own claim is no way in either: it may be of a call that was thought lost.
    assert_eq!(
        locks.lock(&c, &a, 0, short).await.unwrap_err(),
        LockError::Held(Box::new(a.clone()))
    );
    assert_eq!(locks.lock(&other, &b, 7, long).await.unwrap(), 8);
    locks.renew(&c, &a, 1, short).await.unwrap();
    for (claim, fence) in [(&a, 2), (&b, 1)] {
        let lost = locks.renew(&c, claim, fence, short).await.unwrap_err();
        assert!(matches!(lost, LockError::Lost(_)), "{lost:?}");
    }
    tokio::time::sleep(short * 2).await;
    let late = locks.renew(&c, &a, 1, short).await.unwrap_err();
    assert!(
        matches!(late, LockError::Lost(_)),
        "nobody took it, and still: {late:?}"
    );
    assert_eq!(locks.lock(&c, &b, 0, long).await.unwrap(), 2);
    // Who lost it gives nothing back.
    locks.unlock(&c, &a, 1).await.unwrap();
    assert!(locks.lock(&c, &a, 0, long).await.is_err());
    locks.unlock(&c, &b, 2).await.unwrap();
    assert_eq!(
        locks.lock(&c, &a, 40, long).await.unwrap(),
        41,
        "the token only grows"
    );
}
