//! A run in rows of text, for a terminal of any width. Words and shapes carry the meaning; colours only
//! repeat it.

mod bars;
mod map;

pub use bars::waves;
pub use map::{counts, planned, units};

use jiff::Timestamp;
use stagger_core::view::{RunVerdict, RunView};

use crate::forecast::RunForecast;
use crate::history::UnitProgress;
use crate::names::{Places, fit};
use crate::{History, duration};

/// How a piece of a row is shown where there are colours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tone {
    /// As text is.
    Plain,
    /// Least important.
    Quiet,
    /// Most important.
    Strong,
    /// It went well.
    Good,
    /// Needs attention.
    Bad,
    /// Of a unit in that state.
    Unit(UnitProgress),
    /// Of the wave with that number, distinct from its neighbours.
    Wave(usize),
}

/// A piece of a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    /// How it is shown.
    pub tone: Tone,
    /// What it says.
    pub text: String,
}

impl Piece {
    /// A piece of text.
    pub fn new(tone: Tone, text: impl Into<String>) -> Self {
        Self {
            tone,
            text: text.into(),
        }
    }
}

/// A row, from left to right.
pub type TextRow = Vec<Piece>;

/// A row without colours.
pub fn plain(row: &TextRow) -> String {
    let text: String = row.iter().map(|piece| piece.text.as_str()).collect();
    text.trim_end().to_owned()
}

/// As much of a row as fits.
fn truncate(row: TextRow, width: usize) -> TextRow {
    let mut left = width;
    let cut = |piece: Piece| {
        let text = fit(&piece.text, left);
        left -= text.chars().count();
        Piece { text, ..piece }
    };
    row.into_iter()
        .map(cut)
        .filter(|piece| !piece.text.is_empty())
        .collect()
}

/// The verdict with its why, the run, and how far it has come: three rows. `left`: how long the rest takes by earlier runs.
pub fn heading(
    view: &RunView,
    history: &History,
    left: Option<&RunForecast>,
    now: Timestamp,
    width: usize,
) -> Vec<TextRow> {
    let learned = left;
    let verdict = view.verdict.to_string();
    let tone = match view.verdict {
        RunVerdict::Done => Tone::Good,
        RunVerdict::Running => Tone::Strong,
        RunVerdict::Held | RunVerdict::Interrupted | RunVerdict::NeedsYou | RunVerdict::Ended => Tone::Bad,
    };
    let why = match view.until {
        Some(until) => format!("{}, until {} at most", view.why, until.strftime("%H:%M:%S")),
        None => view.why.clone(),
    };
    let left = width.saturating_sub(verdict.chars().count() + 2);
    let since = match view.ended_at {
        Some(ended) => format!("took {}", duration(ended.duration_since(view.started))),
        None => format!("for {}", duration(now.duration_since(view.started))),
    };
    let what = format!("{}  {}  {}, {since}", view.cluster, view.title, view.run);
    let rows = [
        vec![
            Piece::new(tone, verdict),
            Piece::new(Tone::Plain, format!("  {}", fit(&why, left))),
        ],
        vec![Piece::new(Tone::Quiet, fit(&what, width))],
        progress(view, history, learned, width),
    ];
    rows.into_iter().map(|row| truncate(row, width)).collect()
}

/// The progress: a bar, waves, and the remaining time.
fn progress(view: &RunView, history: &History, learned: Option<&RunForecast>, width: usize) -> TextRow {
    let all = history.units.len().max(1);
    let done = history
        .units
        .values()
        .filter(|unit| unit.state == UnitProgress::Done)
        .count();
    let waves = view.waves_passed as usize + view.waves_left;
    let open = usize::from(view.current.is_some());
    let waves = match view.ended_at {
        Some(_) => format!("{} waves passed", view.waves_passed),
        None => format!(
            "wave {} of {}, about {} left",
            (view.waves_passed as usize + 1).min(waves.max(1)),
            waves.max(view.waves_passed as usize + open),
            learned.map_or_else(
                || duration(jiff::SignedDuration::from_secs(view.seconds_left)),
                RunForecast::text
            )
        ),
    };
    let text = format!("  {done} of {all} units, {waves}");
    let wide = width.saturating_sub(text.chars().count()).min(40);
    let full = wide * done / all;
    vec![
        Piece::new(Tone::Unit(UnitProgress::Done), "█".repeat(full)),
        Piece::new(Tone::Quiet, "░".repeat(wide - full)),
        Piece::new(Tone::Plain, text),
    ]
}

/// The current state: the open wave's units by activity, and the gates that are shut, since when.
pub fn current(view: &RunView, history: &History, now: Timestamp, width: usize) -> Vec<TextRow> {
    let mut rows = Vec::new();
    let places = Places::of(&history.topology);
    let Some(current) = &view.current else {
        return rows;
    };
    for (doing, units) in &current.units {
        let names = places.describe(units, width.saturating_sub(14));
        rows.push(vec![
            Piece::new(Tone::Quiet, format!("{doing:<12}  ")),
            Piece::new(Tone::Plain, names),
        ]);
    }
    let shut = history.waves().last().into_iter().flat_map(|wave| &wave.shut);
    for shut in shut.filter(|shut| shut.time.to.is_none()) {
        let since = duration(shut.time.length(now));
        let text = format!("{}: {}", shut.gate, shut.why);
        rows.push(vec![
            Piece::new(Tone::Bad, "gate shut     "),
            Piece::new(
                Tone::Plain,
                format!(
                    "{} for {since}",
                    fit(&text, width.saturating_sub(20 + since.len()))
                ),
            ),
        ]);
    }
    rows.into_iter().map(|row| truncate(row, width)).collect()
}

/// What the journal tells of one unit: its state, what was done to it and when, and why it was skipped.
pub fn unit(view: &RunView, history: &History, id: &str) -> Vec<String> {
    let found = history.units.iter().find(|(unit, _)| unit.as_str() == id);
    let Some((unit, known)) = found else {
        return vec![format!("no plan of this run names {id}")];
    };
    let mut lines = vec![format!(
        "{} {unit} is {}",
        known.state.glyph(),
        known.state.as_str()
    )];
    for wave in history.waves() {
        for turn in wave.turns.iter().filter(|turn| turn.unit == *unit) {
            let before = turn
                .before
                .as_ref()
                .map_or(String::new(), |before| format!(", it ran {before}"));
            lines.push(format!("wave {} of {}{before}", wave.number, wave.stage));
            for span in &turn.spans {
                let from = span.time.from.strftime("%H:%M:%S");
                let took = duration(span.time.length(history.last));
                let end = match &span.end {
                    None => "under way".to_owned(),
                    Some(crate::history::SpanEnd::Done) => "done".to_owned(),
                    Some(crate::history::SpanEnd::Failed(why)) => format!("failed: {why}"),
                    Some(crate::history::SpanEnd::NotBegun(why)) => format!("not started, {why}"),
                };
                lines.push(format!("  {from}  {:<12} {took:>10}  {end}", span.doing.as_str()));
            }
        }
    }
    let aside = history.aside.iter().filter(|(_, aside, _)| aside == unit);
    lines.extend(aside.map(|(at, _, reason)| format!("{} set aside: {reason}", at.strftime("%H:%M:%S"))));
    let left = view.left_alone.iter();
    let left = left.filter(|group| group.units.iter().any(|left| left == unit.as_str()));
    lines.extend(left.map(|group| format!("skipped: {}", group.reason)));
    if lines.len() == 1 && known.state == UnitProgress::Waiting {
        lines.push("its wave has not been opened".to_owned());
    }
    lines
}
