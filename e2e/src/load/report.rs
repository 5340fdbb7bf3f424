//! What the clients told.

use std::fmt;

use serde::Deserialize;

/// A line of a client.
#[derive(Debug, Clone, Deserialize)]
#[serde(tag = "event", rename_all = "lowercase")]
pub(super) enum Event {
    /// Its first operations have succeeded.
    Ready {},
    /// An operation failed.
    Failure(Trouble),
    /// An operation is over its time and has not returned; its failure follows.
    Hang {},
    /// Its figures.
    End(Figures),
}

/// An operation that failed.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Trouble {
    /// Whose it was.
    pub client: String,
    /// `read` or `write`.
    pub op: String,
    /// The object or file.
    pub object: String,
    /// When it began, in seconds of Unix time.
    pub at: f64,
    /// How long it took, in seconds.
    pub took: f64,
    /// Why it failed.
    pub error: String,
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            client,
            op,
            object,
            at,
            took,
            error,
        } = self;
        write!(
            f,
            "{client}: {op} of {object} at {at:.1} failed after {took:.1} s: {error}"
        )
    }
}

/// What one client did.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Figures {
    /// The client.
    pub client: String,
    /// How long it ran.
    pub seconds: f64,
    /// Its operations, with the last verification.
    pub ops: u64,
    /// Those that failed.
    pub failures: u64,
    /// The longest, in seconds.
    pub worst: f64,
    /// When that began, in seconds of Unix time.
    pub worst_at: f64,
    /// Objects that were right when all were read at the end.
    pub verified: u64,
    /// Objects that were not.
    pub wrong: u64,
}

/// What all clients did.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    /// Each client's figures.
    pub clients: Vec<Figures>,
    failures: Vec<Trouble>,
}

impl Report {
    pub(super) fn new(events: &[Event]) -> Self {
        let mut clients: Vec<Figures> = events
            .iter()
            .filter_map(|event| match event {
                Event::End(figures) => Some(figures.clone()),
                Event::Ready {} | Event::Failure(_) | Event::Hang {} => None,
            })
            .collect();
        clients.sort_by(|one, other| one.client.cmp(&other.client));
        Self {
            clients,
            failures: troubles(events),
        }
    }

    /// Every operation that failed, in the order in which they were told.
    pub fn failures(&self) -> &[Trouble] {
        &self.failures
    }

    /// The longest operation of all clients, in seconds.
    pub fn worst(&self) -> f64 {
        self.clients.iter().map(|client| client.worst).fold(0.0, f64::max)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "client      seconds     ops  failures  longest  right at the end  wrong"
        )?;
        for figures in &self.clients {
            let Figures {
                client,
                seconds,
                ops,
                failures,
                worst,
                worst_at: _,
                verified,
                wrong,
            } = figures;
            writeln!(
                f,
                "{client:<10} {seconds:>8.1} {ops:>7} {failures:>9} {worst:>6.2} s {verified:>17} {wrong:>6}"
            )?;
        }
        for trouble in &self.failures {
            writeln!(f, "{trouble}")?;
        }
        Ok(())
    }
}

pub(super) fn troubles(events: &[Event]) -> Vec<Trouble> {
    events
        .iter()
        .filter_map(|event| match event {
            Event::Failure(trouble) => Some(trouble.clone()),
            Event::Ready {} | Event::Hang {} | Event::End(_) => None,
        })
        .collect()
}
