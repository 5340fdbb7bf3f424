//! What batches cost: rows brought up by one statement, by batches of it, and one by one, beside each other.
//!
//! `cargo bench -p stagger-versioned --features store --bench rows -- 1000000 20000` does so with so many rows, so many of them in a
//! batch, in SQLite, in a file of its own, and in a PostgreSQL of its own (as the tests start one, but with its usual care for the
//! disk), and prints seconds as JSON;
//! `cargo xtask bench versioned` makes a page of them.
#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a bench prints, and may panic"
)]

use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use sqlx::AssertSqlSafe;
use stagger_versioned::store::migrate::{End, Limits, Migrations};
use stagger_versioned::store::{Connect, Engine, Kind, Objects, RaiseRows, Store, Table, Update};
use stagger_versioned::{Chain, Declared, Follows, Manifest, Pin, Version, Versioned};

#[path = "../tests/all/server.rs"]
#[expect(dead_code, reason = "tests start one that is faster")]
mod server;
use server::Server;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Row1_0 {
    id: i64,
    extra: serde_json::Value,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Row1_1 {
    id: i64,
    extra: Option<serde_json::Value>,
    fake: serde_json::Value,
}

impl Versioned for Row1_0 {
    const NAME: &'static str = "Row";
    const VERSION: Version = Version::new(1, 0);
}

impl Versioned for Row1_1 {
    const NAME: &'static str = "Row";
    const VERSION: Version = Version::new(1, 1);
}

impl Follows for Row1_1 {
    type Before = Row1_0;
    fn up(before: Row1_0) -> Self {
        Self {
            id: before.id,
            extra: None,
            fake: before.extra,
        }
    }
    fn down(&self) -> Row1_0 {
        Row1_0 {
            id: self.id,
            extra: self.fake.clone(),
        }
    }
}

const PENDING: &str = "version IS NULL OR version = '1.0'";
const SET: &str = "fake = extra, extra = NULL, version = '1.1'";

async fn sql(store: &Store, text: &str) {
    sqlx::query(AssertSqlSafe(text))
        .execute(store.pool())
        .await
        .unwrap();
}

async fn filled(store: &Store, rows: u64) {
    let (key, json) = match store.engine() {
        Engine::Sqlite => ("INTEGER", "TEXT"),
        Engine::Postgres => ("BIGINT", "JSONB"),
        #[cfg(feature = "mysql")]
        Engine::Mysql => ("BIGINT", "JSON"),
    };
    sql(store, "DROP TABLE IF EXISTS stagger_rows").await;
    let columns = format!("id {key} PRIMARY KEY, extra {json}, fake {json}, version VARCHAR(15)");
    sql(store, &format!("CREATE TABLE stagger_rows ({columns})")).await;
    let numbers = format!("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {rows})");
    let value = format!("CAST('{{\"rack\": \"r7\", \"row\": 3}}' AS {json})");
    sql(
        store,
        &format!("INSERT INTO stagger_rows (id, extra) {numbers} SELECT i, {value} FROM n"),
    )
    .await;
}

/// What was measured in one database, in seconds.
#[derive(Debug, Serialize)]
struct Measured {
    database: &'static str,
    version: String,
    rows: u64,
    /// How many rows are in one transaction.
    batch: u64,
    /// `UPDATE … WHERE …`, the shortest of several rounds.
    single: f64,
    /// Batches of it, the shortest of as many.
    batches: f64,
    /// Rows that are read, converted and saved one by one, and how long that takes.
    each_rows: u64,
    each: f64,
}

/// How often the table is filled and migrated in each way, in turns.
const ROUNDS: usize = 3;

async fn measured(store: &Store, database: &'static str, rows: u64, batch: NonZeroU64) -> Measured {
    let declared: Declared = serde_json::from_value(serde_json::json!({
        "current": "1.0",
        "release": [{"number": "1.0", "names": ["one"], "date": "2026-01-01", "api": "1.0", "rpc": "1.0",
                     "objects": {"Row": ["1.0", "1.1"]}}],
    }))
    .unwrap();
    let pin = Pin::none(Arc::new(Manifest::new(declared).unwrap()));
    let columns = [("extra", Kind::Json), ("fake", Kind::Json)];
    let table = Table::new("stagger_rows", &[("id", Kind::Integer)], &columns).unwrap();
    let chain: Chain<Row1_1> = Chain::<Row1_0>::first().rows_without_version_are_these().then();
    let limits = Limits {
        batch,
        ..Limits::default()
    };
    let run = async |migrations: &Migrations| {
        let begun = Instant::now();
        let report = migrations.run(store, &pin, limits, |_| {}).await.unwrap();
        let took = begun.elapsed().as_secs_f64();
        assert_eq!(report.end, End::Done);
        (report.each[0].done, took)
    };
    let batches = Migrations::new()
        .then(Update::new("rows", table.clone(), PENDING, SET))
        .unwrap();
    let (mut shortest, mut in_batches) = (f64::MAX, f64::MAX);
    for _ in 0..ROUNDS {
        filled(store, rows).await;
        let begun = Instant::now();
        sql(store, &format!("UPDATE stagger_rows SET {SET} WHERE {PENDING}")).await;
        shortest = shortest.min(begun.elapsed().as_secs_f64());
        filled(store, rows).await;
        let (done, took) = run(&batches).await;
        assert_eq!(done, rows);
        in_batches = in_batches.min(took);
    }
    let few = rows.div_ceil(10);
    filled(store, few).await;
    let each = RaiseRows::new("rows", Objects::new(table, Arc::new(chain)), &pin);
    let (each_rows, each) = run(&Migrations::new().then(each).unwrap()).await;
    let version = match store.engine() {
        Engine::Sqlite => "SELECT sqlite_version()",
        Engine::Postgres => "SELECT current_setting('server_version')",
        #[cfg(feature = "mysql")]
        Engine::Mysql => "SELECT version()",
    };
    let version: String = sqlx::query_scalar(version).fetch_one(store.pool()).await.unwrap();
    Measured {
        database,
        version: version.split(' ').next().unwrap_or_default().to_owned(),
        rows,
        batch: batch.get(),
        single: shortest,
        batches: in_batches,
        each_rows,
        each,
    }
}

/// A server answers a moment after its start.
async fn answering(server: &Server) -> Store {
    for _ in 0..100 {
        if let Ok(store) = Store::connect(&server.url("postgres"), Connect::default()).await {
            return store;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("PostgreSQL does not answer");
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let mut numbers = words.iter().filter_map(|word| word.parse::<NonZeroU64>().ok());
    let rows = numbers.next().map_or(1_000_000, NonZeroU64::get);
    let batch = numbers.next().unwrap_or(NonZeroU64::new(10_000).unwrap());
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite://{}/rows.sqlite?mode=rwc", folder.path().display());
        let store = Store::connect(&url, Connect::default()).await.unwrap();
        let mut told = vec![measured(&store, "SQLite", rows, batch).await];
        store.close().await;
        let server = Server::with(&[]);
        let store = answering(&server).await;
        told.push(measured(&store, "PostgreSQL", rows, batch).await);
        store.close().await;
        println!("{}", serde_json::to_string(&told).unwrap());
    });
}
