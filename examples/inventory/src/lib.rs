//! A small service in three releases. Its programs are in `src/bin`, each release is a crate beside, and
//! `tests/inventory_upgrade.rs` upgrades three instances from the first to the third.

/// The examples of the guide run.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/guides/versioned.md")]
struct Guide;
