//! One HTML page of a run: a file that needs no network and no script, and prints well.
//!
//! The verdict comes first, then the laws, then the timeline. All bars of a page share one scale, from the
//! beginning of the run to its last event. Colours are those of Okabe and Ito, which colour-blind readers can
//! distinguish, and each has a shape or a word beside it.

mod bars;
mod forecasts;
mod parts;
mod units;

use jiff::{SignedDuration, Timestamp};
use maud::{DOCTYPE, Markup, PreEscaped, html};
use stagger_core::run::IllegalEvent;
use stagger_core::view::{RunVerdict, RunView};

use crate::event_text::{EventLine, command_words};
use crate::forecast::Forecasts;
use crate::history::{GuardRecord, Hold};
use crate::names::{Places, compress, fit};
use crate::{History, Verification, duration};

/// How it looks.
pub const STYLE: &str = include_str!("page/page.css");

/// So many lines of the journal are shown; of a longer one its end.
const LINES: usize = 5_000;

/// More waits than that are folded away.
const WAITS: usize = 12;

/// A list of names in a row is not longer.
const NAMES: usize = 90;

/// All that a page shows.
#[derive(Debug, Clone, Copy)]
pub struct RunReport<'a> {
    /// The run at a glance.
    pub view: &'a RunView,
    /// What happened when.
    pub history: &'a History,
    /// Whether the journal keeps the laws.
    pub verification: &'a Verification,
    /// Its events in words: place, time, word, text.
    pub lines: &'a [EventLine],
    /// The event from which on the journal is invalid, if there is one; the events before it are shown.
    pub broken: Option<&'a IllegalEvent>,
    /// The forecasts from earlier runs, and their past errors; `None`: not shown.
    pub forecasts: Option<&'a Forecasts>,
    /// What the cluster answered when the run was over: where guests were, and what the run left; empty: not
    /// asked.
    pub look_back: &'a [String],
    /// Which release of the program made the page.
    pub version: &'a str,
}

/// The page.
pub fn page(report: &RunReport<'_>) -> String {
    let RunReport { view, .. } = report;
    let title = format!("{} · {} · {}", view.verdict, view.cluster, view.title);
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'";
                meta name="color-scheme" content="light dark";
                title { (title) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                (heading(report))
                (details(report))
                footer { "made by stagger " (report.version) " from the journal of run " (view.run) ", event " (view.seq) }
            }
        }
    };
    page.into_string()
}

/// Sections that the page of a running run updates one by one, each with its own name: the waves (`waves`,
/// then `wave-1` or `step-2` by position), waits, decisions, guards, laws. A section whose name and text are
/// unchanged need not be redrawn.
pub fn sections(report: &RunReport<'_>) -> Vec<(String, Markup)> {
    let RunReport { view, history, .. } = report;
    let mut sections = parts::rows(history);
    sections.extend([
        ("skipped".to_owned(), skipped_section(view)),
        ("waits".to_owned(), waits_section(history)),
        ("decisions".to_owned(), decisions(history)),
        ("guards".to_owned(), guards(history)),
        ("laws".to_owned(), laws(report.verification)),
    ]);
    sections
}

/// What stands below the heading: what it is at, units, laws, waves, waits, decisions, guards, the journal.
fn details(report: &RunReport<'_>) -> Markup {
    let RunReport { view, history, .. } = report;
    html! {
        main {
            (now(view, history))
            (final_findings(report.look_back))
            @if view.ended_at.is_none() { (units::map(history)) }
            (laws(report.verification))
            (parts::timeline(history))
            @if view.ended_at.is_some() { (units::map(history)) }
            (skipped_section(view))
            (waits_section(history))
            @if let Some(told) = report.forecasts { (forecasts::forecasts(history.forecast, told)) }
            (decisions(history))
            (guards(history))
            (journal(report.lines))
        }
    }
}

/// What was found when it was over.
fn final_findings(lines: &[String]) -> Markup {
    html! {
        @if !lines.is_empty() {
            section {
                h2 { "When it was over" }
                @for line in lines { p { (line) } }
            }
        }
    }
}

/// A moment to the second, in UTC.
pub fn timestamp(at: Timestamp) -> Markup {
    html! { time datetime=(at) { (at.strftime("%Y-%m-%d %H:%M:%S")) } }
}

/// A time of day, where the page names the date elsewhere.
pub fn clock(at: Timestamp) -> Markup {
    html! { time datetime=(at) title=(at.strftime("%Y-%m-%d %H:%M:%S UTC")) { (at.strftime("%H:%M:%S")) } }
}

