//! What is asked for, and what came of it.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use stagger_core::model::{ClusterId, RunId, UnitId};

/// Nothing is taken down for longer: two weeks.
pub const LONGEST_HOLD: u32 = 14 * 24 * 3600;
/// Nothing waits for longer: 90 days.
pub const LONGEST_WAIT: SignedDuration = SignedDuration::from_hours(90 * 24);
/// So many hosts and units are asked for at once, at most.
pub const MOST_NAMES: usize = 1_000;
/// No name or reason is longer, in bytes.
pub const LONGEST_NAME: usize = 255;

/// The name of an ask: `a-` and 16 hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(try_from = "String", into = "String")]
pub struct AskId(String);

impl AskId {
    /// A new one.
    ///
    /// # Errors
    /// The machine gives no random bits.
    pub fn new_random() -> Result<Self, AskError> {
        let mut bytes = [0; 8];
        getrandom::fill(&mut bytes).map_err(|error| AskError::NoRandom(error.to_string()))?;
        Ok(Self(format!("a-{:016x}", u64::from_be_bytes(bytes))))
    }

    /// Its text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for AskId {
    type Error = AskError;
    fn try_from(text: String) -> Result<Self, AskError> {
        let digits = text.strip_prefix("a-").filter(|digits| digits.len() == 16);
        let hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        match digits {
            Some(digits) if digits.bytes().all(hex) => Ok(Self(text)),
            Some(_) | None => Err(AskError::NoId),
        }
    }
}

impl std::str::FromStr for AskId {
    type Err = AskError;
    fn from_str(text: &str) -> Result<Self, AskError> {
        Self::try_from(text.to_owned())
    }
}

impl From<AskId> for String {
    fn from(id: AskId) -> Self {
        id.0
    }
}

impl std::fmt::Display for AskId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(&self.0)
    }
}

/// What is wrong with an ask. Nothing was asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AskError {
    /// It names nothing.
    #[error("an ask names at least one host or unit")]
    Nothing,
    /// It names too much.
    #[error("an ask names at most {MOST_NAMES} hosts and units")]
    TooMany,
    /// A name that no host has, or a text that is too long.
    #[error("{0:?} is not a name: 1 to {LONGEST_NAME} bytes without white space and control characters")]
    Name(String),
    /// A text that is too long or has control characters.
    #[error("the reason has at most {LONGEST_NAME} bytes and no control characters")]
    Why,
    /// For no time, or too long.
    #[error("an ask is for 1 second to 14 days")]
    Hold,
    /// Until a time that is past, or too far.
    #[error("an ask waits until a time that is to come, at most 90 days from now")]
    Until,
    /// Not the name of an ask.
    #[error("this is not the name of an ask: `a-` and 16 hexadecimal digits")]
    NoId,
    /// The machine gives no random bits.
    #[error("the machine gives no random bits: {0}")]
    NoRandom(String),
}

/// What somebody wants to take down.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewAsk {
    /// Of which cluster, as that knows itself.
    pub cluster: ClusterId,
    /// Who asks, as the record tells it: `anna@ops1`, `token kured`.
    pub asker: String,
    /// What comes again with it by the same asker is the same ask.
    pub key: Option<String>,
    /// These hosts, with all that they carry.
    pub hosts: BTreeSet<String>,
    /// These units alone.
    pub units: BTreeSet<UnitId>,
    /// For how long, in seconds from the grant on.
    pub hold: u32,
    /// It is of no use after that.
    pub until: Option<Timestamp>,
    /// `until` is no deadline: whoever asks says again and again that it still wants it, and is forgotten else.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub lapses: bool,
    /// For people: `kernel 6.12.9`. May be empty.
    pub why: String,
    /// The run that waits for its next wave: it has its place among those who ask, and claims by itself when it fits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<RunId>,
}

impl NewAsk {
    /// Refuses what cannot be meant.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn verify(&self, now: Timestamp) -> Result<(), AskError> {
        let Self {
            cluster: _,
            asker,
            key,
            hosts,
            units,
            hold,
            until,
            lapses: _,
            why,
            run: _,
        } = self;
        if hosts.is_empty() && units.is_empty() {
            return Err(AskError::Nothing);
        }
        if hosts.len() + units.len() > MOST_NAMES {
            return Err(AskError::TooMany);
        }
        if let Some(odd) = hosts.iter().chain(key).find(|name| !is_name(name)) {
            return Err(AskError::Name(odd.chars().take(LONGEST_NAME).collect()));
        }
        if asker.is_empty() || asker.len() > LONGEST_NAME || asker.chars().any(char::is_control) {
            return Err(AskError::Name(asker.chars().take(LONGEST_NAME).collect()));
        }
        if why.len() > LONGEST_NAME || why.chars().any(char::is_control) {
            return Err(AskError::Why);
        }
        if *hold == 0 || *hold > LONGEST_HOLD {
            return Err(AskError::Hold);
        }
        let last = now.saturating_add(LONGEST_WAIT).unwrap_or(Timestamp::MAX);
        if until.is_some_and(|until| until <= now || until > last) {
            return Err(AskError::Until);
        }
        Ok(())
    }

    /// The names that it has, hosts first.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.hosts
            .iter()
            .map(String::as_str)
            .chain(self.units.iter().map(UnitId::as_str))
    }
}

