//! Rows in a store. Each test runs on SQLite; all of them run on PostgreSQL and MariaDB too, on servers that the tests start.

mod concurrent;
mod migrations;
mod rows;

use std::future::Future;
use std::num::NonZeroU64;
use std::pin::Pin as Pinned;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sqlx::AssertSqlSafe;
use stagger_versioned::store::migrate::{Batch, End, Failed, Limits, Migration, Migrations};
use stagger_versioned::store::{
    Connect, Engine, Kind, Objects, RaiseRows, Store, StoreError, Table, TableError, Update,
};
use stagger_versioned::{Chain, Child, ConversionError, Follows, Held, Pin, TryFollows, Version, Versioned};

use crate::ironic::{Node1_14, Node1_15, Node1_16, full, manifest, nodes, nodes_1_14, nodes_1_15};
use crate::kept;
use crate::server::Server;

/// A setting of a node, whose key has two parts, as those of a BIOS have.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Setting1_0 {
    node: i64,
    name: String,
    on: Option<bool>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Setting1_1 {
    node: i64,
    name: String,
    on: Option<bool>,
    share: f64,
}

impl Versioned for Setting1_0 {
    const NAME: &'static str = "Setting";
    const VERSION: Version = Version::new(1, 0);
    const CHILDREN: &'static [Child] = &[];
}

impl Versioned for Setting1_1 {
    const NAME: &'static str = "Setting";
    const VERSION: Version = Version::new(1, 1);
}

impl Follows for Setting1_1 {
    type Before = Setting1_0;
    fn up(before: Setting1_0) -> Self {
        Self {
            node: before.node,
            name: before.name,
            on: before.on,
            share: 0.5,
        }
    }
    fn down(&self) -> Setting1_0 {
        Setting1_0 {
            node: self.node,
            name: self.name.clone(),
            on: self.on,
        }
    }
}

fn pin(release: &str) -> Pin {
    Pin::read(manifest(), release).unwrap()
}

pub(crate) fn table() -> Table {
    let json = ["extra", "fake", "facts", "labels", "notes", "traits"].map(|name| (name, Kind::Json));
    let mut columns = vec![("description", Kind::Text)];
    columns.extend(json);
    Table::new("nodes", &[("uuid", Kind::Text)], &columns)
        .unwrap()
        .revision_in("revision")
        .unwrap()
}

pub(crate) fn new_nodes() -> Objects<Node1_16> {
    Objects::new(table(), Arc::new(nodes()))
}

pub(crate) fn old_nodes() -> Objects<Node1_14> {
    Objects::new(table(), Arc::new(nodes_1_14()))
}

fn settings_table() -> Table {
    let key = [("node", Kind::Integer), ("name", Kind::Text)];
    Table::new("settings", &key, &[("on", Kind::Bool), ("share", Kind::Real)]).unwrap()
}

pub(crate) fn settings() -> Objects<Setting1_1> {
    Objects::new(settings_table(), Arc::new(Chain::<Setting1_0>::first().then()))
}

pub(crate) fn key(uuid: &str) -> Vec<Value> {
    vec![json!(uuid)]
}

pub(crate) async fn sql(store: &Store, text: &str) {
    sqlx::query(AssertSqlSafe(text))
        .execute(store.pool())
        .await
        .unwrap();
}

/// What types are called.
struct Types {
    json: &'static str,
    /// A text that may be a key.
    name: &'static str,
    time: &'static str,
    uuid: &'static str,
    bytes: &'static str,
    decimal: &'static str,
}

fn types(store: &Store) -> Types {
    match store.engine() {
        Engine::Sqlite => Types {
            json: "TEXT",
            name: "TEXT",
            time: "TEXT",
            uuid: "TEXT",
            bytes: "BLOB",
            decimal: "TEXT",
        },
        Engine::Postgres => Types {
            json: "JSONB",
            name: "TEXT",
            time: "TIMESTAMPTZ",
            uuid: "UUID",
            bytes: "BYTEA",
            decimal: "NUMERIC(12, 2)",
        },
        #[cfg(feature = "mysql")]
        Engine::Mysql => Types {
            json: "JSON",
            name: "VARCHAR(200)",
            time: "DATETIME(6)",
            uuid: "UUID",
            bytes: "BLOB",
            decimal: "DECIMAL(12, 2)",
        },
    }
}

async fn schema(store: &Store) {
    let Types { json, name, .. } = types(store);
    sql(
        store,
        &format!(
            "CREATE TABLE nodes (uuid {name} PRIMARY KEY, extra {json}, fake {json}, description {name}, facts {json}, \
             labels {json}, notes {json}, traits {json}, version VARCHAR(15), revision BIGINT NOT NULL DEFAULT 0)"
        ),
    )
    .await;
    sql(
        store,
        "CREATE TABLE settings (node INTEGER, name VARCHAR(40), \"on\" BOOLEAN, share DOUBLE PRECISION, version TEXT, \
         PRIMARY KEY (node, name))",
    )
    .await;
}

