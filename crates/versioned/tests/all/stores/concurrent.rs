//! Rows written by several at once: nothing that was written is lost.

use super::*;

/// A pinned writer read the row before an unpinned one brought it up: its write would be of the old version.
pub(super) async fn a_row_that_changed_since_it_was_read_is_not_overwritten(store: &Store) {
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
    let error = objects
        .save(store, &mut pinned, &pin("newton"))
        .await
        .unwrap_err();
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
        objects.save(store, &mut second, &pin("")).await,
        Err(StoreError::Conflict { .. })
    ));
}

/// A conversion is made of what stood in the row. Where there is no revision, a pinned service that wrote it meanwhile has
/// left its version as it was, and its write must not be lost all the same.
pub(super) async fn a_conversion_overwrites_nothing_that_was_written_meanwhile(store: &Store) {
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
    let error = objects.save(store, &mut unpinned, &pin("")).await.unwrap_err();
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
        objects.save(store, &mut late, &pin("")).await,
        Err(StoreError::Conflict { .. })
    ));
    old_row(store, "n2", Some("1.14")).await;
    let mut gone = objects.get(store, &key("n2")).await.unwrap().unwrap();
    assert!(objects.delete(store, &key("n2")).await.unwrap());
    assert!(matches!(
        objects.save(store, &mut gone, &pin("")).await,
        Err(StoreError::Gone { .. })
    ));
}

/// A service is in the middle of writing a row when its batch comes to it. The batch does the others first, then waits.
pub(super) async fn a_batch_waits_for_who_writes_a_row(store: &Store) {
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
        if store.engine() == Engine::Sqlite {
            tokio::time::sleep(Duration::from_millis(100)).await;
        } else {
            // Whoever waits for somebody would keep others waiting for what it has done already.
            while version_of(store, "n2").await.as_deref() != Some("1.15") {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
        assert!(!migrating.is_finished());
        writing.commit().await.unwrap();
        assert_eq!(migrating.await.unwrap(), (3, 0, 0), "{way}");
        let node = new_nodes().get(store, &key("n1")).await.unwrap().unwrap();
        assert_eq!(node.held.value.labels["rack"], "r8", "{way}");
    }
}

/// A transaction of the caller's: both rows or none. What is refused within it leaves it as it was.
pub(super) async fn two_objects_are_written_together_or_not_at_all(store: &Store) {
    let (nodes, settings) = (new_nodes(), settings());
    let setting = |node: i64| Setting1_1 {
        node,
        name: "boot".to_owned(),
        on: Some(true),
        share: 0.5,
    };
    let free = pin("");
    for committed in [false, true] {
        let mut transaction = store.begin().await.unwrap();
        nodes
            .create(&mut transaction, &Held::new(full()), &free)
            .await
            .unwrap();
        let again = nodes.create(&mut transaction, &Held::new(full()), &free).await;
        assert!(matches!(again, Err(StoreError::Taken { .. })), "{again:?}");
        settings
            .create(&mut transaction, &Held::new(setting(1)), &free)
            .await
            .unwrap();
        let mut node = nodes.lock(&mut transaction, &key("n1")).await.unwrap().unwrap();
        node.held.value.notes.description = Some("both".to_owned());
        nodes.save(&mut transaction, &mut node, &free).await.unwrap();
        if committed {
            transaction.commit().await.unwrap();
        } else {
            transaction.rollback().await.unwrap();
        }
        let there = nodes.get(store, &key("n1")).await.unwrap();
        assert_eq!(there.is_some(), committed);
        assert_eq!(
            settings.list(store, None, 9).await.unwrap().len(),
            usize::from(committed)
        );
    }
    // A conversion that has to see the whole row does so within the transaction too.
    let plain = Objects::new(table_without_revision(), Arc::new(crate::ironic::nodes()));
    old_row(store, "n2", Some("1.14")).await;
    let mut transaction = store.begin().await.unwrap();
    let n2 = key("n2");
    let changed = plain.change(&mut transaction, &n2, &free, |node| node.facts.clear());
    changed.await.unwrap();
    assert!(plain.delete(&mut transaction, &key("n1")).await.unwrap());
    assert_eq!(plain.versions(&mut transaction).await.unwrap().len(), 1);
    transaction.commit().await.unwrap();
    assert_eq!(version_of(store, "n2").await.as_deref(), Some("1.16"));
    assert!(plain.get(store, &key("n1")).await.unwrap().is_none());
    // A connection is one too.
    let mut connection = store.pool().acquire().await.unwrap();
    assert!(plain.get(&mut connection, &n2).await.unwrap().is_some());
}

/// Two transactions, each with the row that the other one wants next.
pub(super) async fn of_two_that_wait_for_each_other_one_may_try_again(store: &Store) {
    old_row(store, "n1", Some("1.14")).await;
    old_row(store, "n2", Some("1.14")).await;
    let both = Arc::new(tokio::sync::Barrier::new(2));
    // In SQLite whoever writes is alone, and there is no circle.
    let alone = store.engine() == Engine::Sqlite;
    let take = |first: &'static str, then: &'static str| {
        let (store, both) = (store.clone(), Arc::clone(&both));
        async move {
            let nodes = new_nodes();
            let mut transaction = store.begin().await?;
            nodes.lock(&mut transaction, &key(first)).await?;
            if !alone {
                both.wait().await;
            }
            nodes.lock(&mut transaction, &key(then)).await?;
            transaction.commit().await.unwrap();
            Ok(())
        }
    };
    let (one, other): (Result<(), StoreError>, Result<(), StoreError>) =
        tokio::join!(take("n1", "n2"), take("n2", "n1"));
    let failures: Vec<_> = [one, other].into_iter().filter_map(Result::err).collect();
    assert_eq!(failures.len(), usize::from(!alone), "{failures:?}");
    assert!(failures.iter().all(StoreError::may_pass), "{failures:?}");
}
