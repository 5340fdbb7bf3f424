//! The laws of conversions, for the property tests of whoever writes one.
//!
//! ```
//! # use serde::{Deserialize, Serialize};
//! # use stagger_versioned::{Follows, Version, Versioned, laws};
//! # #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
//! # struct Port1_0 { address: String }
//! # #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
//! # struct Port1_1 { address: String, description: Option<String> }
//! # impl Versioned for Port1_0 {
//! #     const NAME: &'static str = "Port";
//! #     const VERSION: Version = Version::new(1, 0);
//! # }
//! # impl Versioned for Port1_1 {
//! #     const NAME: &'static str = "Port";
//! #     const VERSION: Version = Version::new(1, 1);
//! # }
//! impl Follows for Port1_1 {
//!     type Before = Port1_0;
//!     fn up(before: Port1_0) -> Self { Self { address: before.address, description: None } }
//!     // The address is forgotten.
//!     fn down(&self) -> Port1_0 { Port1_0 { address: String::new() } }
//! }
//! let before = Port1_0 { address: "52:54:00:00:00:01".into() };
//! let broken = laws::up_loses_nothing::<Port1_1>(&before).unwrap_err();
//! assert_eq!(broken.to_string(), "Port 1.0 does not survive 1.1 and back: /address: \"52:54:00:00:00:01\" would become \"\"");
//! ```

use std::fmt;

use crate::Version;
use crate::loss::{Loss, differences};
use crate::object::{ConversionError, TryFollows, Versioned};

/// A law that a conversion breaks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Broken {
    object: &'static str,
    from: Version,
    over: Version,
    why: Vec<Loss>,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            object,
            from,
            over,
            why,
        } = self;
        let why: Vec<String> = why.iter().map(ToString::to_string).collect();
        write!(
            f,
            "{object} {from} does not survive {over} and back: {}",
            why.join(", ")
        )
    }
}

impl std::error::Error for Broken {}

/// What comes up from an older version goes down again as it was, but for the fields that are declared as removed. Without
/// this a pinned process would change what it only reads. What is refused on the way up breaks nothing.
pub fn up_loses_nothing<T: TryFollows>(before: &T::Before) -> Result<(), Broken> {
    let Ok(after) = T::try_up(before.clone()) else {
        return Ok(());
    };
    let back = match after.try_down() {
        Ok(back) => back,
        Err(why) => return broken::<T::Before>(T::VERSION, vec![full_loss(&why)]),
    };
    let removed = |loss: &Loss| {
        T::REMOVED.iter().any(|field| {
            let rest = loss.at.strip_prefix('/').and_then(|at| at.strip_prefix(field));
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        })
    };
    let mut why = in_json(before, &back);
    why.retain(|loss| !removed(loss));
    broken::<T::Before>(T::VERSION, why)
}

/// What went down once loses nothing more by going up and down again. What is refused on the way down breaks nothing; what
/// went down has to come up again.
pub fn down_is_stable<T: TryFollows>(after: &T) -> Result<(), Broken> {
    let Ok(once) = after.try_down() else {
        return Ok(());
    };
    match T::try_up(once.clone()).and_then(|again| again.try_down()) {
        Ok(twice) => broken::<T>(T::Before::VERSION, in_json(&once, &twice)),
        Err(why) => broken::<T>(T::Before::VERSION, vec![full_loss(&why)]),
    }
}

/// All of it, as a loss.
fn full_loss(why: &ConversionError) -> Loss {
    Loss {
        at: String::new(),
        value: serde_json::Value::from(why.to_string()),
        becomes: None,
    }
}

/// What is written is read as it was.
pub fn json_keeps_all<T: Versioned>(value: &T) -> Result<(), Broken> {
    let text = serde_json::to_string(value).unwrap_or_default();
    let back: Option<T> = serde_json::from_str(&text).ok();
    let same = back.as_ref() == Some(value);
    let why = match back {
        _ if same => Vec::new(),
        Some(back) => in_json(value, &back),
        None => differences(&serde_json::Value::from(text), &serde_json::Value::Null),
    };
    // The values differ, and their JSON does not: a field is not written at all.
    let why = if same || !why.is_empty() {
        why
    } else {
        differences(
            &serde_json::Value::from("a field that is not written"),
            &serde_json::Value::Null,
        )
    };
    broken::<T>(T::VERSION, why)
}

fn in_json<T: Versioned>(before: &T, after: &T) -> Vec<Loss> {
    if before == after {
        return Vec::new();
    }
    let json = |value: &T| serde_json::to_value(value).unwrap_or_default();
    differences(&json(before), &json(after))
}

fn broken<T: Versioned>(over: Version, why: Vec<Loss>) -> Result<(), Broken> {
    if why.is_empty() {
        return Ok(());
    }
    Err(Broken {
        object: T::NAME,
        from: T::VERSION,
        over,
        why,
    })
}
