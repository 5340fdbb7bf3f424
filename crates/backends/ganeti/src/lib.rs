//! Ganeti clusters: what they are, how they are loaded, and how their maintenance is planned.
//!
//! A [`cluster::Cluster`] comes from Ganeti's text format ([`text`]) from the bodies that its RAPI answers
//! ([`rapi`]), from the daemon of the master itself ([`luxi`]), or from what it sends to an allocator ([`iallocator`]).
//! [`translate`] makes a snapshot of it, [`select`] says which nodes are meant, [`target`] what is wanted of them.
//! [`hroller`] speaks as Ganeti's own tool of that name does. The feature `generated` adds clusters from a seed.

pub mod cluster;
#[cfg(feature = "generated")]
pub mod generated;
pub mod hroller;
pub mod iallocator;
pub mod luxi;
pub mod rapi;
pub mod select;
pub mod target;
pub mod text;
pub mod translate;
