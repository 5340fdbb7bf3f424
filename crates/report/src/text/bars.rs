//! Waves and steps over time, one row each.

use jiff::Timestamp;

use super::{Piece, TextRow, Tone, truncate};
use crate::history::{
    Activity, Interval, PartRecord, StepRecord, UnitProgress, VisitRecord, WaveEnd, WaveRecord,
};
use crate::names::{compress, fit};
use crate::{History, duration};

/// The narrowest bar that says something; with less room there is none.
const BAR: usize = 10;
/// How long it took.
const TOOK: usize = 12;
/// What came of it.
const RESULT: usize = 13;
/// Names of a wave's units.
const NAMES: usize = 28;

/// From when to when the rows reach, and over how many columns.
#[derive(Clone, Copy)]
struct Scale {
    from: Timestamp,
    to: Timestamp,
    columns: usize,
}

impl Scale {
    /// Whether a time touches that column.
    fn overlaps_column(&self, time: Interval, column: usize) -> bool {
        let all = self.to.duration_since(self.from).as_secs_f64().max(1.0);
        let at =
            |moment: Timestamp| moment.duration_since(self.from).as_secs_f64() / all * self.columns as f64;
        let (from, to) = (at(time.from), at(time.to.unwrap_or(self.to)));
        from < (column + 1) as f64 && to > column as f64
    }
}

/// The last waves and steps, as many as there are rows, on one scale that ends now.
pub fn waves(history: &History, now: Timestamp, width: usize, rows: usize) -> Vec<TextRow> {
    let shown = &history.parts[history.parts.len().saturating_sub(rows)..];
    let Some(first) = shown.first() else {
        return Vec::new();
    };
    let names = NAMES.min(width / 3);
    // Number, names, what it took, and the result.
    let columns = width.saturating_sub(5 + names + 2 + TOOK + 2 + RESULT);
    let over = history.ended.is_some();
    let scale = Scale {
        from: time_of(first).from,
        to: if over { history.last } else { now.max(history.last) },
        columns: if columns < BAR { 0 } else { columns.min(80) },
    };
    let row = |part: &PartRecord| match part {
        PartRecord::Wave(wave) => wave_row(wave, scale, names),
        PartRecord::Step(step) => step_row(step, scale, names),
    };
    shown.iter().map(|part| truncate(row(part), width)).collect()
}

fn time_of(part: &PartRecord) -> Interval {
    match part {
        PartRecord::Wave(wave) => wave.time,
        PartRecord::Step(step) => step.time,
    }
}

fn wave_row(wave: &WaveRecord, scale: Scale, names: usize) -> TextRow {
    let told = format!(
        "{} {}",
        wave.stage,
        compress(wave.turns.iter().map(|turn| &turn.unit))
    );
    let (tone, result) = match (&wave.end, &wave.failed) {
        (Some(WaveEnd::Passed), _) => (Tone::Good, "✓ passed".to_owned()),
        (Some(WaveEnd::WentBack), _) if !wave.turns.iter().any(VisitRecord::was_rolled_back) => {
            (Tone::Bad, "✗ abandoned".to_owned())
        }
        (Some(end), _) => (Tone::Bad, format!("✗ {}", end.as_str())),
        (None, Some(_)) => (Tone::Bad, "✗ failed".to_owned()),
        (None, None) => (Tone::Strong, "open".to_owned()),
    };
    let spans = || wave.turns.iter().flat_map(|turn| &turn.spans);
    let down: Vec<Interval> = wave.turns.iter().flat_map(VisitRecord::out_of_service).collect();
    let prepared: Vec<Interval> = spans()
        .filter(|span| span.doing == Activity::Preparing)
        .map(|span| span.time)
        .collect();
    let bar = (0..scale.columns).map(|column| {
        let any = |times: &[Interval]| times.iter().any(|time| scale.overlaps_column(*time, column));
        if any(&down) {
            (Tone::Unit(UnitProgress::Down), '█')
        } else if wave
            .shut
            .iter()
            .any(|shut| scale.overlaps_column(shut.time, column))
        {
            (Tone::Unit(UnitProgress::Verifying), '▒')
        } else if any(&prepared) {
            (Tone::Unit(UnitProgress::Preparing), '░')
        } else if scale.overlaps_column(wave.time, column) {
            (Tone::Quiet, '─')
        } else {
            (Tone::Plain, ' ')
        }
    });
    let mut row = vec![
        Piece::new(Tone::Quiet, format!("{:>3}  ", wave.number)),
        Piece::new(Tone::Plain, format!("{:<names$}  ", fit(&told, names))),
    ];
    row.extend(merge_runs(bar));
    row.push(Piece::new(
        Tone::Plain,
        format!("{:>TOOK$}  ", duration(wave.time.length(scale.to))),
    ));
    row.push(Piece::new(tone, format!("{result:<RESULT$}")));
    row
}

fn step_row(step: &StepRecord, scale: Scale, names: usize) -> TextRow {
    let (tone, result) = match (&step.time.to, &step.failed) {
        (Some(_), _) => (Tone::Good, "✓ done"),
        (None, Some(_)) => (Tone::Bad, "✗ failed"),
        (None, None) => (Tone::Strong, "open"),
    };
    let bar = (0..scale.columns).map(|column| {
        let mark = if scale.overlaps_column(step.time, column) {
            '■'
        } else {
            ' '
        };
        (Tone::Quiet, mark)
    });
    let mut row = vec![
        Piece::new(Tone::Quiet, "  -  "),
        Piece::new(
            Tone::Plain,
            format!("{:<names$}  ", fit(step.step.as_str(), names)),
        ),
    ];
    row.extend(merge_runs(bar));
    row.push(Piece::new(
        Tone::Plain,
        format!("{:>TOOK$}  ", duration(step.time.length(scale.to))),
    ));
    row.push(Piece::new(tone, format!("{result:<RESULT$}")));
    row
}

/// Merges columns of the same tone.
fn merge_runs(columns: impl Iterator<Item = (Tone, char)>) -> Vec<Piece> {
    let mut pieces: Vec<Piece> = Vec::new();
    for (tone, mark) in columns {
        match pieces.last_mut() {
            Some(last) if last.tone == tone => last.text.push(mark),
            _ => pieces.push(Piece::new(tone, mark)),
        }
    }
    pieces
}
