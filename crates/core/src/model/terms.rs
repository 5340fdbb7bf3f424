//! The cluster's terms in messages, as its operators use them.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

/// Words for messages; their plural takes an `s`, but for `standby`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Terms {
    /// A unit.
    pub unit: Cow<'static, str>,
    /// A host of guests.
    pub host: Cow<'static, str>,
    /// What hosts carry.
    pub guest: Cow<'static, str>,
    /// The host of a guest's second copy.
    pub standby: Cow<'static, str>,
}

impl Terms {
    /// These words.
    pub const fn new(
        unit: &'static str,
        host: &'static str,
        guest: &'static str,
        standby: &'static str,
    ) -> Self {
        Self {
            unit: Cow::Borrowed(unit),
            host: Cow::Borrowed(host),
            guest: Cow::Borrowed(guest),
            standby: Cow::Borrowed(standby),
        }
    }
}

/// Our own.
impl Default for Terms {
    fn default() -> Self {
        Self::new("unit", "host", "guest", "standby")
    }
}
