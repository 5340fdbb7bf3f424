//! Time, which only the engine knows.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use jiff::{SignedDuration, Timestamp};
use rustix::time::{ClockId, clock_gettime};

/// A clock.
///
/// The engine gets time only from here, so the caller's clock decides the order of everything that takes
/// time.
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
            up: machine_uptime(),
            wall: SystemTime::now()
                .duration_since(SystemTime::UNIX_EPOCH)
                .unwrap_or_default(),
        }
    }

    /// How long the machine has been up, including sleep. It cannot be set.
    fn uptime(&self) -> Duration {
        machine_uptime()
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
    /// How long the machine has been up, including sleep.
    pub up: Duration,
    /// The time of the day, since 1970.
    pub wall: Duration,
}

impl Moment {
    /// How long before that one this was.
    pub fn duration_until(&self, later: Self) -> Duration {
        let up = later.up.saturating_sub(self.up);
        up.max(later.wall.saturating_sub(self.wall))
    }
}

/// How long the machine has been up. The clock that [`std::time::Instant`] reads stands still while it sleeps.
fn machine_uptime() -> Duration {
    #[cfg(target_os = "linux")]
    const SINCE_BOOT: ClockId = ClockId::Boottime;
    #[cfg(not(target_os = "linux"))]
    const SINCE_BOOT: ClockId = ClockId::Monotonic;
    Duration::try_from(clock_gettime(SINCE_BOOT)).unwrap_or_default()
}

/// What comes of that within so long; `None`: nothing yet, and it is dropped.
pub(crate) async fn timeout<T>(
    clock: &dyn Clock,
    time: Duration,
    what: impl Future<Output = T>,
) -> Option<T> {
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

/// The time of day of one process, which never goes backwards.
///
/// The journal says when both checks agreed, and a clock that is set back must not make that approval fresh
/// again. So the amount by which the clock is set back is added from then on. If the clock is set forward,
/// this time goes forward: that cannot be told from a machine that was frozen from outside.
pub struct Steady {
    clock: Arc<dyn Clock>,
    read: Mutex<Read>,
}

/// What was read last.
struct Read {
    up: Duration,
    wall: Timestamp,
    /// What the clock was set back by, in all.
    behind: SignedDuration,
    now: Timestamp,
}

/// The two clocks are read one after the other: what they differ by more than before, up to this, is the time in between.
const IN_BETWEEN: SignedDuration = SignedDuration::from_millis(100);

impl Steady {
    /// That clock, from now on.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        let (up, wall) = (clock.uptime(), clock.now());
        let read = Mutex::new(Read {
            up,
            wall,
            behind: SignedDuration::ZERO,
            now: wall,
        });
        Self { clock, read }
    }

    /// What the time of day is behind of this.
    pub fn time_of_day_lag(&self) -> SignedDuration {
        self.now();
        self.read().behind
    }

    fn read(&self) -> MutexGuard<'_, Read> {
        self.read.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Clock for Steady {
    fn now(&self) -> Timestamp {
        let (up, wall) = (self.clock.uptime(), self.clock.now());
        let mut read = self.read();
        let passed = SignedDuration::try_from(up.saturating_sub(read.up)).unwrap_or(SignedDuration::MAX);
        let set_back = passed.saturating_sub(wall.duration_since(read.wall));
        if set_back > IN_BETWEEN {
            read.behind = read.behind.saturating_add(set_back);
            tracing::warn!(
                "the clock was set back by {:.0} s: the run continues by its own time",
                set_back.as_secs_f64()
            );
        }
        (read.up, read.wall) = (up, wall);
        let now = wall.saturating_add(read.behind).unwrap_or(Timestamp::MAX);
        read.now = read.now.max(now);
        read.now
    }

    async fn sleep_until(&self, until: Timestamp) {
        let behind = self.time_of_day_lag();
        let until = until.saturating_sub(behind).unwrap_or(Timestamp::MIN);
        self.clock.sleep_until(until).await;
    }

    fn moment(&self) -> Moment {
        self.clock.moment()
    }

    fn uptime(&self) -> Duration {
        self.clock.uptime()
    }

    async fn pause(&self, time: Duration) {
        self.clock.pause(time).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One that is set by hand.
    #[derive(Default)]
    struct ByHand(Mutex<(u64, i64)>);

    impl ByHand {
        /// So long it goes on, and is set by so much meanwhile.
        fn passes(&self, seconds: u64, set: i64) {
            let mut read = self.0.lock().unwrap();
            read.0 += seconds;
            read.1 += seconds.cast_signed() + set;
        }

        /// It is frozen from outside for so long.
        fn freezes(&self, seconds: i64) {
            self.0.lock().unwrap().1 += seconds;
        }
    }

    #[async_trait]
    impl Clock for ByHand {
        fn now(&self) -> Timestamp {
            Timestamp::from_second(1_700_000_000 + self.0.lock().unwrap().1).unwrap()
        }

        async fn sleep_until(&self, _until: Timestamp) {}

        fn uptime(&self) -> Duration {
            Duration::from_secs(self.0.lock().unwrap().0)
        }
    }

    #[test]
    fn time_goes_on_whatever_the_clock_is_set_to() {
        let clock = Arc::new(ByHand::default());
        let steady = Steady::new(clock.clone());
        let (began, up) = (steady.now(), steady.uptime());
        let since = || steady.now().duration_since(began).as_secs();
        clock.passes(10, -100);
        assert_eq!((since(), steady.time_of_day_lag().as_secs()), (10, 100));
        // Asleep and set back, unobserved in between.
        clock.passes(60, -30);
        assert_eq!((since(), steady.time_of_day_lag().as_secs()), (70, 130));
        // Frozen after it was set back.
        clock.freezes(40);
        assert_eq!(since(), 110);
        // Set forward, as it cannot be told from that: what has to be waited out is not over by it.
        clock.passes(5, 1000);
        assert_eq!(
            (since(), steady.uptime().saturating_sub(up).as_secs()),
            (1115, 75)
        );
    }

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
        assert_eq!(at(10, 1000).duration_until(at(10, 1040)).as_secs(), 40);
        assert_eq!(at(10, 1000).duration_until(at(50, 940)).as_secs(), 40);
        assert_eq!(at(10, 1000).duration_until(at(50, 1040)).as_secs(), 40);
    }
}
