//! Ceph clusters that Rook laid out on Kubernetes.
//!
//! Rooms, each of which knows those above it alone:
//!
//! - [`api`]: what is in Kubernetes. Rook's resources and ours (a CephMaintenance says what is done for a CephCluster), names, labels,
//!   policy, and the cache that watches keep.
//! - [`journal`]: what a run has done, kept in ConfigMaps.
//! - [`executor`]: Ceph's facts as on plain hosts, daemons as Deployments. Start reading here.
//! - [`disruption`]: which PodDisruptionBudgets there should be.
//! - [`provision`]: new OSDs, and those that go.
//! - [`agent`]: what runs on each node, and how agents come to a new release.
//! - [`observability`]: status, conditions, Events, metrics and health.
//! - [`reconcile`]: what is done about each cluster. Updates, drains, new OSDs.
//! - [`operator`]: one leader, a task for each cluster, and the webhook on evictions.
//! - [`client`]: how the command line speaks to an operator.

pub mod agent;
pub mod api;
pub mod client;
pub mod disruption;
pub mod executor;
pub mod journal;
mod observability;
pub mod operator;
pub mod provision;
mod reconcile;
