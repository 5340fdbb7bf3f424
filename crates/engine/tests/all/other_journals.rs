//! Journals that are not what the world was told of: damaged, put back, or another's.

#![expect(clippy::unwrap_used, reason = "helpers of tests may panic too")]

use std::path::Path;

use stagger_core::model::{Code, RunId};
use stagger_core::run::{Ending, Entry};
use stagger_engine::cluster::Anchor;
use stagger_engine::database::StoreLocation;
use stagger_engine::drive::{NoSignals, Stopped, drive};
use stagger_engine::driver::Notice;
use stagger_engine::store::{JournalStore as _, StoreError};
use stagger_engine::supervisor::SuperviseError;

use crate::three_units::{Setting, so_far, to_the_end};

/// As a disk does that fails: what it changes, no program of ours would.
fn damage(journal: &Path, run: &str) {
    let raw = rusqlite::Connection::open(journal).unwrap();
    raw.execute_batch("drop trigger journal_is_append_only_1")
        .unwrap();
    let changed = raw.execute("update journal set body = 'x' where run = ?1 and seq > 2", [run]);
    assert!(changed.unwrap() > 3);
}

#[tokio::test]
async fn a_damaged_row_of_a_run_that_is_over_stops_nothing() {
    let setting = Setting::new();
    let backend = setting.named("lab", "id-1");
    to_the_end(setting.start(&backend, "r1", "2").await.unwrap(), &backend).await;
    damage(&setting.journal(), "r1");
    setting.calls();
    let (mut driver, lease) = setting.start(&backend, "r2", "3").await.unwrap();
    so_far(&mut driver, &setting, 2).await;
    let calls = setting.calls();
    assert!(
        calls.iter().all(|call| !call.contains("fence")),
        "no stranger: {calls:?}"
    );
    drop((driver, lease));
    to_the_end(setting.resume(&backend, "r2").await.unwrap(), &backend).await;

    // Of one that is not over, nobody knows what it has under way.
    setting.calls();
    let (mut driver, lease) = setting.start(&backend, "r3", "4").await.unwrap();
    so_far(&mut driver, &setting, 2).await;
    drop((driver, lease));
    let raw = rusqlite::Connection::open(setting.journal()).unwrap();
    raw.execute("update journal set body = 'x' where run = 'r3' and seq > 2", [])
        .unwrap();
    let refused = setting.start(&backend, "r4", "4").await.map(drop).unwrap_err();
    assert!(
        matches!(&refused, SuperviseError::Store(StoreError::Damaged { run, .. }) if run.as_str() == "r3"),
        "{refused:?}"
    );
}

#[tokio::test]
async fn a_journal_that_is_older_than_the_world_is_a_strangers() {
    let setting = Setting::new();
    let backend = setting.named("lab", "id-1");
    let (mut driver, lease) = setting.start(&backend, "r1", "2").await.unwrap();
    so_far(&mut driver, &setting, 1).await;
    let backup = setting.folder.path().join("backup.db");
    StoreLocation::File(setting.journal()).copy(&backup).unwrap();
    // A unit more, of which the backup knows nothing.
    so_far(&mut driver, &setting, 6).await;
    drop(driver);
    lease.release(&backend).await.unwrap();

    for file in ["journal.db-wal", "journal.db-shm"] {
        std::fs::remove_file(setting.folder.path().join(file)).ok();
    }
    std::fs::rename(&backup, setting.journal()).unwrap();
    setting.calls();
    let taken = setting.resume(&backend, "r1").await.unwrap();
    let noticed = setting.notices.0.lock().unwrap().clone();
    assert!(
        matches!(&noticed[..], [Notice::Behind(anchor)] if anchor.run.as_str() == "r1"),
        "{noticed:?}"
    );
    to_the_end(taken, &backend).await;
    let calls = setting.calls();
    let (first, then) = calls.split_first().unwrap();
    assert!(first.starts_with("fence 2 on "), "{calls:?}");
    assert!(
        calls.iter().any(|call| call == "fence 2 on u.0 u.1 u.2"),
        "of every unit, as its intents are unknown: {calls:?}"
    );
    assert!(then.iter().any(|call| call.starts_with("Enter")), "{calls:?}");
}

