//! Doing what the core decides.
//!
//! [`driver::Driver`] is a step, not a loop: observe, decide, write, act, write, and say when to be
//! called again, and [`drive()`](drive::drive) is the loop around it. What it writes goes to a [`store::JournalStore`]; what it does and sees goes through a
//! [`cluster::Backend`]; time comes from a [`clock::Clock`]. [`supervisor`] starts, resumes and
//! commands runs. Nothing here chooses: choosing is `stagger_core`'s.
//!
//! Start reading at [`driver`].

pub mod artifacts;
pub mod clock;
pub mod cluster;
pub mod database;
pub mod deadline;
pub mod drive;
pub mod driver;
pub mod heartbeats;
pub mod hosts;
pub mod inventory;
pub mod lease;
pub mod liveness;
pub mod postgres;
pub mod preflight;
pub mod protocol;
pub mod redact;
pub mod rows;
pub mod secrets;
pub mod sqlite;
pub mod store;
pub mod supervisor;
pub mod template;
