//! Kubernetes objects: Rook's resources and stagger's, their names and labels, and how they are read and
//! watched.

pub mod access;
pub mod cache;
pub mod cluster;
pub mod daemons;
mod error;
pub(crate) mod eviction_api;
#[cfg(test)]
pub(crate) mod fake;
pub(crate) mod low_memory_client;
pub mod maintenance;
pub mod names;
pub mod nodes;
pub mod objects;
pub mod pod;
pub mod pod_revision;
pub mod policy;
pub mod rook_operator;
pub mod settings;
pub(crate) mod watches;

pub(crate) use error::failed;
