//! The states of a placement group, as a set of bits.

use std::fmt;

/// Ceph's words, in the order of our bits. `clean` and its like stand in one answer as
/// `active+clean+scrubbing+deep`.
const WORDS: [&str; 34] = [
    "creating",
    "active",
    "clean",
    "recovery_unfound",
    "down",
    "premerge",
    "scrubbing",
    "degraded",
    "inconsistent",
    "peering",
    "repair",
    "recovering",
    "backfill_wait",
    "incomplete",
    "stale",
    "remapped",
    "deep",
    "backfilling",
    "backfill_toofull",
    "recovery_wait",
    "recovery_toofull",
    "undersized",
    "activating",
    "peered",
    "snaptrim",
    "snaptrim_wait",
    "snaptrim_error",
    "forced_recovery",
    "forced_backfill",
    "failed_repair",
    "laggy",
    "wait",
    "backfill_unfound",
    "unknown",
];

/// The state of one placement group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct PgState(u64);

impl PgState {
    /// It takes reads and writes.
    pub const ACTIVE: Self = Self(1 << 1);
    /// All copies are where they belong.
    pub const CLEAN: Self = Self(1 << 2);
    /// It is being made.
    pub const CREATING: Self = Self(1);
    /// Some objects have fewer copies than they should.
    pub const DEGRADED: Self = Self(1 << 7);
    /// It has not been reported for a while.
    pub const STALE: Self = Self(1 << 14);
    /// Fewer OSDs than it should have.
    pub const UNDERSIZED: Self = Self(1 << 21);
    /// It has never been reported to this manager.
    pub const UNKNOWN: Self = Self(1 << 33);
    /// A word that this program does not know.
    pub const STRANGE: Self = Self(1 << 63);
    /// Nearly all of them, nearly always: active and clean.
    pub const WELL: Self = Self(Self::ACTIVE.0 | Self::CLEAN.0);
    /// What a group passes through on its way to be clean, and stays in none of by itself: also of a pool that was just made, or
    /// that the autoscaler makes smaller.
    const PASSING: [&'static str; 22] = [
        "creating",
        "premerge",
        "active",
        "clean",
        "scrubbing",
        "degraded",
        "peering",
        "recovering",
        "backfill_wait",
        "remapped",
        "deep",
        "backfilling",
        "recovery_wait",
        "undersized",
        "activating",
        "peered",
        "snaptrim",
        "snaptrim_wait",
        "forced_recovery",
        "forced_backfill",
        "laggy",
        "wait",
    ];

    /// From Ceph's words joined by `+`. An unknown word is kept as [`Self::STRANGE`]: its meaning for safety
    /// is unknown.
    pub fn parse(text: &str) -> Self {
        if text == "active+clean" {
            // Nearly all of a million.
            return Self::WELL;
        }
        let mut state = Self::default();
        for word in text.split('+') {
            let bit = WORDS.iter().position(|known| *known == word);
            state.0 |= bit.map_or(Self::STRANGE.0, |bit| 1 << bit);
        }
        state
    }

    /// Whether all of those bits are in this state.
    pub fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether it is reported, in words that this program knows.
    pub fn is_known(self) -> bool {
        self.0 & (Self::UNKNOWN.0 | Self::STRANGE.0) == 0
    }

    /// Whether the report can be relied on: known, and neither stale nor still being made.
    pub fn is_reliable(self) -> bool {
        self.is_known() && self.0 & (Self::STALE.0 | Self::CREATING.0) == 0
    }

    /// Whether it becomes clean by itself, as long as its OSDs are up. A group that has lost objects, has no
    /// place, waits for an OSD that is down, or is in an unreported state, does not.
    pub fn recovers(self) -> bool {
        let passing = |(bit, word): (usize, &&str)| self.0 & (1 << bit) == 0 || Self::PASSING.contains(word);
        self.is_known() && WORDS.iter().enumerate().all(passing)
    }

    /// Active and clean; what scrubbing and the trimming of snapshots add does not count.
    pub fn clean(self) -> bool {
        self.is_reliable() && self.has(Self::ACTIVE) && self.has(Self::CLEAN) && !self.has(Self::DEGRADED)
    }

    /// Active with as many copies as there should be. Data may still move to other places.
    pub fn has_all_copies(self) -> bool {
        self.is_reliable() && self.has(Self::ACTIVE) && self.0 & (Self::DEGRADED.0 | Self::UNDERSIZED.0) == 0
    }
}

impl fmt::Display for PgState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = WORDS.iter().enumerate();
        let mut here: Vec<&str> = words
            .filter(|(bit, _)| self.0 & (1 << bit) != 0)
            .map(|(_, word)| *word)
            .collect();
        if self.has(Self::STRANGE) {
            here.push("(unknown state)");
        }
        f.write_str(&here.join("+"))
    }
}

#[cfg(test)]
mod tests {
    use super::PgState;

    #[test]
    fn words_mean_what_they_mean_in_ceph() {
        for (text, clean, whole) in [
            ("active+clean", true, true),
            ("active+clean+scrubbing+deep", true, true),
            ("active+clean+snaptrim_wait", true, true),
            ("active+remapped+backfilling", false, true),
            ("active+undersized+degraded", false, false),
            ("active+recovery_wait+degraded", false, false),
            ("peering", false, false),
            ("stale+active+clean", false, false),
            ("unknown", false, false),
            ("active+clean+levitating", false, false),
        ] {
            let state = PgState::parse(text);
            assert_eq!((state.clean(), state.has_all_copies()), (clean, whole), "{text}");
        }
        assert!(PgState::parse("unknown").has(PgState::UNKNOWN));
        assert!(!PgState::parse("active+levitating").is_known());
        assert!(PgState::parse("creating").has(PgState::CREATING));
        assert_eq!(
            PgState::parse("active+undersized+degraded").to_string(),
            "active+degraded+undersized"
        );
        assert!(PgState::parse("undersized").has(PgState::UNDERSIZED));
        assert!(PgState::parse("stale").has(PgState::STALE));
    }
}
