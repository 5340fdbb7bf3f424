//! From a cluster to what is planned: which nodes are [meant](selection), the [`snapshot`](mod@snapshot) of the cluster,
//! and the [`target`].

pub mod selection;
pub mod snapshot;
pub mod target;
