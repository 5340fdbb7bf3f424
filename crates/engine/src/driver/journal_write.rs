//! Tracks whether a write to the journal is under way.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether a write to the journal is under way. A step is not cut short during one: the event might be
/// stored, and the run would not know of it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Writing(Arc<AtomicBool>);

impl Writing {
    /// Writes.
    pub(super) async fn track<T>(&self, written: impl Future<Output = T>) -> T {
        self.0.store(true, Ordering::Relaxed);
        let done = written.await;
        self.0.store(false, Ordering::Relaxed);
        done
    }

    /// Whether one is under way.
    pub(crate) fn is_under_way(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
