//! A clock in which waiting takes no time.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use jiff::{SignedDuration, Timestamp};
use stagger_engine::clock::Clock;

/// The machine's clock, and ahead of it by all that was waited for.
#[derive(Debug, Default)]
pub struct HastyClock {
    /// In milliseconds.
    ahead: AtomicI64,
}

#[async_trait]
impl Clock for HastyClock {
    fn now(&self) -> Timestamp {
        let ahead = SignedDuration::from_millis(self.ahead.load(Ordering::SeqCst));
        Timestamp::now().checked_add(ahead).unwrap()
    }

    fn uptime(&self) -> Duration {
        let now = self.now().as_millisecond();
        Duration::from_millis(u64::try_from(now).unwrap())
    }

    async fn sleep_until(&self, until: Timestamp) {
        let left = until.duration_since(self.now()).as_millis();
        // Whoever looks every millisecond for what takes minutes is not to wait for minutes.
        let left = i64::try_from(left).unwrap().max(250);
        self.ahead.fetch_add(left, Ordering::SeqCst);
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}
