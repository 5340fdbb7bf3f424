//! Shared by all parsers: the error, and the checks on names.

use serde::de::DeserializeOwned;

/// An answer that cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("cannot read {origin}")]
pub struct ParseError {
    /// The file or the command that the answer is of.
    pub origin: String,
    /// The error, with line and column where there is one.
    pub source: ParseCause,
}

/// What is wrong with an answer.
#[derive(Debug, thiserror::Error)]
pub enum ParseCause {
    /// No JSON, or not of the shape that Ceph gives it. A truncated answer is this too.
    #[error("it is not the JSON that Ceph gives")]
    Json(#[from] serde_json::Error),
    /// It is of the right shape and makes no sense.
    #[error("it makes no sense: {0}")]
    Sense(String),
    /// It could not be opened.
    #[error("it cannot be opened")]
    Io(#[from] std::io::Error),
}

/// Reads the whole of an answer.
pub(crate) fn from_json<T: DeserializeOwned>(bytes: &[u8], origin: &str) -> Result<T, ParseError> {
    serde_json::from_slice(bytes).map_err(|error| ParseError {
        origin: origin.to_owned(),
        source: error.into(),
    })
}

/// An answer that makes no sense.
pub(crate) fn invalid(origin: &str, why: impl Into<String>) -> ParseError {
    ParseError {
        origin: origin.to_owned(),
        source: ParseCause::Sense(why.into()),
    }
}

/// Whether a daemon may be called that: what a unit's name can hold.
pub(crate) fn name(name: &str, origin: &str) -> Result<(), ParseError> {
    match stagger_core::model::UnitId::new(format!("mon.{name}")) {
        Ok(_) if !name.is_empty() => Ok(()),
        Ok(_) => Err(invalid(origin, "a daemon has an empty name")),
        Err(error) => Err(invalid(origin, error.to_string())),
    }
}
