//! A request of the clients that failed.

use std::fmt;

use serde::Deserialize;

/// A request that failed, or that was accepted and whose work was not done.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(default)]
pub struct Failure {
    /// Whose it was.
    pub client: String,
    /// The method of HTTP.
    pub method: String,
    /// Path and query.
    pub path: String,
    /// The status of the answer, if there was one.
    pub status: Option<u16>,
    /// The beginning of the answer's body.
    pub body: String,
    /// By what the service's log knows the request.
    pub request_id: Option<String>,
    /// When it began, in seconds of Unix time.
    pub at: f64,
    /// How long it took, in seconds.
    pub took: f64,
    /// What was wrong besides status and body.
    pub error: Option<String>,
    /// Whether the write had been done all the same, as a look at it showed; none: it was no write, or nobody knows.
    pub applied: Option<bool>,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            client,
            method,
            path,
            status,
            body,
            request_id: _,
            at,
            took,
            error,
            applied,
        } = self;
        write!(f, "{client}: {method} {path} at {at:.1} after {took:.1} s: ")?;
        match status {
            Some(status) => write!(f, "{status}")?,
            None => f.write_str("no answer")?,
        }
        if let Some(error) = error {
            write!(f, ", {error}")?;
        }
        match applied {
            Some(true) => f.write_str(", applied all the same")?,
            Some(false) => f.write_str(", not applied")?,
            None => {}
        }
        write!(f, ": {body:.300}")
    }
}
