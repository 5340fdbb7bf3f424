//! The four boundaries: from the store, to the store, sent, received.

use proptest::prelude::*;
use serde_json::{Map, Value, json};
use stagger_versioned::boundary::{Unreceived, Unsaved};
use stagger_versioned::chain::Unreadable;
use stagger_versioned::{Chain, Held, Pin, Row, Stored, Version, Write};

use crate::ironic::{
    Node1_16, Port1_0, Trait1_1, any_1_13, any_1_14, any_1_15, any_1_16, full, manifest, nodes, nodes_1_14,
    nodes_1_15, registry,
};

fn pin(release: &str) -> Pin {
    Pin::read(manifest(), release).unwrap()
}

fn version(text: &str) -> Version {
    text.parse().unwrap()
}

/// The columns of a table that has those of every version: what it holds, and nothing elsewhere.
fn row(at: &str, held: Value) -> Row {
    let mut fields: Map<String, Value> = [
        "uuid",
        "extra",
        "fake",
        "description",
        "facts",
        "labels",
        "notes",
        "traits",
    ]
    .into_iter()
    .map(|column| (column.to_owned(), Value::Null))
    .collect();
    let Value::Object(held) = held else {
        panic!("columns")
    };
    fields.extend(held);
    Row {
        version: Some(version(at)),
        fields,
    }
}

/// What a store does with a write.
fn written(mut row: Row, write: Write) -> Row {
    assert_eq!(write.was, Some(row.version));
    row.version = Some(write.version);
    row.fields.extend(write.set);
    row
}

fn row_1_14() -> Row {
    row(
        "1.14",
        json!({"uuid": "n1", "extra": {"rack": "r7"}, "description": "old", "traits": [{"name": "GPU"}]}),
    )
}

fn load(row: Row) -> Stored<Node1_16> {
    nodes().load(row).unwrap()
}

#[test]
fn a_row_is_read_in_its_own_version_whatever_the_pin() {
    let stored = load(row_1_14());
    assert_eq!(stored.held.value.labels["rack"], "r7");
    assert_eq!(stored.held.value.notes.description.as_deref(), Some("old"));
    assert_eq!(stored.held.stored_version(), Some(version("1.14")));
    // A column of a later version has no meaning in this row.
    let mut odd = row_1_14();
    odd.fields.insert("labels".to_owned(), json!({"rack": "wrong"}));
    assert_eq!(load(odd).held.value, stored.held.value);
}

#[test]
fn what_the_conversion_changed_is_written_by_the_next_save() {
    let write = nodes().save(&load(row_1_14()), &pin("")).unwrap();
    assert_eq!(write.version, version("1.16"));
    assert_eq!(
        Value::Object(write.set),
        json!({
            "facts": {}, "labels": {"rack": "r7"}, "notes": {"description": "old"},
            "traits": [{"name": "GPU", "note": null}],
        })
    );
}

#[test]
fn under_a_pin_a_row_that_was_only_read_is_not_written() {
    let write = nodes().save(&load(row_1_14()), &pin("newton")).unwrap();
    assert!(write.is_unchanged(), "{write:?}");
}

#[test]
fn under_a_pin_only_columns_of_that_release_are_written() {
    let mut stored = load(row_1_14());
    stored.held.value.labels.insert("row".to_owned(), "3".to_owned());
    let write = nodes().save(&stored, &pin("newton")).unwrap();
    assert_eq!(write.version, version("1.14"));
    assert_eq!(
        Value::Object(write.set.clone()),
        json!({"extra": {"rack": "r7", "row": "3"}})
    );
    // A service of that release reads it.
    let old = nodes_1_14().load(written(row_1_14(), write)).unwrap();
    assert_eq!(old.held.value.extra["row"], "3");
}

#[test]
fn a_row_older_than_the_pin_comes_up_to_the_pin() {
    let old = row("1.13", json!({"uuid": "n1", "extra": {}, "traits": []}));
    let write = nodes().save(&load(old), &pin("ocata")).unwrap();
    assert_eq!(
        (write.was, write.version),
        (Some(Some(version("1.13"))), version("1.15"))
    );
    assert_eq!(Value::Object(write.set), json!({"fake": {}, "extra": null}));
}

