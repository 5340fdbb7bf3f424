//! A large Ceph cluster on Kubernetes that is only played: a real API server with a Deployment for each daemon,
//! pods without processes, and a Ceph that answers from a map. What the operator costs there is measured.
//!
//! Of Ceph only what an upgrade asks for is there. An OSD is up while its pod is ready, and its placement groups
//! follow at once: how long real OSDs take is no part of what is measured.

mod audit;
pub mod bench;
mod ceph;
mod deployments;
mod evictions;
mod figures;
mod pod_memory;
mod socket;