#[tokio::test]
async fn who_cannot_write_to_the_journal_takes_no_lock_and_whoever_follows_knows_of_no_stranger() {
    let setting = Setting::new();
    let backend = setting.named("lab", "id-1");
    let (mut driver, lease) = setting.start(&backend, "r1", "2").await.unwrap();
    so_far(&mut driver, &setting, 1).await;
    drop((driver, lease));

    let raw = rusqlite::Connection::open(setting.journal()).unwrap();
    let full = "create trigger full before update on cluster begin select raise(abort, 'no space left'); end";
    raw.execute_batch(full).unwrap();
    for _ in 0..3 {
        let refused = setting.resume(&backend, "r1").await.map(drop).unwrap_err();
        assert!(matches!(&refused, SuperviseError::Store(_)), "{refused:?}");
    }
    assert_eq!(setting.truth.lock().unwrap().fence, 1, "the lock is as it was");

    raw.execute_batch("drop trigger full").unwrap();
    setting.calls();
    to_the_end(setting.resume(&backend, "r1").await.unwrap(), &backend).await;
    let calls = setting.calls();
    assert!(
        !calls.iter().any(|call| call.contains("u.0 u.1 u.2")),
        "only on whose command was open: {calls:?}"
    );
}

/// Two in a row are killed as soon as they have the lock, and have written that they have it. Between them and whoever follows
/// nobody is unknown, until the cluster has given out a token of which no journal says anything.
#[tokio::test]
async fn who_only_took_the_lock_is_no_stranger() {
    let setting = Setting::new();
    let backend = setting.named("lab", "id-1");
    let (mut driver, lease) = setting.start(&backend, "r1", "2").await.unwrap();
    so_far(&mut driver, &setting, 1).await;
    drop((driver, lease));
    for unknown in [false, true] {
        for _ in 0..2 {
            drop(setting.resume(&backend, "r1").await.unwrap());
        }
        setting.truth.lock().unwrap().fence += u64::from(unknown);
        setting.calls();
        let (mut driver, lease) = setting.resume(&backend, "r1").await.unwrap();
        while driver.run().ruled_out() < lease.fence() {
            driver.step().await.unwrap();
        }
        drop((driver, lease));
        let calls = setting.calls();
        let on_all = calls.iter().any(|call| call.ends_with("on u.0 u.1 u.2"));
        assert_eq!(on_all, unknown, "{calls:?}");
    }
}

/// Nobody has renewed the lock since, and nobody has given it back.
#[tokio::test]
async fn a_backup_that_lacks_only_the_last_thing_is_noticed() {
    let setting = Setting::new();
    let backend = setting.named("lab", "id-1");
    let (mut driver, lease) = setting.start(&backend, "r1", "2").await.unwrap();
    let backup = setting.folder.path().join("backup.db");
    StoreLocation::File(setting.journal()).copy(&backup).unwrap();
    let entered = || {
        let truth = setting.truth.lock().unwrap();
        truth.calls.iter().any(|call| call.starts_with("Enter"))
    };
    while !entered() {
        driver.step().await.unwrap();
    }
    drop((driver, lease));
    for file in ["journal.db-wal", "journal.db-shm"] {
        std::fs::remove_file(setting.folder.path().join(file)).ok();
    }
    std::fs::rename(&backup, setting.journal()).unwrap();
    // One that dies before anything is ruled out leaves the next one to find the same.
    for _ in 0..2 {
        drop(setting.resume(&backend, "r1").await.unwrap());
        let noticed = std::mem::take(&mut *setting.notices.0.lock().unwrap());
        assert!(matches!(&noticed[..], [.., Notice::Behind(_)]), "{noticed:?}");
    }
    let taken = setting.resume(&backend, "r1").await.unwrap();
    let (mut driver, lease) = taken;
    let Stopped::Over(Ending::Incomplete { left }) = drive(&mut driver, &mut NoSignals).await.unwrap() else {
        panic!("u.0 is down, and nothing tells who has stopped it")
    };
    assert_eq!(left[0].1.code, Code::UnitDown, "{left:?}");
    drop(driver);
    lease.release(&backend).await.unwrap();
    let store = StoreLocation::File(setting.journal()).open().await.unwrap();
    let journal = store.journal(&RunId::new("r1").unwrap()).await.unwrap();
    let behind = |entry: &Entry| entry.event == stagger_core::run::Event::JournalBehind;
    assert!(journal.iter().any(behind), "it is written down");
}

