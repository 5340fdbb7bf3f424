//! Timeouts and limits of connections.

use std::time::Duration;

/// Timeouts. The default suits people and programs on slow lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestTimeouts {
    /// The head of a question has to be there within that time, and so has the next one of a connection.
    pub head: Duration,
    /// The time for a request to arrive and be answered. The body of an answer may take longer.
    pub whole: Duration,
    /// Who takes nothing of an answer for that long is hung up on.
    pub stalled: Duration,
    /// The time after which a store counts as unreachable, where several are queried.
    pub store: Duration,
    /// The maximum number of streams. Each holds a connection open.
    pub streams: usize,
    /// So many questions look into a store at once, each by a connection of its own. The others wait.
    pub looks: usize,
}

impl Default for RequestTimeouts {
    fn default() -> Self {
        Self {
            head: Duration::from_secs(10),
            whole: Duration::from_secs(30),
            stalled: Duration::from_mins(1),
            store: Duration::from_secs(10),
            streams: 4_000,
            looks: 16,
        }
    }
}

/// Lets this process hold as many connections as it may. Most sessions begin with 1,024, and a stream takes one.
pub(crate) fn raise_descriptors() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        limit.current = limit.maximum;
        // Without it fewer are served, and nothing else is lost.
        setrlimit(Resource::Nofile, limit).ok();
    }
}
