//! The tests of this crate, in one program.
#![expect(clippy::unwrap_used, reason = "helpers of tests may panic too")]

mod as_ganeti;
mod hroller;
mod iallocator;
mod planning;
mod rapi;
mod select;
mod text;
