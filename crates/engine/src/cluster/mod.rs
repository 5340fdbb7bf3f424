//! The traits through which a cluster is seen and changed, and what goes over them. A backend has all four.
//!
//! [`Source`] collects what a cluster answers, and [`Planner`] makes of it what a plan is a function of. [`Executor`]
//! observes, asks the cluster's own oracle and carries actions out, and [`Lock`] keeps two writers apart, in the cluster
//! itself.

mod call;
mod error;
mod executor;
mod fencing;
mod lock;
pub mod names;
mod planner;
mod source;

pub use call::Call;
pub use error::{BackendError, Retryability, in_full};
pub use executor::Executor;
pub use fencing::Fencing;
pub use lock::{Anchor, Holder, Lock, LockError, LockRecord};
pub use planner::{Planned, Planner, PlannerError, Refusal};
pub use source::Source;

/// One cluster of one kind: its changes and its lock.
pub trait Backend: Executor + Lock {}

impl<T: Executor + Lock + ?Sized> Backend for T {}
