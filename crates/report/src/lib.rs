//! What a run did, read from its journal alone, and how it is shown.
//!
//! [`verify`](mod@verify) says whether the journal keeps the laws. It shares the events with what wrote them, and nothing that
//! decides: neither the fold over a journal nor the planner. [`History`] holds when what happened; [`page`](mod@page) shows both
//! as one file. [`forecast`] learns from the journals of earlier runs how long a plan takes.

mod duration;
pub mod forecast;
pub mod history;
pub mod map;
pub mod names;
pub mod page;
mod reading;
pub mod sentences;
pub mod text;
pub mod verify;

pub use duration::duration;
pub use history::History;
pub use page::page;
pub use reading::Reading;
pub use verify::{Breach, Law, LawVerdict, Verification, verify};
