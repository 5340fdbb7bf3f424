//! Time, which only the engine knows.

use async_trait::async_trait;
use jiff::{SignedDuration, Timestamp};

/// A clock.
#[async_trait]
pub trait Clock: Send + Sync {
    /// Now.
    fn now(&self) -> Timestamp;

    /// Returns when it is that time; at once if it is past.
    async fn sleep_until(&self, until: Timestamp);
}

/// The machine's clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

#[async_trait]
impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }

    async fn sleep_until(&self, until: Timestamp) {
        let left = until.duration_since(self.now()).max(SignedDuration::ZERO);
        tokio::time::sleep(left.unsigned_abs()).await;
    }
}
