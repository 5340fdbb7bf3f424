//! Rows read and written, by one at a time.

use super::*;

pub(super) async fn objects_come_and_go(store: &Store) {
    let objects = new_nodes();
    objects.create(store, &Held::new(full()), &pin("")).await.unwrap();
    let again = objects
        .create(store, &Held::new(full()), &pin(""))
        .await
        .unwrap_err();
    assert_eq!(again.to_string(), "nodes has uuid=\"n1\" already");
    let mut stored = objects.get(store, &key("n1")).await.unwrap().unwrap();
    assert_eq!(stored.held.value, full());
    assert!(
        objects
            .save(store, &mut stored, &pin(""))
            .await
            .unwrap()
            .is_unchanged()
    );
    stored.held.value.notes.description = None;
    let write = objects.save(store, &mut stored, &pin("")).await.unwrap();
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
        objects.save(store, &mut late, &pin("")).await,
        Err(StoreError::Gone { .. })
    ));
    let error = objects
        .change(store, &key("n1"), &pin(""), |_| {})
        .await
        .unwrap_err();
    assert_eq!(error.to_string(), "nodes has no uuid=\"n1\"");
}

pub(super) async fn values_of_every_kind_come_back(store: &Store) {
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

pub(super) async fn pages_of_a_list_leave_nothing_out(store: &Store) {
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
pub(super) async fn a_pinned_writer_keeps_what_an_unpinned_one_saved(store: &Store) {
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

/// D5 and D6 of Ironic: one row from the future, or one without a version, and the whole list failed.
pub(super) async fn rows_that_cannot_be_read_are_named_one_by_one(store: &Store) {
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
            "Node has \"soon\" where its version should be",
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

/// The row in hand is the one that was written: the next save is measured by it, and is not taken for somebody else's.
pub(super) async fn what_was_saved_is_saved_again(store: &Store) {
    for objects in [
        new_nodes(),
        Objects::new(table_without_revision(), Arc::new(nodes())),
    ] {
        sql(store, "DELETE FROM nodes").await;
        old_row(store, "n1", Some("1.14")).await;
        let mut stored = objects.get(store, &key("n1")).await.unwrap().unwrap();
        let first = stored.held.value.clone();
        for release in ["newton", "newton", "", ""] {
            for state in [Some("deploying"), None] {
                stored.held.value.notes.description = state.map(str::to_owned);
                let write = objects.save(store, &mut stored, &pin(release)).await.unwrap();
                assert!(!write.is_unchanged());
                let read = objects.get(store, &key("n1")).await.unwrap().unwrap();
                assert_eq!(read, stored);
            }
            assert_eq!(stored.held.value, first);
            let nothing = objects.save(store, &mut stored, &pin(release)).await.unwrap();
            assert!(nothing.is_unchanged());
        }
        let (n1, free) = (key("n1"), pin(""));
        let change = objects.change(store, &n1, &free, |node| node.facts.clear());
        let changed = change.await.unwrap();
        assert_eq!(objects.get(store, &n1).await.unwrap().unwrap(), changed);
        // What was not written leaves it as it was.
        sql(store, "UPDATE nodes SET version = '1.15' WHERE uuid = 'n1'").await;
        let before = stored.clone();
        stored.held.value.notes.description = Some("late".to_owned());
        assert!(objects.save(store, &mut stored, &free).await.is_err());
        assert_eq!(
            (stored.row(), stored.held.stored_version()),
            (before.row(), before.held.stored_version())
        );
    }
}

pub(super) async fn a_field_that_is_left_out_where_it_is_empty_can_be_emptied(store: &Store) {
    let Types { json, name, .. } = types(store);
    let columns =
        format!("id {name} PRIMARY KEY, owner TEXT, tags {json}, label TEXT, parts {json}, version TEXT");
    sql(store, &format!("CREATE TABLE racks ({columns})")).await;
    let columns = [
        ("owner", Kind::Text),
        ("tags", Kind::Json),
        ("label", Kind::Text),
        ("parts", Kind::Json),
    ];
    let table = Table::new("racks", &[("id", Kind::Text)], &columns).unwrap();
    let objects = Objects::new(table, Arc::new(kept::racks()));
    let rack = |owner: Option<&str>, tags: &[&str], label: Option<&str>| kept::Rack1_1 {
        id: "r".to_owned(),
        owner: owner.map(str::to_owned),
        tags: tags.iter().map(|tag| (*tag).to_owned()).collect(),
        label: label.map(str::to_owned),
        parts: Vec::new(),
    };
    let free = kept::pin("");
    let full = rack(Some("me"), &["t"], Some("l"));
    objects
        .create(store, &Held::new(full.clone()), &free)
        .await
        .unwrap();
    for now in [
        rack(None, &["t"], Some("l")),
        rack(None, &[], None),
        full,
        rack(None, &[], None),
    ] {
        let mut stored = objects.get(store, &key("r")).await.unwrap().unwrap();
        stored.held.value = now.clone();
        objects.save(store, &mut stored, &free).await.unwrap();
        let read = objects.get(store, &key("r")).await.unwrap().unwrap();
        assert_eq!((&read.held.value, &read), (&now, &stored));
    }
}

/// Who takes "already there" for "already made" must not lose an object of another key.
pub(super) async fn a_key_is_taken_only_if_there_is_a_row_of_it(store: &Store) {
    sql(
        store,
        "CREATE UNIQUE INDEX one_description ON nodes (description)",
    )
    .await;
    let objects = new_nodes();
    objects
        .create(store, &Held::new(full()), &pin("newton"))
        .await
        .unwrap();
    let again = objects.create(store, &Held::new(full()), &pin("newton")).await;
    assert!(matches!(again, Err(StoreError::Taken { .. })), "{again:?}");
    let other = Node1_16 {
        uuid: "n2".to_owned(),
        ..full()
    };
    let other = objects.create(store, &Held::new(other), &pin("newton")).await;
    let error = other.unwrap_err();
    assert!(matches!(error, StoreError::Duplicate { .. }), "{error:?}");
    let said = error.to_string();
    assert!(
        said.starts_with("nodes has no uuid=\"n2\", and another row has"),
        "{said}"
    );
    assert!(said.contains("description"), "{said}");
    assert!(objects.get(store, &key("n2")).await.unwrap().is_none());
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Parcel1_0 {
    id: String,
    at: Option<String>,
    seal: Option<String>,
    price: Option<String>,
}

impl Versioned for Parcel1_0 {
    const NAME: &'static str = "Parcel";
    const VERSION: Version = Version::new(1, 0);
}

pub(super) async fn times_uuids_bytes_and_decimals_come_back(store: &Store) {
    let Types {
        time,
        uuid,
        bytes,
        decimal,
        ..
    } = types(store);
    let create = format!(
        "CREATE TABLE parcels (id {uuid} PRIMARY KEY, at {time}, seal {bytes}, price {decimal}, version VARCHAR(15))"
    );
    sql(store, &create).await;
    let columns = [
        ("at", Kind::Timestamp),
        ("seal", Kind::Bytes),
        ("price", Kind::Decimal),
    ];
    let table = Table::new("parcels", &[("id", Kind::Uuid)], &columns).unwrap();
    let parcels: Objects<Parcel1_0> = Objects::new(table, Arc::new(Chain::first()));
    let free = pin("");
    let some = |text: &str| Some(text.to_owned());
    let mut all = Vec::new();
    for (at, (time, seal, price)) in [
        (some("2026-11-28T20:15:00.25Z"), some("AP/+"), some("-12.50")),
        (some("1969-12-31T23:59:59Z"), some(""), some("9999999999.99")),
        (None, None, None),
    ]
    .into_iter()
    .enumerate()
    {
        let parcel = Parcel1_0 {
            id: format!("0e984725-c51c-4bf4-9960-e1c80e27aba{at}"),
            at: time,
            seal,
            price,
        };
        parcels
            .create(store, &Held::new(parcel.clone()), &free)
            .await
            .unwrap();
        let mut stored = parcels.get(store, &[json!(parcel.id)]).await.unwrap().unwrap();
        assert_eq!(stored.held.value, parcel);
        // What was read is what is written, so nothing is.
        let nothing = parcels.save(store, &mut stored, &free).await.unwrap();
        assert!(nothing.is_unchanged(), "{nothing:?}");
        all.push(parcel);
    }
    // In the order of the keys, page by page.
    let page = parcels.list(store, Some(&[json!(all[0].id)]), 9).await.unwrap();
    let page: Vec<Parcel1_0> = page
        .into_iter()
        .map(|row| row.object.unwrap().held.value)
        .collect();
    assert_eq!(page, all[1..]);
    // Another zone, other letters: the same time, the same row.
    let id = json!(all[0].id.to_uppercase());
    let changed = parcels
        .change(store, &[id], &free, |parcel| {
            parcel.at = Some("2026-11-28T21:15:00.5+01:00".to_owned());
        })
        .await;
    changed.unwrap();
    let read = parcels.get(store, &[json!(all[0].id)]).await.unwrap().unwrap();
    assert_eq!(read.held.value.at.as_deref(), Some("2026-11-28T20:15:00.5Z"));
    let odd = Parcel1_0 {
        id: "0e984725-c51c-4bf4-9960-e1c80e27aba9".to_owned(),
        price: some("1e3"),
        ..all[2].clone()
    };
    let error = parcels.create(store, &Held::new(odd), &free).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "parcels.price is Decimal, and cannot hold \"1e3\""
    );
}

/// Filters and pages in another order are the user's own SQL; versions are read all the same.
pub(super) async fn statements_of_ones_own_find_objects(store: &Store) {
    for (uuid, version, description) in [
        ("n1", "1.14", "b"),
        ("n2", "1.17", "a"),
        ("n3", "1.13", "c"),
        ("n4", "1.14", "z"),
    ] {
        old_row(store, uuid, Some(version)).await;
        let update = format!("UPDATE nodes SET description = '{description}' WHERE uuid = '{uuid}'");
        sql(store, &update).await;
    }
    let nodes = new_nodes();
    let (table, engine) = (nodes.table(), store.engine());
    let mut arguments = sqlx::any::AnyArguments::default();
    let below = table
        .bind(engine, &mut arguments, "description", &json!("d"))
        .unwrap();
    let select = table.select(engine);
    let text = format!("{select} WHERE description < {below} ORDER BY description LIMIT 2");
    let rows = sqlx::query_with(AssertSqlSafe(text), arguments)
        .fetch_all(store.pool())
        .await
        .unwrap();
    let found: Vec<(Value, bool)> = rows
        .iter()
        .map(|row| nodes.read(row).unwrap())
        .map(|listed| (listed.key[0].clone(), listed.object.is_ok()))
        .collect();
    assert_eq!(found, [(json!("n2"), false), (json!("n1"), true)]);
    assert_eq!(table.row(&rows[1]).unwrap().version, Some(Version::new(1, 14)));
    let nothing = table.bind(
        engine,
        &mut sqlx::any::AnyArguments::default(),
        "colour",
        &json!(1),
    );
    assert!(matches!(nothing, Err(TableError::NoColumn { .. })), "{nothing:?}");
}
