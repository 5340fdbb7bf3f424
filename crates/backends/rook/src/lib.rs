//! Rook-managed Ceph clusters on Kubernetes.
//!
//! Modules, each of which uses only those above it:
//!
//! - [`api`]: Kubernetes objects. Rook's resources and stagger's (a CephMaintenance says what is done for a
//!   CephCluster), names, labels, policy, and the watch cache.
//! - [`journal`]: journals of runs, kept in ConfigMaps.
//! - [`executor`]: Ceph's facts as on plain hosts, daemons as Deployments. Start reading here.
//! - [`disruption`]: the wanted PodDisruptionBudgets.
//! - [`provision`]: new OSDs, and removed ones.
//! - [`agent`]: the agent on each node, and the rollout of agents.
//! - [`observability`]: status, conditions, Events, metrics and health.
//! - [`reconcile`]: the reconcilers of each cluster: updates, drains, new OSDs.
//! - [`operator`]: leader election, a task for each cluster, and the eviction webhook.
//! - [`client`]: the command line's client of an operator.

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