fn is_name(text: &str) -> bool {
    !text.is_empty()
        && text.len() <= LONGEST_NAME
        && !text.chars().any(|c| c.is_whitespace() || c.is_control())
}

/// An ask, and what came of it so far.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ask {
    /// Its name.
    pub id: AskId,
    /// What is asked for.
    pub wanted: NewAsk,
    /// Since when, by the store's clock.
    pub asked: Timestamp,
    /// What came of it.
    pub state: AskState,
}

/// What came of an ask so far.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AskState {
    /// It waits: not now.
    Waiting(AskAnswer),
    /// It may: what it names counts as down.
    Granted(AskGrant),
    /// It is over.
    Ended {
        /// How.
        how: AskEnd,
        /// When.
        at: Timestamp,
        /// Why, in words; empty: nothing is to be said.
        why: String,
    },
}

/// Why not now, and when.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct AskAnswer {
    /// Why not, in words; empty: nobody has answered yet.
    pub why: String,
    /// The earliest time that a plan over all who ask forecasts; `None`: nobody can tell.
    pub earliest: Option<Timestamp>,
    /// So many others are before it.
    pub ahead: u32,
    /// The newest fence when it had waited so long that nobody later may keep it out; `None`: it has not.
    pub kept_free_since: Option<u64>,
    /// Since when it would not fit even if all who hold a claim were back; `None`: it would.
    #[serde(default)]
    pub unfit_since: Option<Timestamp>,
}

/// A grant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AskGrant {
    /// Only grows: of two grants of one cluster the later one has the larger.
    pub fence: u64,
    /// Until then it counts.
    pub expires: Timestamp,
    /// What it is for was seen down.
    pub seen_down: bool,
}

/// How an ask ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum AskEnd {
    /// Its asker has said that all is back.
    Done,
    /// What was granted was seen down, and is back and clean.
    Returned,
    /// The time of its grant was over.
    Expired,
    /// Its asker no longer wants it.
    Withdrawn,
    /// It could not wait any longer.
    TooLate,
    /// It can never be: it names what is not there.
    Refused,
}

impl AskEnd {
    /// Its word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Returned => "returned",
            Self::Expired => "expired",
            Self::Withdrawn => "withdrawn",
            Self::TooLate => "too-late",
            Self::Refused => "refused",
        }
    }

    /// Of its word.
    pub(crate) fn of(word: &str) -> Option<Self> {
        let all = [
            Self::Done,
            Self::Returned,
            Self::Expired,
            Self::Withdrawn,
            Self::TooLate,
            Self::Refused,
        ];
        all.into_iter().find(|end| end.as_str() == word)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask() -> NewAsk {
        NewAsk {
            cluster: ClusterId::new("c").unwrap(),
            asker: "anna@ops1".to_owned(),
            key: None,
            hosts: BTreeSet::from(["host7".to_owned()]),
            units: BTreeSet::new(),
            hold: 1200,
            until: None,
            lapses: false,
            why: String::new(),
            run: None,
        }
    }

    #[test]
    fn what_cannot_be_meant_is_refused() {
        let now = Timestamp::UNIX_EPOCH;
        assert_eq!(ask().verify(now), Ok(()));
        let refused = |change: &dyn Fn(&mut NewAsk)| {
            let mut ask = ask();
            change(&mut ask);
            ask.verify(now).unwrap_err()
        };
        assert_eq!(refused(&|ask| ask.hosts.clear()), AskError::Nothing);
        assert_eq!(refused(&|ask| ask.hold = 0), AskError::Hold);
        assert_eq!(refused(&|ask| ask.hold = u32::MAX), AskError::Hold);
        assert_eq!(refused(&|ask| ask.until = Some(now)), AskError::Until);
        assert_eq!(refused(&|ask| ask.until = Some(Timestamp::MAX)), AskError::Until);
        assert_eq!(refused(&|ask| ask.why = "a\nb".to_owned()), AskError::Why);
        for odd in ["", "a b", "a\nb", &"x".repeat(256)] {
            let found = refused(&|ask| ask.hosts = BTreeSet::from([odd.to_owned()]));
            assert!(matches!(found, AskError::Name(_)), "{odd:?}");
        }
        let many = refused(&|ask| ask.hosts = (0..=MOST_NAMES).map(|n| n.to_string()).collect());
        assert_eq!(many, AskError::TooMany);
    }

    #[test]
    fn a_name_of_an_ask_is_checked_on_every_way_in() {
        let id = AskId::new_random().unwrap();
        assert_eq!(id.as_str().parse(), Ok(id));
        for odd in [
            "",
            "a-",
            "a-00000000000000zz",
            "../../etc/passwd",
            "A-0000000000000000",
        ] {
            assert_eq!(odd.parse::<AskId>(), Err(AskError::NoId), "{odd}");
        }
    }
}
