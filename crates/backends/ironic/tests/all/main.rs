//! The backend on an Ironic in memory, and its questions on a server and a database of their own.
#![allow(
    missing_docs,
    unreachable_pub,
    dead_code,
    let_underscore_drop,
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::too_many_lines,
    reason = "test code"
)]

mod back;
mod bad;
mod broker;
mod by_hand;
mod codes;
mod common;
mod crash;
mod double;
mod executor;
mod in_flight;
mod laws;
mod lives;
mod lock;
mod looks;
mod migrations;
mod orders;
mod planner;
mod plans;
mod rings;
mod saved;
mod stopping;
