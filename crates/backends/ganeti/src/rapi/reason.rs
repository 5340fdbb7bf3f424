//! The reason that every job of stagger carries, and the ranges of reasons that filters match.
//!
//! RAPI takes one text per request, `?reason=`, and puts it into the job's reason trail as `["gnt:user",
//! TEXT, NANOSECONDS]`. A job filter compares texts by their characters (`=`, `<`, `>=`; a regular expression
//! never matches: `src/Ganeti/JQScheduler/Filtering.hs`). So the fencing token comes first and has a fixed
//! width: all jobs of older tokens are one range.

use stagger_engine::cluster::Call;

/// How every reason of ours begins.
pub const PREFIX: &str = "stagger:";

/// Jobs with this reason run also while those of others wait: `gnt-instance startup --reason=stagger-emergency web1`. It is
/// not one of ours.
pub const EMERGENCY: &str = "stagger-emergency";

/// The reason of what a person tells a run: it passes where jobs of others wait, and belongs to no call.
pub const BY_A_PERSON: &str = "stagger:person";

/// The first text that does not begin so any more, in the order of characters.
const BEYOND: &str = "stagger;";

/// So many digits has a token; more than the jobs that a cluster sees in its life.
const WIDTH: usize = 12;

/// The reason of one job.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct JobReason {
    /// The fencing token of who submitted it.
    pub token: u64,
    /// The effect that it is part of: the run and the place of its intent.
    pub key: String,
    /// What it does there, and on what: `migrate-web1`.
    pub what: String,
    /// Counts the jobs of one process, so that each can be told from any other.
    pub nonce: u64,
}

impl JobReason {
    /// The reason of a job for this call.
    pub fn new(call: &Call, what: impl Into<String>, nonce: u64) -> Self {
        Self {
            token: call.fence,
            key: call.key(),
            what: what.into(),
            nonce,
        }
    }

    /// Reads one back; `None`: it is not one of ours.
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.strip_prefix(PREFIX)?.splitn(4, ':');
        let token = parts.next()?.parse().ok()?;
        let nonce = parts.next()?.parse().ok()?;
        let key = parts.next()?.to_owned();
        let what = parts.next()?.to_owned();
        Some(Self {
            token,
            key,
            what,
            nonce,
        })
    }
}

impl std::fmt::Display for JobReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            token,
            key,
            what,
            nonce,
        } = self;
        write!(f, "{PREFIX}{token:0WIDTH$}:{nonce}:{key}:{what}")
    }
}

/// The reasons from the first text up to, and without, the second.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Range {
    /// The first that is in it.
    pub from: String,
    /// The first that is not.
    pub below: String,
}

impl Range {
    /// All of ours.
    pub fn all_ours() -> Self {
        Self {
            from: PREFIX.to_owned(),
            below: BEYOND.to_owned(),
        }
    }

    /// Those of ours with an older token.
    pub fn older_than(token: u64) -> Self {
        Self {
            from: PREFIX.to_owned(),
            below: format!("{PREFIX}{token:0WIDTH$}"),
        }
    }

    /// Whether a text is in it.
    pub fn has(&self, text: &str) -> bool {
        *self.from <= *text && *text < *self.below
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn reason(token: u64) -> JobReason {
        JobReason {
            token,
            key: "20261122-0537-ab12-17".to_owned(),
            what: "migrate-web:1".to_owned(),
            nonce: 3,
        }
    }

    #[test]
    fn others_are_not_read_as_ours() {
        for text in [
            "",
            "stagger",
            "stagger:",
            "stagger:x:1:k:w",
            "roll-1",
            "stagger:5:1:k",
        ] {
            assert_eq!(JobReason::parse(text), None, "{text:?}");
        }
    }

    #[test]
    fn what_a_person_says_passes_and_is_never_refused() {
        assert!(Range::all_ours().has(BY_A_PERSON));
        assert!(!Range::older_than(999_999_999_999).has(BY_A_PERSON));
        assert_eq!(JobReason::parse(BY_A_PERSON), None);
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(token in 0..999_999_999_999_u64) {
            prop_assert_eq!(JobReason::parse(&reason(token).to_string()), Some(reason(token)));
        }

        #[test]
        fn a_range_has_the_older_tokens_and_no_others(one in 0..999_999_999_999_u64, other in 0..999_999_999_999_u64) {
            let text = reason(one).to_string();
            prop_assert!(Range::all_ours().has(&text));
            prop_assert_eq!(Range::older_than(other).has(&text), one < other);
        }

        #[test]
        fn a_text_of_others_is_in_no_range(text in "[a-z:;0-9]{0,12}") {
            prop_assume!(!text.starts_with(PREFIX));
            prop_assert!(!Range::all_ours().has(&text));
            prop_assert!(!Range::older_than(77).has(&text));
        }
    }
}
