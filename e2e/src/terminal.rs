//! What a program shows in a terminal, as a picture.
//!
//! `script` of util-linux gives the program a terminal of its own; what is written there is played into a screen.

use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::num::NonZeroU16;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use vt100::{Cell, Color, Parser, Screen};

use crate::command::shown;

/// For so long nothing may be written before a screen counts as drawn. One that is live is drawn several times a second.
const QUIET: Duration = Duration::from_millis(50);

/// A program in a terminal of its own. Dropping it kills it.
pub struct Terminal {
    command: String,
    child: Child,
    bytes: Receiver<Vec<u8>>,
    parser: Parser,
}

impl Terminal {
    /// Starts it in a terminal of that size, in columns and rows.
    ///
    /// # Errors
    /// `script` cannot be started.
    pub fn start(command: &Command, columns: NonZeroU16, rows: NonZeroU16) -> Result<Self> {
        let words = std::iter::once(command.get_program()).chain(command.get_args());
        let words: Vec<_> = words.map(|word| word.to_string_lossy()).collect();
        let words = shlex::try_join(words.iter().map(AsRef::as_ref)).context("quote a command")?;
        let line = format!("stty cols {columns} rows {rows}; exec {words}");
        let mut script = Command::new("script");
        script.args(["--quiet", "--flush", "--return", "--command", &line, "/dev/null"]);
        script.env("TERM", "xterm-256color").env_remove("NO_COLOR");
        if let Some(folder) = command.get_current_dir() {
            script.current_dir(folder);
        }
        for (name, value) in command.get_envs() {
            script.env(name, value.unwrap_or_default());
        }
        script
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit());
        let mut child = script
            .spawn()
            .context("start `script`, which gives a program a terminal")?;
        let mut out = child.stdout.take().context("no stdout")?;
        let (sender, bytes) = channel();
        thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(count @ 1..) = out.read(&mut buffer) {
                if sender.send(buffer[..count].to_vec()).is_err() {
                    break;
                }
            }
        });
        Ok(Self {
            command: shown(command),
            child,
            bytes,
            parser: Parser::new(rows, columns, 0),
        })
    }

    /// What it shows once that word stands there and nothing more is written for a moment, as SVG.
    ///
    /// # Errors
    /// It is not there within `limit`, or the program ended before.
    pub fn picture_with(&mut self, word: &str, limit: Duration) -> Result<String> {
        let end = Instant::now() + limit;
        loop {
            match self.bytes.recv_timeout(QUIET) {
                Ok(bytes) => self.parser.process(&bytes),
                Err(RecvTimeoutError::Timeout) if self.shows(word) => return Ok(svg(self.parser.screen())),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) if self.shows(word) => {
                    return Ok(svg(self.parser.screen()));
                }
                Err(RecvTimeoutError::Disconnected) => {
                    bail!(
                        "`{}` ended and did not show {word:?}, but:\n{}",
                        self.command,
                        self.text()
                    )
                }
            }
            ensure!(
                Instant::now() < end,
                "`{}` does not show {word:?} within {} s, but:\n{}",
                self.command,
                limit.as_secs(),
                self.text()
            );
        }
    }

    fn shows(&self, word: &str) -> bool {
        self.text().contains(word)
    }

    fn text(&self) -> String {
        self.parser.screen().contents()
    }

    /// Types that, as a person would.
    ///
    /// # Errors
    /// It reads nothing any more.
    pub fn types(&mut self, keys: &str) -> Result<()> {
        let input = self.child.stdin.as_mut().context("no stdin")?;
        input
            .write_all(keys.as_bytes())
            .context("type into the terminal")?;
        input.flush().context("type into the terminal")
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

fn svg(screen: &Screen) -> String {
    let text = ansi(screen);
    anstyle_svg::Term::new()
        .palette(anstyle_svg::WIN10_CONSOLE)
        .render_svg(text.trim_end())
}

/// The screen as lines with colours, and without anything that moves the cursor.
fn ansi(screen: &Screen) -> String {
    let (rows, columns) = screen.size();
    let mut text = String::new();
    for row in 0..rows.get() {
        let cells: Vec<&Cell> = (0..columns.get())
            .filter_map(|column| screen.cell(row, column))
            .collect();
        let used = cells
            .iter()
            .rposition(|cell| cell.has_contents() || cell.bgcolor() != Color::Default);
        let mut style = String::new();
        for cell in &cells[..used.map_or(0, |last| last + 1)] {
            if cell.is_wide_continuation() {
                continue;
            }
            let next = style_of(cell);
            if next != style {
                write!(text, "\u{1b}[0{next}m").ok();
                style = next;
            }
            text.push_str(if cell.has_contents() { cell.contents() } else { " " });
        }
        text.push_str("\u{1b}[0m\n");
    }
    text
}

/// The parameters that set a cell's style after a reset.
fn style_of(cell: &Cell) -> String {
    let mut style = String::new();
    for (is_set, code) in [
        (cell.bold(), 1),
        (cell.dim(), 2),
        (cell.italic(), 3),
        (cell.underline(), 4),
        (cell.inverse(), 7),
    ] {
        if is_set {
            write!(style, ";{code}").ok();
        }
    }
    for (color, code) in [(cell.fgcolor(), 38), (cell.bgcolor(), 48)] {
        match color {
            Color::Default => Ok(()),
            Color::Idx(index) => write!(style, ";{code};5;{index}"),
            Color::Rgb(red, green, blue) => write!(style, ";{code};2;{red};{green};{blue}"),
        }
        .ok();
    }
    style
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_screen_is_drawn_as_it_stands_at_its_end() -> Result<()> {
        let mut command = Command::new("printf");
        command.arg(r"\033[2J\033[1;1Hgone\033[1;1H\033[1;31mred <b>\033[0m");
        let size = |number| NonZeroU16::new(number).context("a size");
        let mut terminal = Terminal::start(&command, size(20)?, size(3)?)?;
        let svg = terminal.picture_with("red", Duration::from_secs(20))?;
        ensure!(svg.starts_with("<svg"), "{svg}");
        ensure!(svg.contains("red &lt;b&gt;") && !svg.contains("gone"), "{svg}");
        ensure!(svg.contains("bold") && svg.contains("red"), "{svg}");
        Ok(())
    }

    #[test]
    fn what_does_not_come_is_told() -> Result<()> {
        let mut command = Command::new("echo");
        command.arg("something else");
        let size = |number| NonZeroU16::new(number).context("a size");
        let mut terminal = Terminal::start(&command, size(40)?, size(3)?)?;
        let error = terminal
            .picture_with("this", Duration::from_secs(20))
            .err()
            .context("found")?;
        ensure!(error.to_string().contains("something else"), "{error}");
        Ok(())
    }
}
