//! From a snapshot to a plan.

pub mod waves;
