//! Decides what is safe to do.
//!
//! This crate only decides. From a [`model::Snapshot`] (what was observed), a [`model::Target`] (what is
//! wanted) and a [`model::Policy`] (how much risk is accepted) it makes a [`plan::Plan`]; [`check`] verifies
//! any plan independently of the planner; [`run::Run`] folds a journal into the next decision. The crate
//! never reads a clock, a file, the environment or randomness: time is an argument, and the same input gives
//! the same bytes.
//!
//! Start reading at [`plan`], which lists the steps of planning in order, then [`run::Run::next`].
#![warn(clippy::wildcard_enum_match_arm)]

pub mod check;
mod evacuation;
pub mod explain;
pub mod model;
pub mod plan;
pub mod releases;
pub mod run;
pub mod view;
