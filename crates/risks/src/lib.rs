//! Known risks: edges from release to release that hurt some clusters, each with a condition on the cluster at hand, and the
//! place where it is told.
//!
//! [`file`](mod@file) reads a file of them; [`shipped`] is the one that comes with the program. A [`Condition`] is a small closed
//! language over what a cluster has answered ([`Cluster`]). [`judge`](fn@judge) is a pure function of risks, the way, and the
//! cluster: what nobody could tell never counts as harmless.
//!
//! This crate asks nobody. [`Questions`] says what has to be asked for the risks on a way; [`ceph`] reads a Ceph's answers.

pub mod ceph;
mod cluster;
mod condition;
pub mod file;
mod judge;
mod release;

pub use cluster::{Cluster, Known, Metadata, Pool, Setting};
pub use condition::{Condition, Holds, MetadataIs, PoolIs, SettingIs};
pub use file::{Effect, Risk, RiskFileError, System, merge, shipped};
pub use judge::{Applies, Finding, Questions, Way, judge};
pub use release::{Ranges, release};