/// D2 of Ironic: one service is unpinned and saves something new; one that is still pinned changes something else.
#[test]
fn a_pinned_writer_keeps_what_an_unpinned_one_saved() {
    let mut unpinned = load(row_1_14());
    unpinned.held.value.traits[0].note = Some("precious".to_owned());
    let saved = written(row_1_14(), nodes().save(&unpinned, &pin("")).unwrap());
    assert_eq!(saved.version, Some(version("1.16")));

    let mut pinned = load(saved.clone());
    pinned.held.value.notes.description = Some("changed".to_owned());
    let write = nodes().save(&pinned, &pin("newton")).unwrap();
    assert_eq!(write.version, version("1.16"));
    assert_eq!(
        Value::Object(write.set.clone()),
        json!({"notes": {"description": "changed"}})
    );
    let end = load(written(saved, write)).held.value;
    assert_eq!(end.traits[0].note.as_deref(), Some("precious"));
    assert_eq!(end.notes.description.as_deref(), Some("changed"));
}

/// D3 of Ironic: an unpinned API hands something new to a pinned conductor, which stored the rest and said nothing.
#[test]
fn what_the_pin_does_not_know_is_refused_and_never_dropped() {
    let mut stored = load(row_1_14());
    stored.held.value.traits[0].note = Some("new".to_owned());
    let error = nodes().save(&stored, &pin("newton")).unwrap_err();
    assert!(matches!(error, Unsaved::NotWhilePinned(_)));
    assert_eq!(
        error.to_string(),
        "Node has what newton does not know, to which this service is pinned (/traits/0/note: \"new\" would become null); it came \
         with 6.3; nothing was stored or sent: try again when the upgrade is done"
    );
    let new = Held::new(stored.held.value.clone());
    assert!(nodes().create(&new, &pin("newton")).is_err());
    assert!(nodes().send_whole(&new, &pin("newton"), None).is_err());
    assert_eq!(
        nodes().create(&new, &pin("ocata")).unwrap().version,
        version("1.15")
    );
    assert_eq!(nodes().create(&new, &pin("")).unwrap().version, version("1.16"));
}

#[test]
fn an_object_that_the_pin_does_not_know_is_not_made_and_one_that_is_there_is_kept() {
    let ports = Chain::<Port1_0>::first();
    let port = Held::new(Port1_0 {
        address: "52:54:00:00:00:01".to_owned(),
    });
    let error = ports.create(&port, &pin("newton")).unwrap_err().to_string();
    assert!(error.starts_with("Port is not known to newton"), "{error}");
    assert!(ports.send(&port, &pin("newton"), None).is_err());
    let row = Row {
        version: Some(version("1.0")),
        fields: Map::from_iter([("address".to_owned(), json!("a"))]),
    };
    let mut stored = ports.load(row).unwrap();
    stored.held.value.address = "b".to_owned();
    let write = ports.save(&stored, &pin("newton")).unwrap();
    assert_eq!(
        (write.version, Value::Object(write.set)),
        (version("1.0"), json!({"address": "b"}))
    );
}

#[test]
fn a_new_object_is_stored_in_the_version_of_the_pin() {
    let new = Held::new(full());
    let write = nodes().create(&new, &pin("newton")).unwrap();
    assert_eq!((write.was, write.version), (None, version("1.14")));
    let columns: Vec<&String> = write.set.keys().collect();
    assert_eq!(columns, ["description", "extra", "traits", "uuid"]);
}

