//! Time that passes only when somebody waits for it.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use stagger_engine::clock::Clock;

use crate::world::World;

/// How fast virtual time passes for those who watch.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Pace {
    /// At once.
    Fast,
    /// One virtual second takes so many real ones.
    Real {
        /// Real seconds for each virtual one.
        factor: f64,
    },
}

/// The clock of a simulated world: to wait is to let the world go on until then.
#[derive(Debug, Clone)]
pub struct VirtualClock {
    world: Arc<Mutex<World>>,
    pace: Pace,
}

impl VirtualClock {
    /// The clock of that world.
    pub fn new(world: Arc<Mutex<World>>, pace: Pace) -> Self {
        Self { world, pace }
    }
}

#[async_trait]
impl Clock for VirtualClock {
    fn now(&self) -> Timestamp {
        self.world.lock().unwrap_or_else(PoisonError::into_inner).time()
    }

    async fn sleep_until(&self, until: Timestamp) {
        if let Pace::Real { factor } = self.pace {
            let left = until.duration_since(self.now()).as_secs_f64().max(0.0);
            tokio::time::sleep(Duration::from_secs_f64((left * factor).clamp(0.0, 3600.0))).await;
        }
        self.world
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .advance_to(until);
    }
}
