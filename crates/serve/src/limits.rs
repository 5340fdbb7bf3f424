//! Timeouts and limits of connections.

use std::time::Duration;

/// Beyond which nobody is waited for. The default is for people and programs on slow lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestTimeouts {
    /// The head of a question has to be there within that time, and so has the next one of a connection.
    pub head: Duration,
    /// A whole question has to be there and be answered within that time. What an answer says may go on for longer.
    pub whole: Duration,
    /// Who takes nothing of an answer for that long is hung up on.
    pub stalled: Duration,
    /// Where several stores are asked, one that has not answered by then is away.
    pub store: Duration,
    /// So many streams are told at once. Each holds a connection open.
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
