//! What only some versions have: fields that are left out where they are empty, and what objects inside have no place for any
//! more.

use std::sync::Arc;

use proptest::prelude::*;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use stagger_versioned::{
    Chain, Child, Declared, Follows, Held, Manifest, Pin, Row, Stored, Version, Versioned, Write, down_all,
    laws, up_all,
};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Part1_0 {
    name: String,
    legacy: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Part1_1 {
    pub(crate) name: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Rack1_0 {
    id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    owner: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    tags: Vec<String>,
    parts: Vec<Part1_0>,
}

/// Its parts have no `legacy` any more.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Rack1_1 {
    pub(crate) id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) owner: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) tags: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) label: Option<String>,
    pub(crate) parts: Vec<Part1_1>,
}

macro_rules! versions {
    ($($of:ty: $name:literal $minor:literal [$($child:ty),*];)*) => {$(
        impl Versioned for $of {
            const NAME: &'static str = $name;
            const VERSION: Version = Version::new(1, $minor);
            const CHILDREN: &'static [Child] = &[$(Child::of::<$child>()),*];
        }
    )*};
}

versions! {
    Part1_0: "Part" 0 [];
    Part1_1: "Part" 1 [];
    Rack1_0: "Rack" 0 [Part1_0];
    Rack1_1: "Rack" 1 [Part1_1];
}

impl Follows for Part1_1 {
    type Before = Part1_0;
    const REMOVED: &'static [&'static str] = &["legacy"];
    fn up(before: Part1_0) -> Self {
        Self { name: before.name }
    }
    fn down(&self) -> Part1_0 {
        Part1_0 {
            name: self.name.clone(),
            legacy: None,
        }
    }
}

impl Follows for Rack1_1 {
    type Before = Rack1_0;
    const REMOVED: &'static [&'static str] = &["parts"];
    fn up(before: Rack1_0) -> Self {
        Self {
            id: before.id,
            owner: before.owner,
            tags: before.tags,
            label: None,
            parts: up_all(before.parts),
        }
    }
    fn down(&self) -> Rack1_0 {
        Rack1_0 {
            id: self.id.clone(),
            owner: self.owner.clone(),
            tags: self.tags.clone(),
            parts: down_all(&self.parts),
        }
    }
}

pub(crate) fn racks() -> Chain<Rack1_1> {
    Chain::<Rack1_0>::first().then()
}

pub(crate) fn pin(release: &str) -> Pin {
    let declared: Declared = serde_json::from_value(json!({
        "current": "2.0",
        "release": [
            {"number": "1.0", "names": ["one"], "date": "2025-01-01", "api": "1.0", "rpc": "1.0",
             "objects": {"Rack": "1.0", "Part": "1.0"}},
            {"number": "2.0", "names": ["two"], "date": "2025-07-01", "api": "1.0", "rpc": "1.0",
             "objects": {"Rack": "1.1", "Part": "1.1"}},
        ],
    }))
    .unwrap();
    Pin::read(Arc::new(Manifest::new(declared).unwrap()), release).unwrap()
}

fn part(name: &str) -> Part1_1 {
    Part1_1 {
        name: name.to_owned(),
    }
}

fn row(version: Version, held: &Value) -> Row {
    let columns = ["id", "owner", "tags", "label", "parts"];
    let fields: Map<String, Value> = columns
        .into_iter()
        .map(|column| (column.to_owned(), held[column].clone()))
        .collect();
    Row {
        version: Some(version),
        fields,
    }
}

/// What a store does with a write.
fn after(row: &Row, write: Write) -> Row {
    let mut row = row.clone();
    row.version = Some(write.version);
    row.fields.extend(write.set);
    row
}

fn with_parts(parts: &Value) -> Stored<Rack1_1> {
    let held = json!({"id": "r", "tags": [], "parts": parts});
    racks().load(row(Version::new(1, 0), &held)).unwrap()
}

