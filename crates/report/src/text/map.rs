//! The map in text.

use super::{Piece, Row, Tone, clip};
use crate::History;
use crate::history::UnitState;
use crate::map::{Cells, Group, groups};
use crate::names::fit;

/// Names of domains and kinds are cut there.
const LABEL: usize = 16;

/// Each unit as a shape behind its host, as many rows as it takes; where that is more than `rows`, how many units of each domain
/// are in each state; where that is more too, of each kind; and none where there is no room for these.
pub fn units(history: &History, width: usize, rows: usize) -> Vec<Row> {
    let groups = groups(history);
    let label = groups.iter().map(|group| group.name.chars().count()).max();
    let label = match label.unwrap_or(0).min(LABEL) {
        0 => 0,
        some => some + 2,
    };
    let drawn: Vec<Row> = groups
        .iter()
        .flat_map(|group| group_rows(group, label, width))
        .take(rows + 1)
        .collect();
    if drawn.len() <= rows {
        return drawn;
    }
    if groups.len() <= rows {
        return groups
            .iter()
            .map(|group| clip(counted_row(group.name, label, group.states()), width))
            .collect();
    }
    let kinds = history.by_kind();
    let of = |(kind, units): &(&stagger_core::model::Kind, Cells<'_>)| {
        let states = units.iter().map(|(_, state)| *state);
        clip(counted_row(kind.as_str(), LABEL + 2, states), width)
    };
    if kinds.len() > rows {
        return Vec::new();
    }
    kinds.iter().map(of).collect()
}

fn named(name: &str, label: usize) -> Piece {
    Piece::new(Tone::Quiet, format!("{:<label$}", fit(name, LABEL)))
}

/// A domain's hosts one after another, a new row where the next does not fit.
fn group_rows(group: &Group<'_>, label: usize, width: usize) -> Vec<Row> {
    let room = width.saturating_sub(label).max(1);
    let mut rows = vec![vec![named(group.name, label)]];
    let mut used = 0;
    for (host, units) in &group.hosts {
        let name = if host.is_empty() {
            String::new()
        } else {
            format!("{} ", fit(host, room / 2))
        };
        let gap = if used == 0 { 0 } else { 2 };
        let wide = name.chars().count() + units.len();
        if used > 0 && used + gap + wide > room {
            rows.push(vec![named("", label)]);
            used = 0;
        } else if gap > 0
            && let Some(row) = rows.last_mut()
        {
            row.push(Piece::new(Tone::Plain, "  "));
            used += gap;
        }
        used += name.chars().count();
        if let Some(row) = rows.last_mut().filter(|_| !name.is_empty()) {
            row.push(Piece::new(Tone::Plain, name));
        }
        for (_, state) in units {
            if used == room {
                rows.push(vec![named("", label)]);
                used = 0;
            }
            used += 1;
            if let Some(row) = rows.last_mut() {
                shape(row, *state);
            }
        }
    }
    rows
}

/// One more shape at the end of a row.
fn shape(row: &mut Row, state: UnitState) {
    match row.last_mut() {
        Some(last) if last.tone == Tone::Unit(state) => last.text.push(state.glyph()),
        Some(_) | None => row.push(Piece::new(Tone::Unit(state), state.glyph())),
    }
}

fn counted_row(name: &str, label: usize, states: impl Iterator<Item = UnitState>) -> Row {
    let states: Vec<UnitState> = states.collect();
    let mut row = vec![named(name, label)];
    for state in UnitState::ALL {
        let count = states.iter().filter(|of| **of == state).count();
        if count > 0 {
            row.extend(counted(state, count));
        }
    }
    row
}

/// How many units are in each state: the legend of the map.
pub fn counts(history: &History, width: usize) -> Row {
    let counts = history.counts();
    let row = counts
        .into_iter()
        .flat_map(|(state, count)| counted(state, count));
    clip(row.collect(), width)
}

fn counted(state: UnitState, count: usize) -> [Piece; 2] {
    [
        Piece::new(Tone::Unit(state), state.glyph()),
        Piece::new(Tone::Plain, format!(" {count} {}   ", state.word())),
    ]
}