/// 1.16 has no `extra` any more. Services of the release before may still use it, and lose nothing of it.
#[test]
fn a_removed_field_is_kept_for_those_who_still_have_it() {
    let deprecated =
        json!({"uuid": "n1", "extra": {"still": "used"}, "fake": {}, "description": null, "traits": []});
    let before = row("1.15", deprecated.clone());
    let mut stored = load(before.clone());
    stored.held.value.notes.description = Some("changed".to_owned());
    let write = nodes().save(&stored, &pin("ocata")).unwrap();
    assert_eq!(Value::Object(write.set), json!({"description": "changed"}));
    // Unpinned it is no column of the object, and is not touched either: a migration of the schema drops it in its time.
    let write = nodes().save(&stored, &pin("")).unwrap();
    assert!(!write.set.contains_key("extra"), "{write:?}");

    let envelope = format!(r#"{{"kind":"Node","version":"1.15","data":{deprecated}}}"#);
    let mut held = nodes().receive(&envelope).unwrap();
    held.value.notes.description = Some("changed".to_owned());
    let sent = nodes().send(&held, &pin("ocata"), None).unwrap();
    let read = nodes_1_15().receive(&sent.text).unwrap().value;
    assert_eq!(read.extra.unwrap()["still"], "used");
    assert_eq!(read.description.as_deref(), Some("changed"));
    // In 1.14 the field of that name holds what `fake` held.
    let sent = nodes()
        .send(&held, &pin("newton"), Some(version("1.14")))
        .unwrap();
    assert_eq!(nodes_1_14().receive(&sent.text).unwrap().value.extra.len(), 0);
}

/// D5 of Ironic: one row from the future, and the whole list failed.
#[test]
fn a_row_from_the_future_is_an_error_of_its_own() {
    let rows = [row_1_14(), row("1.16", json!({"uuid": "n2"})), row_1_14()];
    let read: Vec<_> = rows.into_iter().map(|row| nodes_1_15().load(row)).collect();
    assert!(read[0].is_ok() && read[2].is_ok());
    let error = read[1].as_ref().unwrap_err();
    assert!(matches!(error, Unreadable::FromTheFuture { .. }));
    assert_eq!(
        error.to_string(),
        "Node 1.16 comes from a later release: this code knows Node up to 1.15"
    );
}

/// D6 of Ironic: a row without a version could be neither read nor repaired.
#[test]
fn a_row_without_a_version_is_what_rows_were_before_there_were_versions() {
    let mut none = row(
        "1.13",
        json!({"uuid": "n1", "extra": {"rack": "r7"}, "traits": []}),
    );
    none.version = None;
    let stored = load(none.clone());
    assert_eq!(stored.held.value.labels["rack"], "r7");
    let write = nodes().save(&stored, &pin("newton")).unwrap();
    assert_eq!((write.was, write.version), (Some(None), version("1.14")));
    let error = Chain::<Port1_0>::first().load(none).unwrap_err();
    assert_eq!(
        error.to_string(),
        "Port has no version, and none is declared for those without: run the online data migrations of the release before"
    );
}

#[test]
fn a_row_that_no_code_knows_or_that_is_malformed_says_so() {
    let error = nodes().load(row("1.12", json!({}))).unwrap_err();
    assert_eq!(
        error.to_string(),
        "Node 1.12 is not known here any more; known are 1.13 to 1.16: go through a release that knows it"
    );
    assert!(matches!(
        nodes().load(row("2.0", json!({}))).unwrap_err(),
        Unreadable::FromTheFuture { .. }
    ));
    let error = nodes()
        .load(row("1.14", json!({"uuid": 5})))
        .unwrap_err()
        .to_string();
    assert!(
        error.starts_with("Node 1.14 cannot be read: invalid type"),
        "{error}"
    );
}

#[test]
fn an_object_is_sent_at_the_pin_or_at_what_the_other_side_reads() {
    let made = Held::new(full());
    let at = |pinned: &str, reads: Option<&str>| {
        nodes()
            .send(&made, &pin(pinned), reads.map(version))
            .unwrap()
            .version
    };
    assert_eq!(at("", None), version("1.16"));
    assert_eq!(at("newton", None), version("1.14"));
    assert_eq!(at("", Some("1.15")), version("1.15"));
    assert_eq!(at("newton", Some("1.15")), version("1.14"));
    assert_eq!(at("newton", Some("1.13")), version("1.13"));
    assert_eq!(at("", Some("1.99")), version("1.16"));
    assert!(nodes().send(&made, &pin(""), Some(version("1.12"))).is_err());
    let sent = nodes().send(&made, &pin(""), Some(version("1.13"))).unwrap();
    assert_eq!(
        sent.lost[0].to_string(),
        "/notes/description: \"in the corner\" would become null"
    );
}

/// Inside an envelope everything is of the version that the other side knows, lists too (D1 of Ironic).
#[test]
fn an_older_service_reads_what_a_pinned_one_sends() {
    let sent = nodes().send(&Held::new(full()), &pin("newton"), None).unwrap();
    assert_eq!(
        sent.text,
        r#"{"kind":"Node","version":"1.14","data":{"uuid":"n1","extra":{"fact.cpus":"4","rack":"r7"},"description":"in the corner","traits":[{"name":"GPU"}]}}"#
    );
    assert_eq!(
        nodes_1_14().receive(&sent.text).unwrap().value.extra["fact.cpus"],
        "4"
    );
}

#[test]
fn an_object_that_was_received_newer_than_the_pin_keeps_its_version() {
    let mut node = full();
    node.traits[0].note = Some("new".to_owned());
    let sent = nodes().send(&Held::new(node.clone()), &pin(""), None).unwrap();
    let received = nodes().receive(&sent.text).unwrap();
    assert_eq!(received.stored_version(), Some(version("1.16")));
    assert_eq!(
        nodes().send(&received, &pin("newton"), None).unwrap().version,
        version("1.16")
    );
    let mut stored = load(row_1_14());
    stored.held = received.clone();
    let write = nodes().save(&stored, &pin("newton")).unwrap();
    assert_eq!(write.version, version("1.16"));
    // A new row is of the pin, or is refused.
    assert!(matches!(
        nodes().create(&received, &pin("newton")),
        Err(Unsaved::NotWhilePinned(_))
    ));
    let mut fits = received;
    fits.value.traits[0].note = None;
    let write = nodes().create(&fits, &pin("newton")).unwrap();
    assert_eq!(write.version, version("1.14"));
    let port = r#"{"kind":"Port","version":"1.0","data":{"address":"a"}}"#;
    let port = Chain::<Port1_0>::first().receive(port).unwrap();
    let made = Chain::<Port1_0>::first().create(&port, &pin("newton"));
    assert!(matches!(made, Err(Unsaved::NotWhilePinned(_))));
}

/// What came in an older version is put into a row of a newer one.
#[test]
fn a_row_never_goes_back() {
    let mut stored = load(row("1.16", serde_json::to_value(full()).unwrap()));
    let older =
        r#"{"kind":"Node","version":"1.14","data":{"uuid":"n1","extra":{},"description":null,"traits":[]}}"#;
    stored.held = nodes().receive(older).unwrap();
    let write = nodes().save(&stored, &pin("newton")).unwrap();
    assert_eq!(write.version, version("1.16"));
}

/// What the caller does not read is left out of its answer. What only the pin does not know is no answer.
#[test]
fn an_answer_drops_only_what_the_caller_does_not_read() {
    let mut new = full();
    new.traits[0].note = Some("new".to_owned());
    let new = Held::new(new);
    let answer = |pinned: &str, reads: Option<&str>| nodes().answer(&new, &pin(pinned), reads.map(version));
    assert_eq!(answer("", Some("1.14")).unwrap().lost[0].at, "/traits/0/note");
    assert_eq!(answer("newton", Some("1.13")).unwrap().version, version("1.13"));
    for reads in [Some("1.16"), Some("1.15"), None] {
        assert!(matches!(answer("newton", reads), Err(Unsaved::NotWhilePinned(_))));
    }
}

#[test]
fn an_older_object_is_received_and_brought_up() {
    let old = nodes_1_14().receive(
        r#"{"kind":"Node","version":"1.13","data":{"uuid":"n1","extra":{"fact.cpus":"2"},"traits":[{"name":"GPU"}]}}"#,
    );
    let sent = nodes_1_14()
        .send(&old.unwrap(), &Pin::none(manifest()), None)
        .unwrap();
    assert_eq!(sent.version, version("1.14"));
    let held = nodes().receive(&sent.text).unwrap();
    assert_eq!(held.value.facts["cpus"], "2");
    assert_eq!(held.stored_version(), Some(version("1.14")));
}

/// The dance of the design: a new service answers, the old one raises an eyebrow, and gets it again as it knows it.
#[test]
fn a_newer_object_is_asked_for_again() {
    let sent = nodes().send(&Held::new(full()), &pin(""), None).unwrap();
    let error = nodes_1_14().receive(&sent.text).unwrap_err();
    let Unreceived::Newer { ask_for, .. } = error else {
        panic!("{error}")
    };
    assert_eq!(
        error.to_string(),
        "Node 1.16 is newer than this code; ask the sender for 1.14"
    );
    let again = nodes().backport(&sent.text, ask_for).unwrap();
    assert_eq!(
        nodes_1_14().receive(&again.text).unwrap().value.extra["rack"],
        "r7"
    );
    assert_eq!(registry().backport(&sent.text, ask_for).unwrap(), again);
}

#[test]
fn what_is_no_object_of_ours_is_refused() {
    let node = |text: &str| nodes().receive(text).unwrap_err().to_string();
    assert_eq!(
        node(r#"{"kind":"Port","version":"1.0","data":{}}"#),
        "Node was expected, and Port was received"
    );
    for text in [
        "",
        "[]",
        "{}",
        r#"{"kind":"Node","data":{}}"#,
        r#"{"kind":"Node","version":"1","data":{}}"#,
    ] {
        let said = node(text);
        assert!(
            said.starts_with("what was received is no object in an envelope: "),
            "{said}"
        );
    }
    for (at, start) in [
        ("1.16", "Node 1.16 cannot be read: "),
        ("1.13", "Node 1.13 cannot be read: "),
    ] {
        let said = node(&format!(
            r#"{{"kind":"Node","version":"{at}","data":{{"uuid":5}}}}"#
        ));
        assert!(said.starts_with(start), "{said}");
    }
    assert_eq!(
        node(r#"{"kind":"Node","version":"1.2","data":{}}"#),
        "Node 1.2 is not known here any more; known are 1.13 to 1.16: go through a release that knows it"
    );
    let unknown = registry().backport(r#"{"kind":"Chassis","version":"1.0","data":{}}"#, version("1.0"));
    assert_eq!(
        unknown.unwrap_err().to_string(),
        "one of Node, Port, Trait was expected, and Chassis was received"
    );
}

#[test]
fn the_order_of_an_envelope_makes_no_difference_and_more_may_stand_in_it() {
    let sent = nodes().send(&Held::new(full()), &pin(""), None).unwrap().text;
    let mut value: Value = serde_json::from_str(&sent).unwrap();
    let data = value["data"].take();
    let turned = format!(r#"{{"later":[1,{{}}],"data":{data},"version":"1.16","kind":"Node"}}"#);
    assert_eq!(nodes().receive(&turned).unwrap(), nodes().receive(&sent).unwrap());
    let twice = sent.replace(r#""kind":"Node","#, r#""kind":"Node","kind":"Node","#);
    assert!(nodes().receive(&twice).is_err());
    // What begins as ours do is read to its end all the same.
    let inner = sent.strip_suffix('}').unwrap();
    let more = nodes().receive(&format!(r#"{inner},"later":{{}}}}"#)).unwrap();
    assert_eq!(more, nodes().receive(&sent).unwrap());
    for tail in [r#","data":{}}"#, "}}", "} }", ""] {
        assert!(nodes().receive(&format!("{inner}{tail}")).is_err(), "{tail}");
    }
}

/// Who writes next in a story of mixed services.
#[derive(Debug, Clone)]
enum Writer {
    /// Code of newton, which knows nothing newer than 1.14.
    Old,
    /// New code, pinned to that release.
    Pinned(String),
}

fn any_row() -> impl Strategy<Value = Row> {
    let with = |at: &'static str, value: Value| row(at, value);
    prop_oneof![
        any_1_13().prop_map(move |node| with("1.13", serde_json::to_value(node).unwrap())),
        any_1_14().prop_map(move |node| with("1.14", serde_json::to_value(node).unwrap())),
        any_1_15().prop_map(move |node| with("1.15", serde_json::to_value(node).unwrap())),
        any_1_16().prop_map(move |node| with("1.16", serde_json::to_value(node).unwrap())),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// To read a row and save it unchanged changes no value, and no row goes back to an older version.
    #[test]
    fn a_save_without_a_change_changes_nothing(row in any_row(), at in prop::sample::select(vec!["", "mitaka", "newton", "ocata"])) {
        let before = load(row.clone());
        let write = nodes().save(&before, &pin(at)).unwrap();
        prop_assert!(Some(write.version) >= row.version);
        let after = load(written(row, write));
        prop_assert_eq!(&after.held.value, &before.held.value);
        prop_assert!(nodes().save(&after, &pin(at)).unwrap().is_unchanged());
    }

    /// Old, pinned and unpinned services take turns on one row, each changing what all of them know. Whoever can read the
    /// row finds the last value; only an old service may be unable to, and only after somebody was unpinned.
    #[test]
    fn whoever_writes_next_nothing_is_lost(
        start in any_1_14(),
        turns in prop::collection::vec((prop_oneof![
            Just(Writer::Old),
            prop::sample::select(vec!["newton", "ocata", ""]).prop_map(|release| Writer::Pinned(release.to_owned())),
        ], "[a-z]{1,3}"), 1..8),
    ) {
        let mut at = row("1.14", serde_json::to_value(&start).unwrap());
        let mut last = start.description.clone();
        let mut newest = version("1.14");
        for (writer, text) in turns {
            match writer {
                Writer::Old => {
                    let read = nodes_1_14().load(at.clone());
                    if newest > version("1.14") {
                        prop_assert!(read.is_err());
                        continue;
                    }
                    let mut stored = read.unwrap();
                    prop_assert_eq!(&stored.held.value.description, &last);
                    stored.held.value.description = Some(text.clone());
                    at = written(at, nodes_1_14().save(&stored, &pin("newton")).unwrap());
                }
                Writer::Pinned(release) => {
                    let mut stored = load(at.clone());
                    prop_assert_eq!(&stored.held.value.notes.description, &last);
                    stored.held.value.notes.description = Some(text.clone());
                    at = written(at, nodes().save(&stored, &pin(&release)).unwrap());
                    newest = newest.max(pin(&release).target("Node").unwrap().unwrap_or(version("1.16")));
                }
            }
            prop_assert_eq!(at.version, Some(newest));
            last = Some(text);
        }
        let end = load(at).held.value;
        prop_assert_eq!(end.notes.description, last);
        let names: Vec<String> = end.traits.into_iter().map(|Trait1_1 { name, .. }| name).collect();
        let first: Vec<String> = start.traits.into_iter().map(|one| one.name).collect();
        prop_assert_eq!(names, first);
    }
}

/// A journal keeps its events as one text each.
#[test]
fn an_object_that_is_one_text_keeps_the_same_laws() {
    let nodes = nodes();
    let came = r#"{"uuid":"n1","extra":{"rack":"r7"},"description":"old","traits":[{"name":"GPU"}]}"#;
    let held = nodes.load_text(Some(version("1.14")), came).unwrap();
    let json = |text: &str| serde_json::from_str::<Value>(text).unwrap();
    let pinned = nodes.save_text(&held, &pin("newton")).unwrap();
    assert_eq!(
        (pinned.version, json(&pinned.data)),
        (version("1.14"), json(came))
    );
    let newest = nodes.save_text(&held, &pin("")).unwrap();
    assert_eq!(newest.version, version("1.16"));
    let again = nodes.load_text(Some(newest.version), &newest.data).unwrap();
    assert_eq!(again.value, held.value);
    let mut new = full();
    new.traits[0].note = Some("new".to_owned());
    assert!(matches!(
        nodes.save_text(&Held::new(new), &pin("newton")),
        Err(Unsaved::NotWhilePinned(_))
    ));
    assert!(matches!(
        nodes.load_text(Some(version("1.99")), "{}"),
        Err(Unreadable::FromTheFuture { .. })
    ));
    assert!(matches!(
        Chain::<Port1_0>::first().load_text(None, "{}"),
        Err(Unreadable::NoVersion { .. })
    ));
}
