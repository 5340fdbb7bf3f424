//! Protection against late calls of a holder that lost its lease (law 9).

use std::time::Duration;

/// Protection against late calls of a holder that lost its lease (law 9).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fencing {
    /// The world checks the fencing token.
    Fenced,
    /// The world checks a generation, as a resource version. It must be one that was read before
    /// [`Executor::perform`](super::Executor::perform) was called, as in the last observation: the driver looks at the lock right
    /// before the call, and what a process reads when it wakes up after that is new, and so fits.
    Conditional,
    /// The call dies with its sender within this time, and a successor waits that time out.
    Bounded(Duration),
}

impl std::fmt::Display for Fencing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Fenced => f.write_str("fenced"),
            Self::Conditional => f.write_str("conditional"),
            Self::Bounded(time) => write!(f, "bounded ({} s)", time.as_secs()),
        }
    }
}