/// What the cluster is told next is not that the journal has lost what was lost already.
#[tokio::test]
async fn a_journal_that_is_put_back_twice_is_noticed_twice() {
    let setting = Setting::new();
    let backend = setting.named("lab", "id-1");
    let (mut driver, lease) = setting.start(&backend, "r1", "2").await.unwrap();
    so_far(&mut driver, &setting, 6).await;
    drop((driver, lease));
    let put_back = |events: u32| {
        let raw = rusqlite::Connection::open(setting.journal()).unwrap();
        for trigger in 1..=4 {
            raw.execute_batch(&format!(
                "drop trigger if exists journal_is_append_only_{trigger}"
            ))
            .unwrap();
        }
        raw.execute("delete from journal where seq > ?1", [events])
            .unwrap();
        raw.execute("update run set events = ?1", [events]).unwrap();
    };
    put_back(8);
    let (mut driver, lease) = setting.resume(&backend, "r1").await.unwrap();
    while driver.run().ruled_out() < lease.fence() {
        driver.step().await.unwrap();
    }
    let of_this_run = setting.truth.lock().unwrap().anchor.clone().unwrap();
    put_back(3);
    lease.anchor(&backend).await.unwrap();
    let told = setting.truth.lock().unwrap().anchor.clone().unwrap();
    assert_eq!(told, of_this_run, "it is told of nothing older");
    drop((driver, lease));
    setting.notices.0.lock().unwrap().clear();
    let (driver, lease) = setting.resume(&backend, "r1").await.unwrap();
    let noticed = setting.notices.0.lock().unwrap().clone();
    assert!(matches!(&noticed[..], [.., Notice::Behind(_)]), "{noticed:?}");
    drop((driver, lease));
}

/// A run is carried on, and the cluster was told of one that began since: the journal was put back from before that.
#[tokio::test]
async fn a_run_that_another_came_after_relies_on_nothing_that_it_had_in_hand() {
    let setting = Setting::new();
    let backend = setting.named("lab", "id-1");
    let (mut driver, lease) = setting.start(&backend, "r1", "2").await.unwrap();
    so_far(&mut driver, &setting, 1).await;
    drop((driver, lease));
    setting.truth.lock().unwrap().anchor = Some(Anchor {
        run: RunId::new("r2").unwrap(),
        seq: 12,
        sum: "0".to_owned(),
    });
    let (mut driver, lease) = setting.resume(&backend, "r1").await.unwrap();
    let noticed = setting.notices.0.lock().unwrap().clone();
    assert!(
        matches!(&noticed[..], [.., Notice::Unheard(anchor)] if anchor.seq == 12),
        "{noticed:?}"
    );
    drive(&mut driver, &mut NoSignals).await.unwrap();
    drop((driver, lease));
    let journal = setting.store().journal(&RunId::new("r1").unwrap()).await.unwrap();
    let behind = |entry: &Entry| entry.event == stagger_core::run::Event::JournalBehind;
    assert!(journal.iter().any(behind), "it is written down");
}

#[tokio::test]
async fn a_journal_that_has_all_that_the_world_was_told_is_nobody_elses() {
    let setting = Setting::new();
    let backend = setting.named("lab", "id-1");
    let (mut driver, lease) = setting.start(&backend, "r1", "2").await.unwrap();
    so_far(&mut driver, &setting, 3).await;
    drop(driver);
    lease.release(&backend).await.unwrap();
    setting.calls();
    to_the_end(setting.resume(&backend, "r1").await.unwrap(), &backend).await;
    assert_eq!(setting.notices.0.lock().unwrap().clone(), []);
    let calls = setting.calls();
    assert!(
        calls.iter().all(|call| !call.contains("u.0 u.1 u.2")),
        "only where an intent was open: {calls:?}"
    );
}
