//! Colours of report rows in a terminal: the one table for printed text and for the screen of `watch`.

use std::fmt::Write as _;

use ratatui::backend::IntoCrossterm as _;
use ratatui::crossterm::style::ContentStyle;
use ratatui::style::{Color, Modifier, Style};
use stagger_report::history::UnitProgress;
use stagger_report::text::{Piece, TextRow, Tone};

/// Waves beside one another are told apart by these.
const OF_WAVES: [Color; 6] = [
    Color::Cyan,
    Color::Yellow,
    Color::Magenta,
    Color::Green,
    Color::Blue,
    Color::Red,
];

/// The style of a tone. `colours`: the terminal has some, and the person wants them.
pub(crate) fn style(tone: Tone, colours: bool) -> Style {
    let plain = Style::default();
    let colour = |colour: Color| if colours { plain.fg(colour) } else { plain };
    match tone {
        Tone::Plain => plain,
        Tone::Quiet => plain.add_modifier(Modifier::DIM),
        Tone::Strong => plain.add_modifier(Modifier::BOLD),
        Tone::Good => colour(Color::Green),
        Tone::Bad => colour(Color::Red).add_modifier(Modifier::BOLD),
        Tone::Wave(number) => colour(OF_WAVES[number % OF_WAVES.len()]),
        Tone::Unit(state) => match state {
            UnitProgress::Waiting => plain.add_modifier(Modifier::DIM),
            UnitProgress::Preparing => colour(Color::Cyan),
            UnitProgress::Down => colour(Color::Blue).add_modifier(Modifier::BOLD),
            UnitProgress::Verifying => colour(Color::Magenta),
            UnitProgress::Done => colour(Color::Green),
            UnitProgress::Failed | UnitProgress::Skipped => colour(Color::Red).add_modifier(Modifier::BOLD),
            UnitProgress::RolledBack => colour(Color::Magenta).add_modifier(Modifier::BOLD),
        },
    }
}

/// A row with its colours, to be printed: whoever prints leaves them out where there are none.
pub(crate) fn painted(row: &TextRow) -> String {
    let blank = |piece: &&Piece| piece.text.trim().is_empty();
    let to = row.len() - row.iter().rev().take_while(blank).count();
    let mut text = String::new();
    for (at, piece) in row[..to].iter().enumerate() {
        let style: ContentStyle = style(piece.tone, true).into_crossterm();
        // Names are the cluster's own: nothing in them is an order to a terminal.
        let mut shown = piece.text.replace(char::is_control, "?");
        if at + 1 == to {
            shown.truncate(shown.trim_end().len());
        }
        if style == ContentStyle::default() {
            text.push_str(&shown);
        } else {
            let _ = write!(text, "{}", style.apply(shown));
        }
    }
    text
}
