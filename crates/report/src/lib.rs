//! Reports on runs, from their journals alone.
//!
//! [`verify`](mod@verify) checks whether a journal keeps the laws. It shares the events with the code that
//! wrote them, and no decisions: neither the fold over a journal nor the planner. [`History`] holds what
//! happened and when; [`page`](mod@page) shows both as one file. [`forecast`] estimates from earlier journals
//! how long a plan takes.

mod duration;
pub mod event_text;
pub mod forecast;
pub mod history;
pub mod map;
pub mod names;
pub mod page;
mod reading;
pub mod text;
pub mod verify;

pub use duration::duration;
pub use history::History;
pub use page::page;
pub use reading::Reading;
pub use verify::{Breach, Law, LawVerdict, Verification, verify};
