//! Releases side by side.
//!
//! While a service is upgraded, old and new processes of it run at once on one store. This library keeps them from
//! breaking what the others read: a [`Manifest`] says which versions belong to which release, each version of an object is a
//! plain Rust type ([`Versioned`], [`Follows`]), a [`Pin`] holds a new process to what the old ones understand, and a
//! [`Chain`] converts at the four boundaries: from the store, to the store, sent, received. Inside a process an object is
//! always the newest.
//!
//! It is of use without the rest of stagger. Nothing here does I/O unless a feature asks for it:
//!
//! | feature | what it adds |
//! |---|---|
//! | `derive` | `#[derive(Versioned)]`: a version is written as what it changes |
//! | `store` | rows in SQLite and PostgreSQL, and their migration online |
//! | `mysql` | the same in MariaDB and MySQL |
//! | `shapes` | what was released compared with what is there |
//! | `lint` | migrations of schemas judged |
//!
//! ```
//! # #[cfg(feature = "derive")] {
//! use serde::{Deserialize, Serialize};
//! use stagger_versioned::{Chain, Version, Versioned};
//!
//! #[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Versioned)]
//! #[versioned(name = "Port", version = "1.0")]
//! struct Port1_0 { address: String, speed: u32 }
//!
//! // A release later: one field more, and one has another name.
//! #[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Versioned)]
//! #[versioned(name = "Port", version = "1.1", before = Port1_0)]
//! struct Port1_1 {
//!     address: String,
//!     #[versioned(renamed = "speed")]
//!     megabits: u32,
//!     #[versioned(added)]
//!     description: Option<String>,
//! }
//!
//! let ports: Chain<Port1_1> = Chain::<Port1_0>::first().then();
//! let port = ports.load_text(Some(Version::new(1, 0)), r#"{"address":"52:54:00:00:00:01","speed":1000}"#)?;
//! assert_eq!(port.value.megabits, 1000);
//! let old = ports.text(&port.value, Version::new(1, 0))?;
//! assert_eq!(old.data, r#"{"address":"52:54:00:00:00:01","speed":1000}"#);
//! # }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Start reading at [`manifest`], then [`object`] and [`boundary`].
#![warn(clippy::wildcard_enum_match_arm)]

pub mod boundary;
pub mod chain;
pub mod envelope;
pub mod laws;
#[cfg(feature = "lint")]
pub mod lint;
pub mod loss;
pub mod manifest;
pub mod object;
pub mod pin;
pub mod registry;
#[cfg(feature = "shapes")]
pub mod shapes;
#[cfg(feature = "store")]
pub mod store;
mod unknown_fields;
mod version;

pub use boundary::{Held, Row, Stored, Write};
pub use chain::Chain;
pub use loss::Loss;
pub use manifest::{Declared, Manifest};
pub use object::{
    Child, ConversionError, Follows, TryFollows, UnknownFields, Versioned, down_all, try_down_all,
    try_up_all, up_all,
};
pub use pin::{Pin, Pins};
pub use registry::Registry;
#[cfg(feature = "derive")]
pub use stagger_versioned_derive::Versioned;
pub use version::{Version, VersionError};

/// The example of the readme runs.
#[cfg(all(doctest, feature = "derive"))]
#[doc = include_str!("../README.md")]
struct Readme;

/// What resembles the word most, if anything does.
fn nearest<'a>(word: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let scored = known.map(|known| (strsim::jaro_winkler(word, known), known));
    let best = scored.max_by(|(a, _), (b, _)| a.total_cmp(b));
    best.filter(|(score, _)| *score > 0.7).map(|(_, known)| known)
}
