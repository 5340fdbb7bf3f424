//! Progress while a run is carried out: events scroll, and on a terminal a footer of a few lines is redrawn
//! below them. Elsewhere, one line per event and a heartbeat.

use jiff::{SignedDuration, Timestamp};
use stagger_core::run::{Entry, Run};
use stagger_core::view::{self, RunView, Waiting};
use stagger_engine::cluster::Anchor;
use stagger_engine::driver::{Listener, Notice};
use stagger_report::forecast::RunForecast;
use stagger_report::history::HistoryRecorder;
use stagger_report::names::fit;
use stagger_report::text::{self, Piece, TextRow, Tone};
use stagger_report::{History, event_text};

use super::paint::painted;
use crate::forecasts::Outlook;
use crate::print;

/// The most rows of the foot, and the share of the terminal that it may take.
const FOOT: usize = 20;
const SHARE: usize = 3;
/// Between two heartbeats where nothing is redrawn.
const HEARTBEAT: SignedDuration = SignedDuration::from_secs(60);

/// Shows a run as it goes.
#[derive(Debug)]
pub(crate) struct Progress {
    live: bool,
    drawn: usize,
    last: Option<Timestamp>,
    lines: event_text::Lines,
    /// What happened so far; `None`: nothing did.
    recorder: Option<HistoryRecorder>,
    outlook: Outlook,
}

impl Progress {
    /// Redrawing if both streams are terminals. `past`: the journal so far.
    pub(crate) fn new(past: &[Entry], outlook: Outlook) -> Self {
        Self {
            live: print::live(),
            drawn: 0,
            last: None,
            lines: event_text::Lines::default(),
            recorder: HistoryRecorder::of(past),
            outlook,
        }
    }

    fn record(&mut self, entry: &Entry) {
        match &mut self.recorder {
            Some(recorder) => recorder.record(entry),
            None => self.recorder = HistoryRecorder::begin(entry),
        }
    }

    fn clear(&mut self) {
        if self.drawn > 0 {
            // Up and clear to the end of the screen: what scrolled above stays.
            print::raw(&format!("\x1b[{}A\x1b[J", self.drawn));
            self.drawn = 0;
        }
    }

    /// Draws the foot, where there is room for one.
    fn draw(&mut self, run: &Run, waiting: Option<Waiting<'_>>, now: Timestamp) {
        self.clear();
        let Some(recorder) = &self.recorder else {
            return;
        };
        let (width, height) = (
            print::width().saturating_sub(1),
            (print::height() / SHARE).min(FOOT),
        );
        let view = view::run(run, waiting);
        let left = self.outlook.remaining(run);
        let rows = foot(&view, recorder.history(), left.as_ref(), now, width, height);
        self.drawn = rows.len();
        for row in &rows {
            print::raw(&format!("{}\n", painted(row)));
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.clear();
    }
}

impl Listener for Progress {
    fn notice(&mut self, notice: &Notice) {
        match notice {
            Notice::Locked { holder, until } => print::status_line(&format!(
                "the cluster is locked by {holder}; if that is not renewed, it is free at {until:.0}"
            )),
            Notice::Behind(Anchor { run, seq, .. }) => print::status_line(&format!(
                "the journal of run {run} is older than the cluster, which recorded event {seq}: it was restored, or its database lost writes. Each host is fenced first against what was started since"
            )),
            Notice::Unheard(Anchor { run, .. }) => print::status_line(&format!(
                "run {run} of this cluster has started since, and is not in this journal: the journal was restored, or \
                 that run has its journal elsewhere. Each host is fenced first against what was started since"
            )),
        }
    }

    fn event(&mut self, entry: &Entry, run: &Run) {
        self.clear();
        self.last = Some(entry.at);
        self.record(entry);
        if let Some((word, text)) = self.lines.line(entry, run) {
            if self.live {
                print::status_line(&fit(
                    &format!("{} {word:<9}{text}", entry.at.strftime("%H:%M:%S")),
                    print::width(),
                ));
            } else {
                print::status_line(&format!("{:.0} {word:<9}{text}", entry.at));
            }
        }
        if self.live && run.ended().is_none() {
            self.draw(run, None, entry.at);
        }
    }

    fn waiting(&mut self, again: Timestamp, waiting: Waiting<'_>, run: &Run) {
        if self.live {
            self.draw(run, Some(waiting), again);
            return;
        }
        if self
            .last
            .is_none_or(|last| again.duration_since(last) >= HEARTBEAT)
        {
            let view = view::run(run, Some(waiting));
            print::status_line(&format!("{again:.0} {:<9}{} {}", "still", view.verdict, view.why));
            self.last = Some(again);
        }
    }
}

/// What it is at, in rows: verdict, how far it has come, the map, the open wave, gates that are shut, who is skipped.
fn foot(
    view: &RunView,
    history: &History,
    learned: Option<&RunForecast>,
    now: Timestamp,
    width: usize,
    height: usize,
) -> Vec<TextRow> {
    let mut rows = vec![vec![Piece::new(Tone::Quiet, "─".repeat(width))]];
    rows.extend(text::heading(view, history, learned, now, width));
    let current = text::current(view, history, now, width);
    let left = view.left_alone.iter().map(|group| {
        let text = format!("skipped: {} ({})", group.units.join(" "), group.reason.code);
        vec![Piece::new(Tone::Bad, fit(&text, width))]
    });
    let below: Vec<TextRow> = current.into_iter().chain(left).collect();
    let room = height.saturating_sub(rows.len() + below.len() + 1);
    let map = text::units(history, width, room);
    if !map.is_empty() {
        rows.extend(map);
        rows.push(text::counts(history, width));
    }
    rows.extend(below);
    rows.truncate(height);
    rows
}
