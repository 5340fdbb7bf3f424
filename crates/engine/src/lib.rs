//! Doing what the core decides.
//!
//! [`driver::Driver`] is a step, not a loop: observe, decide, write, act, write, and say when to be
//! called again. What it writes goes to a [`store::Store`]; what it does and sees goes through a
//! [`backend::Backend`]; time comes from a [`clock::Clock`]. [`supervisor`] starts, resumes and
//! commands runs. Nothing here chooses: choosing is `stagger_core`'s.
//!
//! Start reading at [`driver`].

pub mod artifacts;
pub mod backend;
pub mod beats;
pub mod clock;
pub mod database;
pub mod deadline;
pub mod driver;
pub mod hosts;
pub mod inventory;
pub mod lease;
pub mod life;
pub mod postgres;
pub mod preflight;
pub mod protocol;
mod raising;
pub mod redact;
mod rows;
pub mod secrets;
pub mod sqlite;
pub mod store;
mod strays;
pub mod supervisor;
pub mod template;
