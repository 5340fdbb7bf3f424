//! What is served, asked by machines: many at once, slow ones, and such as keep to no description.
#![allow(missing_docs, unreachable_pub, clippy::unwrap_used, reason = "test code")]

#[path = "../server/mod.rs"]
#[allow(dead_code, reason = "each file of tests asks in its own way")]
mod server;

#[path = "../../../asks/tests/all/toy.rs"]
#[allow(dead_code, reason = "a part of it is needed here")]
mod toy;

mod alerts;
mod asks;
mod bad_input;
mod begun;
mod described;
mod stores;
mod watchers;
