//! The time by which a call must start: after that the approval is too old (law 4).

use std::sync::Arc;

use jiff::Timestamp;

use crate::clock::{Clock, Steady};

/// The end of an approval, by a clock that is never set back.
#[derive(Clone)]
pub struct Deadline {
    until: Timestamp,
    clock: Arc<Steady>,
}

impl Deadline {
    /// At that time of that clock.
    pub fn new(until: Timestamp, clock: Arc<Steady>) -> Self {
        Self { until, clock }
    }

    /// Whether the call may begin now.
    ///
    /// # Errors
    /// Why not: nothing was begun, and the judges have to be asked again.
    pub fn holds(&self) -> Result<(), String> {
        let now = self.clock.now();
        if now < self.until {
            return Ok(());
        }
        let late = now.duration_since(self.until).as_secs();
        Err(format!("its approval expired at {:.0}, {late} s ago", self.until))
    }
}

impl std::fmt::Debug for Deadline {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Deadline")
            .field("until", &self.until)
            .finish_non_exhaustive()
    }
}

impl PartialEq for Deadline {
    fn eq(&self, other: &Self) -> bool {
        self.until == other.until
    }
}

impl Eq for Deadline {}
