//! Ganeti clusters: what they are, how their maintenance is planned, and how it is carried out.
//!
//! A [`model::Cluster`] is read by one of the [`loaders`]. [`maintenance`] makes a snapshot of it, and says which nodes are
//! meant and what is wanted of them. What a cluster that answers tells beside that are its [`facts`]; the [`executor`]
//! reads them and changes the cluster, over Ganeti's remote API (RAPI). [`hroller`] speaks as Ganeti's own tool of that
//! name does. The feature `generated` adds clusters from a seed.

pub mod config;
pub mod executor;
pub mod facts;
pub mod hroller;
pub mod loaders;
pub mod maintenance;
pub mod model;
pub mod preflight;
pub mod release;
pub mod unheeded;
