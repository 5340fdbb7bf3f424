//! Ceph clusters that Rook laid out on Kubernetes.
//!
//! So far what is decided, and nothing that talks to Kubernetes yet: how bold to be, from the fields of a
//! CephCluster; which PodDisruptionBudgets there should be, and on which failure domains `noout`.

pub mod cluster;
pub mod drains;
pub mod names;
pub mod policy;
