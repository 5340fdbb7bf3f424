//! Emptying hosts before they go down: where their guests go, and when.
//!
//! What hosts carry and what fits is a noun, [`Capacity`](crate::model::Capacity), and so is who may be moved how,
//! [`EvacuationPolicy`](crate::model::EvacuationPolicy). Here is what is worked out from them: [`placement`] of guests
//! for the hosts of one wave, and the [`schedule()`](schedule::schedule) of visits that do not wait for whole waves. What comes out is judged
//! without this module, by [`check`](crate::check).

mod placement;
mod schedule;

pub(crate) use placement::{HostBudget, Partition, PlacementContext, WavePlacement};
pub(crate) use schedule::{longest_visit, schedule};
