//! Rows in a store. Each test runs on SQLite; all of them run on PostgreSQL too, on a server that the test starts.

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
use stagger_versioned::{Chain, Child, Follows, Held, Pin, Version, Versioned};

use crate::ironic::{Node1_14, Node1_15, Node1_16, full, manifest, nodes, nodes_1_14, nodes_1_15};
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

async fn schema(store: &Store) {
    let json = match store.engine() {
        Engine::Sqlite => "TEXT",
        Engine::Postgres => "JSONB",
    };
    sql(
        store,
        &format!(
            "CREATE TABLE nodes (uuid TEXT PRIMARY KEY, extra {json}, fake {json}, description TEXT, facts {json}, \
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
    let text = format!("SELECT CAST(version AS TEXT) FROM nodes WHERE uuid = '{uuid}'");
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

async fn objects_come_and_go(store: &Store) {
    let objects = new_nodes();
    objects.create(store, &Held::new(full()), &pin("")).await.unwrap();
    let again = objects
        .create(store, &Held::new(full()), &pin(""))
        .await
        .unwrap_err();
    assert_eq!(again.to_string(), "nodes has uuid=\"n1\" already");
    let mut stored = objects.get(store, &key("n1")).await.unwrap().unwrap();
    assert_eq!(stored.held.value, full());
    assert!(objects.save(store, &stored, &pin("")).await.unwrap().is_nothing());
    stored.held.value.notes.description = None;
    let write = objects.save(store, &stored, &pin("")).await.unwrap();
    assert_eq!(write.set.keys().collect::<Vec<_>>(), ["notes"]);
    assert_eq!(
        objects.get(store, &key("n1")).await.unwrap().unwrap().held.value,
        stored.held.value
    );
    assert!(objects.get(store, &key("n2")).await.unwrap().is_none());
    let mut late = objects.get(store, &key("n1")).await.unwrap().unwrap();
    assert!(objects.delete(store, &key("n1")).await.unwrap());
    assert!(!objects.delete(store, &key("n1")).await.unwrap());
    late.held.value.notes.description = Some("late".to_owned());
    assert!(matches!(
        objects.save(store, &late, &pin("")).await,
        Err(StoreError::Gone { .. })
    ));
    let error = objects
        .change(store, &key("n1"), &pin(""), |_| {})
        .await
        .unwrap_err();
    assert_eq!(error.to_string(), "nodes has no uuid=\"n1\"");
}

async fn values_of_every_kind_come_back(store: &Store) {
    let objects = settings();
    for (node, on) in [(1, Some(true)), (1 << 30, Some(false)), (-5, None)] {
        let setting = Setting1_1 {
            node,
            name: "it's \"quoted\" ü".to_owned(),
            on,
            share: 0.25,
        };
        objects
            .create(store, &Held::new(setting.clone()), &pin(""))
            .await
            .unwrap();
        let key = [json!(node), json!(setting.name)];
        assert_eq!(
            objects.get(store, &key).await.unwrap().unwrap().held.value,
            setting
        );
    }
    let error = objects.get(store, &[json!(1)]).await.unwrap_err();
    assert_eq!(error.to_string(), "the key of settings has 2 parts, not 1");
    let error = objects.get(store, &[json!("x"), json!("y")]).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "settings.node is Integer, and cannot hold \"x\""
    );
    let few = Table::new(
        "settings",
        &[("node", Kind::Integer), ("name", Kind::Text)],
        &[("on", Kind::Bool)],
    )
    .unwrap();
    let few = Objects::new(few, Arc::new(Chain::<Setting1_0>::first().then::<Setting1_1>()));
    let setting = Setting1_1 {
        node: 9,
        name: "n".to_owned(),
        on: None,
        share: 1.0,
    };
    let error = few
        .create(store, &Held::new(setting), &pin(""))
        .await
        .unwrap_err();
    assert!(
        matches!(&error, StoreError::Table(TableError::NoColumn { field, .. }) if field == "share"),
        "{error}"
    );
}

async fn pages_of_a_list_leave_nothing_out(store: &Store) {
    for node in 1..=3 {
        for name in ["a", "b", "c"] {
            sql(
                store,
                &format!("INSERT INTO settings (node, name, version) VALUES ({node}, '{name}', '1.0')"),
            )
            .await;
        }
    }
    let mut after: Option<Vec<Value>> = None;
    let mut seen = Vec::new();
    loop {
        let page = settings().list(store, after.as_deref(), 2).await.unwrap();
        let Some(last) = page.last() else { break };
        after = Some(last.key.clone());
        seen.extend(page.into_iter().map(|row| {
            let setting = row.object.unwrap().held.value;
            format!("{}{}", setting.node, setting.name)
        }));
    }
    assert_eq!(seen, ["1a", "1b", "1c", "2a", "2b", "2c", "3a", "3b", "3c"]);
}

/// D2 of Ironic, in a store: an old, a pinned and an unpinned service write one row in turns.
async fn a_pinned_writer_keeps_what_an_unpinned_one_saved(store: &Store) {
    let (old, new) = (old_nodes(), new_nodes());
    old_row(store, "n1", Some("1.14")).await;
    new.change(store, &key("n1"), &pin("newton"), |node| {
        node.labels.insert("by".to_owned(), "pinned".to_owned());
    })
    .await
    .unwrap();
    assert_eq!(version_of(store, "n1").await.as_deref(), Some("1.14"));
    let read = old.get(store, &key("n1")).await.unwrap().unwrap().held.value;
    assert_eq!(
        (read.extra["rack"].as_str(), read.extra["by"].as_str()),
        ("r7", "pinned")
    );
    old.change(store, &key("n1"), &pin("newton"), |node| {
        node.description = Some("by old".to_owned());
    })
    .await
    .unwrap();

    new.change(store, &key("n1"), &pin(""), |node| {
        node.traits[0].note = Some("precious".to_owned());
    })
    .await
    .unwrap();
    assert_eq!(version_of(store, "n1").await.as_deref(), Some("1.16"));
    new.change(store, &key("n1"), &pin("newton"), |node| {
        node.notes.description = Some("by pinned".to_owned());
    })
    .await
    .unwrap();
    let read = new.get(store, &key("n1")).await.unwrap().unwrap().held.value;
    assert_eq!(read.traits[0].note.as_deref(), Some("precious"));
    assert_eq!(read.notes.description.as_deref(), Some("by pinned"));
    assert_eq!(read.labels["by"], "pinned");

    // What a pinned service does not know is refused, and nothing is written.
    old_row(store, "n2", Some("1.14")).await;
    let (n2, newton) = (key("n2"), pin("newton"));
    let change = new.change(store, &n2, &newton, |node| {
        node.traits[0].note = Some("new".to_owned());
    });
    let error = change.await.unwrap_err();
    assert!(matches!(error, StoreError::Unsaved(_)), "{error}");
    assert_eq!(version_of(store, "n2").await.as_deref(), Some("1.14"));
}

/// A pinned writer read the row before an unpinned one brought it up: its write would be of the old version.
async fn a_row_that_changed_since_it_was_read_is_not_overwritten(store: &Store) {
    let objects = Objects::new(table_without_revision(), Arc::new(nodes()));
    old_row(store, "n1", Some("1.14")).await;
    let mut pinned = objects.get(store, &key("n1")).await.unwrap().unwrap();
    pinned.held.value.labels.clear();
    objects
        .change(store, &key("n1"), &pin(""), |node| {
            node.notes.description = Some("x".to_owned());
        })
        .await
        .unwrap();
    let error = objects.save(store, &pinned, &pin("newton")).await.unwrap_err();
    assert!(
        matches!(error, StoreError::Conflict { .. }) && error.may_pass(),
        "{error}"
    );
    assert_eq!(version_of(store, "n1").await.as_deref(), Some("1.16"));

    // With a revision that holds for any two writes.
    let objects = new_nodes();
    let first = objects.get(store, &key("n1")).await.unwrap().unwrap();
    let mut second = first.clone();
    objects
        .change(store, &key("n1"), &pin(""), |node| {
            node.notes.description = Some("y".to_owned());
        })
        .await
        .unwrap();
    second.held.value.notes.description = Some("z".to_owned());
    assert!(matches!(
        objects.save(store, &second, &pin("")).await,
        Err(StoreError::Conflict { .. })
    ));
}

/// A conversion is made of what stood in the row. Where there is no revision, a pinned service that wrote it meanwhile has
/// left its version as it was, and its write must not be lost all the same.
async fn a_conversion_overwrites_nothing_that_was_written_meanwhile(store: &Store) {
    let objects = Objects::new(table_without_revision(), Arc::new(nodes()));
    old_row(store, "n1", Some("1.14")).await;
    let mut unpinned = objects.get(store, &key("n1")).await.unwrap().unwrap();
    unpinned.held.value.notes.description = Some("x".to_owned());
    let (n1, free, newton) = (key("n1"), pin(""), pin("newton"));
    let by_pinned = objects.change(store, &n1, &newton, |node| {
        node.labels.insert("by".to_owned(), "pinned".to_owned());
    });
    by_pinned.await.unwrap();
    assert_eq!(version_of(store, "n1").await.as_deref(), Some("1.14"));
    let error = objects.save(store, &unpinned, &pin("")).await.unwrap_err();
    assert!(matches!(error, StoreError::Conflict { .. }), "{error}");
    let again = objects.change(store, &n1, &free, |node| {
        node.notes.description = Some("x".to_owned());
    });
    again.await.unwrap();
    let node = objects.get(store, &key("n1")).await.unwrap().unwrap().held.value;
    assert_eq!(version_of(store, "n1").await.as_deref(), Some("1.16"));
    assert_eq!(
        (node.labels["by"].as_str(), node.notes.description.as_deref()),
        ("pinned", Some("x"))
    );
    let mut late = objects.get(store, &key("n1")).await.unwrap().unwrap();
    sql(store, "UPDATE nodes SET version = '1.14' WHERE uuid = 'n1'").await;
    late.held.value.notes.description = None;
    assert!(matches!(
        objects.save(store, &late, &pin("")).await,
        Err(StoreError::Conflict { .. })
    ));
    old_row(store, "n2", Some("1.14")).await;
    let gone = objects.get(store, &key("n2")).await.unwrap().unwrap();
    assert!(objects.delete(store, &key("n2")).await.unwrap());
    assert!(matches!(
        objects.save(store, &gone, &pin("")).await,
        Err(StoreError::Gone { .. })
    ));
}

/// A service is in the middle of writing a row when its batch comes to it. The batch does the others first, then waits.
async fn a_batch_waits_for_who_writes_a_row(store: &Store) {
    for way in ["read and saved", "one statement"] {
        sql(store, "DELETE FROM nodes").await;
        for at in 0..3 {
            old_row(store, &format!("n{at}"), Some("1.14")).await;
        }
        let mut writing = store.pool().begin().await.unwrap();
        let written = "UPDATE nodes SET extra = '{\"rack\":\"r8\"}' WHERE uuid = 'n1'";
        sqlx::query(written).execute(&mut *writing).await.unwrap();
        let migrating = {
            let store = store.clone();
            tokio::spawn(async move {
                let migrations = if way == "one statement" {
                    Migrations::new().then(Update::new(
                        "nodes",
                        table_without_revision(),
                        "version = '1.14'",
                        "fake = extra, extra = NULL, version = '1.15'",
                    ))
                } else {
                    let objects = Objects::new(table_without_revision(), Arc::new(nodes_1_15()));
                    Migrations::new().then(RaiseRows::new("nodes", objects, &pin("")))
                };
                run(&migrations.unwrap(), &store, limits(None, 2)).await
            })
        };
        if store.engine() == Engine::Postgres {
            // Whoever waits for somebody would keep others waiting for what it has done already.
            while version_of(store, "n2").await.as_deref() != Some("1.15") {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        } else {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        assert!(!migrating.is_finished());
        writing.commit().await.unwrap();
        assert_eq!(migrating.await.unwrap(), (3, 0, 0), "{way}");
        let node = new_nodes().get(store, &key("n1")).await.unwrap().unwrap();
        assert_eq!(node.held.value.labels["rack"], "r8", "{way}");
    }
}

/// The same under load: each row has one writer, pinned, and the migration beside it.
async fn migrated_beside_live_traffic_without_a_revision(store: &Store) {
    const ROWS: usize = 24;
    const WRITERS: usize = 3;
    for at in 0..ROWS {
        old_row(store, &format!("n{at:02}"), Some("1.14")).await;
    }
    let objects = || Objects::new(table_without_revision(), Arc::new(nodes()));
    let stop = Arc::new(AtomicBool::new(false));
    let mut writers = Vec::new();
    for writer in 0..WRITERS {
        let (store, stop, objects) = (store.clone(), Arc::clone(&stop), objects());
        writers.push(tokio::spawn(async move {
            let mut written = 0_u64;
            while !stop.load(Ordering::Relaxed) || written < 10 {
                written += 1;
                for at in (writer..ROWS).step_by(WRITERS) {
                    let count = |node: &mut Node1_16| {
                        node.labels.insert("count".to_owned(), written.to_string());
                    };
                    let uuid = key(&format!("n{at:02}"));
                    let stored = objects.get(&store, &uuid).await.unwrap().unwrap();
                    // What it was told is still there.
                    let count_now = stored.held.value.labels.get("count").cloned();
                    assert_eq!(
                        count_now.unwrap_or_else(|| "0".to_owned()),
                        (written - 1).to_string()
                    );
                    objects
                        .change(&store, &uuid, &pin("newton"), count)
                        .await
                        .unwrap();
                }
            }
        }));
    }
    let rows = RaiseRows::new("nodes", objects(), &pin(""));
    let migrations = Migrations::new().then(rows).unwrap();
    let mut done = 0;
    while done < ROWS as u64 {
        let report = migrations
            .run(store, &pin(""), limits(Some(1), 1), |_| {})
            .await
            .unwrap();
        done += report.each[0].done;
        assert!(matches!(report.end, End::Done | End::More), "{report:?}");
    }
    stop.store(true, Ordering::Relaxed);
    for writer in writers {
        writer.await.unwrap();
    }
}

fn table_without_revision() -> Table {
    let json = ["extra", "fake", "facts", "labels", "notes", "traits"].map(|name| (name, Kind::Json));
    let mut columns = vec![("description", Kind::Text)];
    columns.extend(json);
    Table::new("nodes", &[("uuid", Kind::Text)], &columns).unwrap()
}

/// D5 and D6 of Ironic: one row from the future, or one without a version, and the whole list failed.
async fn rows_that_cannot_be_read_are_named_one_by_one(store: &Store) {
    for (uuid, version) in [
        ("a", Some("1.14")),
        ("b", Some("1.16")),
        ("c", None),
        ("d", Some("soon")),
        ("e", Some("1.2")),
        ("f", Some("1.15")),
    ] {
        old_row(store, uuid, version).await;
    }
    sql(store, "UPDATE nodes SET traits = '5' WHERE uuid = 'a'").await;
    let objects = Objects::new(table(), Arc::new(nodes_1_15()));
    let list = objects.list(store, None, 100).await.unwrap();
    let said: Vec<String> = list
        .iter()
        .map(|row| match &row.object {
            Ok(stored) => format!(
                "{} is {:?}",
                stored.held.value.uuid,
                stored.row().version.map(|v| v.to_string())
            ),
            Err(why) => why.to_string(),
        })
        .collect();
    assert!(
        said[0].starts_with("Node 1.14 cannot be read: invalid type"),
        "{said:#?}"
    );
    assert_eq!(
        said[1..5],
        [
            "Node 1.16 comes from a later release: this code knows Node up to 1.15",
            "c is None",
            "Node has \"soon\" where its version should stand",
            "Node 1.2 is not known here any more; known are 1.13 to 1.15: go through a release that knows it",
        ]
    );
    let error = objects.get(store, &key("b")).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "nodes uuid=\"b\": Node 1.16 comes from a later release: this code knows Node up to 1.15"
    );
    let counts = objects.versions(store).await.unwrap();
    let counts: Vec<(Option<&str>, u64, bool)> = counts
        .iter()
        .map(|count| (count.version.as_deref(), count.rows, count.readable.is_ok()))
        .collect();
    assert_eq!(
        counts,
        [
            (None, 1, true),
            (Some("soon"), 1, false),
            (Some("1.2"), 1, false),
            (Some("1.14"), 1, true),
            (Some("1.15"), 1, true),
            (Some("1.16"), 1, false),
        ]
    );
}

/// D7 of Ironic: nobody could tell "more to do" from an error, and one more call was needed to know that all was done.
async fn batches_are_exact_and_say_when_they_are_done(store: &Store) {
    for at in 0..10 {
        let version = [Some("1.13"), Some("1.14"), None][at % 3];
        old_row(store, &format!("n{at}"), version).await;
    }
    let migrations = raise();
    assert_eq!(migrations.count(store).await.unwrap(), [("nodes".to_owned(), 10)]);
    assert_eq!(run(&migrations, store, limits(Some(3), 2)).await, (3, 7, 6));
    assert_eq!(run(&migrations, store, limits(Some(4), 100)).await, (4, 3, 6));
    // Just enough: it looks whether anything is left, and says so.
    assert_eq!(run(&migrations, store, limits(Some(3), 2)).await, (3, 0, 0));
    assert_eq!(run(&migrations, store, limits(Some(1), 2)).await, (0, 0, 0));
    assert_eq!(run(&migrations, store, limits(None, 2)).await, (0, 0, 0));
    // None had a version, and now all have the newest.
    for at in 0..10 {
        assert_eq!(
            version_of(store, &format!("n{at}")).await.as_deref(),
            Some("1.16")
        );
    }
    let node = new_nodes()
        .get(store, &key("n2"))
        .await
        .unwrap()
        .unwrap()
        .held
        .value;
    assert_eq!(
        (node.labels["rack"].as_str(), node.traits[0].name.as_str()),
        ("r7", "GPU")
    );
}

/// D8 of Ironic: where the key has two parts, a limit of 1 migrated six rows.
async fn a_key_of_several_parts_is_batched_as_exactly(store: &Store) {
    for node in 1..=2 {
        for name in ["a", "b", "c"] {
            sql(
                store,
                &format!("INSERT INTO settings (node, name, version) VALUES ({node}, '{name}', '1.0')"),
            )
            .await;
        }
    }
    let rows = Migrations::new()
        .then(RaiseRows::new("settings", settings(), &pin("")))
        .unwrap();
    assert_eq!(run(&rows, store, limits(Some(1), 50)).await, (1, 5, 6));
    let update = Update::new(
        "settings",
        settings_table(),
        "version IS NULL OR version = '1.0'",
        "share = 0.5, version = '1.1'",
    );
    let update = Migrations::new().then(update).unwrap();
    assert_eq!(run(&update, store, limits(Some(1), 50)).await, (1, 4, 6));
    assert_eq!(run(&update, store, limits(Some(4), 3)).await, (4, 0, 0));
    for row in settings().list(store, None, 10).await.unwrap() {
        let stored = row.object.unwrap();
        assert_eq!(stored.row().version, Some(Version::new(1, 1)));
        assert!((stored.held.value.share - 0.5).abs() < f64::EPSILON);
    }
}

/// Rows that cannot be migrated, among them one from the future. D12 of Ironic: the old tool said there that the online
/// migrations had to be run.
async fn rows_that_cannot_be_migrated_are_named_and_keep_nothing_back(store: &Store) {
    for at in 0..6 {
        old_row(store, &format!("n{at}"), Some("1.14")).await;
    }
    sql(store, "UPDATE nodes SET version = '1.17' WHERE uuid = 'n0'").await;
    sql(store, "UPDATE nodes SET traits = '5' WHERE uuid = 'n3'").await;
    let migrations = raise()
        .then(RaiseRows::new("settings", settings(), &pin("")))
        .unwrap();
    let report = migrations
        .run(store, &pin(""), limits(None, 2), |_| {})
        .await
        .unwrap();
    assert_eq!((report.end, report.end.code()), (End::Stuck, 3));
    // The one after it does not begin.
    assert_eq!(report.each.len(), 1);
    let nodes = &report.each[0];
    assert_eq!((nodes.done, nodes.left, nodes.stuck_rows), (4, 2, 2));
    assert_eq!(
        nodes.stuck[0].to_string(),
        "nodes uuid=\"n0\": Node 1.17 comes from a later release: this code knows Node up to 1.16"
    );
    assert!(
        nodes.stuck[1]
            .to_string()
            .starts_with("nodes uuid=\"n3\": Node 1.14 cannot be read")
    );
    // Within a limit too: rows that are stuck use up nothing of it.
    assert_eq!(run(&raise(), store, limits(Some(1), 1)).await, (0, 2, 3));
    sql(store, "DELETE FROM nodes WHERE uuid IN ('n0', 'n3')").await;
    assert_eq!(run(&migrations, store, limits(None, 2)).await, (0, 0, 0));
}

/// A migration that finds work and never does it, or does more than it was asked for.
struct Odd {
    done: u64,
}

#[async_trait::async_trait]
impl Migration for Odd {
    fn name(&self) -> &'static str {
        "odd"
    }
    async fn left(&self, _: &Store) -> Result<u64, StoreError> {
        Ok(50)
    }
    async fn batch(&self, _: &Store, _: Option<&[Value]>, _: NonZeroU64) -> Result<Batch, StoreError> {
        Ok(Batch {
            done: self.done,
            ..Batch::default()
        })
    }
}

async fn a_migration_that_does_not_come_forward_ends(store: &Store) {
    let idle = Migrations::new().then(Odd { done: 0 }).unwrap();
    let report = idle
        .run(store, &pin(""), Limits::default(), |_| {})
        .await
        .unwrap();
    assert_eq!((report.end, report.end.code()), (End::NoProgress, 3));
    let wild = Migrations::new().then(Odd { done: 7 }).unwrap();
    let error = wild
        .run(store, &pin(""), limits(Some(5), 100), |_| {})
        .await
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "the migration \"odd\" did 7 rows, and was asked for at most 5: this is a bug in it"
    );
    assert_eq!(error.code(), 5);
    assert!(matches!(idle.then(Odd { done: 1 }), Err(Failed::SameName { .. })));
}

async fn nothing_is_migrated_under_a_pin(store: &Store) {
    old_row(store, "n1", Some("1.14")).await;
    let error = raise()
        .run(store, &pin("newton"), Limits::default(), |_| {})
        .await
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "this code is pinned to newton, so services of newton may still work, and they could not read migrated rows: unpin first"
    );
    assert_eq!(error.code(), 1);
    assert_eq!(version_of(store, "n1").await.as_deref(), Some("1.14"));
}

