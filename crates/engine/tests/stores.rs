//! One law for every store: whatever is asked of it, it answers as lists in memory do.

#![expect(clippy::unwrap_used, reason = "helpers of tests may panic too")]

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use jiff::Timestamp;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde_json::Value;
use sqlx::AssertSqlSafe;
use sqlx::postgres::PgPool;
use stagger_core::model::{ClusterName, Code, Policy, Reason, RunId, Target};
use stagger_core::run::{Command, Entry, Event, Seq, Start, VERSION};
use stagger_engine::cluster::{LockError, LockRecord};
use stagger_engine::database::StoreLocation;
use stagger_engine::postgres::{self, DatabaseAddress, PostgresLocks, PostgresStore};
use stagger_engine::sqlite::{SqliteLocks, SqliteStore};
use stagger_engine::store::{JournalStore, Listed, Locks, Mark, StoreError};
use stagger_versioned::store::migrate::Limits;

#[path = "../../versioned/tests/all/server.rs"]
mod server;
use server::Server;

/// A store that is lists in memory.
#[derive(Debug, Default)]
struct Memory {
    clusters: BTreeMap<ClusterName, u64>,
    runs: Vec<(Listed, Vec<Entry>)>,
    asked: Vec<(RunId, Command, String, bool)>,
}

impl Memory {
    fn place(&self, run: &RunId) -> Result<usize, StoreError> {
        let place = self.runs.iter().position(|(listed, _)| listed.run == *run);
        place.ok_or_else(|| StoreError::NoRun(run.clone()))
    }

    fn newest(&self, cluster: &ClusterName) -> u64 {
        self.clusters.get(cluster).copied().unwrap_or(0)
    }

    fn fenced(&self, cluster: &ClusterName, ours: u64) -> Result<(), StoreError> {
        let newest = self.newest(cluster);
        if self.clusters.contains_key(cluster) && newest == ours {
            return Ok(());
        }
        Err(StoreError::FencedOut {
            cluster: cluster.clone(),
            ours,
            newest,
        })
    }
}

fn failed() -> StoreError {
    StoreError::Failed {
        tried: String::new(),
        why: String::new(),
    }
}

#[async_trait]
impl JournalStore for Memory {
    async fn fence(&self, cluster: &ClusterName) -> Result<u64, StoreError> {
        Ok(self.newest(cluster))
    }

    async fn raise(&mut self, cluster: &ClusterName, fence: u64, _: &str) -> Result<(), StoreError> {
        if let Some(newest) = self.clusters.get(cluster)
            && *newest >= fence
        {
            return Err(StoreError::FencedOut {
                cluster: cluster.clone(),
                ours: fence,
                newest: *newest,
            });
        }
        self.clusters.insert(cluster.clone(), fence);
        Ok(())
    }

    async fn begin(
        &mut self,
        cluster: &ClusterName,
        fence: u64,
        at: Timestamp,
        start: Event,
    ) -> Result<Entry, StoreError> {
        self.fenced(cluster, fence)?;
        let Event::Started(begun) = &start else {
            return Err(failed());
        };
        if self.place(&begun.run).is_ok() {
            return Err(failed());
        }
        let listed = Listed {
            run: begun.run.clone(),
            cluster: cluster.clone(),
            started: at,
            identity: begun.identity.clone(),
            ended_by: None,
        };
        let entry = Entry {
            seq: 1,
            at,
            event: start,
        };
        self.runs.push((listed, vec![entry.clone()]));
        Ok(entry)
    }

    async fn append(
        &mut self,
        run: &RunId,
        fence: u64,
        after: Seq,
        at: Timestamp,
        events: Vec<Event>,
    ) -> Result<Vec<Entry>, StoreError> {
        let place = self.place(run)?;
        self.fenced(&self.runs[place].0.cluster, fence)?;
        let entries = &mut self.runs[place].1;
        if entries.len() as u64 != after {
            return Err(StoreError::MovedOn {
                run: run.clone(),
                expected: after,
                found: entries.len() as u64,
            });
        }
        let new: Vec<_> = (after + 1..)
            .zip(events)
            .map(|(seq, event)| Entry { seq, at, event })
            .collect();
        entries.extend(new.iter().cloned());
        Ok(new)
    }

