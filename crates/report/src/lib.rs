//! What a run did, read from its journal alone.
//!
//! [`verify`](mod@verify) says whether the journal keeps the laws. It shares the events with what wrote them, and nothing that
//! decides: neither the fold over a journal nor the planner.

pub mod verify;

pub use verify::{Breach, Law, LawVerdict, Verification, verify};
