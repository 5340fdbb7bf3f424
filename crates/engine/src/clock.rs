//! Time, which only the engine knows.

use std::sync::LazyLock;
use std::time::{Duration, Instant, SystemTime};

use async_trait::async_trait;
use jiff::{SignedDuration, Timestamp};

/// A clock.
///
/// All that the engine knows of time it knows from here, so that whoever brings a clock along decides the
/// order of everything that takes time.
#[async_trait]
pub trait Clock: Send + Sync {
    /// Now.
    fn now(&self) -> Timestamp;

    /// Returns when it is that time; at once if it is past.
    async fn sleep_until(&self, until: Timestamp);

    /// This moment, to measure from. That of the machine, unless the clock has a time of its own that a lock's
    /// expiry goes by too.
    fn moment(&self) -> Moment {
        static BEGIN: LazyLock<Instant> = LazyLock::new(Instant::now);
        Moment {
            awake: BEGIN.elapsed(),
            wall: SystemTime::now()
                .duration_since(SystemTime::UNIX_EPOCH)
                .unwrap_or_default(),
        }
    }

    /// Returns after that time.
    async fn pause(&self, time: Duration) {
        tokio::time::sleep(time).await;
    }
}

/// A moment on two clocks: the one stands still while the machine sleeps, the other can be set back. The
/// longer of both counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment {
    /// How long the machine has been awake.
    pub awake: Duration,
    /// The time of the day, since 1970.
    pub wall: Duration,
}

impl Moment {
    /// How long before that one this was.
    pub fn until(&self, later: Self) -> Duration {
        let awake = later.awake.saturating_sub(self.awake);
        awake.max(later.wall.saturating_sub(self.wall))
    }
}

/// What comes of that within so long; `None`: nothing yet, and it is dropped.
pub(crate) async fn within<T>(clock: &dyn Clock, time: Duration, what: impl Future<Output = T>) -> Option<T> {
    tokio::select! {
        biased;
        done = what => Some(done),
        () = clock.pause(time) => None,
    }
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