/// Progress is told, and a run that is given up in the middle goes on where it was.
async fn a_run_that_was_ended_goes_on_where_it_was(store: &Store) {
    for at in 0..20 {
        old_row(store, &format!("n{at:02}"), Some("1.13")).await;
    }
    let killed = {
        let store = store.clone();
        tokio::spawn(async move {
            let (migrations, pin) = (raise(), pin(""));
            let ended = migrations.run(&store, &pin, limits(None, 3), |progress| {
                assert_eq!((progress.name, progress.of), ("nodes", 20));
                assert!(progress.done < 6, "killed");
            });
            ended.await.map(drop)
        })
    };
    assert!(killed.await.unwrap_err().is_panic());
    assert_eq!(raise().count(store).await.unwrap(), [("nodes".to_owned(), 14)]);
    assert_eq!(run(&raise(), store, limits(None, 3)).await, (14, 0, 0));
}

/// Services write all the time while rows are brought up: no acknowledged write is lost.
async fn migrated_beside_live_traffic(store: &Store) {
    const ROWS: usize = 40;
    for at in 0..ROWS {
        old_row(store, &format!("n{at:02}"), Some("1.14")).await;
    }
    let stop = Arc::new(AtomicBool::new(false));
    let mut writers = Vec::new();
    for writer in 0..4_usize {
        let (store, stop) = (store.clone(), Arc::clone(&stop));
        writers.push(tokio::spawn(async move {
            // Two are pinned still, two are not.
            let pin = pin(if writer % 2 == 0 { "newton" } else { "" });
            let objects = new_nodes();
            let mut written = vec![0_u64; ROWS];
            let mut at = writer * 7;
            while !stop.load(Ordering::Relaxed) || written.iter().sum::<u64>() < 20 {
                at = (at + 1) % ROWS;
                let name = format!("w{writer}");
                let counted = objects
                    .change(&store, &key(&format!("n{at:02}")), &pin, |node| {
                        let count: u64 = node.labels.get(&name).map_or(0, |count| count.parse().unwrap());
                        node.labels.insert(name.clone(), (count + 1).to_string());
                    })
                    .await
                    .unwrap();
                written[at] += 1;
                assert_eq!(counted.held.value.labels[&name], written[at].to_string());
            }
            written
        }));
    }
    let migrations = raise();
    let mut done = 0;
    loop {
        let report = migrations
            .run(store, &pin(""), limits(Some(5), 3), |_| {})
            .await
            .unwrap();
        done += report.each[0].done;
        match report.end {
            End::Done => break,
            End::More | End::NoProgress => {}
            End::Stuck => panic!("{report:?}"),
        }
    }
    stop.store(true, Ordering::Relaxed);
    let mut written = Vec::new();
    for writer in writers {
        written.push(writer.await.unwrap());
    }
    // Unpinned services brought some up themselves.
    assert!(done <= ROWS as u64);
    for at in 0..ROWS {
        let stored = new_nodes()
            .get(store, &key(&format!("n{at:02}")))
            .await
            .unwrap()
            .unwrap();
        assert_eq!(stored.row().version, Some(Version::new(1, 16)));
        assert_eq!(stored.held.value.labels["rack"], "r7");
        for (writer, written) in written.iter().enumerate() {
            let expected = (written[at] > 0).then(|| written[at].to_string());
            assert_eq!(
                stored.held.value.labels.get(&format!("w{writer}")),
                expected.as_ref()
            );
        }
    }
}

