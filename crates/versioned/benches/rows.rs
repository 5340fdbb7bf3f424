//! What batches cost: rows brought up by one statement, by batches of it, and one by one, beside each other.
//!
//! `cargo run --release -p stagger-versioned --features store --example rows -- 1000000 sqlite:///tmp/rows.sqlite?mode=rwc`.
//! The goal: batches at least half as fast as the single statement. The table `stagger_rows` is dropped first.
#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "an example prints, and may panic"
)]

use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Instant;

use serde::{Deserialize, Serialize};
use sqlx::AssertSqlSafe;
use stagger_versioned::store::migrate::{Limits, Migrations};
use stagger_versioned::store::{Connect, Engine, Kind, Objects, RaiseRows, Store, Table, Update};
use stagger_versioned::{Chain, Declared, Follows, Manifest, Pin, Version, Versioned};

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
    let json = match store.engine() {
        Engine::Sqlite => "TEXT",
        Engine::Postgres => "JSONB",
    };
    sql(store, "DROP TABLE IF EXISTS stagger_rows").await;
    let columns = format!("id BIGINT PRIMARY KEY, extra {json}, fake {json}, version VARCHAR(15)");
    sql(store, &format!("CREATE TABLE stagger_rows ({columns})")).await;
    let numbers = format!("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {rows})");
    let value = format!("CAST('{{\"rack\": \"r7\", \"row\": 3}}' AS {json})");
    sql(
        store,
        &format!("INSERT INTO stagger_rows (id, extra) {numbers} SELECT i, {value} FROM n"),
    )
    .await;
}

fn told(what: &str, rows: u64, begun: Instant, of: Option<f64>) -> f64 {
    let seconds = begun.elapsed().as_secs_f64();
    let speed = rows as f64 / seconds;
    let ratio = of
        .map(|of| format!("   {:.2} of the single statement", speed / of))
        .unwrap_or_default();
    println!("{what:24} {rows:>9} rows {seconds:>8.2} s {speed:>10.0} rows/s{ratio}");
    speed
}

fn main() {
    let mut words = std::env::args().skip(1);
    let rows: u64 = words.next().unwrap_or("100000".to_owned()).parse().unwrap();
    let url = words
        .next()
        .unwrap_or("sqlite:///tmp/stagger-rows.sqlite?mode=rwc".to_owned());
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let store = Store::connect(&url, Connect::default()).await.unwrap();
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
            batch: NonZeroU64::new(5000).unwrap(),
            ..Limits::default()
        };

        filled(&store, rows).await;
        let begun = Instant::now();
        sql(&store, &format!("UPDATE stagger_rows SET {SET} WHERE {PENDING}")).await;
        let single = told("one statement", rows, begun, None);

        filled(&store, rows).await;
        let batches = Migrations::new()
            .then(Update::new("rows", table.clone(), PENDING, SET))
            .unwrap();
        let begun = Instant::now();
        let report = batches.run(&store, &pin, limits, |_| {}).await.unwrap();
        told("batches of 5000", report.each[0].done, begun, Some(single));

        let few = rows / 10;
        filled(&store, few).await;
        let each = RaiseRows::new("rows", Objects::new(table, Arc::new(chain)), &pin);
        let each = Migrations::new().then(each).unwrap();
        let begun = Instant::now();
        let report = each.run(&store, &pin, limits, |_| {}).await.unwrap();
        told("read, converted, saved", report.each[0].done, begun, Some(single));
        store.close().await;
    });
}
