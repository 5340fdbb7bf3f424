//! Until when a call may begin: what the judges have said of it is too old after that (law 4).

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use crate::clock::{Clock, Moment};

/// The end of an approval, on two clocks: one of them can be set back, and the other may stand still while the machine
/// is frozen from outside. Whichever comes first counts.
#[derive(Clone)]
pub struct Deadline {
    until: Timestamp,
    clock: Arc<dyn Clock>,
    made: Moment,
    left: Duration,
}

impl Deadline {
    /// At that time of that clock.
    pub fn new(until: Timestamp, clock: Arc<dyn Clock>) -> Self {
        Self {
            left: Duration::try_from(until.duration_since(clock.now())).unwrap_or_default(),
            made: clock.moment(),
            until,
            clock,
        }
    }

    /// Whether the call may begin now.
    ///
    /// # Errors
    /// Why not: nothing was begun, and the judges have to be asked again.
    pub fn holds(&self) -> Result<(), String> {
        let now = self.clock.now();
        if now < self.until && self.made.until(self.clock.moment()) < self.left {
            return Ok(());
        }
        let late = now.duration_since(self.until).as_secs().max(0);
        Err(format!(
            "what both judges had said of it counted until {:.0}, {late} s ago",
            self.until
        ))
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
