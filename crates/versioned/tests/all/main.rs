//! Tests of the library, on objects like those of Ironic.
#![allow(missing_docs, clippy::unwrap_used, reason = "test code")]

mod boundaries;
#[cfg(feature = "rpc")]
mod calls;
#[cfg(all(feature = "rpc", feature = "store"))]
mod defects;
mod ironic;
mod kept;
#[cfg(feature = "lint")]
mod linted;
mod manifests;
#[cfg(all(feature = "rpc", feature = "store"))]
mod mixes;
mod objects;
mod pins;
#[cfg(feature = "store")]
mod server;
#[cfg(feature = "shapes")]
mod shapes;
#[cfg(feature = "store")]
mod stores;
