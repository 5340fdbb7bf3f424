//! Calls in doubt: repeated with growing pauses until their outcome is known or the operator is asked.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use stagger_core::model::{Code, Reason};
use stagger_core::run::Seq;

use crate::clock::{Clock as _, Steady};
use crate::cluster::BackendError;

/// The longest pause before something that failed is tried again, in seconds.
pub(crate) const LONGEST_PAUSE: u64 = 60;

/// How often a call is made before the operator is asked. With pauses of 1, 2, 4 … 60 s this is three minutes
/// for a host that does not answer, and longer where each call takes its time to fail.
const TRIES: u32 = 8;

/// How long to pause after so many failures in a row: 1, 2, 4 … seconds, up to [`LONGEST_PAUSE`].
pub(crate) fn pause_after(failures: u32) -> Duration {
    let seconds = 1_u64.checked_shl(failures).unwrap_or(LONGEST_PAUSE);
    Duration::from_secs(seconds.min(LONGEST_PAUSE))
}

/// Intents with a call that may still land.
#[derive(Debug, Default)]
pub(crate) struct InDoubtCalls(BTreeMap<Seq, InDoubtCall>);

#[derive(Debug)]
struct InDoubtCall {
    times: u32,
    /// How long the machine was up then.
    since: Duration,
    pause: Duration,
    last: String,
}

impl InDoubtCall {
    /// How much of its pause is left: one that is bounded must have ended, also where the clock was set forward.
    fn pause_left(&self, clock: &Steady) -> Duration {
        self.pause
            .saturating_sub(clock.uptime().saturating_sub(self.since))
    }
}

impl InDoubtCalls {
    /// One more call for this intent may still land. It is made again when the pause is over, and not
    /// before one that is bounded has ended.
    pub(crate) fn add(&mut self, seq: Seq, error: &BackendError, clock: &Steady, bound: Duration) {
        let times = self.0.get(&seq).map_or(0, |stray| stray.times);
        let stray = InDoubtCall {
            times: times.saturating_add(1),
            since: clock.uptime(),
            pause: pause_after(times).max(bound),
            last: match &error.hint {
                Some(hint) => format!("{error}; {hint}"),
                None => error.to_string(),
            },
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
    pub(crate) fn is_due(&self, seq: Seq, clock: &Steady) -> bool {
        self.0
            .get(&seq)
            .is_none_or(|stray| stray.pause_left(clock).is_zero())
    }

    /// When the next is tried again.
    pub(crate) fn next(&self, clock: &Steady) -> Option<Timestamp> {
        let left = self.0.values().map(|stray| stray.pause_left(clock)).min()?;
        Some(clock.now().saturating_add(left).unwrap_or(Timestamp::MAX))
    }

    /// What came of the one that is tried again next.
    pub(crate) fn last(&self, clock: &Steady) -> Option<&str> {
        let next = self.0.values().min_by_key(|stray| stray.pause_left(clock));
        next.map(|stray| stray.last.as_str())
    }

    /// Those that were tried often enough: a person has to look.
    pub(crate) fn exhausted_reason(&self) -> Option<Reason> {
        let (seq, stray) = self.0.iter().find(|(_, stray)| stray.times >= TRIES)?;
        let others = self.0.values().filter(|stray| stray.times >= TRIES).count() - 1;
        let others = match others {
            0 => String::new(),
            n => format!(" (and {n} more like it)"),
        };
        Some(Reason::new(
            Code::OutcomeUnknown,
            format!(
                "the outcome of effect {seq} is unknown after {} tries: {}{others}; if its host is certainly off, \
                 `stagger confirm HOST is-off`; if you know the outcome, `stagger settle {seq} done` or `failed`",
                stray.times, stray.last
            ),
        ))
    }

    /// Only those stay that are open: a person may have settled the others.
    pub(crate) fn retain(&mut self, is_open: impl Fn(Seq) -> bool) {
        self.0.retain(|seq, _| is_open(*seq));
    }

    /// A resume starts the count again, without a pause. The calls may still land.
    pub(crate) fn begin_anew(&mut self) {
        for stray in self.0.values_mut() {
            (stray.times, stray.pause) = (0, Duration::ZERO);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use jiff::SignedDuration;

    use super::*;
    use crate::clock::Clock;

    /// How long it has been up, and what it was set forward by.
    struct ByHand(Mutex<(Duration, SignedDuration)>);

    #[async_trait::async_trait]
    impl Clock for ByHand {
        fn now(&self) -> Timestamp {
            let (up, ahead) = *self.0.lock().unwrap();
            Timestamp::UNIX_EPOCH + up + ahead
        }

        async fn sleep_until(&self, _: Timestamp) {}

        fn uptime(&self) -> Duration {
            self.0.lock().unwrap().0
        }
    }

    #[test]
    fn what_is_bounded_has_ended_also_where_the_clock_was_set_forward() {
        let clock = Arc::new(ByHand(Mutex::default()));
        let steady = Steady::new(Arc::clone(&clock) as Arc<dyn Clock>);
        let mut strays = InDoubtCalls::default();
        let error = BackendError::transient("ask", "no answer").outcome_unknown();
        strays.add(1, &error, &steady, Duration::from_secs(30));
        clock.0.lock().unwrap().1 = SignedDuration::from_hours(1);
        assert!(!strays.is_due(1, &steady));
        let left = strays.next(&steady).unwrap().duration_since(steady.now());
        assert_eq!(left.as_secs(), 30);
        clock.0.lock().unwrap().0 = Duration::from_secs(30);
        assert!(strays.is_due(1, &steady));
    }
}
