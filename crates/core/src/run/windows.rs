//! Windows in which the policy permits waves. They are times of day, whatever clock a run uses for its own
//! times.

use jiff::{SignedDuration, Timestamp};

use super::decide::Decision;
use super::state::State;
use crate::model::{Code, PartName, Reason};

impl State {
    /// Whether the policy's windows permit work from now until `end`.
    pub(super) fn may_run(&self, now: Timestamp, end: Timestamp) -> bool {
        let windows = &self.start.policy.windows;
        let (now, end) = (self.time_of_day(now), self.time_of_day(end));
        windows.is_empty() || windows.iter().any(|window| window.holds(now, end))
    }

    /// Waits for a window into which a wave of so many seconds fits; `None`: it may begin now.
    pub(super) fn wait_to_open(&self, now: Timestamp, seconds: u32) -> Option<Decision> {
        self.wait_for_window(
            now,
            seconds,
            &format!("a wave of about {seconds} s must end inside"),
        )
    }

    /// Waits for a window for a step; `None`: it may start now. A step between or after waves belongs to a
    /// wave that has already started.
    pub(super) fn wait_to_begin(&self, now: Timestamp, step: &PartName) -> Option<Decision> {
        if self.last_wave.is_some() || self.going_back.is_some() {
            return None;
        }
        self.wait_for_window(now, 0, &format!("the step {step} must start inside"))
    }

    fn wait_for_window(&self, now: Timestamp, seconds: u32, what: &str) -> Option<Decision> {
        let end = now
            .saturating_add(SignedDuration::from_secs(i64::from(seconds)))
            .unwrap_or(Timestamp::MAX);
        if self.may_run(now, end) {
            return None;
        }
        let windows = &self.start.policy.windows;
        let (today, ends) = (self.time_of_day(now), self.time_of_day(end));
        let next = windows.iter().filter_map(|window| window.next(today, ends)).min();
        let next = next.map(|next| next.saturating_add(self.behind).unwrap_or(Timestamp::MAX));
        let names: Vec<_> = windows.iter().map(ToString::to_string).collect();
        let why = Reason::new(Code::OutsideWindow, format!("{what} {}", names.join(" or ")));
        Some(match next {
            Some(_) => Decision::Wait { until: next, why },
            None => self.hold(why),
        })
    }

    fn time_of_day(&self, time: Timestamp) -> Timestamp {
        time.saturating_sub(self.behind).unwrap_or(Timestamp::MIN)
    }
}