/// A node as old code stored it, without a version if there is none.
pub(crate) async fn old_row(store: &Store, uuid: &str, version: Option<&str>) {
    let version = version.map_or("NULL".to_owned(), |version| format!("'{version}'"));
    sql(
        store,
        &format!(
            "INSERT INTO nodes (uuid, extra, traits, version) VALUES ('{uuid}', '{{\"rack\":\"r7\"}}', '[{{\"name\":\"GPU\"}}]', {version})"
        ),
    )
    .await;
}

pub(crate) async fn version_of(store: &Store, uuid: &str) -> Option<String> {
    let text = match store.engine() {
        Engine::Sqlite | Engine::Postgres => "TEXT",
        #[cfg(feature = "mysql")]
        Engine::Mysql => "CHAR",
    };
    let text = format!("SELECT CAST(version AS {text}) FROM nodes WHERE uuid = '{uuid}'");
    sqlx::query_scalar(AssertSqlSafe(text))
        .fetch_one(store.pool())
        .await
        .unwrap()
}

pub(crate) fn limits(max_count: Option<u64>, batch: u64) -> Limits {
    Limits {
        max_count: max_count.map(|max| NonZeroU64::new(max).unwrap()),
        batch: NonZeroU64::new(batch).unwrap(),
    }
}

pub(crate) fn raise() -> Migrations {
    Migrations::new()
        .then(RaiseRows::new("nodes", new_nodes(), &pin("")))
        .unwrap()
}

async fn run(migrations: &Migrations, store: &Store, limits: Limits) -> (u64, u64, u8) {
    let report = migrations.run(store, &pin(""), limits, |_| {}).await.unwrap();
    let last = report.each.last().unwrap();
    (last.done, last.left, report.end.code())
}

fn table_without_revision() -> Table {
    let json = ["extra", "fake", "facts", "labels", "notes", "traits"].map(|name| (name, Kind::Json));
    let mut columns = vec![("description", Kind::Text)];
    columns.extend(json);
    Table::new("nodes", &[("uuid", Kind::Text)], &columns).unwrap()
}

macro_rules! on_each {
    ($($group:ident { $($name:ident)* })*) => {
        mod sqlite {
            $($(#[test]
            fn $name() {
                super::on_sqlite(|store| Box::pin(async move { super::$group::$name(&store).await }));
            })*)*
        }

        /// `cargo test -p stagger-versioned --features store -- --ignored` runs it where PostgreSQL is installed.
        #[test]
        #[ignore = "needs PostgreSQL: `cargo xtask test` brings one along, else STAGGER_TEST_POSTGRES or /usr/lib/postgresql"]
        fn all_of_it_on_postgres() {
            let server = Database::start();
            $($(server.with(stringify!($name), |store| Box::pin(async move { $group::$name(&store).await }));)*)*
        }

        /// `cargo test -p stagger-versioned --features mysql -- --ignored` runs it where there is a MariaDB.
        #[cfg(feature = "mysql")]
        #[test]
        #[ignore = "needs MariaDB: a root of Debian with it in STAGGER_TEST_MARIADB, or STAGGER_TEST_POSTGRES if it has both"]
        fn all_of_it_on_mariadb() {
            let server = crate::mariadb::Server::start();
            $($(with(&|database| server.url(database), "mysql", stringify!($name), |store| {
                Box::pin(async move { $group::$name(&store).await })
            });)*)*
        }
    };
}

on_each! {
    rows {
        objects_come_and_go
        values_of_every_kind_come_back
        pages_of_a_list_leave_nothing_out
        a_pinned_writer_keeps_what_an_unpinned_one_saved
        rows_that_cannot_be_read_are_named_one_by_one
        what_was_saved_is_saved_again
        a_field_that_is_left_out_where_it_is_empty_can_be_emptied
        a_key_is_taken_only_if_there_is_a_row_of_it
        times_uuids_bytes_and_decimals_come_back
        statements_of_ones_own_find_objects
    }
    concurrent {
        a_row_that_changed_since_it_was_read_is_not_overwritten
        a_conversion_overwrites_nothing_that_was_written_meanwhile
        a_batch_waits_for_who_writes_a_row
        two_objects_are_written_together_or_not_at_all
        of_two_that_wait_for_each_other_one_may_try_again
    }
    migrations {
        migrated_beside_live_traffic_without_a_revision
        batches_are_exact_and_say_when_they_are_done
        a_key_of_several_parts_is_batched_as_exactly
        rows_that_cannot_be_migrated_are_named_and_keep_nothing_back
        a_migration_that_does_not_come_forward_ends
        nothing_is_migrated_under_a_pin
        a_run_that_was_ended_goes_on_where_it_was
        migrated_beside_live_traffic
        an_update_brings_up_what_reading_would
        rows_that_the_database_refuses_are_named_and_keep_nothing_back
        rows_that_a_conversion_refuses_are_named_and_keep_nothing_back
    }
}

