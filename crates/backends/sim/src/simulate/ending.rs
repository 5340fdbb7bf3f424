//! How a simulation ended.

use stagger_core::model::Reason;
use stagger_core::run::Ending;

/// How a simulation ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SimEnding {
    /// The run is over.
    Over(Ending),
    /// It waits for a person, and the scenario has none left.
    Held(Reason),
    /// It never came to an end.
    Endless(Reason),
}

impl SimEnding {
    /// In one word.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Over(Ending::Done) => "done",
            Self::Over(Ending::Incomplete { .. }) => "incomplete",
            Self::Over(Ending::RolledBack { .. }) => "rolled-back",
            Self::Over(Ending::Aborted) => "aborted",
            Self::Held(_) => "held",
            Self::Endless(_) => "endless",
        }
    }

    /// The stable word of its reason, if it has one.
    pub fn reason(&self) -> Option<&str> {
        match self {
            Self::Over(Ending::RolledBack { reason }) | Self::Held(reason) | Self::Endless(reason) => {
                Some(reason.code.code())
            }
            Self::Over(Ending::Done | Ending::Incomplete { .. } | Ending::Aborted) => None,
        }
    }
}
