//! The only place that prints. stdout is data, stderr is talk.

use std::io::{IsTerminal as _, Write as _};

/// A line of data. A closed pipe is not our business.
pub(crate) fn out(text: &str) {
    let mut to = anstream::stdout().lock();
    to.write_all(text.as_bytes())
        .and_then(|()| to.write_all(b"\n"))
        .ok();
}

/// A line of talk.
pub(crate) fn talk(text: &str) {
    let mut to = anstream::stderr().lock();
    to.write_all(text.as_bytes())
        .and_then(|()| to.write_all(b"\n"))
        .ok();
}

/// Text of talk as it is, for redrawing.
pub(crate) fn raw(text: &str) {
    let mut to = anstream::stderr().lock();
    to.write_all(text.as_bytes()).and_then(|()| to.flush()).ok();
}

/// A document of data.
pub(crate) fn json(document: &impl serde::Serialize) {
    out(&serde_json::to_string_pretty(document).unwrap_or_default());
}

/// A document of data on one line, one of many.
pub(crate) fn line(document: &impl serde::Serialize) {
    out(&serde_json::to_string(document).unwrap_or_default());
}

/// Whether progress may be redrawn: both streams are terminals that can.
pub(crate) fn live() -> bool {
    let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
    std::io::stdout().is_terminal() && std::io::stderr().is_terminal() && !dumb
}

/// The terminal's width; 100 elsewhere.
pub(crate) fn width() -> usize {
    terminal_size::terminal_size().map_or(100, |(terminal_size::Width(width), _)| usize::from(width))
}
