//! The only place that prints. stdout is data, stderr is everything else.

mod line_wrap;

use std::borrow::Cow;
use std::io::{IsTerminal as _, Write as _};
use std::sync::OnceLock;

/// Why data could not be written, the first time.
static UNWRITTEN: OnceLock<std::io::Error> = OnceLock::new();

/// A line of data.
pub(crate) fn data_line(text: &str) {
    let shown = fitted(strip_control(text), std::io::stdout().is_terminal());
    let mut to = anstream::stdout().lock();
    let written = to.write_all(shown.as_bytes());
    let written = written
        .and_then(|()| to.write_all(b"\n"))
        .and_then(|()| to.flush());
    if let Err(error) = written {
        UNWRITTEN.set(error).ok();
    }
}

/// Why some of the data was not written: a disk that is full, a reader that has gone. Whatever was at work went on.
pub(crate) fn write_error() -> Option<&'static std::io::Error> {
    UNWRITTEN.get()
}

/// A line of talk.
pub(crate) fn status_line(text: &str) {
    let shown = fitted(strip_control(text), std::io::stderr().is_terminal());
    let mut to = anstream::stderr().lock();
    to.write_all(shown.as_bytes())
        .and_then(|()| to.write_all(b"\n"))
        .ok();
}

/// For a terminal, folded where it is wider; whoever reads lines has them whole.
fn fitted(text: Cow<'_, str>, is_terminal: bool) -> Cow<'_, str> {
    if !is_terminal {
        return text;
    }
    match line_wrap::folded(&text, width()) {
        Cow::Owned(folded) => Cow::Owned(folded),
        Cow::Borrowed(_) => text,
    }
}

/// The text without orders to a terminal, but for colours: Ceph takes any character in the name of a pool
/// or a bucket, and a journal may come from elsewhere.
fn strip_control(text: &str) -> Cow<'_, str> {
    let order = |c: char| c.is_control() && c != '\n' && c != '\t';
    if !text.contains(order) {
        return Cow::Borrowed(text);
    }
    let mut tamed = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(order) {
        let (before, from) = rest.split_at(at);
        tamed.push_str(before);
        let length = colour(from).unwrap_or(0);
        tamed.push_str(&from[..length]);
        rest = &from[length..];
        if length == 0 {
            let mut letters = rest.chars();
            tamed.extend(letters.next().into_iter().flat_map(char::escape_default));
            rest = letters.as_str();
        }
    }
    tamed.push_str(rest);
    Cow::Owned(tamed)
}

/// How long the change of colour is with which the text begins.
fn colour(text: &str) -> Option<usize> {
    let rest = text.strip_prefix("\u{1b}[")?;
    let end = rest.find(|c: char| !c.is_ascii_digit() && c != ';')?;
    rest[end..].starts_with('m').then_some("\u{1b}[".len() + end + 1)
}

/// Text of talk as it is, for redrawing.
pub(crate) fn raw(text: &str) {
    let mut to = anstream::stderr().lock();
    to.write_all(text.as_bytes()).and_then(|()| to.flush()).ok();
}

/// A document of data.
pub(crate) fn json(document: &impl serde::Serialize) {
    data_line(&serde_json::to_string_pretty(document).unwrap_or_default());
}

/// A document of data on one line, one of many.
pub(crate) fn line(document: &impl serde::Serialize) {
    data_line(&serde_json::to_string(document).unwrap_or_default());
}

/// Whether progress may be redrawn: both streams are terminals that can.
pub(crate) fn live() -> bool {
    let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
    std::io::stdout().is_terminal() && std::io::stderr().is_terminal() && !dumb
}

/// Whether somebody is there who can be asked.
pub(crate) fn can_ask() -> bool {
    std::io::stdin().is_terminal() && std::io::stderr().is_terminal()
}

/// Asks whoever is there; only `y` or `yes` is a yes.
pub(crate) fn ask(question: &str) -> bool {
    raw(&format!("{question} [y/N] "));
    let mut answer = String::new();
    let read = std::io::stdin().read_line(&mut answer);
    let answer = answer.trim().to_lowercase();
    read.is_ok() && ["y", "yes"].contains(&answer.as_str())
}

/// The terminal's height; 24 elsewhere.
pub(crate) fn height() -> usize {
    terminal_size::terminal_size().map_or(24, |(_, terminal_size::Height(height))| usize::from(height))
}

/// The terminal's width; 100 elsewhere.
pub(crate) fn width() -> usize {
    terminal_size::terminal_size().map_or(100, |(terminal_size::Width(width), _)| usize::from(width))
}

#[cfg(test)]
mod tests {
    use super::strip_control;

    #[test]
    fn only_colours_reach_the_terminal() {
        for (text, tamed) in [
            ("räck 0/$(id)\n", "räck 0/$(id)\n"),
            ("\u{1b}[1;32mok\u{1b}[0m", "\u{1b}[1;32mok\u{1b}[0m"),
            ("a\u{1b}]0;title\u{7}b", "a\\u{1b}]0;title\\u{7}b"),
            ("\u{1b}[2J\u{1b}[", "\\u{1b}[2J\\u{1b}["),
            ("\u{9b}31m\r", "\\u{9b}31m\\r"),
        ] {
            assert_eq!(strip_control(text), tamed);
        }
    }
}
