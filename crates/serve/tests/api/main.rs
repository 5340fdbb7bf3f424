//! What is served, asked by machines: many at once, slow ones, and such as keep to no description.
#![allow(missing_docs, unreachable_pub, clippy::unwrap_used, reason = "test code")]

#[path = "../server/mod.rs"]
#[allow(dead_code, reason = "each file of tests asks in its own way")]
mod server;

mod alerts;
mod bad_input;
mod begun;
mod described;
mod stores;
mod watchers;