pub(crate) type Test = fn(Store) -> Pinned<Box<dyn Future<Output = ()>>>;

fn block_on<F: Future>(future: F) -> F::Output {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap()
        .block_on(future)
}

pub(crate) fn on_sqlite(test: Test) {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite://{}/store.sqlite?mode=rwc", folder.path().display());
    block_on(async {
        let store = Store::connect(&url, Connect::default()).await.unwrap();
        schema(&store).await;
        test(store.clone()).await;
        store.close().await;
    });
}

/// A server whose databases have the tables of these tests.
pub(crate) struct Database(Server);

impl Database {
    pub(crate) fn start() -> Self {
        Self(Server::start())
    }

    /// A database of its own for each test.
    pub(crate) fn with(&self, name: &str, test: Test) {
        with(&|database| self.0.url(database), "postgres", name, test);
    }
}

/// A database of its own on a server that has one of the name `first`.
fn with(url: &dyn Fn(&str) -> String, first: &str, name: &str, test: Test) {
    let connect = Connect {
        wait: Duration::from_secs(30),
        ..Connect::default()
    };
    block_on(async {
        let mut admin = Store::connect(&url(first), connect).await;
        for _ in 0..300 {
            if admin.is_ok() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
            admin = Store::connect(&url(first), connect).await;
        }
        let admin = admin.unwrap();
        let database: String = name.chars().take(60).collect();
        sql(&admin, &format!("CREATE DATABASE {database}")).await;
        let store = Store::connect(&url(&database), connect).await.unwrap();
        schema(&store).await;
        test(store.clone()).await;
        store.close().await;
        admin.close().await;
    });
}

#[test]
fn what_is_no_store_is_refused_and_what_does_not_answer_is_out_of_reach() {
    let connect = |url: &'static str| {
        let wait = Duration::from_millis(300);
        block_on(async move {
            Store::connect(url, Connect { connections: 1, wait })
                .await
                .unwrap_err()
        })
    };
    let said = connect("oracle://me:secret@host/db").to_string();
    assert!(
        said.starts_with(
            "\"oracle://me@host/db\" is no store: use sqlite://FILE or postgres://USER@HOST/DATABASE"
        ),
        "{said}"
    );
    let error = connect("postgres://me:secret@127.0.0.1:1/db");
    assert_eq!(
        error.to_string(),
        "open postgres://me@127.0.0.1:1/db: the database does not answer"
    );
    let failed = Failed::Store {
        name: "nodes".to_owned(),
        source: error,
    };
    assert_eq!(failed.code(), 4);
    let error = connect("sqlite:///nowhere/at/all.sqlite");
    assert_eq!(
        error.to_string(),
        "open sqlite:///nowhere/at/all.sqlite: the database refuses"
    );
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("notes.txt");
    std::fs::write(
        &file,
        "what is no database, and long enough to look like one's first page".repeat(20),
    )
    .unwrap();
    let wait = Duration::from_millis(300);
    let url = format!("sqlite://{}", file.display());
    let opened = block_on(Store::connect(&url, Connect { connections: 1, wait }));
    let Err(StoreError::Refused { source, .. }) = opened else {
        panic!("{opened:?}")
    };
    assert!(source.to_string().contains("not a database"), "{source}");
}

#[test]
fn release_notes_tell_of_each_migration() {
    assert_eq!(Migrations::new().notes(), "");
    let columns = [("on", Kind::Bool)];
    let table = Table::new("t", &[("id", Kind::Integer)], &columns).unwrap();
    let notes = raise()
        .then(Update::new("on", table, "\"on\" IS NULL", "\"on\" = FALSE"))
        .unwrap()
        .notes();
    let (head, each) = notes.split_once("\n\n").unwrap();
    assert!(head.contains("when no service is pinned any more"), "{head}");
    assert_eq!(
        each,
        "- `nodes`: each row of `nodes` that is not yet Node 1.16 is read, converted and saved\n\
         - `on`: `UPDATE t SET \"on\" = FALSE WHERE \"on\" IS NULL`, in batches"
    );
}

#[test]
fn names_of_tables_are_plain() {
    for name in ["", "a b", "a\"b", "1a", "a;b", "ä"] {
        assert!(
            matches!(Table::new(name, &[], &[]), Err(TableError::Name { .. })),
            "{name}"
        );
        assert!(Table::new("t", &[(name, Kind::Text)], &[]).is_err(), "{name}");
    }
}
