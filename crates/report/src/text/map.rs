//! The map in text: of a run with states, of a plan with the numbers of waves.

use std::collections::{BTreeMap, BTreeSet};

use stagger_core::model::{Topology, UnitId};
use stagger_core::plan::PlannedStage;

use super::{Piece, TextRow, Tone, truncate};
use crate::History;
use crate::history::UnitProgress;
use crate::map::{MapGroup, groups};
use crate::names::fit;

/// Names of domains and kinds are cut there.
const LABEL: usize = 16;

/// Each unit as a shape behind its host, as many rows as it takes; where that is more than `rows`, how many units of each domain
/// are in each state; where that is more too, of each kind; and none where there is no room for these.
pub fn units(history: &History, width: usize, rows: usize) -> Vec<TextRow> {
    let groups = groups(&history.topology, history.by_kind());
    let shape = |state: UnitProgress| Piece::new(Tone::Unit(state), state.glyph());
    if let Some(drawn) = drawn(&groups, width, rows, shape) {
        return drawn;
    }
    if groups.len() <= rows {
        let label = label(&groups);
        return groups
            .iter()
            .map(|group| truncate(counted_row(group.name, label, group.cells()), width))
            .collect();
    }
    let kinds = history.by_kind();
    if kinds.len() > rows {
        return Vec::new();
    }
    kinds
        .iter()
        .map(|(kind, units)| {
            let states = units.iter().map(|(_, state)| *state);
            truncate(counted_row(kind.as_str(), LABEL + 2, states), width)
        })
        .collect()
}

/// Each unit of a stage as the number of its wave behind its host; where that is more than `rows`, in which waves those of each
/// domain are; and none where there is no room for these, or the units are not known to be on several hosts.
pub fn planned(stage: &PlannedStage, topology: &Topology, width: usize, rows: usize) -> Vec<TextRow> {
    let mut numbers: BTreeMap<&UnitId, usize> = BTreeMap::new();
    for (at, wave) in stage.waves.iter().enumerate() {
        numbers.extend(wave.units.iter().map(|unit| (unit, at + 1)));
    }
    let groups = groups(topology, vec![(&stage.kind, numbers.into_iter().collect())]);
    let hosts = groups.iter().flat_map(|group| &group.hosts);
    if hosts.filter(|(host, _)| !host.is_empty()).count() < 2 {
        return Vec::new();
    }
    let digits = stage.waves.len().to_string().len();
    let number = |wave: usize| Piece::new(Tone::Wave(wave), format!("{wave:>digits$} "));
    if let Some(drawn) = drawn(&groups, width, rows, number) {
        return drawn;
    }
    if groups.len() > rows {
        return Vec::new();
    }
    let label = label(&groups);
    groups
        .iter()
        .map(|group| {
            let waves: BTreeSet<usize> = group.cells().collect();
            let text = format!("{} in waves {}", group.cells().count(), ranges(&waves));
            truncate(
                vec![label_cell(group.name, label), Piece::new(Tone::Plain, text)],
                width,
            )
        })
        .collect()
}

/// Numbers in words, those that follow one another as a range.
fn ranges(numbers: &BTreeSet<usize>) -> String {
    let mut ranges: Vec<(usize, usize)> = Vec::new();
    for &number in numbers {
        match ranges.last_mut() {
            Some((_, to)) if *to + 1 == number => *to = number,
            Some(_) | None => ranges.push((number, number)),
        }
    }
    let told = ranges.into_iter().map(|(from, to)| match to - from {
        0 => from.to_string(),
        1 => format!("{from}, {to}"),
        _ => format!("{from}-{to}"),
    });
    told.collect::<Vec<_>>().join(", ")
}

/// How wide the names of groups are set; 0: none has one.
fn label<C>(groups: &[MapGroup<'_, C>]) -> usize {
    let longest = groups.iter().map(|group| group.name.chars().count()).max();
    match longest.unwrap_or(0).min(LABEL) {
        0 => 0,
        some => some + 2,
    }
}

/// Each unit as a cell; all cells are equally wide. `None`: that takes more rows.
fn drawn<C: Copy>(
    groups: &[MapGroup<'_, C>],
    width: usize,
    rows: usize,
    cell: impl Fn(C) -> Piece,
) -> Option<Vec<TextRow>> {
    let label = label(groups);
    let drawn: Vec<TextRow> = groups
        .iter()
        .flat_map(|group| group_rows(group, label, width, &cell))
        .take(rows.saturating_add(1))
        .collect();
    (drawn.len() <= rows).then_some(drawn)
}

fn label_cell(name: &str, label: usize) -> Piece {
    Piece::new(Tone::Quiet, format!("{:<label$}", fit(name, LABEL)))
}

/// A domain's hosts one after another, a new row where the next does not fit.
fn group_rows<C: Copy>(
    group: &MapGroup<'_, C>,
    label: usize,
    width: usize,
    cell: impl Fn(C) -> Piece,
) -> Vec<TextRow> {
    let room = width.saturating_sub(label).max(1);
    let mut rows = vec![vec![label_cell(group.name, label)]];
    let mut used = 0;
    for (host, units) in &group.hosts {
        let name = if host.is_empty() {
            String::new()
        } else {
            format!("{} ", fit(host, room / 2))
        };
        let cells: Vec<Piece> = units.iter().map(|(_, of)| cell(*of)).collect();
        let gap = if used == 0 { 0 } else { 2 };
        let wide = name.chars().count() + cells.iter().map(wide).sum::<usize>();
        if used > 0 && used + gap + wide > room {
            rows.push(vec![label_cell("", label)]);
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
        for cell in cells {
            if used + self::wide(&cell) > room && used > 0 {
                rows.push(vec![label_cell("", label)]);
                used = 0;
            }
            used += self::wide(&cell);
            if let Some(row) = rows.last_mut() {
                append(row, cell);
            }
        }
    }
    rows
}

fn wide(piece: &Piece) -> usize {
    piece.text.chars().count()
}

/// One more cell at the end of a row.
fn append(row: &mut TextRow, cell: Piece) {
    match row.last_mut() {
        Some(last) if last.tone == cell.tone => last.text.push_str(&cell.text),
        Some(_) | None => row.push(cell),
    }
}

fn counted_row(name: &str, label: usize, states: impl Iterator<Item = UnitProgress>) -> TextRow {
    let states: Vec<UnitProgress> = states.collect();
    let mut row = vec![label_cell(name, label)];
    for state in UnitProgress::ALL {
        let count = states.iter().filter(|of| **of == state).count();
        if count > 0 {
            row.extend(counted(state, count));
        }
    }
    row
}

/// How many units are in each state: the legend of the map.
pub fn counts(history: &History, width: usize) -> TextRow {
    let counts = history.counts();
    let row = counts
        .into_iter()
        .flat_map(|(state, count)| counted(state, count));
    truncate(row.collect(), width)
}

fn counted(state: UnitProgress, count: usize) -> [Piece; 2] {
    [
        Piece::new(Tone::Unit(state), state.glyph()),
        Piece::new(Tone::Plain, format!(" {count} {}   ", state.as_str())),
    ]
}