    async fn journal(&self, run: &RunId) -> Result<Vec<Entry>, StoreError> {
        Ok(self.runs[self.place(run)?].1.clone())
    }

    async fn runs(&self) -> Result<Vec<Listed>, StoreError> {
        let mut listed: Vec<_> = self.runs.iter().map(|(listed, _)| listed.clone()).collect();
        listed.sort_by(|a, b| (b.started, &b.run).cmp(&(a.started, &a.run)));
        Ok(listed)
    }

    async fn ask(
        &mut self,
        run: &RunId,
        _: Timestamp,
        command: &Command,
        by: &str,
    ) -> Result<(), StoreError> {
        self.place(run).map_err(|_| failed())?;
        self.asked
            .push((run.clone(), command.clone(), by.to_owned(), false));
        Ok(())
    }

    async fn pending_commands(&self, run: &RunId) -> Result<Vec<(i64, Command, String)>, StoreError> {
        let of_it = (1_i64..)
            .zip(&self.asked)
            .filter(|(_, (of, .., taken))| of == run && !taken);
        Ok(of_it
            .map(|(id, (_, command, by, _))| (id, command.clone(), by.clone()))
            .collect())
    }

    async fn acknowledge_commands(&mut self, run: &RunId, up_to: i64) -> Result<(), StoreError> {
        let asked = (1_i64..).zip(&mut self.asked);
        for (_, (.., taken)) in asked.filter(|(id, (of, ..))| *id <= up_to && of == run) {
            *taken = true;
        }
        Ok(())
    }

    async fn mark(&self, run: &RunId, at: Option<Seq>) -> Result<Option<Mark>, StoreError> {
        let events = self.runs[self.place(run)?].1.len() as u64;
        let seq = at.unwrap_or(events);
        let sum = String::new();
        Ok((1..=events).contains(&seq).then_some(Mark { seq, sum }))
    }
}

/// Something asked of a store. Tokens and places are given by how far they are from the right one.
#[derive(Debug, Clone)]
enum Asked {
    Fence(u8),
    Raise(u8, i8),
    Begin(u8, u8, i8),
    Append(u8, i8, i8, u8),
    Journal(u8),
    Runs,
    Ask(u8, bool),
    Commands(u8),
    /// So many of those that are open.
    Taken(u8, u8),
    Reopen,
}

fn any_asked() -> impl Strategy<Value = Asked> {
    let near = || prop_oneof![6 => Just(0_i8), 1 => Just(-1), 1 => Just(1)];
    prop_oneof![
        1 => (0..2_u8).prop_map(Asked::Fence),
        3 => (0..2_u8, prop_oneof![4 => Just(1_i8), 1 => Just(0), 1 => Just(-1), 1 => Just(5)])
            .prop_map(|(c, by)| Asked::Raise(c, by)),
        4 => (0..2_u8, 0..4_u8, near()).prop_map(|(c, r, f)| Asked::Begin(c, r, f)),
        9 => (0..4_u8, near(), near(), 0..4_u8).prop_map(|(r, f, s, n)| Asked::Append(r, f, s, n)),
        2 => (0..4_u8).prop_map(Asked::Journal),
        1 => Just(Asked::Runs),
        2 => (0..4_u8, any::<bool>()).prop_map(|(r, pause)| Asked::Ask(r, pause)),
        2 => (0..4_u8).prop_map(Asked::Commands),
        2 => (0..4_u8, 0..3_u8).prop_map(|(r, n)| Asked::Taken(r, n)),
        1 => Just(Asked::Reopen),
    ]
}

fn cluster(nth: u8) -> ClusterName {
    ClusterName::new(format!("c{nth}")).unwrap()
}

fn run(nth: u8) -> RunId {
    RunId::new(format!("r{nth}")).unwrap()
}

