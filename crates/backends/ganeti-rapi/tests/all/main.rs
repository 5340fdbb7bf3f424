//! The backend against a double of RAPI in this process.
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

mod client;
mod common;
mod crash;
mod double;
mod filters;
mod held_back;
mod jobs;
mod laws;
mod lives;
mod lock;
mod looks;
mod master;
mod recorded;
mod runs;
mod tls;
