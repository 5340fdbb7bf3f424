//! Online data migrations, beside live traffic too.

use super::*;

/// D7 of Ironic: nobody could tell "more to do" from an error, and one more call was needed to know that all was done.
pub(super) async fn batches_are_exact_and_say_when_they_are_done(store: &Store) {
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
pub(super) async fn a_key_of_several_parts_is_batched_as_exactly(store: &Store) {
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
pub(super) async fn rows_that_cannot_be_migrated_are_named_and_keep_nothing_back(store: &Store) {
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

/// Rows that the database does not take as they would be. One of them is the first of a batch, one the last; those beside
/// them are brought up, and who comes again is told the same.
pub(super) async fn rows_that_the_database_refuses_are_named_and_keep_nothing_back(store: &Store) {
    let (text, json) = match store.engine() {
        Engine::Sqlite => ("TEXT CHECK (length(description) < 9)", "TEXT"),
        Engine::Postgres => ("VARCHAR(8)", "JSONB"),
        #[cfg(feature = "mysql")]
        Engine::Mysql => ("VARCHAR(8)", "JSON"),
    };
    let name = types(store).name;
    let columns = format!(
        "uuid {name} PRIMARY KEY, extra {json}, fake {json}, old TEXT, description {text}, traits {json}, version TEXT"
    );
    sql(
        store,
        &format!("CREATE TABLE short ({columns}, CHECK (fake IS NULL OR uuid <> 'n2'))"),
    )
    .await;
    for at in 0..12 {
        let insert = format!(
            "INSERT INTO short (uuid, extra, description, traits, version) VALUES ('n{at:x}', '{{}}', 'd', '[]', '1.14')"
        );
        sql(store, &insert).await;
    }
    let once = match store.engine() {
        Engine::Sqlite => "CREATE UNIQUE INDEX once ON short (uuid) WHERE fake IS NULL",
        // Looked at when a batch is committed, and not before.
        Engine::Postgres => {
            "ALTER TABLE short ADD CONSTRAINT once EXCLUDE (description WITH =) WHERE (uuid IN ('n5', 'n6') AND fake IS NOT NULL) \
             DEFERRABLE INITIALLY DEFERRED"
        }
        #[cfg(feature = "mysql")]
        Engine::Mysql => "CREATE UNIQUE INDEX once ON short (uuid)",
    };
    sql(store, once).await;
    let columns = [
        ("extra", Kind::Json),
        ("fake", Kind::Json),
        ("description", Kind::Text),
        ("traits", Kind::Json),
    ];
    let table = Table::new("short", &[("uuid", Kind::Text)], &columns).unwrap();
    let objects: Objects<Node1_15> = Objects::new(table, Arc::new(nodes_1_15()));
    let migrations = Migrations::new()
        .then(RaiseRows::new("short", objects.clone(), &pin("")))
        .unwrap();
    let stuck = match store.engine() {
        Engine::Sqlite => vec!["n2"],
        Engine::Postgres => vec!["n2", "n6"],
        #[cfg(feature = "mysql")]
        Engine::Mysql => vec!["n2"],
    };
    for done in [12 - stuck.len() as u64, 0] {
        let report = migrations
            .run(store, &pin(""), limits(None, 3), |_| {})
            .await
            .unwrap();
        assert_eq!((report.end, report.end.code()), (End::Stuck, 3));
        let each = &report.each[0];
        assert_eq!((each.done, each.left), (done, stuck.len() as u64));
        for (one, uuid) in each.stuck.iter().zip(&stuck) {
            assert_eq!(one.row, format!("short uuid=\"{uuid}\""));
            assert!(one.why.starts_with("the database refuses it: "), "{}", one.why);
        }
    }
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
    async fn remaining(&self, _: &Store) -> Result<u64, StoreError> {
        Ok(50)
    }
    async fn batch(&self, _: &Store, _: Option<&[Value]>, _: NonZeroU64) -> Result<Batch, StoreError> {
        Ok(Batch {
            done: self.done,
            ..Batch::default()
        })
    }
}

pub(super) async fn a_migration_that_does_not_come_forward_ends(store: &Store) {
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

pub(super) async fn nothing_is_migrated_under_a_pin(store: &Store) {
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
pub(super) async fn a_run_that_was_ended_goes_on_where_it_was(store: &Store) {
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
pub(super) async fn migrated_beside_live_traffic(store: &Store) {
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
pub(super) async fn an_update_brings_up_what_reading_would(store: &Store) {
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

/// The same under load: each row has one writer, pinned, and the migration beside it.
pub(super) async fn migrated_beside_live_traffic_without_a_revision(store: &Store) {
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

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Cable1_0 {
    id: i64,
    speed: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Cable1_1 {
    id: i64,
    megabits: i64,
}

impl Versioned for Cable1_0 {
    const NAME: &'static str = "Cable";
    const VERSION: Version = Version::new(1, 0);
}

impl Versioned for Cable1_1 {
    const NAME: &'static str = "Cable";
    const VERSION: Version = Version::new(1, 1);
}

impl TryFollows for Cable1_1 {
    type Before = Cable1_0;
    fn try_up(before: Cable1_0) -> Result<Self, ConversionError> {
        let Cable1_0 { id, speed } = before;
        let megabits = speed.parse();
        let megabits = megabits.map_err(|_| ConversionError::new(format!("speed {speed:?} is no number")))?;
        Ok(Self { id, megabits })
    }
    fn try_down(&self) -> Result<Cable1_0, ConversionError> {
        if self.megabits < 0 {
            return Err(ConversionError::new("1.0 takes a negative speed for none"));
        }
        Ok(Cable1_0 {
            id: self.id,
            speed: self.megabits.to_string(),
        })
    }
}

/// Which row, which version, and why; the others are brought up, and one that is repaired is too.
pub(super) async fn rows_that_a_conversion_refuses_are_named_and_keep_nothing_back(store: &Store) {
    sql(
        store,
        "CREATE TABLE cables (id BIGINT PRIMARY KEY, speed VARCHAR(20), megabits BIGINT, version VARCHAR(15))",
    )
    .await;
    for (id, speed) in [(1, "10"), (2, "fast"), (3, "100"), (4, ""), (5, "1000")] {
        let insert = format!("INSERT INTO cables (id, speed, version) VALUES ({id}, '{speed}', '1.0')");
        sql(store, &insert).await;
    }
    let columns = [("speed", Kind::Text), ("megabits", Kind::Integer)];
    let table = Table::new("cables", &[("id", Kind::Integer)], &columns).unwrap();
    let cables = Objects::new(table, Arc::new(Chain::<Cable1_0>::first().then::<Cable1_1>()));
    let migrations = Migrations::new()
        .then(RaiseRows::new("cables", cables.clone(), &pin("")))
        .unwrap();
    for done in [3, 0] {
        let report = migrations
            .run(store, &pin(""), limits(None, 2), |_| {})
            .await
            .unwrap();
        let each = &report.each[0];
        assert_eq!(
            (report.end, each.done, each.left, each.stuck_rows),
            (End::Stuck, done, 2, 2)
        );
        let stuck: Vec<String> = each.stuck.iter().map(ToString::to_string).collect();
        assert_eq!(
            stuck,
            [
                "cables id=2: Cable 1.0 cannot be converted to 1.1: speed \"fast\" is no number",
                "cables id=4: Cable 1.0 cannot be converted to 1.1: speed \"\" is no number",
            ]
        );
    }
    sql(store, "UPDATE cables SET speed = '1' WHERE id IN (2, 4)").await;
    assert_eq!(run(&migrations, store, limits(None, 2)).await, (2, 0, 0));

    // The other way: nothing is written that would mean something else.
    let mut cable = cables.get(store, &[json!(1)]).await.unwrap().unwrap();
    cable.held.value.megabits = -1;
    let refused = cables
        .chain()
        .text(&cable.held.value, Version::new(1, 0))
        .unwrap_err();
    assert_eq!(
        refused.to_string(),
        "Cable 1.1 cannot be converted to 1.0: 1.0 takes a negative speed for none"
    );
    assert_eq!(
        cables.chain().needs(&cable.held.value).unwrap(),
        Version::new(1, 1)
    );
}