fn moved(from: u64, by: i8) -> u64 {
    from.saturating_add_signed(by.into())
}

fn start(cluster: &ClusterName, run: &RunId) -> Event {
    Event::Started(Box::new(Start {
        version: VERSION,
        run: run.clone(),
        cluster: cluster.clone(),
        identity: None,
        target: Target {
            title: "nothing ü".to_owned(),
            parts: Vec::new(),
            only: None,
        },
        policy: Policy::default(),
        baseline: Value::Null,
        topology: stagger_core::model::Topology::default(),
    }))
}

/// What is told, without what differs between stores.
fn told<T: Debug>(answer: Result<T, StoreError>) -> String {
    match answer {
        Ok(value) => format!("{value:?}"),
        Err(StoreError::FencedOut {
            cluster,
            ours,
            newest,
        }) => format!("{cluster} fenced out: {ours}, {newest}"),
        Err(StoreError::MovedOn { run, expected, found }) => format!("{run} moved on: {expected}, {found}"),
        Err(StoreError::NoRun(run)) => format!("no {run}"),
        Err(_) => "failed".to_owned(),
    }
}

/// Asks, and says what was answered. `memory` knows which tokens and places are right.
async fn ask(store: &mut dyn JournalStore, asked: &Asked, memory: &Memory, now: i64) -> String {
    let at = Timestamp::from_second(1_000_000_000 + now).unwrap();
    let fence = |of: &ClusterName, by: i8| moved(memory.newest(of), by);
    let of_run = |of: &RunId| {
        let place = memory.place(of).ok()?;
        Some(&memory.runs[place])
    };
    match asked {
        Asked::Fence(c) => told(store.fence(&cluster(*c)).await),
        Asked::Raise(c, by) => told(
            store
                .raise(&cluster(*c), fence(&cluster(*c), *by), "holder")
                .await,
        ),
        Asked::Begin(c, r, by) => {
            let (cluster, run) = (cluster(*c), run(*r));
            told(
                store
                    .begin(&cluster, fence(&cluster, *by), at, start(&cluster, &run))
                    .await,
            )
        }
        Asked::Append(r, by, from, count) => {
            let run = run(*r);
            let (token, after) = of_run(&run).map_or((1, 1), |(listed, entries)| {
                (fence(&listed.cluster, *by), moved(entries.len() as u64, *from))
            });
            let event = |nth: u8| Event::Held {
                reason: Reason::new(Code::Paused, format!("{nth} \"quoted\" ü\n")),
            };
            told(
                store
                    .append(&run, token, after, at, (0..*count).map(event).collect())
                    .await,
            )
        }
        Asked::Journal(r) => told(store.journal(&run(*r)).await),
        Asked::Runs => told(store.runs().await),
        Asked::Ask(r, pause) => {
            let command = if *pause { Command::Pause } else { Command::Abort };
            told(store.ask(&run(*r), at, &command, "anna@ops1").await)
        }
        Asked::Commands(r) => {
            let asked = store.pending_commands(&run(*r)).await;
            told(asked.map(|all| {
                all.into_iter()
                    .map(|(_, what, by)| (what, by))
                    .collect::<Vec<_>>()
            }))
        }
        Asked::Taken(r, count) => {
            let run = run(*r);
            let open = store.pending_commands(&run).await.unwrap();
            match open.get(usize::from(*count)).or(open.last()) {
                Some((id, ..)) => told(store.acknowledge_commands(&run, *id).await),
                None => String::new(),
            }
        }
        Asked::Reopen => String::new(),
    }
}

/// Holds a store to what lists in memory answer.
async fn conform<S: JournalStore>(open: impl AsyncFn() -> S, all: &[Asked]) -> Result<(), TestCaseError> {
    let mut memory = Memory::default();
    let mut store = open().await;
    for (now, asked) in (0_i64..).zip(all) {
        if matches!(asked, Asked::Reopen) {
            store = open().await;
        }
        let knows = Memory {
            clusters: memory.clusters.clone(),
            runs: memory.runs.clone(),
            asked: Vec::new(),
        };
        let theirs = ask(&mut store, asked, &knows, now).await;
        let ours = ask(&mut memory, asked, &knows, now).await;
        prop_assert_eq!(theirs, ours, "{:?}", asked);
    }
    Ok(())
}

