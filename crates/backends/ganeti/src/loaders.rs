//! Whatever reads a cluster from something: Ganeti's [text format](mod@text), bodies that its [RAPI](rapi) answers, the
//! [daemon](luxi) of the master itself, what it sends to an [allocator](iallocator), and clusters from a seed.

#[cfg(feature = "generated")]
pub mod generated;
pub mod iallocator;
pub mod luxi;
pub mod rapi;
pub mod text;