/// The verdict with its why, which run, and its figures.
fn heading(report: &RunReport<'_>) -> Markup {
    let RunReport { view, history, .. } = report;
    let tone = match view.verdict {
        RunVerdict::Done => "good",
        RunVerdict::Running => "plain",
        RunVerdict::Held | RunVerdict::Interrupted | RunVerdict::NeedsYou | RunVerdict::Ended => "bad",
    };
    html! {
        header {
            p.verdict.(tone) { strong { (view.verdict.to_string()) } " " (view.why) }
            @if let Some(broken) = report.broken { p.verdict.bad { strong { "UNREADABLE" } " " (broken) "; shown is what stands before it" } }
            h1 { (view.title) }
            p.where { "cluster " b { (view.cluster) } ", run " code { (view.run) } }
            (figures(view, history))
        }
    }
}

/// Its figures: since when, how much is changed, how many were down at once.
pub fn figures(view: &RunView, history: &History) -> Markup {
    let changed: usize = view.changed;
    html! {
        dl.facts {
            div { dt { "started" } dd { (timestamp(history.began)) " UTC" } }
            div {
                dt { @if view.ended_at.is_some() { "took" } @else { "for" } }
                dd { (duration(history.took())) (forecast(history.forecast, history.took(), view.ended_at.is_some())) }
            }
            div { dt { "changed" } dd { (changed) @if changed == 1 { " unit" } @else { " units" } } }
            div { dt { "waves passed" } dd { (view.waves_passed) } }
            div { dt { "down at once" } dd { "at most " (history.max_down()) } }
            div { dt { "run by" } dd { (processes(history)) } }
        }
    }
}

/// The current state of a running run: the open wave's units by activity, and the gates that are shut.
fn now(view: &RunView, history: &History) -> Markup {
    let Some(current) = &view.current else {
        return html! {};
    };
    let places = Places::of(&history.topology);
    let shut = history.waves().last().into_iter().flat_map(|wave| &wave.shut);
    html! {
        section {
            h2 { "Now: " (current.stage) }
            table {
                tbody {
                    @for (doing, units) in &current.units {
                        tr { th { (doing) } td { (places.describe(units, NAMES)) } }
                    }
                    @for shut in shut.filter(|shut| shut.time.to.is_none()) {
                        tr {
                            th { span.bad { "gate shut" } }
                            td { code { (shut.gate) } " " (shut.why) ", since " (clock(shut.time.from)) }
                        }
                    }
                }
            }
        }
    }
}

/// The forecasts beside the actual durations.
fn forecast(expected: Option<SignedDuration>, took: SignedDuration, over: bool) -> Markup {
    let Some(expected) = expected.filter(SignedDuration::is_positive) else {
        return html! {};
    };
    let off = (took.as_secs_f64() / expected.as_secs_f64() - 1.0) * 100.0;
    html! {
        span.quiet {
            ", expected " (duration(expected))
            @if over { " (" (format!("{off:+.0}")) " %)" }
        }
    }
}

fn processes(history: &History) -> String {
    match history.holders.len() {
        1 => "1 process".to_owned(),
        more => format!("{more} processes, one after another"),
    }
}

