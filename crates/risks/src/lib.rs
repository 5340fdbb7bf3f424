//! Known risks: edges from release to release that hurt some clusters, each with a condition on the cluster at hand, and the
//! place where it is told.
//!
//! [`file`](mod@file) reads a file of them; [`shipped`] is the one that comes with the program. A [`RiskCondition`] is a small closed
//! language over what a cluster has answered ([`RiskFacts`]). [`judge`](fn@judge) is a pure function of risks, the way, and the
//! cluster: what nobody could tell never counts as harmless.
//!
//! This crate asks nobody. [`Questions`] says what has to be asked for the risks on a way; [`ceph`] reads a Ceph's answers.

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
