//! Evacuation of hosts before they go down: where guests go, and when.
//!
//! [`Capacity`](crate::model::Capacity) describes what hosts carry and what fits;
//! [`EvacuationPolicy`](crate::model::EvacuationPolicy) says which guests may be moved, and how. From these,
//! [`placement`] computes destinations for the guests of one wave, and [`schedule()`](schedule::schedule) the
//! visits that need not wait for whole waves. [`check`](crate::check) verifies the result without this
//! module.

mod placement;
mod schedule;

pub(crate) use placement::{HostBudget, Partition, PlacementContext, WavePlacement};
pub(crate) use schedule::{longest_visit, schedule};
