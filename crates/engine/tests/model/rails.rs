//! What is modelled, and which rails are switched off in it.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::laws::Law;

/// A rail that can be switched off: then something must go wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Safeguard {
    /// The journal takes appends of the newest token only.
    JournalToken,
    /// The journal takes appends only at the place where the writer believes it to stand.
    JournalPlace,
    /// Units refuse calls with an older token.
    WorldFence,
    /// A new holder first raises the fence where an intent is open.
    RaiseFirst,
    /// Who takes over, or sends again, first waits until what is bounded has ended.
    WaitOut,
    /// Nothing is sent on a rail that checks no token unless the lock is certainly ours.
    SenderStops,
    /// Units refuse calls that were made for another generation of them.
    Generation,
    /// Open intents of a holder before are carried out again.
    Adopt,
    /// A host runs the command of an intent once: the second call waits, and reads its result.
    EffectLock,
    /// The lock in the cluster is not given to two.
    Lock,
    /// A call that may still land does not settle its intent.
    LostIsNotFailed,
    /// Who follows a holder whose journal is elsewhere takes each unit for one with an open intent.
    Stranger,
    /// Nothing is sent on a word of the judges that is too old; they are asked again.
    SentInTime,
    /// A host begins nothing after the end that the call carries.
    BegunInTime,
}

impl Safeguard {
    /// All of them.
    pub(crate) const ALL: [Self; 14] = [
        Self::JournalToken,
        Self::JournalPlace,
        Self::WorldFence,
        Self::RaiseFirst,
        Self::WaitOut,
        Self::SenderStops,
        Self::Generation,
        Self::Adopt,
        Self::EffectLock,
        Self::Lock,
        Self::LostIsNotFailed,
        Self::Stranger,
        Self::SentInTime,
        Self::BegunInTime,
    ];
}

/// The rail of the visits; guards are always bounded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Visits {
    /// Commands on hosts.
    Fenced,
    /// Calls that carry the generation read when they were sent.
    Conditional,
    /// Calls that die within a known time.
    Bounded,
}

/// One model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Setup {
    /// On which rail visits run.
    pub(crate) visits: Visits,
    /// Whether each wave has a guard.
    pub(crate) guard: bool,
    /// How many processes contend.
    pub(crate) conductors: usize,
    /// How often the lock is taken; the last holder stays.
    pub(crate) tokens: u8,
    /// Whether a holder may come that has a journal of its own, and knows nothing of the one before.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) stranger: bool,
    /// Whether time passes: an approval lasts for one tick, and a unit may go down by itself.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) ages: bool,
    /// What is switched off.
    #[serde(default)]
    pub(crate) without: BTreeSet<Safeguard>,
    /// The law that is watched; none: all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) only: Option<Law>,
}

impl Setup {
    pub(crate) fn new(visits: Visits, guard: bool, conductors: usize, tokens: u8) -> Self {
        Self {
            visits,
            guard,
            conductors,
            tokens,
            stranger: false,
            ages: false,
            without: BTreeSet::new(),
            only: None,
        }
    }

    /// The same with two machines: the second one's journal is its own.
    pub(crate) fn with_a_stranger(mut self) -> Self {
        self.stranger = true;
        self
    }

    /// The same where time passes.
    pub(crate) fn with_time(mut self) -> Self {
        self.ages = true;
        self
    }

    pub(crate) fn without(mut self, rails: &[Safeguard]) -> Self {
        self.without = rails.iter().copied().collect();
        self
    }

    /// Watches one law alone: what breaks another first goes on to do its harm.
    pub(crate) fn only(mut self, law: Law) -> Self {
        self.only = Some(law);
        self
    }

    pub(crate) fn watches(&self, law: Law) -> bool {
        self.only.is_none_or(|only| only == law)
    }

    pub(crate) fn has(&self, rail: Safeguard) -> bool {
        !self.without.contains(&rail)
    }
}
