//! The long cases: each on a real cluster of its own, under load, with one thing that goes wrong.
//!
//! `cargo xtask test --long` runs them one after another and notes what each prints last:
//! `case NAME ok|FAILED SECONDS`.

mod gates;
mod going_back;
mod hosts;
mod interrupted;
mod rivals;
mod stretch;
mod upgrades;

use std::time::Duration;

/// By then anything that goes well has gone.
const LIMIT: Duration = Duration::from_mins(10);