/// One statement does the same as reading and writing every row.
async fn an_update_brings_up_what_reading_would(store: &Store) {
    for at in 0..30 {
        old_row(store, &format!("n{at:02}"), [Some("1.14"), None][at % 2]).await;
    }
    let update = Update::new(
        "nodes",
        table(),
        "version IS NULL OR version IN ('1.13', '1.14')",
        "fake = extra, extra = NULL, version = '1.15'",
    );
    let migrations = Migrations::new().then(update).unwrap();
    assert_eq!(run(&migrations, store, limits(None, 7)).await, (30, 0, 0));
    let objects: Objects<Node1_15> = Objects::new(table(), Arc::new(nodes_1_15()));
    for row in objects.list(store, None, 100).await.unwrap() {
        let node = row.object.unwrap().held.value;
        assert_eq!((node.extra, node.fake["rack"].as_str()), (None, "r7"));
    }
    // A statement that does not make its condition false would be done for ever.
    let wrong = Update::new("again", table(), "version = '1.15'", "description = 'x'");
    let wrong = Migrations::new().then(wrong).unwrap();
    let (done, left, code) = run(&wrong, store, limits(Some(60), 7)).await;
    assert_eq!((done, left, code), (60, 30, 6));
    // Where nobody sets a limit, that is seen after two passes.
    let (_, left, code) = run(&wrong, store, limits(None, 7)).await;
    assert_eq!((left, code), (30, 3));
}

