//! Waves and steps over time.

use maud::{Markup, html};

use super::bars::Scale;
use super::{NAMES, clock};
use crate::history::{PartRecord, SpanEnd, StepRecord, VisitRecord, WaveEnd, WaveRecord};
use crate::names::{compress, fit};
use crate::{History, duration};

/// Of a wave with more units than that only those are shown one by one that took the longest, or failed.
const UNITS: usize = 60;
/// So many of those.
const LONGEST: usize = 20;

pub(super) fn timeline(history: &History) -> Markup {
    html! { section { @for (_, part) in rows(history) { (part) } } }
}

/// The heading, then a row for each wave and step, each with its name.
pub(super) fn rows(history: &History) -> Vec<(String, Markup)> {
    let scale = Scale::of(history);
    let heading = html! {
        h2 { "Waves" }
        @if history.parts.is_empty() {
            p { "No wave was opened, and no step was taken." }
        } @else {
            p.legend {
                span.key.preparing { "preparing" } span.key.down { "out of service" } span.key.shut { "gate shut" }
                span.key.back { "rolling back" } span.key.failed { "failed" }
            }
            div.row.head {
                span {} span { "what" }
                span.scale { (clock(history.began)) (clock(scale.end())) }
                span.number { "took" } span { "result" }
            }
        }
    };
    let part = |(place, part): (usize, &PartRecord)| match part {
        PartRecord::Wave(wave) => (format!("wave-{}", wave.number), wave_rows(history, &scale, wave)),
        PartRecord::Step(step) => (format!("step-{place}"), step_row(history, &scale, step)),
    };
    let mut rows = vec![("waves".to_owned(), heading)];
    rows.extend(history.parts.iter().enumerate().map(part));
    rows
}

fn wave_rows(history: &History, scale: &Scale, wave: &WaveRecord) -> Markup {
    let names = fit(&compress(wave.turns.iter().map(|turn| &turn.unit)), NAMES);
    html! {
        details.wave {
            summary.row {
                span.number { (wave.number) }
                span { b { (wave.stage.as_str()) } " " (names) }
                (scale.wave(wave))
                span.number {
                    (duration(wave.time.length(history.last)))
                    @if let Some(expected) = wave.forecast { small { "expected " (duration(expected)) } }
                }
                span { (wave_end(wave)) }
            }
            (turns(history, scale, wave))
        }
    }
}

fn wave_end(wave: &WaveRecord) -> Markup {
    let back = wave.turns.iter().filter(|turn| turn.was_rolled_back()).count();
    html! {
        @match (&wave.end, &wave.failed) {
            (Some(WaveEnd::WentBack), _) if back == 0 => span.bad { "✗ abandoned" },
            (Some(WaveEnd::WentBack), _) => span.bad { "✗ " (back) " of " (wave.turns.len()) " rolled back" },
            (Some(WaveEnd::Passed), None) => span.good { "✓ passed" },
            (Some(WaveEnd::Passed), Some(_)) => span.good { "✓ passed after it had failed" },
            (Some(end), _) => span.bad { "✗ " (end.as_str()) },
            (None, Some(_)) => span.bad { "✗ failed" },
            (None, None) => "open",
        }
    }
}

/// The visits of a wave, folded; of a large wave only the notable ones.
fn turns(history: &History, scale: &Scale, wave: &WaveRecord) -> Markup {
    let mut shown: Vec<&VisitRecord> = wave.turns.iter().collect();
    let all = shown.len();
    if all > UNITS {
        shown.sort_by_key(|turn| std::cmp::Reverse((has_failed(turn), turn.down_for(history.last))));
        shown.truncate(LONGEST);
    }
    html! {
        @if all > shown.len() { p.quiet { "of " (all) " units, the " (shown.len()) " that failed or took longest" } }
        @for turn in shown {
            div.row.turn {
                span {}
                span {
                    (turn.unit.as_str())
                    @for span in &turn.spans {
                        @match &span.end {
                            Some(SpanEnd::Failed(why)) => p.bad { (span.doing.as_str()) " failed: " (why) },
                            Some(SpanEnd::NotBegun(why)) => p.quiet { "not started, " (why) },
                            Some(SpanEnd::Done) | None => {}
                        }
                    }
                }
                (scale.turn(turn))
                @let down = turn.down_for(history.last);
                span.number { @if down.as_secs() > 0 { (duration(down)) small { "out of service" } } }
                span {}
            }
        }
    }
}

fn has_failed(turn: &VisitRecord) -> bool {
    turn.spans
        .iter()
        .any(|span| matches!(span.end, Some(SpanEnd::Failed(_))))
}

fn step_row(history: &History, scale: &Scale, step: &StepRecord) -> Markup {
    html! {
        div.row.step {
            span {}
            span { "step " b { (step.step.as_str()) } }
            (scale.full_bar("step", step.time, step.step.as_str()))
            span.number { (duration(step.time.length(history.last))) }
            span {
                @match (&step.time.to, &step.failed) {
                    (Some(_), _) => span.good { "✓ done" },
                    (None, Some(why)) => span.bad { "✗ failed: " (why) },
                    (None, None) => "open",
                }
                @if step.tries > 1 { span.quiet { ", " (step.tries) " attempts" } }
            }
        }
    }
}
