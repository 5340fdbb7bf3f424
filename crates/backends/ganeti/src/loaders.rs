//! Loaders: they read a cluster from Ganeti's [text format](mod@text), from bodies of its [RAPI](rapi), from
//! the master's [daemon](luxi), from a request to an [allocator](iallocator), or generate one from a seed.

#[cfg(feature = "generated")]
pub mod generated;
pub mod iallocator;
pub mod luxi;
pub mod rapi;
pub mod text;
