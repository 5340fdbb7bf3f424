//! Gates on what others measure of a cluster: a query of Prometheus stays within its bounds, an alert of Alertmanager does not
//! fire.
//!
//! A run asks at each observation. What is answered becomes a condition of the snapshot, and every stage of the target gets a gate
//! on it: a wave begins while it holds, and the next one begins once it holds again. The words are those of a gate of the backend's
//! own, in `plan`, `status`, the journal and the report.
//!
//! Unknown is shut: no answer, an answer that warns of missing parts, no series at all, a value that is no number.

mod alertmanager;
mod config;
mod executor;
mod http;
mod measures;
mod prometheus;

pub use config::{AlertGate, Endpoint, GateSettings, MetricGate};
pub use executor::MeasuredBackend;
pub use measures::Measures;
