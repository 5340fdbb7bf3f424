//! Ceph clusters that Rook laid out on Kubernetes.
//!
//! Start reading at [`backend`]: Ceph's facts as on plain hosts, daemons as Deployments ([`daemons`],
//! [`made`], [`rollout`]) that are kept in view by [`watched`]. What people let it do is a CephMaintenance ([`maintenance`]), how bold to be is read from that and the
//! CephCluster ([`policy`], and of pods what [`pod`] says; together a [`wish`]); which PodDisruptionBudgets there should be is
//! decided by [`drains`], beside what a run has [`exposed`]; which new OSDs by [`provision`], which go by [`removal`]; [`prepare`] makes OSDs on a node;
//! [`migrations`] bring old objects to what is expected. An [`agent`] runs on each node, and the operator brings its
//! [`agents`] to its own release before any cluster. The [`client`] is how the command
//! line speaks to an operator: it reads what was [`told`], and who runs which of the [`versions`].

pub mod access;
pub mod agent;
pub mod agents;
pub mod backend;
pub mod beside;
pub mod client;
pub mod cluster;
pub mod daemons;
pub mod drains;
pub mod exposed;
mod gathered;
pub mod journal;
pub mod made;
pub mod maintenance;
pub mod migrations;
pub mod names;
pub mod objects;
pub mod operator;
pub mod ours;
pub mod pod;
pub mod policy;
pub mod prepare;
pub mod provision;
pub mod removal;
pub mod rollout;
pub mod rook_operator;
pub mod told;
mod unchecked;
pub mod versions;
pub mod watched;
pub mod wish;
