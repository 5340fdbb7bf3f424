//! Ceph clusters that Rook laid out on Kubernetes.
//!
//! So far the decisions about node drains: which PodDisruptionBudgets there should be, and on which
//! failure domains `noout`. They are pure; nothing here talks to Kubernetes yet.

pub mod drains;
pub mod names;
