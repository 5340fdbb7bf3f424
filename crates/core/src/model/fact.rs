//! An observation, or the reason why there is none.

use serde::{Deserialize, Serialize};

/// A fact, or why it is not known. Not knowing is never taken for the harmless case.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fact<T> {
    /// The observed value.
    Yes(T),
    /// It could not be observed, for this reason.
    No(String),
}

impl<T> Fact<T> {
    /// The fact, if it is known.
    pub fn get(&self) -> Option<&T> {
        match self {
            Self::Yes(fact) => Some(fact),
            Self::No(_) => None,
        }
    }

    /// The same, or why it is not known.
    ///
    /// # Errors
    /// Why it is not known.
    pub fn as_result(&self) -> Result<&T, &str> {
        match self {
            Self::Yes(fact) => Ok(fact),
            Self::No(why) => Err(why),
        }
    }
}
