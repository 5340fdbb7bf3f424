//! The explanation of one unit: its state, its history, why it was skipped, when it is visited.

use maud::{Markup, html};
use stagger_core::model::UnitId;
use stagger_report::duration;
use stagger_report::history::{SpanEnd, VisitRecord, WaveRecord};
use stagger_report::page::clock;

use crate::fragments::units::class;
use crate::runs::ReadRun;

/// The explanation of the unit of that name.
pub(super) fn unit(seen: &ReadRun, name: &str) -> Markup {
    let history = &seen.journal.reading.history;
    let Some((unit, known)) = history.units.iter().find(|(unit, _)| unit.as_str() == name) else {
        return html! {
            section.unit aria-label="unit" { h3 #unit tabindex="-1" { (name) } p { "No plan of this run names it." } (close()) }
        };
    };
    let host = history
        .topology
        .hosts
        .iter()
        .find(|host| host.units.contains(unit));
    let turns: Vec<(&WaveRecord, &VisitRecord)> = history
        .waves()
        .flat_map(|wave| wave.turns.iter().map(move |turn| (wave, turn)))
        .filter(|(_, turn)| turn.unit == *unit)
        .collect();
    let aside = history.aside.iter().filter(|(_, aside, _)| aside == unit);
    let plan = seen.journal.reading.run.plan();
    let left = plan
        .into_iter()
        .flat_map(|plan| &plan.left_alone)
        .filter(|left| left.unit == *unit);
    html! {
        section.unit aria-label="unit" {
            h3 #unit tabindex="-1" { span.state.(class(known.state)) { b aria-hidden="true" { (known.state.glyph()) } } " " (name) " is " (known.state.as_str()) }
            @if let Some(host) = host {
                p.quiet { "on host " (host.name) @if let Some(within) = &host.within { ", " (within) } }
            }
            @for (at, _, reason) in aside { p { (clock(*at)) " set aside: " (reason) } }
            @for left in left { p { "skipped in stage " (left.stage) ": " code { (left.reason.code.code()) } " " (left.reason.detail) } }
            @if let Some(turn) = next(seen, unit).filter(|_| seen.view.ending.is_none()) { p { (turn) } }
            @if turns.is_empty() { p { "Nothing was done to it in this run." } }
            @for (wave, turn) in turns { (turn_text(wave, turn, seen)) }
            (close())
        }
    }
}

fn close() -> Markup {
    html! { p { a.close href="?" data-unit="" { "Close" } } }
}

/// When its turn is planned.
fn next(seen: &ReadRun, unit: &UnitId) -> Option<String> {
    let plan = seen.journal.reading.run.plan()?;
    let stages = plan
        .stages()
        .flat_map(|stage| stage.waves.iter().map(move |wave| (stage, wave)));
    let (place, (stage, wave)) = stages
        .enumerate()
        .find(|(_, (_, wave))| wave.units.contains(unit))?;
    Some(format!(
        "Planned in wave {} of those to come, stage {}, with {} other units.",
        place + 1,
        stage.name,
        wave.units.len() - 1
    ))
}

fn turn_text(wave: &WaveRecord, turn: &VisitRecord, seen: &ReadRun) -> Markup {
    let last = seen.journal.reading.history.last;
    html! {
        h4 { "Wave " (wave.number) " of " (wave.stage) @if let Some(before) = &turn.before { span.quiet { ", it ran " (before) } } }
        table {
            thead { tr { th scope="col" { "at" } th scope="col" { "what" } th.number scope="col" { "took" } th scope="col" { "result" } } }
            tbody {
                @for span in &turn.spans {
                    tr {
                        td { (clock(span.time.from)) }
                        td { (span.doing.as_str()) }
                        td.number { (duration(span.time.length(last))) }
                        td {
                            @match &span.end {
                                None => "under way",
                                Some(SpanEnd::Done) => span.good { "✓ done" },
                                Some(SpanEnd::Failed(why)) => span.bad { "✗ failed: " (why) },
                                Some(SpanEnd::NotBegun(why)) => { "not started, " (why) },
                            }
                        }
                    }
                }
            }
        }
    }
}
