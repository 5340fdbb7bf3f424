//! The policy: limits, timeouts, and how much risk is accepted.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use super::{Kind, UnitId, Window};

/// Durations as whole seconds in documents.
pub(crate) mod seconds {
    use jiff::SignedDuration;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(crate) fn serialize<S: Serializer>(duration: &SignedDuration, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_i64(duration.as_secs())
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<SignedDuration, D::Error> {
        let seconds = i64::deserialize(from)?;
        if seconds < 0 {
            return Err(serde::de::Error::custom(format!("{seconds} seconds is negative")));
        }
        Ok(SignedDuration::from_secs(seconds))
    }
}

/// A count, or a percentage of all units of the kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(try_from = "CountOrPercent", into = "CountOrPercent")]
pub enum Limit {
    /// So many.
    Count(u32),
    /// So many per hundred, 1 to 100.
    Percent(u32),
}

#[derive(Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(untagged)]
enum CountOrPercent {
    Count(i64),
    Text(String),
}

/// A limit that is none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a limit: give a count of 1 or more, or a percentage from \"1%\" to \"100%\"")]
pub struct LimitError {
    text: String,
}

impl Limit {
    /// How many of `all` units. A percentage is rounded down and is at least 1.
    pub fn of(self, all: u32) -> u32 {
        match self {
            Self::Count(count) => count,
            Self::Percent(percent) => ((u64::from(all) * u64::from(percent) / 100) as u32).max(1),
        }
    }
}

impl std::str::FromStr for Limit {
    type Err = LimitError;
    fn from_str(text: &str) -> Result<Self, LimitError> {
        let bad = || LimitError {
            text: text.to_owned(),
        };
        match text.strip_suffix('%') {
            Some(percent) => match percent.trim().parse() {
                Ok(percent @ 1..=100) => Ok(Self::Percent(percent)),
                Ok(_) | Err(_) => Err(bad()),
            },
            None => match text.trim().parse() {
                Ok(0) | Err(_) => Err(bad()),
                Ok(count) => Ok(Self::Count(count)),
            },
        }
    }
}

impl TryFrom<CountOrPercent> for Limit {
    type Error = LimitError;
    fn try_from(from: CountOrPercent) -> Result<Self, LimitError> {
        match from {
            CountOrPercent::Count(count) => count.to_string().parse(),
            CountOrPercent::Text(text) => text.parse(),
        }
    }
}

impl From<Limit> for CountOrPercent {
    fn from(limit: Limit) -> Self {
        match limit {
            Limit::Count(count) => Self::Count(i64::from(count)),
            Limit::Percent(_) => Self::Text(limit.to_string()),
        }
    }
}

impl std::fmt::Display for Limit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Count(count) => write!(f, "{count}"),
            Self::Percent(percent) => write!(f, "{percent}%"),
        }
    }
}

/// Whether waves grow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Growth {
    /// 1, 2, 4 … up to the maximum, each step earned by a passed gate.
    Double,
    /// As wide as permitted from the first wave.
    None,
}

impl Growth {
    /// How many units the wave after `earned` passed ones may hold: 1, 2, 4 … `parallel`.
    pub(crate) fn cap(self, earned: u32, parallel: u32) -> u32 {
        match self {
            Self::None => parallel,
            Self::Double => 1_u32.checked_shl(earned).unwrap_or(u32::MAX).min(parallel),
        }
    }
}

/// In what order the units of a stage are taken.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    /// The fewest waves.
    #[default]
    FewestWaves,
    /// All of one failure domain of that level before the next, in the order of their names.
    ByDomain(String),
    /// In this order; what it does not name comes after.
    List(Vec<UnitId>),
}

/// How points of no return are passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Doors {
    /// With approval: the run is held before each.
    Ask,
    /// By itself, once health has held for so many seconds.
    AutoAfter(u32),
}

/// What to do with a wave that stays unhealthy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum OnFailure {
    /// Bring the wave back to the release before, then its stage if that does not help; then end.
    Rollback,
    /// Change nothing more, and hold for an operator.
    Stop,
    /// Roll the failed units back if that is supported, skip them, and continue with the rest while the constraints permit.
    Continue,
}

/// How often and how long to try a unit again that may not be stopped now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct Retry {
    /// Seconds before the first retry; doubled for each further one.
    pub first: u32,
    /// The longest pause between two tries, in seconds.
    pub longest: u32,
    /// Tries before the unit is skipped for this run.
    pub tries: u32,
}

impl Default for Retry {
    fn default() -> Self {
        Self {
            first: 15,
            longest: 600,
            tries: 6,
        }
    }
}

impl Retry {
    /// When to retry after `tries` failed attempts; `None`: not in this run.
    pub fn after(self, now: Timestamp, tries: u32) -> Option<Timestamp> {
        (tries + 1 < self.tries).then(|| self.next(now, tries))
    }

    /// When to retry after `tries` failed attempts, for what is retried without limit.
    pub(crate) fn next(self, now: Timestamp, tries: u32) -> Timestamp {
        let pause = u64::from(self.first)
            .checked_shl(tries)
            .unwrap_or(u64::MAX)
            .min(u64::from(self.longest));
        let pause = SignedDuration::from_secs(i64::try_from(pause).unwrap_or(i64::MAX));
        now.saturating_add(pause).unwrap_or(Timestamp::MAX)
    }
}

/// The search for fewer waves: its seed and its budget, counted in moves so that the same input gives
/// the same plan on any machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct Search {
    /// Seed of the generator.
    pub seed: u64,
    /// Moves at most.
    pub steps: u64,
}