fn hold(cases: u32, mut case: impl FnMut(&[Asked]) -> Result<(), TestCaseError>) {
    let all = proptest::collection::vec(any_asked(), 1..60);
    let mut runner = TestRunner::new(Config {
        cases,
        failure_persistence: None,
        ..Config::default()
    });
    let case = std::cell::RefCell::new(&mut case);
    runner
        .run(&all, |all| {
            let mut case = case.borrow_mut();
            (*case)(&all)
        })
        .unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn a_file_answers_as_memory_does() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    hold(200, |all| {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal.db");
        runtime.block_on(conform(async || SqliteStore::open(&path).unwrap(), all))
    });
}

fn claim(incarnation: &str) -> LockRecord {
    LockRecord {
        incarnation: incarnation.to_owned(),
        run: run(1),
        host: "h".to_owned(),
        process: 1,
        since: Timestamp::UNIX_EPOCH,
        life: None,
    }
}

async fn one_has_it_at_a_time(locks: &dyn Locks) {
    let (c, other) = (cluster(0), cluster(1));
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

#[tokio::test]
async fn a_lock_in_a_file_has_one_holder() {
    let folder = tempfile::tempdir().unwrap();
    let locks = SqliteLocks::open(&folder.path().join("journal.db")).unwrap();
    one_has_it_at_a_time(&locks).await;
}

async fn journal_of(path: &std::path::Path) -> Vec<Entry> {
    let store = SqliteStore::open(path).unwrap();
    let runs = store.runs().await.unwrap();
    store.journal(&runs[0].run).await.unwrap()
}

/// `journal-of-revision-1.db` was written by a build of before there were versions, and is read, and written to, by both.
#[tokio::test]
async fn what_earlier_builds_stored_is_read_and_gets_its_versions() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal.db");
    let fixture = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/tests/fixtures/journal-of-revision-1.db"
    );
    std::fs::copy(fixture, &path).unwrap();
    let place = StoreLocation::File(path.clone());
    let before = place.inspect().await.unwrap();
    assert_eq!(before.revision().await.unwrap(), 1);
    before.close().await;
    assert_eq!(place.upgrade().await.unwrap(), 1);
    assert_eq!(place.upgrade().await.unwrap(), place.newest());

    let entries = journal_of(&path).await;
    assert_eq!(entries.len(), 251);
    let replayed = stagger_core::run::Run::replay(entries.clone()).unwrap().unwrap();
    assert!(replayed.held().is_some());
    let asked = place
        .open()
        .await
        .unwrap()
        .pending_commands(&replayed.start().run)
        .await
        .unwrap();
    assert!(
        matches!(&asked[..], [(1, Command::Pause, by)] if by.starts_with("anna@")),
        "{asked:?}"
    );

    let raw = rusqlite::Connection::open(&path).unwrap();
    let layout: i64 = raw
        .query_row("pragma user_version", [], |row| row.get(0))
        .unwrap();
    assert_eq!(layout, 1, "builds that know no more than that work on");
    let refused = |statement: &str| raw.execute(statement, []).unwrap_err().to_string();
    assert!(refused("update journal set body = '{}' where seq = 2").contains("append-only"));
    assert!(refused("delete from journal").contains("append-only"));

    let database = place.inspect().await.unwrap();
    let without: u64 = database
        .versions()
        .await
        .unwrap()
        .iter()
        .map(|counted| {
            assert_eq!(counted.count.version, None);
            counted.count.readable.clone().unwrap();
            counted.count.rows
        })
        .sum();
    assert!(without > entries.len() as u64);
    let left = database.remaining_rows().await.unwrap();
    assert_eq!(left.iter().map(|(_, left)| left).sum::<u64>(), without);
    let some = Limits {
        max_count: std::num::NonZeroU64::new(7),
        batch: std::num::NonZeroU64::new(3).unwrap(),
    };
    let report = database.migrate(some, |_| {}).await.unwrap();
    assert_eq!((report.each[0].done, report.end.code()), (7, 6));
    assert_eq!(journal_of(&path).await, entries, "half of it migrated");
    let report = database.migrate(Limits::default(), |_| {}).await.unwrap();
    assert_eq!(report.end.code(), 0);
    assert!(
        database
            .versions()
            .await
            .unwrap()
            .iter()
            .all(|counted| counted.count.version.as_deref() == Some("1.0"))
    );
    assert_eq!(journal_of(&path).await, entries);
    assert!(refused("update journal set version = '1.9' where seq = 2").contains("append-only"));

    // What an earlier build does with the same file meanwhile: what it makes is there, and it knows of no versions.
    raw.execute_batch(
        "create table if not exists run (id text primary key);
         create trigger if not exists journal_is_append_only_1 before update on journal
           begin select raise(abort, 'the journal is append-only'); end;
         insert into asked (run, at, body, by)
           values ('sim-no-way-back', '2026-11-22T12:00:00Z', '{\"command\":\"resume\"}', 'anna@ops1');",
    )
    .unwrap();
    let asked = place
        .open()
        .await
        .unwrap()
        .pending_commands(&replayed.start().run)
        .await
        .unwrap();
    assert_eq!(asked[1].1, Command::Resume);
    let report = database.migrate(Limits::default(), |_| {}).await.unwrap();
    assert_eq!((report.each[2].done, report.end.code()), (1, 0));
    database.close().await;
}

