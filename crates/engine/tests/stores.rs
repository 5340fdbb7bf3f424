//! Stores in a file and on a server: both have the laws of every store, and what each has beside them.

#![expect(clippy::unwrap_used, reason = "helpers of tests may panic too")]

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use sqlx::AssertSqlSafe;
use sqlx::postgres::PgPool;
use stagger_conformance::lock::{claim, one_has_it_at_a_time};
use stagger_conformance::store::{Damage, StorePlace, has_the_laws, it_answers_as_lists_do, start};
use stagger_core::model::{ClusterName, RunId};
use stagger_core::run::{Command, Entry, Event, Seq};
use stagger_engine::database::StoreLocation;
use stagger_engine::postgres::{self, DatabaseAddress, PostgresLocks, PostgresStore};
use stagger_engine::sqlite::{SqliteLocks, SqliteStore};
use stagger_engine::store::{JournalStore, Locks, StoreError};
use stagger_versioned::store::migrate::Limits;

#[path = "../../versioned/tests/all/server.rs"]
mod server;
use server::Server;

fn cluster(nth: u8) -> ClusterName {
    ClusterName::new(format!("c{nth}")).unwrap()
}

fn run(nth: u8) -> RunId {
    RunId::new(format!("r{nth}")).unwrap()
}

/// A file in a folder of its own.
struct StoreFile(tempfile::TempDir);

impl StoreFile {
    fn path(&self) -> PathBuf {
        self.0.path().join("journal.db")
    }
}

impl StorePlace for StoreFile {
    type Store = SqliteStore;

    async fn open(&self, _: &ClusterName) -> SqliteStore {
        SqliteStore::open(&self.path()).unwrap()
    }

    async fn damage(&self, _: &ClusterName, run: &RunId, seq: Seq, damage: Damage) {
        let raw = rusqlite::Connection::open(self.path()).unwrap();
        raw.execute_batch(
            "drop trigger if exists journal_is_append_only_1; drop trigger if exists journal_is_append_only_2;",
        )
        .unwrap();
        let statement = match damage {
            Damage::Changed => {
                "update journal set body = replace(body, 'x', 'y') where run = ?1 and seq = ?2"
            }
            Damage::Gone => "delete from journal where run = ?1 and seq = ?2",
        };
        let row = (run.as_str(), seq.cast_signed());
        assert_eq!(raw.execute(statement, row).unwrap(), 1);
    }
}

/// A schema on a server.
struct StoreSchema(DatabaseAddress);

impl StoreSchema {
    async fn on(server: &Server) -> Self {
        let address = address(server).await;
        postgres::upgrade(&address).await.unwrap();
        Self(address)
    }
}

impl StorePlace for StoreSchema {
    type Store = PostgresStore;

    async fn open(&self, _: &ClusterName) -> PostgresStore {
        PostgresStore::open(&self.0).await.unwrap()
    }

    async fn damage(&self, _: &ClusterName, run: &RunId, seq: Seq, damage: Damage) {
        let statement = match damage {
            Damage::Changed => {
                "update journal set body = replace(body, 'x', 'y') where run = $1 and seq = $2"
            }
            Damage::Gone => "delete from journal where run = $1 and seq = $2",
        };
        raw(&self.0, "alter table journal disable trigger user")
            .await
            .unwrap();
        let pool = PgPool::connect(&self.0.to_string()).await.unwrap();
        let row = sqlx::query(statement).bind(run.as_str()).bind(seq.cast_signed());
        assert_eq!(row.execute(&pool).await.unwrap().rows_affected(), 1);
        pool.close().await;
    }
}

#[tokio::test]
async fn a_file_has_the_laws_of_every_store() {
    has_the_laws(&StoreFile(tempfile::tempdir().unwrap())).await;
}

#[test]
fn a_file_answers_as_memory_does() {
    it_answers_as_lists_do(200, async || StoreFile(tempfile::tempdir().unwrap()));
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
    it_answers_as_lists_do(60, async || StoreSchema::on(&server).await);
}

#[test]
#[ignore = "needs PostgreSQL: `cargo xtask test` brings one along, else STAGGER_TEST_POSTGRES or /usr/lib/postgresql"]
fn postgres_has_the_laws_of_every_store() {
    let server = Server::start();
    in_runtime(async { has_the_laws(&StoreSchema::on(&server).await).await });
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
