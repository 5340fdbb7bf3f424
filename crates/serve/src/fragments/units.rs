//! The map: each unit is a link to its explanation. For many units the page has counts and the exceptional
//! units, and a script draws the map.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use maud::{Markup, html};
use serde::Serialize;
use stagger_core::model::UnitId;
use stagger_report::History;
use stagger_report::history::UnitProgress;
use stagger_report::map::{MapGroup, groups};

/// With more units than that a script draws the map.
pub(crate) const CELLS: usize = 200;
/// So many of the units that are not as most are have a link each.
const NAMED: usize = 120;
/// So many domains have a row each.
const ROWS: usize = 60;

/// The units in their order on the map.
pub(crate) struct Map<'a> {
    groups: Vec<MapGroup<'a, UnitProgress>>,
    count: usize,
}

/// A host and the names of its units.
type Host<'a> = (&'a str, Vec<&'a str>);

/// The map as a script draws it: domains with their hosts.
#[derive(Debug, Serialize)]
pub(crate) struct MapLayout<'a> {
    groups: Vec<(&'a str, Vec<Host<'a>>)>,
    /// Word and shape of each state, by the digit that stands for it in `states`.
    legend: Vec<(&'static str, &'static str)>,
}

impl<'a> Map<'a> {
    pub(crate) fn of(history: &'a History) -> Self {
        let groups = groups(&history.topology, history.by_kind());
        Self {
            count: groups.iter().map(|group| group.cells().count()).sum(),
            groups,
        }
    }

    /// A digit for the state of each unit.
    pub(crate) fn states(&self) -> String {
        let cells = self.groups.iter().flat_map(MapGroup::cells);
        cells.map(digit).collect()
    }

    pub(crate) fn layout(&self) -> MapLayout<'_> {
        let groups = self.groups.iter().map(|group| {
            let hosts = group.hosts.iter().map(|(host, units)| {
                let names = units.iter().map(|(unit, _)| unit.as_str());
                (*host, names.collect())
            });
            (group.name, hosts.collect())
        });
        MapLayout {
            groups: groups.collect(),
            legend: UnitProgress::ALL
                .iter()
                .map(|state| (state.as_str(), class(*state)))
                .collect(),
        }
    }

    /// The place for the map, with the map in it if there are few units.
    pub(crate) fn container(&self, run: &str) -> Markup {
        if self.count > CELLS {
            return html! {
                div #map data-run=(run) data-count=(self.count) data-states=(self.states()) {}
            };
        }
        html! {
            div #map data-count=(self.count) {
                @for group in &self.groups {
                    div.domain {
                        @if !group.name.is_empty() { h3 { (group.name) } }
                        div.hosts {
                            @for (host, units) in &group.hosts {
                                div.host {
                                    @if !host.is_empty() { @if group.name.is_empty() { h3 { (host) } } @else { h4 { (host) } } }
                                    ul.map { @for (unit, state) in units { (cell(unit, *state, group.name)) } }
                                }
                            }
                        }
                    }
                }
            }
        }
    }

    /// How many units are in each state; of many units, which are not as most are, and how each domain stands.
    pub(crate) fn counts(&self) -> Markup {
        let counts = count(self.groups.iter().flat_map(MapGroup::cells));
        let most = counts
            .iter()
            .max_by_key(|(_, count)| **count)
            .map(|(state, _)| *state);
        html! {
            p.legend { (states(&counts)) }
            @if self.count > CELLS {
                (self.exceptional_units(most))
                details.domains {
                    summary { "By domain" }
                    table {
                        tbody {
                            @for group in self.groups.iter().take(ROWS) {
                                tr { th scope="row" { @if group.name.is_empty() { "all hosts" } @else { (group.name) } } td.legend { (states(&count(group.cells()))) } }
                            }
                        }
                    }
                    @if self.groups.len() > ROWS { p.quiet { "and " (self.groups.len() - ROWS) " more" } }
                }
            }
        }
    }

    /// The units that are neither as most are nor waiting nor done, each a link.
    fn exceptional_units(&self, most: Option<UnitProgress>) -> Markup {
        let quiet = [Some(UnitProgress::Waiting), Some(UnitProgress::Done), most];
        let units = self
            .groups
            .iter()
            .flat_map(|group| &group.hosts)
            .flat_map(|(_, units)| units);
        let others: Vec<&(&UnitId, UnitProgress)> = units
            .filter(|(_, state)| !quiet.contains(&Some(*state)))
            .collect();
        html! {
            @if !others.is_empty() {
                ul.map aria-label="units that are neither waiting nor done" {
                    @for (unit, state) in others.iter().take(NAMED) { (cell(unit, *state, "")) }
                }
                @if others.len() > NAMED { p.quiet { "and " (others.len() - NAMED) " more" } }
            }
        }
    }
}

fn digit(state: UnitProgress) -> char {
    let place = UnitProgress::ALL.iter().position(|known| *known == state);
    place
        .and_then(|place| char::from_digit(u32::try_from(place).ok()?, 10))
        .unwrap_or('?')
}

fn count(cells: impl Iterator<Item = UnitProgress>) -> BTreeMap<UnitProgress, usize> {
    let mut counts = BTreeMap::new();
    for state in cells {
        *counts.entry(state).or_default() += 1;
    }
    counts
}

fn states(counts: &BTreeMap<UnitProgress, usize>) -> Markup {
    html! {
        @for (state, count) in counts {
            span.state.(class(*state)) { b aria-hidden="true" { (state.glyph()) } " " (count) " " (state.as_str()) } " "
        }
    }
}

fn cell(unit: &UnitId, state: UnitProgress, group: &str) -> Markup {
    // A kind's name stands above its units.
    let name = unit.as_str();
    let short = name.strip_prefix(group).and_then(|rest| rest.strip_prefix('.'));
    html! {
        li {
            a.(class(state)) href={ "?unit=" (encoded(name)) "#unit" } data-unit=(name) aria-label={ (name) ", " (state.as_str()) } title={ (name) " is " (state.as_str()) } {
                b aria-hidden="true" { (state.glyph()) } span { (short.filter(|rest| !rest.is_empty()).unwrap_or(name)) }
            }
        }
    }
}

/// The class of a state.
pub(crate) fn class(state: UnitProgress) -> &'static str {
    match state {
        UnitProgress::RolledBack => "rolled-back",
        other => other.as_str(),
    }
}

/// A text in a query.
pub(crate) fn encoded(text: &str) -> String {
    let mut encoded = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            // Writing to a string does not fail.
            write!(encoded, "%{byte:02X}").ok();
        }
    }
    encoded
}
