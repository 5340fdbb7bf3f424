//! Releases side by side.
//!
//! While a service is upgraded, old and new processes of it run at once on one store. This library keeps them from
//! breaking what the others read: a [`Manifest`] says which versions belong to which release, each version of an object is a
//! plain Rust type ([`Versioned`], [`Follows`]), a [`Pin`] holds a new process to what the old ones understand, and a
//! [`Chain`] converts at the four boundaries: from the store, to the store, sent, received. Inside a process an object is
//! always the newest.
//!
//! It is of use without the rest of stagger. Nothing here does I/O unless a feature asks for it: `store` keeps rows in SQLite
//! and PostgreSQL, `rpc` calls other services, `shapes` compares what was released with what is there, `lint` judges
//! schema changes.
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
#[cfg(feature = "rpc")]
pub mod rpc;
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
pub use object::{Child, Follows, Versioned, down_all, up_all};
pub use pin::{Pin, Pins};
pub use registry::Registry;
pub use version::{Version, VersionError};

/// The example of the guide compiles.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/guides/versioned.md")]
struct Guide;

/// What resembles the word most, if anything does.
fn nearest<'a>(word: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let scored = known.map(|known| (strsim::jaro_winkler(word, known), known));
    let best = scored.max_by(|(a, _), (b, _)| a.total_cmp(b));
    best.filter(|(score, _)| *score > 0.7).map(|(_, known)| known)
}
