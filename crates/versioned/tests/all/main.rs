//! Tests of the library, on objects like those of Ironic.
#![allow(missing_docs, clippy::unwrap_used, reason = "test code")]

mod boundaries;
mod calls;
#[cfg(feature = "store")]
mod defects;
#[cfg(feature = "derive")]
mod derived;
mod ironic;
mod kept;
#[cfg(feature = "lint")]
mod linted;
mod manifests;
#[cfg(feature = "mysql")]
mod mariadb;
#[cfg(feature = "store")]
mod mixes;
mod objects;
mod pins;
#[cfg(feature = "store")]
mod server;
#[cfg(feature = "shapes")]
mod shapes;
#[cfg(feature = "store")]
mod stores;
mod unknown;
