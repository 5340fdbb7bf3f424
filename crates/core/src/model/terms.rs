//! The cluster's terms in messages, as its operators use them.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::Code;

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
    /// What would free a unit that is skipped, by the reason's word, where it is a setting of this kind of cluster.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub remedies: BTreeMap<String, String>,
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
            remedies: BTreeMap::new(),
        }
    }

    /// The same with what would free a unit that is skipped for one of these reasons.
    #[must_use]
    pub fn with_remedies<'a>(mut self, remedies: impl IntoIterator<Item = (Code, &'a str)>) -> Self {
        let remedies = remedies.into_iter();
        self.remedies
            .extend(remedies.map(|(code, words)| (code.code().to_owned(), words.to_owned())));
        self
    }
}

/// Our own.
impl Default for Terms {
    fn default() -> Self {
        Self::new("unit", "host", "guest", "standby")
    }
}