/// A later release wrote a row: it is named, and hides no other run.
#[tokio::test]
async fn a_row_from_the_future_is_named_and_the_rest_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal.db");
    let mut store = SqliteStore::open(&path).unwrap();
    let c = cluster(0);
    store.raise(&c, 1, "a").await.unwrap();
    for nth in 0..2 {
        let at = Timestamp::from_second(nth.into()).unwrap();
        store.begin(&c, 1, at, start(&c, &run(nth))).await.unwrap();
    }
    let raw = rusqlite::Connection::open(&path).unwrap();
    raw.execute_batch(
        "drop trigger journal_is_append_only_3; update journal set version = '1.7' where run = 'r1';
         update run set version = '1.7' where id = 'r1';",
    )
    .unwrap();
    let listed: Vec<_> = store
        .runs()
        .await
        .unwrap()
        .into_iter()
        .map(|listed| listed.run)
        .collect();
    assert_eq!(listed, [run(1), run(0)]);
    assert_eq!(store.journal(&run(0)).await.unwrap().len(), 1);
    let error = store.journal(&run(1)).await.unwrap_err().to_string();
    assert_eq!(
        error,
        "event 1 of run r1 cannot be read by this release: event 1.7 comes from a later release: this code knows event up to 1.0"
    );
}

/// A schema of a later release is refused by what it serves, not by its number.
#[tokio::test]
async fn a_later_schema_is_worked_on_if_it_serves_this_program() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal.db");
    drop(SqliteStore::open(&path).unwrap());
    let raw = rusqlite::Connection::open(&path).unwrap();
    raw.execute_batch("update schema_revision set revision = 99; alter table run add column later text;")
        .unwrap();
    SqliteStore::open(&path).unwrap().runs().await.unwrap();
    raw.pragma_update(None, "user_version", 99).unwrap();
    let error = SqliteStore::open(&path).unwrap_err();
    assert!(matches!(error, StoreError::OtherSchema { .. }), "{error}");
    assert!(
        error.to_string().contains("needs programs that know revision 99"),
        "{error}"
    );
}

fn in_runtime<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(8)
        .enable_all()
        .build()
        .unwrap()
        .block_on(future)
}

