//! The tests of this crate, in one program: planning on clusters in files, and the backend against a double of RAPI in this
//! process.
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

mod as_ganeti;
mod client;
mod common;
mod crash;
mod double;
mod executor;
mod filters;
mod held_back;
mod hold;
mod hroller;
mod iallocator;
mod jobs;
mod laws;
mod lives;
mod lock;
mod looks;
mod maintain;
mod master;
mod migrations;
mod narrow_drain;
mod planner;
mod planning;
mod preflight;
mod rapi;
mod reboots;
mod recorded;
mod recovery;
mod runs;
mod seam;
mod select;
mod strict;
mod succession;
mod text;
mod tls;
