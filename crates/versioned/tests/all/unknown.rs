//! Fields that a version does not know: dropped, kept, or refused, as their type says.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use stagger_versioned::boundary::Unsaved;
use stagger_versioned::{Chain, Declared, Follows, Manifest, Pin, UnknownFields, Version, Versioned};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Leg {
    to: String,
}

/// The same object with each of the three rules.
macro_rules! trip {
    ($module:ident, $rule:expr) => {
        mod $module {
            use super::*;

            #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
            pub(super) struct Trip1_0 {
                pub(super) name: String,
                pub(super) legs: Vec<Leg>,
                #[serde(default, skip_serializing_if = "Option::is_none")]
                pub(super) note: Option<String>,
            }

            #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
            pub(super) struct Trip1_1 {
                pub(super) name: String,
                pub(super) legs: Vec<Leg>,
                #[serde(default, skip_serializing_if = "Option::is_none")]
                pub(super) note: Option<String>,
                #[serde(default)]
                pub(super) price: i64,
            }

            impl Versioned for Trip1_0 {
                const NAME: &'static str = "Trip";
                const VERSION: Version = Version::new(1, 0);
                const UNKNOWN_FIELDS: UnknownFields = $rule;
            }

            impl Versioned for Trip1_1 {
                const NAME: &'static str = "Trip";
                const VERSION: Version = Version::new(1, 1);
                const UNKNOWN_FIELDS: UnknownFields = $rule;
            }

            impl Follows for Trip1_1 {
                type Before = Trip1_0;
                fn up(before: Trip1_0) -> Self {
                    let Trip1_0 { name, legs, note } = before;
                    Self {
                        name,
                        legs,
                        note,
                        price: 0,
                    }
                }
                fn down(&self) -> Trip1_0 {
                    Trip1_0 {
                        name: self.name.clone(),
                        legs: self.legs.clone(),
                        note: self.note.clone(),
                    }
                }
            }

            pub(super) fn trips() -> Chain<Trip1_1> {
                Chain::<Trip1_0>::first().then()
            }
        }
    };
}

trip!(dropped, UnknownFields::Dropped);
trip!(kept, UnknownFields::Kept);
trip!(refused, UnknownFields::Refused);

const AT_1_1: &str = r#"{"kind":"Trip","version":"1.1","data":{"name":"n","legs":[{"to":"a","seat":"4"},{"to":"b"}],"price":3,"color":"red"}}"#;
const AT_1_0: &str =
    r#"{"kind":"Trip","version":"1.0","data":{"name":"n","legs":[],"note":null,"color":"red"}}"#;

fn pin(release: &str) -> Pin {
    let manifest = "
        current = '2.0'
        [[release]]
        number = '1.0'
        names = ['first']
        date = '2026-01-01'
        api = '1.0'
        rpc = '1.0'
        objects = { Trip = '1.0' }
        [[release]]
        number = '2.0'
        names = ['second']
        date = '2026-06-01'
        api = '1.0'
        rpc = '1.0'
        objects = { Trip = '1.1' }";
    let declared: Declared = toml::from_str(manifest).unwrap();
    Pin::read(Arc::new(Manifest::new(declared).unwrap()), release).unwrap()
}

#[test]
fn without_a_word_they_are_dropped() {
    let trips = dropped::trips();
    let held = trips.receive(AT_1_1).unwrap();
    let sent = trips.send(&held, &pin(""), None).unwrap();
    assert!(
        !sent.text.contains("color") && !sent.text.contains("seat"),
        "{}",
        sent.text
    );
}

#[test]
fn kept_they_go_out_as_they_came() {
    let trips = kept::trips();
    let mut held = trips.receive(AT_1_1).unwrap();
    let sent = trips.send(&held, &pin(""), None).unwrap();
    assert_eq!(trips.receive(&sent.text).unwrap(), held);
    for field in [r#""color":"red""#, r#""seat":"4""#] {
        assert!(sent.text.contains(field), "{}", sent.text);
    }
    assert_eq!(sent.lost, []);

    // What was not changed keeps them, what was gone takes them along.
    held.value.price = 4;
    held.value.legs.insert(0, Leg { to: "c".to_owned() });
    let text = trips.save_text(&held, &pin("")).unwrap().data;
    assert_eq!(
        text,
        r#"{"color":"red","legs":[{"to":"c"},{"seat":"4","to":"a"},{"to":"b"}],"name":"n","price":4}"#
    );
    let text = trips.load_text(Some(Version::new(1, 1)), &text).unwrap();
    assert_eq!(text.value, held.value);

    // One of another version, and one that a pin brings down, keep what is at the top.
    let held = trips.receive(AT_1_0).unwrap();
    assert!(
        trips
            .send(&held, &pin(""), None)
            .unwrap()
            .text
            .contains(r#""color":"red""#)
    );
    let pinned = trips.send(&held, &pin("1.0"), None).unwrap();
    assert_eq!((pinned.version, pinned.lost.len()), (Version::new(1, 0), 0));
    assert!(pinned.text.contains(r#""color":"red""#), "{}", pinned.text);
}

/// What has no place any more is told, never dropped in silence.
#[test]
fn kept_but_without_a_place_they_are_lost_by_name() {
    let trips = kept::trips();
    let mut held = trips.receive(AT_1_1).unwrap();
    let down = trips.backport(AT_1_1, Version::new(1, 0)).unwrap();
    let lost: Vec<&str> = down.lost.iter().map(|loss| loss.at.as_str()).collect();
    assert_eq!(lost, ["/price", "/legs/0/seat"]);
    assert!(down.text.contains(r#""color":"red""#), "{}", down.text);
    held.value.legs[0].to = "z".to_owned();
    let error = trips.save_text(&held, &pin("")).unwrap_err();
    assert!(matches!(error, Unsaved::Unkept { .. }), "{error}");
    assert!(error.to_string().contains("/legs/0"), "{error}");
    // One that a later version knows by the same name has no place beside it there.
    let odd = AT_1_0.replace("color", "price");
    let held = trips.receive(&odd).unwrap();
    let sent = trips.send(&held, &pin(""), None).unwrap();
    assert_eq!(sent.lost[0].to_string(), r#"/price: "red" would become 0"#);
    let text = trips.send_whole(&held, &pin("1.0"), None).unwrap().text;
    assert!(text.contains(r#""price":"red""#), "{text}");
}

#[test]
fn refused_they_are_named() {
    let trips = refused::trips();
    let error = trips.receive(AT_1_1).unwrap_err();
    assert_eq!(
        error.to_string(),
        "Trip 1.1 cannot be read: this version has no /color, /legs/0/seat"
    );
    let error = trips.receive(AT_1_0).unwrap_err();
    assert_eq!(
        error.to_string(),
        "Trip 1.0 cannot be read: this version has no /color"
    );
    let known = AT_1_0.replace(r#","color":"red""#, "");
    assert_eq!(trips.receive(&known).unwrap().value.name, "n");
}
