//! Bars on the one scale of a page.

use jiff::{SignedDuration, Timestamp};
use maud::{Markup, html};

use crate::History;
use crate::history::{Activity, Interval, SpanEnd, VisitRecord, WaveRecord};

/// The width of a bar in its own units: the browser stretches it.
const WIDTH: f64 = 1000.0;
/// The narrowest that is still seen.
const NARROWEST: f64 = 2.0;

/// From the beginning of a run to its last event. The scale of a running run extends beyond it, so that bars
/// do not move with each event.
#[derive(Debug, Clone, Copy)]
pub(super) struct Scale {
    from: Timestamp,
    seconds: f64,
    to: Timestamp,
}

impl Scale {
    pub(super) fn of(history: &History) -> Self {
        let took = history.took().as_secs_f64().max(1.0);
        Self {
            from: history.began,
            seconds: if history.ended.is_some() {
                took
            } else {
                next_mark(took)
            },
            to: history.last,
        }
    }

    /// Where it ends.
    pub(super) fn end(&self) -> Timestamp {
        let length = SignedDuration::try_from_secs_f64(self.seconds).unwrap_or_default();
        self.from.saturating_add(length).unwrap_or(self.to)
    }

    fn at(&self, at: Timestamp) -> f64 {
        let share = at.duration_since(self.from).as_secs_f64() / self.seconds;
        (share * WIDTH).clamp(0.0, WIDTH)
    }

    /// A box from one time to another; each class has a height of its own.
    fn span(&self, class: &str, time: Interval, title: &str) -> Markup {
        let from = self.at(time.from);
        let wide = (self.at(time.to.unwrap_or(self.to)) - from).max(NARROWEST);
        let (top, high) = match class {
            "preparing" => (5.0, 6.0),
            "open" => (7.0, 2.0),
            "shut" => (4.0, 8.0),
            _ => (1.0, 14.0),
        };
        html! {
            rect class=(class) x=(tenths(from.min(WIDTH - NARROWEST))) y=(top) width=(tenths(wide)) height=(high) {
                title { (title) }
            }
        }
    }

    fn bar(label: &str, spans: &Markup) -> Markup {
        html! {
            svg.bar role="img" aria-label=(label) viewBox="0 0 1000 16" preserveAspectRatio="none" { (spans) }
        }
    }

    /// A thing from its beginning to its end.
    pub(super) fn full_bar(&self, class: &str, time: Interval, label: &str) -> Markup {
        Self::bar(label, &self.span(class, time, label))
    }

    /// A wave: while it was open, while its units were prepared, while one of them was down, while a gate was shut.
    pub(super) fn wave(&self, wave: &WaveRecord) -> Markup {
        let spans = || wave.turns.iter().flat_map(|turn| &turn.spans);
        let preparing = spans().filter(|span| span.doing == Activity::Preparing);
        let prepared = union(preparing.map(|span| span.time).collect());
        let down = union(wave.turns.iter().flat_map(VisitRecord::out_of_service).collect());
        let spans = html! {
            (self.span("open", wave.time, "open"))
            @for time in prepared { (self.span("preparing", time, "preparing")) }
            @for shut in &wave.shut { (self.span("shut", shut.time, &format!("gate {}: {}", shut.gate, shut.why))) }
            @for time in down { (self.span("down", time, "out of service, one or more of it")) }
        };
        Self::bar(&format!("wave {}", wave.number), &spans)
    }

    /// The turn of a unit.
    pub(super) fn turn(&self, turn: &VisitRecord) -> Markup {
        let spans = html! {
            @for span in &turn.spans {
                @let class = match (&span.end, span.doing) {
                    (Some(SpanEnd::Failed(_)), _) => "failed",
                    (Some(SpanEnd::NotBegun(_)), _) => "open",
                    (_, Activity::Preparing) => "preparing",
                    (_, Activity::RollingBack) => "back",
                    (_, Activity::Entering | Activity::Changing | Activity::Leaving | Activity::Restarting) => "down",
                };
                (self.span(class, span.time, span.doing.as_str()))
            }
        };
        Self::bar(turn.unit.as_str(), &spans)
    }
}

/// The first of four marks to each doubling that is not before this one.
fn next_mark(seconds: f64) -> f64 {
    let step = seconds.log2().floor().exp2() / 4.0;
    (seconds / step).ceil() * step
}

/// Times during which there is at least one, in order.
fn union(mut times: Vec<Interval>) -> Vec<Interval> {
    times.sort_by_key(|time| time.from);
    let mut merged: Vec<Interval> = Vec::new();
    for time in times {
        match merged.last_mut() {
            Some(last) if last.to.is_none_or(|to| time.from <= to) => {
                last.to = last.to.zip(time.to).map(|(a, b)| a.max(b));
            }
            Some(_) | None => merged.push(time),
        }
    }
    merged
}

/// A number with one digit behind the point: more is not seen.
fn tenths(number: f64) -> String {
    format!("{number:.1}")
}

#[cfg(test)]
mod tests {
    use super::next_mark;

    #[test]
    fn a_scale_stays_for_a_while_and_holds_what_there_is() {
        let marks = [1.0, 64.0, 65.0, 80.0, 81.0, 127.0].map(|seconds| next_mark(seconds).to_string());
        assert_eq!(marks, ["1", "64", "80", "80", "96", "128"]);
        let mut marks = Vec::new();
        for second in 1..10_000 {
            let mark = next_mark(f64::from(second));
            assert!(mark >= f64::from(second), "{mark} is before {second}");
            marks.push(mark);
        }
        marks.dedup();
        assert!(marks.len() < 60, "{} scales in 10,000 s", marks.len());
    }
}
