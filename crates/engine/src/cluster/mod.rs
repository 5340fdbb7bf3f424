//! The traits through which a run sees and changes a cluster, and what goes over them.
//!
//! [`Executor`] observes, asks the cluster's own oracle and carries actions out; [`Lock`] keeps two writers apart, in the
//! cluster itself. A backend has both.

mod call;
mod error;
mod executor;
mod fencing;
mod lock;

pub use call::Call;
pub use error::{BackendError, Retryability};
pub use executor::Executor;
pub use fencing::Fencing;
pub use lock::{Anchor, Holder, Lock, LockError, LockRecord};

/// One cluster of one kind: what is done to it, and who may.
pub trait Backend: Executor + Lock {}

impl<T: Executor + Lock + ?Sized> Backend for T {}
