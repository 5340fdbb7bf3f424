//! Ganeti's remote API (RAPI) and the job queue behind it.
//!
//! A request ([`client`]) goes over a connection of its own ([`wire`]) to whom we believe to be RAPI ([`tls`]). What changes the
//! cluster is a job ([`jobs`]), which carries a [`reason`] by which it is found again, and by which [`filters`] hold or refuse it
//! ([`fence`]).

pub mod client;
pub mod fence;
pub mod filters;
pub mod fingerprint;
pub mod here;
pub mod job_history;
pub mod jobs;
pub mod opcode;
pub mod reason;
pub mod tls;
pub mod wire;