fn laws(verification: &Verification) -> Markup {
    let broken: usize = verification.laws.iter().map(|verdict| verdict.broken.len()).sum();
    html! {
        section {
            h2 { "Laws" }
            details open[broken > 0] {
                summary {
                    @if broken == 0 {
                        span.good { "✓ every law held" }
                    } @else {
                        span.bad { "✗ broken in " (broken) @if broken == 1 { " place" } @else { " places" } }
                    }
                    span.quiet { ", read from " (verification.events) " events by other means than those that wrote them" }
                }
                table.laws {
                    thead { tr { th { "" } th { "law" } th.number { "held against" } th { "says" } } }
                    tbody {
                        @for verdict in &verification.laws {
                            tr {
                                td { @if verdict.broken.is_empty() { span.good { "✓" } } @else { span.bad { "✗" } } }
                                td { code { (verdict.law.slug()) } }
                                td.number { (verdict.looked_at) }
                                td {
                                    (verdict.law.sentence())
                                    @for breach in &verdict.broken { br; span.bad { "event " (breach.seq) ": " (breach.why) } }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn skipped_section(view: &RunView) -> Markup {
    html! {
        @if !view.left_alone.is_empty() {
            section {
                h2 { "Skipped" }
                table {
                    thead { tr { th.number { "units" } th { "reason" } th { "which" } } }
                    tbody {
                        @for group in &view.left_alone {
                            tr {
                                td.number { (group.count) }
                                td { code { (group.reason.code.code()) } " " (group.reason.detail) }
                                td { (group.units.join(" ")) @if group.count > group.units.len() { " …" } }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// A row of what was waited for.
struct Wait<'a> {
    what: Markup,
    why: &'a str,
    time: crate::history::Interval,
}

fn waits_section(history: &History) -> Markup {
    let held = history.holds.iter().map(|Hold { reason, time }| Wait {
        what: html! { span.bad { "held" } " " code { (reason.code.code()) } },
        why: &reason.detail,
        time: *time,
    });
    let gates = history.waves().flat_map(|wave| &wave.shut).map(|shut| Wait {
        what: html! { "gate " code { (shut.gate) } },
        why: &shut.why,
        time: shut.time,
    });
    let mut waits: Vec<Wait<'_>> = held.chain(gates).collect();
    waits.sort_by_key(|wait| wait.time.from);
    html! {
        @if !waits.is_empty() {
            section {
                h2 { "Waited for" }
                details open[waits.len() <= WAITS] {
                    summary { (waits.len()) @if waits.len() == 1 { " wait" } @else { " waits" } }
                    table {
                        thead { tr { th { "since" } th.number { "for" } th { "what" } th { "why" } } }
                        tbody {
                            @for wait in &waits {
                                tr {
                                    td { (clock(wait.time.from)) }
                                    td.number {
                                        (duration(wait.time.length(history.last)))
                                        @if wait.time.to.is_none() { " so far" }
                                    }
                                    td { (wait.what) }
                                    td { (wait.why) }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// What was decided otherwise than planned, and by whom.
fn decisions(history: &History) -> Markup {
    let mut rows: Vec<(Timestamp, &str, String)> = Vec::new();
    for wave in history.waves() {
        let refused = wave
            .judged
            .iter()
            .filter_map(|judged| Some((judged.at, judged.no.as_ref()?)));
        rows.extend(refused.map(|(at, no)| (at, "refused", format!("wave {}: {no}", wave.number))));
        if let Some(reason) = &wave.failed {
            rows.push((
                wave.time.to.unwrap_or(history.last),
                "failed",
                format!("wave {}: {reason}", wave.number),
            ));
        }
        if let Some(crate::history::WaveEnd::Dropped(reason)) = &wave.end {
            rows.push((
                wave.time.to.unwrap_or(history.last),
                "dropped",
                format!("wave {}: {reason}", wave.number),
            ));
        }
    }
    let aside = history.aside.iter();
    rows.extend(aside.map(|(at, unit, reason)| (*at, "set aside", format!("{unit}: {reason}"))));
    let words = history.words.iter();
    rows.extend(words.map(|word| {
        (
            word.at,
            "asked",
            format!("{} by {}", command_words(&word.command), word.by),
        )
    }));
    rows.sort_by_key(|(at, ..)| *at);
    html! {
        @if !rows.is_empty() {
            section {
                h2 { "Decisions" }
                table {
                    thead { tr { th { "at" } th { "what" } th { "why" } } }
                    tbody {
                        @for (at, what, why) in &rows { tr { td { (clock(*at)) } td { (what) } td { (why) } } }
                    }
                }
            }
        }
    }
}

fn guards(history: &History) -> Markup {
    let row = |GuardRecord {
                   guard, units, time, ..
               }: &GuardRecord| {
        html! {
            tr {
                td { code { (guard.as_str()) } }
                td { @if units.is_empty() { "the cluster" } @else { (fit(&compress(units), NAMES)) } }
                td { (clock(time.from)) }
                td {
                    @match time.to {
                        Some(to) => { (clock(to)) }
                        None => { @if history.ended.is_some() { span.bad { "never" } } @else { "not yet" } }
                    }
                }
                td.number { (duration(time.length(history.last))) }
            }
        }
    };
    html! {
        @if !history.guards.is_empty() {
            section {
                h2 { "Guards" }
                details {
                    summary { (history.guards.len()) " taken" }
                    table {
                        thead { tr { th { "guard" } th { "on" } th { "taken" } th { "cleared" } th.number { "for" } } }
                        tbody { @for guard in &history.guards { (row(guard)) } }
                    }
                }
            }
        }
    }
}

fn journal(lines: &[EventLine]) -> Markup {
    let from = lines.len().saturating_sub(LINES);
    html! {
        section {
            h2 { "Journal" }
            details {
                summary { (lines.len()) " lines" @if from > 0 { ", the last " (LINES) " are shown" } }
                table.journal {
                    thead { tr { th.number { "event" } th { "at" } th { "what" } th { "" } } }
                    tbody {
                        @for line in &lines[from..] {
                            tr {
                                td.number { (line.seq) }
                                td { (clock(line.at)) }
                                td { (line.word) }
                                td { (line.text) }
                            }
                        }
                    }
                }
            }
        }
    }
}
