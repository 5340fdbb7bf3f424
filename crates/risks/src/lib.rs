//! Known risks: upgrades between two releases that harm some clusters, each with a condition on the cluster,
//! and its sources.
//!
//! [`file`](mod@file) reads a file of risks; [`shipped`] is the built-in list. A [`RiskCondition`] is a small
//! closed language over a cluster's answers ([`RiskFacts`]). [`judge`](fn@judge) is a pure function of risks,
//! the upgrade path, and the cluster: an unknown condition never counts as harmless.
//!
//! This crate sends no queries. [`Questions`] says what to ask for the risks on a path; [`ceph`] reads the
//! answers of a Ceph cluster.

pub mod ceph;
mod cluster;
mod condition;
pub mod file;
mod judge;
mod release;

pub use cluster::{ClusterAnswer, Metadata, PoolFacts, RiskFacts, Setting};
pub use condition::{Holds, MetadataIs, PoolIs, RiskCondition, SettingIs};
pub use file::{Risk, RiskEffect, RiskFileError, System, merge, shipped};
pub use judge::{Applies, Questions, RiskFinding, UpgradePath, judge};
pub use release::{Ranges, release};
