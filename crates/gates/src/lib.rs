//! Gates on external measurements: a query of Prometheus stays within its bounds, an alert of Alertmanager
//! does not fire.
//!
//! A run queries them at each observation. Each answer becomes a condition of the snapshot, and every stage
//! of the target gets a gate on it: a wave starts while it holds, and the next one starts once it holds
//! again. It appears like a gate of the backend in `plan`, `status`, the journal and the report.
//!
//! Unknown counts as shut: no answer, an answer that warns of missing parts, no series at all, a value that
//! is no number.

mod alertmanager;
mod config;
mod executor;
mod http;
mod measures;
mod prometheus;

pub use config::{AlertGate, Endpoint, GateSettings, MetricGate};
pub use executor::MeasuredBackend;
pub use measures::Measures;