/// An address with a schema of its own on that server, made and brought up.
async fn address(server: &Server) -> DatabaseAddress {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let schema = format!("s{}", NEXT.fetch_add(1, Ordering::Relaxed));
    let url = server.url("postgres");
    let mut pool = PgPool::connect(&url).await;
    for _ in 0..100 {
        if pool.is_ok() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
        pool = PgPool::connect(&url).await;
    }
    let pool = pool.unwrap();
    sqlx::raw_sql(AssertSqlSafe(format!("create schema {schema}")))
        .execute(&pool)
        .await
        .unwrap();
    pool.close().await;
    DatabaseAddress::new(&format!("{url}&options[search_path]={schema}"), None).unwrap()
}

async fn raw(address: &DatabaseAddress, sql: &'static str) -> Result<u64, String> {
    let pool = PgPool::connect(&address.to_string()).await.unwrap();
    let done = sqlx::raw_sql(sql).execute(&pool).await;
    pool.close().await;
    done.map(|done| done.rows_affected())
        .map_err(|error| error.to_string())
}

/// `cargo test -p stagger-engine --test stores -- --ignored` runs it where PostgreSQL is installed.
#[test]
#[ignore = "needs PostgreSQL: `cargo xtask test` brings one along, else STAGGER_TEST_POSTGRES or /usr/lib/postgresql"]
fn postgres_answers_as_memory_does() {
    let server = Server::start();
    hold(60, |all| {
        in_runtime(async {
            let address = address(&server).await;
            postgres::upgrade(&address).await.unwrap();
            conform(async || PostgresStore::open(&address).await.unwrap(), all).await
        })
    });
}

#[test]
#[ignore = "needs PostgreSQL: `cargo xtask test` brings one along, else STAGGER_TEST_POSTGRES or /usr/lib/postgresql"]
fn the_schema_of_postgres_is_made_once_and_guards_itself() {
    let server = Server::start();
    in_runtime(async {
        let address = address(&server).await;
        let error = PostgresStore::open(&address).await.unwrap_err();
        assert!(
            error
                .to_string()
                .contains("it has no schema yet: run `stagger db upgrade`"),
            "{error}"
        );
        let both = tokio::join!(postgres::upgrade(&address), postgres::upgrade(&address));
        let mut was = [both.0.unwrap(), both.1.unwrap()];
        was.sort_unstable();
        let newest = StoreLocation::Server(address.clone()).newest();
        assert_eq!(was, [0, newest], "two at once: one makes it");
        let locks = PostgresLocks::new(&address).unwrap();
        one_has_it_at_a_time(&locks).await;

        let mut store = PostgresStore::open(&address).await.unwrap();
        let c = cluster(0);
        store.raise(&c, 1, "a").await.unwrap();
        store
            .begin(&c, 1, Timestamp::UNIX_EPOCH, start(&c, &run(0)))
            .await
            .unwrap();
        for (sql, why) in [
            ("update journal set body = '{}'", "append-only"),
            ("delete from journal", "append-only"),
            ("truncate journal", "append-only"),
            ("update journal set version = '1.9'", "append-only"),
            (
                "insert into journal select cluster, run, 2, 0, at, version, body, hash from journal",
                "fenced out",
            ),
        ] {
            let error = raw(&address, sql).await.unwrap_err();
            assert!(error.contains(why), "{sql}: {error}");
        }
        let place = StoreLocation::Server(address.clone());
        let database = place.inspect().await.unwrap();
        assert_eq!(database.revision().await.unwrap(), place.newest());
        assert_eq!(database.versions().await.unwrap().len(), 2);
        database.close().await;
        raw(
            &address,
            "update schema_revision set revision = 9, serves_from = 9",
        )
        .await
        .unwrap();
        let error = PostgresStore::open(&address).await.unwrap_err();
        assert!(
            error.to_string().contains("needs programs that know revision 9"),
            "{error}"
        );
    });
}

