//! Maintenance windows: days and hours in a time zone.

use jiff::{Timestamp, ToSpan as _, Zoned, civil, tz::TimeZone};
use serde::{Deserialize, Serialize};

/// Days and hours in which waves may run. A wave starts only if its forecast end lies inside too.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(try_from = "WindowText", into = "WindowText")]
pub struct Window {
    /// Monday first.
    days: [bool; 7],
    from: civil::Time,
    /// At or before `from`: the next day.
    until: civil::Time,
    zone: String,
    rules: TimeZone,
}

#[derive(Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct WindowText {
    /// `mon` … `sun`; every day, if empty.
    #[serde(default)]
    days: Vec<String>,
    from: String,
    until: String,
    /// IANA name, `Europe/Berlin`.
    zone: String,
}

/// A window that cannot be one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WindowError {
    /// Not a day.
    #[error("{0:?} is not a day: mon, tue, wed, thu, fri, sat or sun")]
    Day(String),
    /// Not a time of day.
    #[error("{0:?} is not a time of day: write 22:00")]
    Time(String),
    /// Not a zone.
    #[error("{0:?} is not an IANA time zone such as Europe/Berlin")]
    Zone(String),
}

const DAYS: [&str; 7] = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];

impl TryFrom<WindowText> for Window {
    type Error = WindowError;
    fn try_from(text: WindowText) -> Result<Self, WindowError> {
        let mut days = [text.days.is_empty(); 7];
        for day in &text.days {
            let lower = day.to_lowercase();
            let at = DAYS
                .iter()
                .position(|d| *d == lower)
                .ok_or_else(|| WindowError::Day(day.clone()))?;
            days[at] = true;
        }
        let time = |t: &str| civil::Time::strptime("%H:%M", t).map_err(|_| WindowError::Time(t.to_owned()));
        let (from, until) = (time(&text.from)?, time(&text.until)?);
        let rules = TimeZone::get(&text.zone).map_err(|_| WindowError::Zone(text.zone.clone()))?;
        Ok(Self {
            days,
            from,
            until,
            zone: text.zone,
            rules,
        })
    }
}

impl From<Window> for WindowText {
    fn from(window: Window) -> Self {
        let every = window.days.iter().all(|d| *d);
        let days = if every {
            Vec::new()
        } else {
            window.day_names().map(str::to_owned).collect()
        };
        let time = |t: civil::Time| t.strftime("%H:%M").to_string();
        Self {
            days,
            from: time(window.from),
            until: time(window.until),
            zone: window.zone,
        }
    }
}

impl std::fmt::Display for Window {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let days: Vec<_> = self.day_names().collect();
        let days = if days.len() == 7 {
            "every day".to_owned()
        } else {
            days.join(" ")
        };
        write!(
            f,
            "{days} {} to {} {}",
            self.from.strftime("%H:%M"),
            self.until.strftime("%H:%M"),
            self.zone
        )
    }
}

impl Window {
    fn day_names(&self) -> impl Iterator<Item = &'static str> {
        DAYS.into_iter()
            .zip(self.days)
            .filter(|(_, on)| *on)
            .map(|(name, _)| name)
    }

    /// The opening on that date, if the window opens then. Times that a change of clocks skips or
    /// repeats are taken as jiff's compatible rule takes them: a skipped one is later, of a repeated
    /// one the first counts.
    fn opening(&self, date: civil::Date) -> Option<(Timestamp, Timestamp)> {
        let weekday = date.weekday().to_monday_zero_offset();
        if !self.days[usize::try_from(weekday).ok()?] {
            return None;
        }
        let at = |date: civil::Date, time| -> Option<Zoned> {
            date.to_datetime(time).to_zoned(self.rules.clone()).ok()
        };
        let last_day = if self.until <= self.from {
            date.tomorrow().ok()?
        } else {
            date
        };
        Some((
            at(date, self.from)?.timestamp(),
            at(last_day, self.until)?.timestamp(),
        ))
    }

    /// Whether all of `from..=until` lies in one opening.
    pub fn holds(&self, from: Timestamp, until: Timestamp) -> bool {
        let today = from.to_zoned(self.rules.clone()).date();
        [today.yesterday().ok(), Some(today)]
            .into_iter()
            .flatten()
            .filter_map(|date| self.opening(date))
            .any(|(opens, closes)| opens <= from && until <= closes)
    }

    /// The first time at or after `from` when something as long as `until - from` fits; `None` if it
    /// never does within two weeks, for then it is longer than the window.
    pub fn next(&self, from: Timestamp, until: Timestamp) -> Option<Timestamp> {
        if self.holds(from, until) {
            return Some(from);
        }
        let length = until.duration_since(from);
        let mut date = from.to_zoned(self.rules.clone()).date();
        for _ in 0..15 {
            if let Some((opens, closes)) = self.opening(date)
                && opens >= from
                && opens.checked_add(length).is_ok_and(|end| end <= closes)
            {
                return Some(opens);
            }
            date = date.checked_add(1.day()).ok()?;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(days: &[&str], from: &str, until: &str) -> Window {
        let text = serde_json::json!({ "days": days, "from": from, "until": until, "zone": "Europe/Berlin" });
        serde_json::from_value(text).unwrap()
    }

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn a_wave_fits_only_if_its_end_does() {
        let nights = window(&["fri"], "22:00", "04:00");
        // 20 November 2026 is a Friday; Berlin is UTC+1.
        assert!(nights.holds(at("2026-11-20T21:00:00Z"), at("2026-11-21T03:00:00Z")));
        assert!(!nights.holds(at("2026-11-20T21:00:00Z"), at("2026-11-21T03:00:01Z")));
        assert!(!nights.holds(at("2026-11-20T20:59:59Z"), at("2026-11-20T22:00:00Z")));
        assert!(
            !nights.holds(at("2026-11-21T21:30:00Z"), at("2026-11-21T22:00:00Z")),
            "Saturday night"
        );
        let next = nights.next(at("2026-11-21T12:00:00Z"), at("2026-11-21T12:30:00Z"));
        assert_eq!(next, Some(at("2026-11-27T21:00:00Z")));
    }

    #[test]
    fn hours_follow_the_change_of_clocks() {
        // On 25 October 2026 Berlin goes from UTC+2 to UTC+1 at 03:00: the window is an hour longer.
        let nights = window(&[], "22:00", "04:00");
        assert!(nights.holds(at("2026-10-24T20:00:00Z"), at("2026-10-25T03:00:00Z")));
        // On 29 March 2026 it is an hour shorter.
        assert!(nights.holds(at("2026-03-28T21:00:00Z"), at("2026-03-29T02:00:00Z")));
        assert!(!nights.holds(at("2026-03-28T21:00:00Z"), at("2026-03-29T02:30:00Z")));
    }

    #[test]
    fn what_is_longer_than_the_window_never_fits() {
        let hour = window(&[], "22:00", "23:00");
        assert_eq!(
            hour.next(at("2026-11-20T12:00:00Z"), at("2026-11-20T14:00:00Z")),
            None
        );
    }

    #[test]
    fn nonsense_is_refused() {
        for (field, value) in [
            ("days", serde_json::json!(["someday"])),
            ("from", serde_json::json!("25:00")),
            ("zone", serde_json::json!("Mars/Base")),
        ] {
            let mut text = serde_json::json!({ "from": "22:00", "until": "04:00", "zone": "Europe/Berlin" });
            text[field] = value;
            assert!(serde_json::from_value::<Window>(text).is_err(), "{field}");
        }
    }
}
