//! Output for operators, Prometheus and Kubernetes: status, conditions, Events, metrics and health.

pub(crate) mod blocked;
pub(crate) mod conditions;
pub(crate) mod events;
pub(crate) mod health;
pub(crate) mod instrumented_client;
pub(crate) mod last_run;
pub(crate) mod metrics;
pub(crate) mod status;
pub(crate) mod writer;