/// Eight at once take the lock for an instant, pause for longer than it lasts, and write with tokens that are old.
#[test]
#[ignore = "needs PostgreSQL: `cargo xtask test` brings one along, else STAGGER_TEST_POSTGRES or /usr/lib/postgresql"]
fn whoever_was_overtaken_writes_nothing() {
    let server = Server::start();
    in_runtime(async {
        let address = address(&server).await;
        postgres::upgrade(&address).await.unwrap();
        let (c, r) = (cluster(0), run(0));
        let mut first = PostgresStore::open(&address).await.unwrap();
        first.raise(&c, 1, "first").await.unwrap();
        first
            .begin(&c, 1, Timestamp::UNIX_EPOCH, start(&c, &r))
            .await
            .unwrap();
        let over = Arc::new(AtomicBool::new(false));
        let mut all = Vec::new();
        for nth in 0..8_u64 {
            let (address, over) = (address.clone(), Arc::clone(&over));
            all.push(tokio::spawn(async move { contend(nth, &address, &over).await }));
        }
        tokio::time::sleep(Duration::from_secs(8)).await;
        over.store(true, Ordering::Relaxed);
        let (mut tokens, mut refused) = (Vec::new(), 0);
        for one in all {
            let (taken, old) = one.await.unwrap();
            tokens.extend(taken);
            refused += old;
        }
        let takeovers = tokens.len();
        tokens.sort_unstable();
        tokens.dedup();
        assert_eq!(tokens.len(), takeovers, "no token twice");
        assert!(
            takeovers > 20 && refused > 5,
            "{takeovers} takeovers, {refused} refused"
        );
        // Gapless, with every checksum right.
        let journal = PostgresStore::open(&address)
            .await
            .unwrap()
            .journal(&r)
            .await
            .unwrap();
        assert!(journal.len() > 100, "{} events", journal.len());
        let pool = PgPool::connect(&address.to_string()).await.unwrap();
        let fences: Vec<i64> = sqlx::query_scalar("select fence from journal order by seq")
            .fetch_all(&pool)
            .await
            .unwrap();
        assert!(fences.is_sorted(), "a token went back");
        pool.close().await;
    });
}

/// The tokens that it got, and how many writes with an old one were refused.
async fn contend(nth: u64, address: &DatabaseAddress, over: &AtomicBool) -> (Vec<u64>, u32) {
    let (c, r) = (cluster(0), run(0));
    let locks = PostgresLocks::new(address).unwrap();
    let mut store = PostgresStore::open(address).await.unwrap();
    let (mut tokens, mut refused) = (Vec::new(), 0);
    let expires = Duration::from_millis(30);
    let mut chance = nth * 7919 + 1;
    let mut draw = |below: u64| {
        chance = chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (chance >> 33) % below
    };
    while !over.load(Ordering::Relaxed) {
        let claim = claim(&format!("{nth}-{}", tokens.len()));
        let at_least = store.fence(&c).await.unwrap();
        let Ok(fence) = locks.lock(&c, &claim, at_least, expires).await else {
            tokio::time::sleep(Duration::from_millis(draw(10))).await;
            continue;
        };
        tokens.push(fence);
        if draw(4) == 0 {
            tokio::time::sleep(expires * 2).await;
        }
        match store.raise(&c, fence, "contender").await {
            Ok(()) => {}
            Err(StoreError::FencedOut { .. }) => {
                refused += 1;
                continue;
            }
            Err(error) => panic!("{error}"),
        }
        let mut seq = store.journal(&r).await.unwrap().len() as u64;
        let begun = Instant::now();
        for _ in 0..draw(12) {
            let event = Event::LeaseTaken {
                fence,
                holder: format!("{nth} after {:?}", begun.elapsed()),
            };
            match store.append(&r, fence, seq, Timestamp::now(), vec![event]).await {
                Ok(entries) => seq += entries.len() as u64,
                Err(StoreError::FencedOut { .. }) => {
                    refused += 1;
                    break;
                }
                // Another wrote with this token: nobody else has it.
                Err(error) => panic!("{error}"),
            }
            if draw(10) == 0 {
                tokio::time::sleep(expires * 2).await;
            }
        }
    }
    (tokens, refused)
}
