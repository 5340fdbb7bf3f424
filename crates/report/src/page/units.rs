//! The map on a page.

use maud::{Markup, html};
use stagger_core::model::UnitId;

use crate::History;
use crate::history::UnitProgress;
use crate::map::groups;

/// With more units than that only those are shown that are not as all others.
const CELLS: usize = 1_000;

pub(super) fn map(history: &History) -> Markup {
    let counts = history.counts();
    let Some((most, _)) = counts.iter().max_by_key(|(_, count)| **count) else {
        return html! {};
    };
    let all = history.units.len() <= CELLS;
    let mut groups = groups(&history.topology, history.by_kind());
    for group in &mut groups {
        for (_, units) in &mut group.hosts {
            units.retain(|(_, state)| all || state != most);
        }
        group.hosts.retain(|(_, units)| !units.is_empty());
    }
    groups.retain(|group| !group.hosts.is_empty());
    html! {
        section {
            h2 { "Units" }
            p.legend {
                @for state in UnitProgress::ALL {
                    @if let Some(count) = counts.get(&state) {
                        span.state.(class(state)) { b { (state.glyph()) } " " (count) " " (state.as_str()) }
                    }
                }
                @if !all { span.quiet { "those that are not " (most.as_str()) ":" } }
            }
            @for group in &groups {
                div.domain {
                    @if !group.name.is_empty() { h3 { (group.name) } }
                    div.hosts {
                        @for (host, units) in &group.hosts {
                            div.host {
                                @if !host.is_empty() { h4 { (host) } }
                                ul.map { @for (unit, state) in units { (cell(unit, *state, group.name)) } }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn cell(unit: &UnitId, state: UnitProgress, group: &str) -> Markup {
    // A kind's name stands above its units.
    let name = unit.as_str();
    let short = name.strip_prefix(group).and_then(|rest| rest.strip_prefix('.'));
    html! {
        li.(class(state)) title={ (name) " is " (state.as_str()) } {
            b { (state.glyph()) } span { (short.filter(|rest| !rest.is_empty()).unwrap_or(name)) }
        }
    }
}

fn class(state: UnitProgress) -> &'static str {
    match state {
        UnitProgress::RolledBack => "rolled-back",
        other => other.as_str(),
    }
}
