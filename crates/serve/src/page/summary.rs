//! The summary for an operator: what is down, why, what the run waits for, and until when.

use jiff::{SignedDuration, Timestamp};
use maud::{Markup, html};
use stagger_core::model::{Part, PartName, UnitId};
use stagger_core::view::{RunVerdict, RunView};
use stagger_report::history::UnitProgress;
use stagger_report::names::Places;
use stagger_report::page::clock;

use crate::fragments::units::class;
use crate::runs::ReadRun;

/// The maximum length of a list of units with their hosts, in characters.
const NAMES: usize = 160;

/// The maximum number of domains that have a line each.
const LINES: usize = 6;

/// What the run waits for.
#[derive(Debug, PartialEq, Eq)]
struct Wait {
    what: String,
    since: Timestamp,
}

/// How long it is waited for.
#[derive(Debug, PartialEq, Eq)]
enum Until {
    /// Not at all.
    Nothing,
    /// Until then, and what then.
    At(Timestamp, &'static str),
    /// Until something happens.
    Event(String),
}

/// The answers, side by side.
pub(super) fn summary(seen: &ReadRun) -> Markup {
    let view = &seen.view;
    if view.ending.is_some() {
        return html! {};
    }
    let history = &seen.journal.reading.history;
    let places = Places::of(&history.topology);
    let of = |state: UnitProgress| -> Vec<UnitId> {
        let units = history.units.iter().filter(|(_, unit)| unit.state == state);
        units.map(|(id, _)| id.clone()).collect()
    };
    let lines = |units: &[UnitId]| match places.lines(units) {
        few if few.len() <= LINES => few,
        _ => vec![places.describe(units, NAMES)],
    };
    let told = |state: UnitProgress| {
        let units = of(state);
        html! {
            @if !units.is_empty() {
                p.state.(class(state)) { b aria-hidden="true" { (state.glyph()) } " " strong { (units.len()) } " " (state.as_str()) @for line in lines(&units) { span.place { (line) } } }
            }
        }
    };
    let out = of(UnitProgress::Down).len() + of(UnitProgress::Failed).len();
    let (waits, until) = (current_waits(seen), expected_end(seen));
    html! {
        section.glance aria-label="now" {
            div {
                h2 { "Down" }
                @if out == 0 { p { "no unit, by this run" } }
                (told(UnitProgress::Down)) (told(UnitProgress::Failed)) (told(UnitProgress::Verifying))
            }
            div {
                h2 { "Why" }
                @match &view.current {
                    Some(current) => p { "wave " (view.waves_passed + 1) " of " (view.waves_passed as usize + view.waves_left) ", stage " b { (current.stage) } ", open since " (clock(current.since)) },
                    None => p { "no wave is open; " (view.waves_left) @if view.waves_left == 1 { " wave is" } @else { " waves are" } " planned" },
                }
                p.quiet { (view.title) }
            }
            div {
                h2 { "Waits for" }
                @if waits.is_empty() { p { (idle(view)) } }
                @for wait in &waits { p { (wait.what) span.quiet { ", since " (clock(wait.since)) " " (relative(wait.since)) } } }
            }
            div {
                h2 { "Until" }
                @match &until {
                    Until::Nothing => p { @if view.seconds_left > 0 { "about " (stagger_report::duration(SignedDuration::from_secs(view.seconds_left))) " are left, by the plan" } @else { "not waiting" } },
                    Until::At(at, then) => p { strong { (clock(*at)) } " UTC " (relative(*at)) "; " (then) },
                    Until::Event(event) => p { (event) },
                }
            }
        }
    }
}

/// The reason of the verdict; for a running run, its current activity.
pub(super) fn verdict_reason(seen: &ReadRun) -> String {
    let view = &seen.view;
    if view.verdict != RunVerdict::Running || view.ending.is_some() {
        return view.why.clone();
    }
    if let Some(first) = current_waits(seen).first() {
        return format!("waits for {}", first.what);
    }
    let counts = seen.journal.reading.history.counts();
    match counts.get(&UnitProgress::Down) {
        Some(1) => "1 unit is down for its change".to_owned(),
        Some(down) => format!("{down} units are down for their change"),
        None if view.current.is_some() => "a wave is open, and no unit of it is down".to_owned(),
        None => "between two waves".to_owned(),
    }
}

fn idle(view: &RunView) -> &'static str {
    match view.verdict {
        RunVerdict::Interrupted => "a process to carry it out",
        _ if view.current.is_some() => "its units; no gate is shut",
        _ => "nothing",
    }
}

/// A relative time, which the script keeps current.
pub(super) fn relative(at: Timestamp) -> Markup {
    html! { span.relative data-at=(at) {} }
}

fn current_waits(seen: &ReadRun) -> Vec<Wait> {
    let run = &seen.journal.reading.run;
    if let Some((reason, since)) = run.held() {
        return vec![Wait {
            what: reason.to_string(),
            since,
        }];
    }
    let Some((shut, since)) = run.gates() else {
        return Vec::new();
    };
    let shut = shut.iter().map(|(gate, why)| Wait {
        what: format!("{gate}: {why}"),
        since,
    });
    shut.collect()
}

fn expected_end(seen: &ReadRun) -> Until {
    let (view, run) = (&seen.view, &seen.journal.reading.run);
    match view.verdict {
        RunVerdict::Interrupted => {
            return Until::Event(format!("you resume it: `stagger resume {}`", view.run));
        }
        RunVerdict::NeedsYou => return Until::Event("you must act: see the commands below".to_owned()),
        RunVerdict::Running | RunVerdict::Held | RunVerdict::Done | RunVerdict::Ended => {}
    }
    if run.held().is_some() {
        return Until::Event("it is there; then the run continues by itself".to_owned());
    }
    let shut = run.gates().filter(|(shut, _)| !shut.is_empty());
    let Some((_, since)) = shut else {
        return Until::Nothing;
    };
    let stage = view.current.as_ref().map(|current| &current.stage);
    let patience = gate_timeout(&run.start().target.parts, stage)
        .unwrap_or_else(|| SignedDuration::from_secs(i64::from(run.start().policy.gate_timeout)));
    Until::At(
        since.saturating_add(patience).unwrap_or(Timestamp::MAX),
        "later while recovery makes progress. Then it restarts units, rolls back, or holds",
    )
}

/// How long the gates of a stage are waited for.
fn gate_timeout(parts: &[Part], stage: Option<&PartName>) -> Option<SignedDuration> {
    let found = parts.iter().find_map(|part| match part {
        Part::Stage(of) if Some(&of.name) == stage => Some(of),
        Part::Stage(_) | Part::Step(_) => None,
    });
    found?.gates.iter().map(|gate| gate.timeout).max()
}
