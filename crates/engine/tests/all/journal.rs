//! A damaged journal is refused with its last good event, or is complete: nothing in between.
#![allow(missing_docs, clippy::unwrap_used, reason = "test code")]

use std::path::{Path, PathBuf};

use jiff::Timestamp;
use rusqlite::Connection;
use stagger_conformance::store::start;
use stagger_core::model::{ClusterName, Code, Reason, RunId};
use stagger_core::run::{Entry, Event};
use stagger_engine::database::StoreLocation;
use stagger_engine::sqlite::SqliteStore;
use stagger_engine::store::{JournalStore, StoreError};

const EVENTS: u64 = 60;

fn run() -> RunId {
    "run-1".parse().unwrap()
}

/// A journal of so many events, and what is in it.
async fn written(path: &Path, events: u64) -> (SqliteStore, Vec<Entry>) {
    let cluster: ClusterName = "c1".parse().unwrap();
    let mut store = SqliteStore::open(path).unwrap();
    store.raise(&cluster, 1, "test").await.unwrap();
    let at = Timestamp::from_second(1_000_000).unwrap();
    let begun = store.begin(&cluster, 1, at, start(&cluster, &run())).await;
    let mut entries = vec![begun.unwrap()];
    for number in 1..events {
        let detail = format!("event {number} {}", "x".repeat(120));
        let event = Event::Held {
            reason: Reason::new(Code::Paused, detail),
        };
        entries.extend(store.append(&run(), 1, number, at, vec![event]).await.unwrap());
    }
    (store, entries)
}

/// One file without a log beside it.
async fn closed(folder: &Path, events: u64) -> (PathBuf, Vec<Entry>) {
    let path = folder.join("journal.db");
    let (store, entries) = written(&path, events).await;
    drop(store);
    let connection = Connection::open(&path).unwrap();
    connection
        .query_row("pragma wal_checkpoint(truncate)", [], |_| Ok(()))
        .unwrap();
    drop(connection);
    (path, entries)
}

#[derive(Debug, PartialEq, Eq, Clone, Copy)]
enum Found {
    Complete,
    /// Refused, naming this as the last good event.
    Damaged(u64),
    /// Refused as a whole.
    Refused,
}

/// What comes of reading it; panics where something else than what was written is taken for good.
async fn read(path: &Path, entries: &[Entry]) -> Found {
    let store = match SqliteStore::open(path) {
        Ok(store) => store,
        Err(error) => {
            assert!(error.to_string().contains("journal"), "{error}");
            return Found::Refused;
        }
    };
    match store.journal(&run()).await {
        Ok(found) => {
            assert_eq!(found, entries, "another journal was taken for good");
            Found::Complete
        }
        Err(StoreError::Damaged { last_good, .. }) => {
            assert!(last_good <= entries.len() as u64);
            Found::Damaged(last_good)
        }
        Err(StoreError::NoRun(_) | StoreError::Failed { .. }) => Found::Refused,
        Err(error) => panic!("{error:?}"),
    }
}

/// The journal with one statement run on it by somebody who took the triggers off.
async fn altered(statement: &str) -> (Found, u64) {
    let folder = tempfile::tempdir().unwrap();
    let (path, entries) = closed(folder.path(), EVENTS).await;
    let connection = Connection::open(&path).unwrap();
    connection
        .execute_batch("drop trigger journal_is_append_only_1; drop trigger journal_is_append_only_2;")
        .unwrap();
    let changed = connection.execute(statement, []).unwrap() as u64;
    drop(connection);
    (read(&path, &entries).await, changed)
}

#[tokio::test]
async fn an_altered_row_names_the_last_good_event() {
    for (statement, last_good) in [
        (
            "update journal set body = replace(body, 'event 30', 'event 31') where seq = 31",
            30,
        ),
        ("update journal set body = substr(body, 1, 40) where seq = 31", 30),
        (
            "update journal set at = '2001-01-01T00:00:00Z' where seq = 12",
            11,
        ),
        ("update journal set fence = 2 where seq = 5", 4),
        ("update journal set hash = zeroblob(32) where seq = 60", 59),
        ("update journal set hash = x'' where seq = 1", 0),
        ("delete from journal where seq = 20", 19),
        ("delete from journal where seq = 1", 0),
        ("delete from journal where seq > 40", 40),
        ("delete from journal where seq = 60", 59),
        ("update journal set seq = 1000 where seq = 33", 32),
    ] {
        let (found, changed) = altered(statement).await;
        assert!(changed > 0, "{statement} changed nothing");
        assert_eq!(found, Found::Damaged(last_good), "{statement}");
    }
}

#[tokio::test]
async fn each_flipped_byte_of_a_row_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let (path, entries) = closed(folder.path(), 8).await;
    let body: Vec<u8> = {
        let connection = Connection::open(&path).unwrap();
        let text: String = connection
            .query_row("select body from journal where seq = 5", [], |row| row.get(0))
            .unwrap();
        text.into_bytes()
    };
    let file = std::fs::read(&path).unwrap();
    let start = file
        .windows(body.len())
        .position(|window| window == body)
        .unwrap();
    for at in 0..body.len() {
        let mut bad = file.clone();
        bad[start + at] ^= 1;
        let copy = folder.path().join("copy.db");
        std::fs::write(&copy, bad).unwrap();
        assert_eq!(
            read(&copy, &entries).await,
            Found::Damaged(4),
            "byte {at} of the body"
        );
    }
}

