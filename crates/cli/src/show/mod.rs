//! Text output.

pub(crate) mod demo_acts;
pub(crate) mod leftovers;
pub(crate) mod live;
pub(crate) mod paint;
pub(crate) mod plan;
pub(crate) mod rehearsal;
pub(crate) mod rook;
pub(crate) mod services;
pub(crate) mod status;
