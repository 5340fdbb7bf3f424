//! The builder of roots, as every real system's root is built by it.

/// The last file written in a build: package versions.
pub(crate) const VERSIONS: &str = "versions.json";

#[path = "../../src/roots/build.rs"]
pub(crate) mod build;
