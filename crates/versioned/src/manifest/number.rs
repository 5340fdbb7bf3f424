//! Numbers of releases.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::version::number;

/// `major.minor`: a release with all its patches, which change no version of any object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Number {
    major: u32,
    minor: u32,
}

/// A text that is no number of a release.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} is not the number of a release: two numbers with a dot between them, as 29.0; patches are not listed"
)]
pub struct NumberError {
    text: String,
}

impl Number {
    /// Reads `29.0` and `29.0.6`; the patch stands beside the number.
    pub(crate) fn with_patch(text: &str) -> Option<(Self, Option<u32>)> {
        let mut parts = text.split('.');
        let major = number(parts.next()?)?;
        let minor = number(parts.next()?)?;
        let patch = match parts.next() {
            Some(text) => Some(number(text)?),
            None => None,
        };
        parts.next().is_none().then_some((Self { major, minor }, patch))
    }
}

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { major, minor } = self;
        write!(f, "{major}.{minor}")
    }
}

impl FromStr for Number {
    type Err = NumberError;
    fn from_str(text: &str) -> Result<Self, NumberError> {
        match Self::with_patch(text) {
            Some((number, None)) => Ok(number),
            Some((_, Some(_))) | None => Err(NumberError {
                text: text.to_owned(),
            }),
        }
    }
}

impl TryFrom<String> for Number {
    type Error = NumberError;
    fn try_from(text: String) -> Result<Self, NumberError> {
        text.parse()
    }
}

impl From<Number> for String {
    fn from(number: Number) -> Self {
        number.to_string()
    }
}