#[test]
fn what_is_hidden_in_a_list_stays_where_something_is_added() {
    let mut stored = with_parts(&json!([{"name": "a", "legacy": "x"}, {"name": "b", "legacy": null}]));
    stored.held.value.parts.insert(0, part("new"));
    let write = racks().save(&stored, &pin("one")).unwrap();
    assert_eq!(
        Value::Object(write.set),
        json!({"parts": [
            {"name": "new", "legacy": null}, {"name": "a", "legacy": "x"}, {"name": "b", "legacy": null},
        ]})
    );
    let sent = racks().send_whole(&stored.held, &pin("one"), None).unwrap();
    assert!(sent.text.contains(r#""legacy":"x""#), "{}", sent.text);
    // Taken away with what was in it.
    stored.held.value.parts.drain(..2);
    let write = racks().save(&stored, &pin("one")).unwrap();
    assert_eq!(write.set["parts"], json!([{"name": "b", "legacy": null}]));
    assert!(
        !racks().save(&stored, &pin("")).unwrap().set["parts"][0]
            .as_object()
            .unwrap()
            .contains_key("legacy")
    );
}

#[test]
fn what_is_hidden_in_what_was_changed_is_not_dropped_in_silence() {
    let mut stored = with_parts(&json!([{"name": "a", "legacy": "x"}, {"name": "b", "legacy": null}]));
    stored.held.value.parts[1].name = "c".to_owned();
    assert!(racks().save(&stored, &pin("one")).is_ok());
    stored.held.value.parts[0].name = "d".to_owned();
    let refused = racks().save(&stored, &pin("one")).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "Rack came with what this code has no place for and services of an older release may still use, and as it was changed \
         it would lose that in version 1.0 (/parts/0: {\"legacy\":\"x\",\"name\":\"a\"}); nothing was stored or sent: try again \
         when the upgrade is done"
    );
    assert!(racks().send_whole(&stored.held, &pin("one"), None).is_err());
    let sent = racks().send(&stored.held, &pin("one"), None).unwrap();
    assert_eq!(sent.lost[0].at, "/parts/0");
    assert!(racks().save(&stored, &pin("")).is_ok());
}

#[test]
fn a_field_that_is_left_out_where_it_is_empty_can_be_emptied() {
    let full = json!({"id": "r", "owner": "me", "tags": ["t"], "label": "l", "parts": []});
    for (at, pinned) in [(1, ""), (1, "one"), (0, "one"), (0, "")] {
        let before = row(Version::new(1, at), &full);
        let mut stored = racks().load(before.clone()).unwrap();
        stored.held.value.owner = None;
        stored.held.value.tags.clear();
        let write = racks().save(&stored, &pin(pinned)).unwrap();
        let (owner, tags) = (write.set.get("owner"), write.set.get("tags"));
        assert_eq!(
            (owner, tags),
            (Some(&Value::Null), Some(&Value::Null)),
            "{at} {pinned}"
        );
        // A column of a later version means nothing in this row, and is not touched until the row is of that version.
        let meaningless = at == 0 && pinned.is_empty();
        assert_eq!(
            write.set.get("label"),
            meaningless.then_some(&Value::Null),
            "{at} {pinned}"
        );
        let read = racks().load(after(&before, write)).unwrap();
        assert_eq!(read.held.value, stored.held.value, "{at} {pinned}");
    }
}

fn any_row() -> impl Strategy<Value = Row> {
    let maybe = || prop::option::of("[a-c]{0,2}");
    let parts = prop::collection::vec(("[a-d]", maybe()), 0..4);
    let all = (
        0..2_u32,
        maybe(),
        prop::collection::vec("[a-c]", 0..3),
        maybe(),
        parts,
    );
    all.prop_map(|(at, owner, tags, label, parts)| {
        let parts: Vec<Value> = parts
            .into_iter()
            .map(|(name, legacy)| json!({"name": name, "legacy": legacy}))
            .collect();
        // As a store keeps it: what is left out stands there as nothing.
        let tags = if tags.is_empty() { Value::Null } else { json!(tags) };
        let held = json!({"id": "r", "owner": owner, "tags": tags, "label": label, "parts": parts});
        row(Version::new(1, at), &held)
    })
}

/// How often each part with that in it is there.
fn hidden(row: &Row) -> Vec<(String, String)> {
    let parts = row.fields["parts"].as_array().unwrap();
    let mut hidden: Vec<(String, String)> = parts
        .iter()
        .filter_map(|part| {
            let text = |field| Some(part.get(field)?.as_str()?.to_owned());
            Some((text("name")?, text("legacy")?))
        })
        .collect();
    hidden.sort();
    hidden
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_laws_hold(name in "[a-c]", legacy in prop::option::of("[a-c]")) {
        let part = Part1_0 { name, legacy };
        laws::up_loses_nothing::<Part1_1>(&part).unwrap();
        let rack = Rack1_0 { id: "r".to_owned(), owner: None, tags: Vec::new(), parts: vec![part] };
        laws::up_loses_nothing::<Rack1_1>(&rack).unwrap();
    }

    /// Whatever was changed, what was saved is what is read; and the object in hand is then as it is read.
    #[test]
    fn what_is_saved_is_read_again(
        row in any_row(), owner in prop::option::of("[a-c]{0,2}"), tags in prop::collection::vec("[a-c]", 0..3),
        names in prop::collection::vec("[a-d]", 0..4), pinned in prop::sample::select(vec!["", "one", "two"]),
    ) {
        let mut stored = racks().load(row.clone()).unwrap();
        stored.held.value.owner = owner;
        stored.held.value.tags = tags;
        stored.held.value.parts = names.iter().map(|name| part(name)).collect();
        let Ok(write) = racks().save(&stored, &pin(pinned)) else { return Ok(()) };
        let now = after(&row, write.clone());
        let read = racks().load(now.clone()).unwrap();
        prop_assert_eq!(&read.held.value, &stored.held.value);
        // What is hidden is nowhere where it was not, and gone only with the part that had it.
        if now.version == Some(Version::new(1, 0)) {
            let (had, has) = (hidden(&row), hidden(&now));
            prop_assert!(has.iter().all(|one| had.contains(one)), "{:?} {:?}", had, has);
            for (name, legacy) in &had {
                let alone = had.iter().filter(|(other, _)| other == name).count() == 1
                    && row.fields["parts"].as_array().unwrap().iter().filter(|part| part["name"] == name.as_str()).count() == 1;
                if alone && names.contains(name) {
                    prop_assert!(has.contains(&(name.clone(), legacy.clone())), "{:?} {:?}", had, has);
                }
            }
        }
        racks().written(&mut stored, write);
        prop_assert_eq!(&stored, &read);
        prop_assert!(racks().save(&stored, &pin(pinned)).unwrap().is_unchanged());
    }
}

#[test]
fn what_came_in_a_later_version_is_not_written_without_what_it_hides() {
    let chain = crate::ironic::nodes();
    let newton = Pin::read(crate::ironic::manifest(), "newton").unwrap();
    let data =
        json!({"uuid": "n1", "extra": {"still": "used"}, "fake": {}, "description": null, "traits": []});
    let came = chain
        .receive(&format!(r#"{{"kind":"Node","version":"1.15","data":{data}}}"#))
        .unwrap();
    let refused = chain.create(&came, &newton).unwrap_err().to_string();
    assert!(
        refused.contains(r#"(/extra: {"still":"used"} would become null)"#),
        "{refused}"
    );
    assert!(chain.create(&Held::new(came.value), &newton).is_ok());
}
