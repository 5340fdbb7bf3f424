//! Time, which only the engine knows.

use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use jiff::{SignedDuration, Timestamp};
use rustix::time::{ClockId, clock_gettime};

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
        Moment {
            up: up(),
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

/// A moment on two clocks: the one stands still while the machine is frozen from outside, as a virtual one is, the other can
/// be set back. The longer of both counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment {
    /// How long the machine has been up, asleep or not.
    pub up: Duration,
    /// The time of the day, since 1970.
    pub wall: Duration,
}

impl Moment {
    /// How long before that one this was.
    pub fn until(&self, later: Self) -> Duration {
        let up = later.up.saturating_sub(self.up);
        up.max(later.wall.saturating_sub(self.wall))
    }
}

/// How long the machine has been up. The clock that [`std::time::Instant`] reads stands still while it sleeps.
fn up() -> Duration {
    #[cfg(target_os = "linux")]
    const SINCE_BOOT: ClockId = ClockId::Boottime;
    #[cfg(not(target_os = "linux"))]
    const SINCE_BOOT: ClockId = ClockId::Monotonic;
    Duration::try_from(clock_gettime(SINCE_BOOT)).unwrap_or_default()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(target_os = "linux")]
    #[test]
    fn a_machine_is_up_while_it_sleeps_too() {
        // The kernel counts the uptime by the clock that goes on then.
        let uptime = std::fs::read_to_string("/proc/uptime").unwrap();
        let uptime: f64 = uptime.split(' ').next().unwrap().parse().unwrap();
        assert!((SystemClock.moment().up.as_secs_f64() - uptime).abs() < 5.0);
    }

    #[test]
    fn the_longer_of_both_clocks_counts() {
        let at = |up, wall| Moment {
            up: Duration::from_secs(up),
            wall: Duration::from_secs(wall),
        };
        // Frozen, set back, both right.
        assert_eq!(at(10, 1000).until(at(10, 1040)).as_secs(), 40);
        assert_eq!(at(10, 1000).until(at(50, 940)).as_secs(), 40);
        assert_eq!(at(10, 1000).until(at(50, 1040)).as_secs(), 40);
    }
}
