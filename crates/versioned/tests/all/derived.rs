//! Versions that are written as what they change do what versions by hand do.

use proptest::prelude::*;
use serde::{Deserialize, Serialize};
use stagger_versioned::{
    Chain, Child, ConversionError, Follows, TryFollows, UnknownFields, Version, Versioned, laws,
};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Versioned)]
#[versioned(name = "Wheel", version = "1.0")]
struct Wheel1_0 {
    inches: u32,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Versioned)]
#[versioned(name = "Wheel", version = "1.1", before = Wheel1_0)]
struct Wheel1_1 {
    inches: u32,
    #[versioned(added = "black".to_owned())]
    color: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Versioned)]
#[versioned(name = "Bike", version = "1.9", unknown = "kept")]
struct Bike1_9 {
    id: i64,
    name: String,
    bell: bool,
    gears: String,
    front: Wheel1_0,
    spare: Option<Wheel1_0>,
    others: Vec<Wheel1_0>,
    r#type: String,
    weight: f64,
}

/// One of each: the same, renamed, added, removed, converted, and objects within.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Versioned)]
#[versioned(name = "Bike", version = "1.10", before = Bike1_9, removed(bell = true, weight), unknown = "kept")]
struct Bike1_10 {
    id: i64,
    #[versioned(renamed = "name")]
    title: String,
    #[versioned(try_with = gears)]
    gears: u32,
    #[versioned(child, converted)]
    front: Wheel1_1,
    #[versioned(child, converted)]
    spare: Option<Wheel1_1>,
    #[versioned(child, converted, renamed = "others")]
    wheels: Vec<Wheel1_1>,
    #[versioned(with = upper)]
    r#type: String,
    #[versioned(added)]
    lights: Vec<String>,
}

/// A text that should be a number.
mod gears {
    use super::ConversionError;

    #[expect(clippy::needless_pass_by_value, reason = "it is called so")]
    pub(super) fn try_up(before: String) -> Result<u32, ConversionError> {
        let gears = before.parse();
        gears.map_err(|_| ConversionError::new(format!("gears {before:?} are no number")))
    }

    #[expect(
        clippy::unnecessary_wraps,
        clippy::trivially_copy_pass_by_ref,
        reason = "it is called so"
    )]
    pub(super) fn try_down(now: &u32) -> Result<String, ConversionError> {
        Ok(now.to_string())
    }
}

mod upper {
    #[expect(clippy::needless_pass_by_value, reason = "it is called so")]
    pub(super) fn up(before: String) -> String {
        before.to_uppercase()
    }

    pub(super) fn down(now: &str) -> String {
        now.to_lowercase()
    }
}

fn bikes() -> Chain<Bike1_10> {
    Chain::<Bike1_9>::first().then()
}

const OLD: &str = r#"{"id":1,"name":"n","bell":false,"gears":"7","front":{"inches":28},"spare":null,"others":[{"inches":20}],"type":"race","weight":9.5}"#;

#[test]
fn a_version_is_what_it_changes() {
    assert_eq!((Bike1_10::NAME, Bike1_10::VERSION), ("Bike", Version::new(1, 10)));
    assert_eq!(<Bike1_10 as TryFollows>::REMOVED, ["bell", "weight"]);
    assert_eq!(<Wheel1_1 as Follows>::REMOVED, [""; 0]);
    assert_eq!(Bike1_10::CHILDREN, [Child::of::<Wheel1_1>(); 3]);
    assert_eq!(Bike1_9::CHILDREN, []);
    assert_eq!(
        (Bike1_10::UNKNOWN_FIELDS, Wheel1_0::UNKNOWN_FIELDS),
        (UnknownFields::Kept, UnknownFields::Dropped)
    );
    let bike = bikes().load_text(Some(Version::new(1, 9)), OLD).unwrap().value;
    let wheel = |inches| Wheel1_1 {
        inches,
        color: "black".to_owned(),
    };
    let expected = Bike1_10 {
        id: 1,
        title: "n".to_owned(),
        gears: 7,
        front: wheel(28),
        spare: None,
        wheels: vec![wheel(20)],
        r#type: "RACE".to_owned(),
        lights: Vec::new(),
    };
    assert_eq!(bike, expected);
    let down = bike.try_down().unwrap();
    assert!(down.bell && down.weight.abs() < f64::EPSILON, "{down:?}");
    assert_eq!((down.name.as_str(), down.r#type.as_str()), ("n", "race"));
}

#[test]
fn a_conversion_that_refuses_says_why() {
    let odd = OLD.replace("\"7\"", "\"many\"");
    let error = bikes().load_text(Some(Version::new(1, 9)), &odd).unwrap_err();
    assert_eq!(
        error.to_string(),
        "Bike 1.9 cannot be converted to 1.10: gears \"many\" are no number"
    );
}

proptest! {
    #[test]
    fn what_is_derived_keeps_the_laws(id: i64, name: String, gears: u32, inches: Vec<u32>, bell: bool) {
        let wheel = |inches: &u32| Wheel1_0 { inches: *inches };
        let bike = Bike1_9 {
            id,
            name,
            bell,
            gears: gears.to_string(),
            front: Wheel1_0 { inches: 1 },
            spare: inches.first().map(wheel),
            others: inches.iter().map(wheel).collect(),
            r#type: "race".to_owned(),
            weight: 0.0,
        };
        prop_assert_eq!(laws::up_loses_nothing::<Bike1_10>(&bike), Ok(()));
        let up = Bike1_10::try_up(bike).unwrap();
        prop_assert_eq!(laws::down_is_stable(&up), Ok(()));
    }
}
