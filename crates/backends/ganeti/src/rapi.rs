//! Ganeti's remote API (RAPI) and the job queue behind it.
//!
//! A request ([`client`]) uses a connection of its own ([`wire`]) to an authenticated RAPI ([`tls`]). A
//! change to the cluster is a job ([`jobs`]), with a [`reason`] by which it is found again, and by which
//! [`filters`] hold or refuse it ([`fence`]).

pub mod client;
pub mod fence;
pub mod filters;
pub mod fingerprint;
pub mod job_history;
pub mod jobs;
pub mod local_node;
pub mod opcode;
pub mod reason;
pub mod tls;
pub mod wire;