macro_rules! on_each {
    ($($name:ident)*) => {
        mod sqlite {
            $(#[test]
            fn $name() {
                super::on_sqlite(|store| Box::pin(async move { super::$name(&store).await }));
            })*
        }

        /// `cargo test -p stagger-versioned --features store -- --ignored` runs it where PostgreSQL is installed.
        #[test]
        #[ignore = "needs PostgreSQL: STAGGER_TEST_POSTGRES names the folder with its bin/, else /usr/lib/postgresql is looked at"]
        fn all_of_it_on_postgres() {
            let server = Database::start();
            $(server.with(stringify!($name), |store| Box::pin(async move { $name(&store).await }));)*
        }
    };
}

on_each! {
    objects_come_and_go
    values_of_every_kind_come_back
    pages_of_a_list_leave_nothing_out
    a_pinned_writer_keeps_what_an_unpinned_one_saved
    a_row_that_changed_since_it_was_read_is_not_overwritten
    a_conversion_overwrites_nothing_that_was_written_meanwhile
    a_batch_waits_for_who_writes_a_row
    migrated_beside_live_traffic_without_a_revision
    rows_that_cannot_be_read_are_named_one_by_one
    batches_are_exact_and_say_when_they_are_done
    a_key_of_several_parts_is_batched_as_exactly
    rows_that_cannot_be_migrated_are_named_and_keep_nothing_back
    a_migration_that_does_not_come_forward_ends
    nothing_is_migrated_under_a_pin
    a_run_that_was_ended_goes_on_where_it_was
    migrated_beside_live_traffic
    an_update_brings_up_what_reading_would
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
        let connect = Connect {
            wait: Duration::from_secs(30),
            ..Connect::default()
        };
        block_on(async {
            let mut admin = Store::connect(&self.0.url("postgres"), connect).await;
            for _ in 0..100 {
                if admin.is_ok() {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
                admin = Store::connect(&self.0.url("postgres"), connect).await;
            }
            let admin = admin.unwrap();
            let database: String = name.chars().take(60).collect();
            sql(&admin, &format!("CREATE DATABASE {database}")).await;
            let store = Store::connect(&self.0.url(&database), connect).await.unwrap();
            schema(&store).await;
            test(store.clone()).await;
            store.close().await;
            admin.close().await;
        });
    }
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
    assert_eq!(
        connect("mysql://me:secret@host/db").to_string(),
        "\"mysql://me@host/db\" is no store: use sqlite://FILE or postgres://USER@HOST/DATABASE"
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