impl Default for Search {
    fn default() -> Self {
        Self {
            seed: 1,
            steps: 20_000,
        }
    }
}

fn percent<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<u32>, D::Error> {
    let percent = Option::<u32>::deserialize(from)?;
    match percent {
        Some(over @ 101..) => Err(serde::de::Error::custom(format!(
            "{over} is not a percentage: give a number from 0 to 100"
        ))),
        Some(0..=100) | None => Ok(percent),
    }
}

fn at_least_one<'de, D: serde::Deserializer<'de>>(from: D) -> Result<u32, D::Error> {
    match u32::deserialize(from)? {
        0 => Err(serde::de::Error::custom(
            "0 seconds leaves no time to start anything: give 1 or more",
        )),
        seconds => Ok(seconds),
    }
}

/// How bold to be. Every field has a default; the configuration file and flags override them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct Policy {
    /// How many units of a kind may be down at once, whatever took them down.
    pub max_in_parallel: Limit,
    /// The same for single kinds.
    pub max_in_parallel_of: BTreeMap<Kind, Limit>,
    /// Whether waves grow.
    pub growth: Growth,
    /// In what order.
    pub order: Order,
    /// At most so many distinct failure domains of a level in one wave.
    pub max_domains: BTreeMap<String, u32>,
    /// At most this share of all data, in percent, may be without one of its copies at once.
    // Its name of before is in old journals and configurations.
    #[serde(alias = "max_degraded", deserialize_with = "percent")]
    pub max_reduced_redundancy: Option<u32>,
    /// Whether a wave waits for the last of the one before. Otherwise units start as soon as there is room for them: beside
    /// those of the wave before that are not up yet, once all others serve and only those keep gates shut.
    #[serde(skip_serializing_if = "Clone::clone")]
    pub barrier: bool,
    /// How long all gates of a wave must have held before the next one starts, in seconds.
    pub soak: u32,
    /// How long after the first unit of each kind, in seconds; `soak` if that is longer.
    pub canary_soak: u32,
    /// How long a gate's condition must have held, in seconds.
    pub gate_hold: u32,
    /// How long to wait for a gate, in seconds.
    pub gate_timeout: u32,
    /// How long the answers of both checks count, in seconds since the facts arrived that stagger's own check
    /// used. Units whose stop has not started by then are checked again.
    #[serde(deserialize_with = "at_least_one")]
    pub approval_age: u32,
    /// When waves may run; always, if empty.
    pub windows: Vec<Window>,
    /// How points of no return are passed.
    pub doors: Doors,
    /// What to do with a wave that stays unhealthy.
    pub on_failure: OnFailure,
    /// Whether a unit's data may be rebuilt to roll it back, where the previous release cannot start on it.
    pub rebuild_to_go_back: bool,
    /// The interruptions that are permitted, by name or kind: `mds.a`, `pool.rbd`, `mgr`.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub interruptions: BTreeSet<String>,
    /// Whether to do what can be done where the target cannot be reached. Otherwise nothing is started.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub partial: bool,
    /// How to try again.
    pub retry: Retry,
    /// The search for fewer waves.
    pub search: Search,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            max_in_parallel: Limit::Percent(15),
            max_in_parallel_of: BTreeMap::new(),
            growth: Growth::Double,
            order: Order::FewestWaves,
            max_domains: BTreeMap::new(),
            max_reduced_redundancy: None,
            barrier: true,
            soak: 0,
            canary_soak: 30,
            gate_hold: 5,
            gate_timeout: 600,
            approval_age: 20,
            windows: Vec::new(),
            doors: Doors::Ask,
            on_failure: OnFailure::Rollback,
            rebuild_to_go_back: false,
            interruptions: BTreeSet::new(),
            partial: false,
            retry: Retry::default(),
            search: Search::default(),
        }
    }
}

impl Policy {
    /// How many units of `kind` may be down at once, of `all` there are.
    pub fn parallel(&self, kind: &Kind, all: u32) -> u32 {
        self.max_in_parallel_of
            .get(kind)
            .unwrap_or(&self.max_in_parallel)
            .of(all)
    }

    /// How long a wave's gates must have held before the next wave.
    pub fn soak_after(&self, canary: bool) -> SignedDuration {
        let seconds = if canary {
            self.soak.max(self.canary_soak)
        } else {
            self.soak
        };
        SignedDuration::from_secs(i64::from(seconds))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentage_is_rounded_down_and_at_least_one() {
        assert_eq!(Limit::Percent(15).of(60), 9);
        assert_eq!(Limit::Percent(15).of(24), 3);
        assert_eq!(Limit::Percent(15).of(3), 1);
        assert_eq!(Limit::Percent(100).of(u32::MAX), u32::MAX);
    }

    #[test]
    fn a_limit_is_a_count_or_a_percentage_and_nothing_else() {
        for bad in ["0", "-1", "0%", "101%", "15 percent", "", "%"] {
            assert!(bad.parse::<Limit>().is_err(), "{bad:?} was taken");
        }
        for (text, limit) in [("4", Limit::Count(4)), ("15%", Limit::Percent(15))] {
            assert_eq!(text.parse::<Limit>().unwrap(), limit);
            assert_eq!(limit.to_string(), text);
            let json = serde_json::to_string(&limit).unwrap();
            assert_eq!(serde_json::from_str::<Limit>(&json).unwrap(), limit);
        }
        assert!(serde_json::from_str::<Limit>("-3").is_err());
    }
}
