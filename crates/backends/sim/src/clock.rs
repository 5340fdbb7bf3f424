//! Time that passes only when everybody waits, and the one order in which things happen.
//!
//! All that goes on in a simulated world, the world itself, the driver, the keeper of its lock and the calls
//! under way, runs on one thread. When nobody has anything left to do, [`carry_out`] lets the one thing happen
//! that is due next, and time passes until then. Where two things are due at one instant the seed of the world
//! decides which is first. So the same world goes the same way each time, on any machine.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use async_trait::async_trait;
use jiff::{SignedDuration, Timestamp};
use stagger_engine::clock::{Clock, Moment};

use crate::world::{Advance, EventOrder, SimulatedCluster, after};

/// How fast virtual time passes for those who watch.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ClockSpeed {
    /// At once.
    Fast,
    /// One virtual second takes so many real ones.
    Real {
        /// Real seconds for each virtual one.
        factor: f64,
    },
}

/// A story that cannot be told to its end.
#[derive(Debug, thiserror::Error)]
pub enum ClockError {
    /// The system gives no more threads or files.
    #[error("the simulated world has no runtime to run in")]
    Runtime(#[from] std::io::Error),
    /// Everybody waits for something that never happens.
    #[error("in the simulated world everybody waits for something that never happens")]
    Stuck,
}

fn lock(world: &Mutex<SimulatedCluster>) -> MutexGuard<'_, SimulatedCluster> {
    world.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Carries out what goes on in a world.
///
/// # Errors
/// There is no runtime, or nothing ever happens again.
pub(crate) fn carry_out<T>(
    world: &Arc<Mutex<SimulatedCluster>>,
    pace: ClockSpeed,
    simulation: impl Future<Output = T>,
) -> Result<T, ClockError> {
    let idle = Arc::clone(world);
    // Without the timers of the runtime: there is one clock only.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .on_thread_park(move || pass(&idle, pace))
        .build()?;
    let end = runtime.block_on(async {
        let mut simulation = pin!(simulation);
        poll_fn(|context| {
            if let Poll::Ready(end) = simulation.as_mut().poll(context) {
                return Poll::Ready(Ok(end));
            }
            if lock(world).stuck(context.waker()) {
                return Poll::Ready(Err(ClockError::Stuck));
            }
            Poll::Pending
        })
        .await
    });
    // It keeps the runtime, which keeps the world.
    let teller = lock(world).take_waker();
    drop(teller);
    end
}

/// Nobody has anything to do: time passes until somebody has.
fn pass(world: &Mutex<SimulatedCluster>, pace: ClockSpeed) {
    loop {
        if let ClockSpeed::Real { factor } = pace {
            let left = lock(world).until_next().as_secs_f64() * factor;
            std::thread::sleep(Duration::from_secs_f64(left.clamp(0.0, 3600.0)));
        }
        let next = lock(world).go_on();
        match next {
            Advance::World => {}
            Advance::Wake(waker) => return waker.wake(),
            // Whoever waited for it is on its way already.
            Advance::Answered => return,
        }
    }
}

/// The clock of a simulated world.
#[derive(Debug, Clone)]
pub struct VirtualClock {
    world: Arc<Mutex<SimulatedCluster>>,
    begin: Timestamp,
    /// Milliseconds since then. Beside the world, which may be looking at this clock itself.
    passed: Arc<AtomicU64>,
}

impl VirtualClock {
    /// The clock of that world.
    pub(crate) fn new(world: Arc<Mutex<SimulatedCluster>>) -> Self {
        let (begin, passed) = lock(&world).hands();
        Self { world, begin, passed }
    }

    fn passed(&self) -> u64 {
        self.passed.load(Ordering::Relaxed)
    }

    fn sleep(&self, until: u64) -> Sleep {
        Sleep {
            world: Arc::clone(&self.world),
            until,
            place: None,
        }
    }
}

#[async_trait]
impl Clock for VirtualClock {
    fn now(&self) -> Timestamp {
        after(self.begin, self.passed())
    }

    async fn sleep_until(&self, until: Timestamp) {
        let left = until.duration_since(self.now()).max(SignedDuration::ZERO);
        self.pause(left.unsigned_abs()).await;
    }

    fn moment(&self) -> Moment {
        let (up, wall) = (self.uptime(), self.uptime());
        Moment { up, wall }
    }

    fn uptime(&self) -> Duration {
        Duration::from_millis(self.passed())
    }

    async fn pause(&self, time: Duration) {
        self.sleep(self.passed().saturating_add(millis(time))).await;
    }
}

/// Whole ones, and one more for a part of one: nobody wakes up too early.
fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

/// Somebody who waits for a time.
struct Sleep {
    world: Arc<Mutex<SimulatedCluster>>,
    until: u64,
    place: Option<EventOrder>,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let world = Arc::clone(&self.world);
        let mut world = lock(&world);
        let place = match self.place {
            None if world.elapsed() >= self.until => return Poll::Ready(()),
            None => {
                let place = world.place(self.until);
                self.place = Some(place);
                place
            }
            Some(place) if !world.sleepers.contains_key(&place) => return Poll::Ready(()),
            Some(place) => place,
        };
        world.sleepers.insert(place, context.waker().clone());
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(place) = self.place {
            lock(&self.world).sleepers.remove(&place);
        }
    }
}