#[tokio::test]
async fn a_truncated_file_is_refused_at_any_length() {
    let folder = tempfile::tempdir().unwrap();
    let (path, entries) = closed(folder.path(), EVENTS).await;
    let file = std::fs::read(&path).unwrap();
    let mut named = 0;
    for length in (0..file.len()).step_by(509) {
        let copy = folder.path().join(format!("copy-{length}.db"));
        std::fs::write(&copy, &file[..length]).unwrap();
        let found = read(&copy, &entries).await;
        assert_ne!(found, Found::Complete, "{length} of {} bytes", file.len());
        named += u32::from(matches!(found, Found::Damaged(_)));
    }
    assert!(
        named > 0 || file.len() < 8192,
        "no cut was named with its last good event"
    );
    assert_eq!(read(&path, &entries).await, Found::Complete);
}

/// The machine stops while the log beside the database is half written: what was told to be durable in
/// the part that is there is read, the rest is cut off as a whole, and nothing is made up.
#[tokio::test]
async fn a_half_written_log_gives_a_prefix_that_holds_together() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal.db");
    let (store, entries) = written(&path, EVENTS).await;
    let beside = |of: &Path| PathBuf::from(format!("{}-wal", of.display()));
    let (database, log) = (
        std::fs::read(&path).unwrap(),
        std::fs::read(beside(&path)).unwrap(),
    );
    assert!(!log.is_empty());
    let mut lengths = std::collections::BTreeSet::new();
    for length in (0..=log.len()).step_by(1021).chain([log.len()]) {
        let copy = folder.path().join(format!("copy-{length}.db"));
        std::fs::write(&copy, &database).unwrap();
        std::fs::write(beside(&copy), &log[..length]).unwrap();
        let Ok(store) = SqliteStore::open(&copy) else {
            continue;
        };
        match store.journal(&run()).await {
            Ok(found) => {
                assert_eq!(found, entries[..found.len()]);
                lengths.insert(found.len());
            }
            Err(StoreError::NoRun(_) | StoreError::Damaged { .. } | StoreError::Failed { .. }) => {}
            Err(error) => panic!("{error:?}"),
        }
    }
    assert!(
        lengths.len() > 5 && lengths.contains(&entries.len()),
        "{lengths:?}"
    );
    drop(store);
}

/// What is copied while another writes is what there was at one moment, and a whole store.
#[tokio::test]
async fn a_copy_is_what_there_was_at_one_moment() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal.db");
    let (mut store, mut entries) = written(&path, 50).await;
    let writer = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let at = Timestamp::from_second(1_000_000).unwrap();
            for number in 50..300 {
                let reason = Reason::new(Code::Paused, format!("event {number}"));
                let written = store
                    .append(&run(), 1, number, at, vec![Event::Held { reason }])
                    .await;
                entries.extend(written.unwrap());
            }
        });
        entries
    });
    let copies: Vec<PathBuf> = (0..10)
        .map(|nth| {
            let to = folder.path().join(format!("copy-{nth}.db"));
            StoreLocation::File(path.clone()).copy(&to).unwrap();
            to
        })
        .collect();
    let entries = writer.join().unwrap();
    for copy in &copies {
        let found = SqliteStore::open(copy).unwrap().journal(&run()).await.unwrap();
        assert!(found.len() >= 50);
        assert_eq!(found, entries[..found.len()]);
    }
    let refused = StoreLocation::File(path).copy(&copies[0]).unwrap_err();
    assert!(refused.to_string().contains("is there already"), "{refused}");
}

#[test]
fn a_journal_is_its_owner_s_alone() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("stagger/journal.db");
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    drop(SqliteStore::open(&file).unwrap());
    assert_eq!((mode(&file), mode(file.parent().unwrap())), (0o600, 0o700));
    // One of an earlier build.
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
    drop(SqliteStore::open(&file).unwrap());
    assert_eq!(mode(&file), 0o600);
}

/// A program says up to which revision it knows the schema, and the file from which one on it can be worked on.
#[tokio::test]
async fn a_file_is_opened_by_whoever_knows_as_much_as_it_asks_for() {
    let folder = tempfile::tempdir().unwrap();
    let (path, entries) = closed(folder.path(), 3).await;
    let raw = Connection::open(&path).unwrap();
    let newest: i64 = raw
        .query_row("select revision from schema_revision", [], |row| row.get(0))
        .unwrap();
    for (asks, is_opened) in [(1, true), (newest, true), (newest + 1, false)] {
        raw.pragma_update(None, "user_version", asks).unwrap();
        let opened = SqliteStore::open(&path);
        assert_eq!(opened.is_ok(), is_opened, "{asks} of {newest}");
        if let Ok(store) = opened {
            assert_eq!(store.journal(&run()).await.unwrap(), entries);
        }
    }
}
