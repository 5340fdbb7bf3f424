//! Draws the screen: from the top, the verdict, the units, the open wave, the waves, the journal, the keys.

use jiff::Timestamp;
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line as Drawn, Span};
use ratatui::widgets::Paragraph;
use stagger_core::view::RunVerdict;
use stagger_report::event_text::{EventLine, command_words};
use stagger_report::names::fit;
use stagger_report::text::{self, Piece, TextRow, Tone};

use super::{Mode, Screen, ScreenData};
use crate::show::paint::style;

/// Draws all of it. `colours`: the terminal has some, and the person wants them.
pub(crate) fn draw(
    frame: &mut Frame<'_>,
    shown: &ScreenData,
    screen: &Screen,
    now: Timestamp,
    colours: bool,
) {
    let area = frame.area();
    let (width, height) = (usize::from(area.width), usize::from(area.height));
    let rows = rows(shown, screen, now, width, height);
    let drawn: Vec<Drawn<'_>> = rows
        .iter()
        .map(|row| {
            let spans = row
                .iter()
                .map(|piece| Span::styled(strip_control(&piece.text), style(piece.tone, colours)));
            Drawn::from(spans.collect::<Vec<_>>())
        })
        .collect();
    frame.render_widget(Paragraph::new(drawn), Rect::new(0, 0, area.width, area.height));
}

/// Names and reasons are the cluster's own: nothing in them is an order to a terminal.
fn strip_control(text: &str) -> String {
    text.replace(char::is_control, "?")
}

/// All rows, as many as there is room for.
fn rows(shown: &ScreenData, screen: &Screen, now: Timestamp, width: usize, height: usize) -> Vec<TextRow> {
    let (view, history, lines) = (&shown.view, &shown.read.history, &shown.read.lines);
    let mut rows = text::heading(view, history, shown.left.as_ref(), now, width);
    let foot = foot(shown, screen, width);
    let room = height.saturating_sub(rows.len() + foot.len());
    if let Mode::Told(unit) = &screen.mode {
        rows.push(title(unit, width));
        let told = text::unit(view, history, unit)
            .into_iter()
            .take(room.saturating_sub(1));
        rows.extend(told.map(|line| vec![Piece::new(Tone::Plain, fit(&line, width))]));
    } else {
        let map = text::units(history, width, room / 3);
        if !map.is_empty() {
            rows.push(title("units", width));
            rows.extend(map);
        }
        rows.push(text::counts(history, width));
        let current = text::current(view, history, now, width);
        if !current.is_empty() {
            let stage = view
                .current
                .as_ref()
                .map_or(String::new(), |current| format!("now: {}", current.stage));
            rows.push(title(&stage, width));
            rows.extend(current.into_iter().take(6));
        }
        let left = height.saturating_sub(rows.len() + foot.len());
        let waves = text::waves(history, now, width, left / 3);
        if !waves.is_empty() {
            rows.push(title("waves", width));
            rows.extend(waves);
        }
        let left = height.saturating_sub(rows.len() + foot.len() + 1);
        rows.push(title(&journal_title(screen), width));
        rows.extend(journal(lines, screen, width, left));
    }
    rows.truncate(height.saturating_sub(foot.len()));
    rows.resize_with(height.saturating_sub(foot.len()), Vec::new);
    rows.extend(foot);
    rows
}

fn title(text: &str, width: usize) -> TextRow {
    let rule = width.saturating_sub(text.chars().count() + 4);
    vec![
        Piece::new(Tone::Quiet, "── "),
        Piece::new(Tone::Strong, text),
        Piece::new(Tone::Quiet, format!(" {}", "─".repeat(rule))),
    ]
}

fn journal_title(screen: &Screen) -> String {
    let filter = match screen.filter.as_str() {
        "" => String::new(),
        filter => format!(" with {filter:?}"),
    };
    let back = match screen.back {
        0 => String::new(),
        back => format!(", {back} back"),
    };
    format!("journal, in UTC{filter}{back}")
}

fn journal(lines: &[EventLine], screen: &Screen, width: usize, rows: usize) -> Vec<TextRow> {
    let wanted = screen.filter.to_lowercase();
    let shown: Vec<&EventLine> = lines
        .iter()
        .filter(|line| {
            wanted.is_empty()
                || line.text.to_lowercase().contains(&wanted)
                || line.word.to_lowercase().contains(&wanted)
        })
        .collect();
    // Scrolled back to the first line, the first page is shown.
    let end = shown.len().saturating_sub(screen.back).max(rows.min(shown.len()));
    let page = &shown[end.saturating_sub(rows)..end];
    page.iter()
        .map(|line| {
            // Words of which somebody has to know are written large.
            let tone = if line.word.chars().all(char::is_uppercase) || line.word == "failed" {
                Tone::Bad
            } else {
                Tone::Plain
            };
            let at = line.at.strftime("%H:%M:%S").to_string();
            vec![
                Piece::new(Tone::Quiet, format!("{at} ")),
                Piece::new(tone, format!("{:<10}", line.word)),
                Piece::new(Tone::Plain, fit(&line.text, width.saturating_sub(19))),
            ]
        })
        .collect()
}

/// What can be done, or what is asked.
fn foot(shown: &ScreenData, screen: &Screen, width: usize) -> Vec<TextRow> {
    let mut rows = Vec::new();
    if let Some(why) = &shown.unread {
        let text = format!("as of event {}; since then: {why}", shown.view.seq);
        rows.push(vec![Piece::new(Tone::Bad, fit(&text, width))]);
    }
    let line = match &screen.mode {
        Mode::Filter => format!(
            "show lines with: {}_   Enter keeps it, Esc shows all",
            screen.filter
        ),
        Mode::Unit(name) => format!("explain which unit: {name}_   Esc goes back"),
        Mode::Word(word) => format!(
            "approve which of {}: {word}_   Esc goes back",
            shown.words.join(", ")
        ),
        Mode::Told(_) => "any key goes back".to_owned(),
        Mode::Sure(command) => format!("{} run {}? y/N", command_words(command), shown.view.run),
        Mode::Look => match &screen.told {
            Some(told) => told.clone(),
            None => keys(shown),
        },
    };
    let tone = if matches!(screen.mode, Mode::Sure(_)) {
        Tone::Strong
    } else {
        Tone::Quiet
    };
    rows.push(vec![Piece::new(tone, fit(&line, width))]);
    rows
}

fn keys(shown: &ScreenData) -> String {
    let mut keys = vec!["q quit", "↑↓ scroll", "/ filter", "e explain"];
    match shown.view.verdict {
        RunVerdict::Done | RunVerdict::Ended => {}
        RunVerdict::Running | RunVerdict::Held | RunVerdict::Interrupted | RunVerdict::NeedsYou => {
            keys.extend(["p pause", "r resume"]);
            if !shown.words.is_empty() {
                keys.push("a approve");
            }
        }
    }
    keys.join("   ")
}
