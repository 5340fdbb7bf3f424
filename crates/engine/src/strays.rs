//! Calls that may still land: made again, later and later, until their outcome is known or a person is
//! asked.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use stagger_core::model::{Code, Reason};
use stagger_core::run::Seq;

use crate::backend::BackendError;

/// The longest pause before something that failed is tried again, in seconds.
pub(crate) const LONGEST_PAUSE: u64 = 60;

/// So often a call is made before a person is asked. With pauses of 1, 2, 4 … 60 s this is three minutes
/// of a host that answers nothing, and longer where each call takes its time to fail.
const TRIES: u32 = 8;

/// How long to pause after so many failures in a row: 1, 2, 4 … seconds, up to [`LONGEST_PAUSE`].
pub(crate) fn pause_after(failures: u32) -> Duration {
    let seconds = 1_u64.checked_shl(failures).unwrap_or(LONGEST_PAUSE);
    Duration::from_secs(seconds.min(LONGEST_PAUSE))
}

/// Intents with a call that may still land.
#[derive(Debug, Default)]
pub(crate) struct Strays(BTreeMap<Seq, Stray>);

#[derive(Debug)]
struct Stray {
    times: u32,
    until: Timestamp,
    last: String,
}

impl Strays {
    /// One more call for this intent may still land. It is made again when the pause is over, and not
    /// before one that is bounded has ended.
    pub(crate) fn add(&mut self, seq: Seq, error: &BackendError, now: Timestamp, bound: Duration) {
        let times = self.0.get(&seq).map_or(0, |stray| stray.times);
        let pause = pause_after(times).max(bound);
        let pause = SignedDuration::try_from(pause).unwrap_or(SignedDuration::MAX);
        let stray = Stray {
            times: times.saturating_add(1),
            until: now.saturating_add(pause).unwrap_or(Timestamp::MAX),
            last: error.to_string(),
        };
        self.0.insert(seq, stray);
    }

    pub(crate) fn has(&self, seq: Seq) -> bool {
        self.0.contains_key(&seq)
    }

    /// Its outcome is known.
    pub(crate) fn remove(&mut self, seq: Seq) {
        self.0.remove(&seq);
    }

    /// Whether a call for this intent is to be made now.
    pub(crate) fn is_due(&self, seq: Seq, now: Timestamp) -> bool {
        self.0.get(&seq).is_none_or(|stray| stray.until <= now)
    }

    /// When the next is tried again.
    pub(crate) fn next(&self) -> Option<Timestamp> {
        self.0.values().map(|stray| stray.until).min()
    }

    /// What came of the one that is tried again next.
    pub(crate) fn last(&self) -> Option<&str> {
        let next = self.0.values().min_by_key(|stray| stray.until);
        next.map(|stray| stray.last.as_str())
    }

    /// Those that were tried often enough: a person has to look.
    pub(crate) fn given_up(&self) -> Option<Reason> {
        let (seq, stray) = self.0.iter().find(|(_, stray)| stray.times >= TRIES)?;
        let others = self.0.values().filter(|stray| stray.times >= TRIES).count() - 1;
        let others = match others {
            0 => String::new(),
            n => format!(" (and {n} more like it)"),
        };
        Some(Reason::new(
            Code::OutcomeUnknown,
            format!(
                "whether effect {seq} was carried out is unknown after {} tries: {}{others}; if its host is off for \
                 certain, `stagger confirm HOST is-off`, and if you know how it ended, `stagger settle {seq} done` or `failed`",
                stray.times, stray.last
            ),
        ))
    }

    /// Only those stay that are open: a person may have settled the others.
    pub(crate) fn retain(&mut self, is_open: impl Fn(Seq) -> bool) {
        self.0.retain(|seq, _| is_open(*seq));
    }

    /// Whoever resumes has looked: the count begins anew, at once. What may land may land all the same.
    pub(crate) fn begin_anew(&mut self) {
        for stray in self.0.values_mut() {
            (stray.times, stray.until) = (0, Timestamp::MIN);
        }
    }
}
