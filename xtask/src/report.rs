//! What was run, how it ended, how long it took; and one plain summary.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

/// The checkout.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .unwrap_or(Path::new("."))
}

/// Where programs are built.
pub(crate) fn target_folder() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}

/// `cargo`, in the checkout.
pub(crate) fn cargo(words: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(words).current_dir(root());
    command
}

/// A line for people.
pub(crate) fn say(text: &str) {
    // Nobody reads on: that is no reason to fail.
    writeln!(std::io::stderr(), "{text}").ok();
}

/// One thing that was run.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) ok: bool,
    pub(crate) took: Duration,
}

/// Everything that was run.
#[derive(Debug, Default)]
pub(crate) struct Report {
    pub(crate) rows: Vec<Row>,
}

impl Report {
    /// Runs a program to its end; its output is shown as it comes.
    pub(crate) fn run(&mut self, name: &str, command: &mut Command) -> Result<bool> {
        say(&format!("== {name}"));
        let begun = Instant::now();
        let status = command
            .status()
            .with_context(|| format!("start {name}: {command:?}"))?;
        self.add(name, status.success(), begun.elapsed());
        Ok(status.success())
    }

    /// Does something to its end.
    pub(crate) fn done(&mut self, name: &str, what: impl FnOnce() -> Result<()>) {
        say(&format!("== {name}"));
        let begun = Instant::now();
        let ended = what();
        if let Err(error) = &ended {
            say(&format!("error: {error:#}"));
        }
        self.add(name, ended.is_ok(), begun.elapsed());
    }

    fn add(&mut self, name: &str, ok: bool, took: Duration) {
        self.rows.push(Row {
            name: name.to_owned(),
            ok,
            took,
        });
    }

    /// The summary, and whether all is well.
    pub(crate) fn summary(&self) -> bool {
        say("\nsummary");
        for Row { name, ok, took } in &self.rows {
            say(&format!(
                "  {:<6} {:>6.0} s  {name}",
                if *ok { "ok" } else { "FAILED" },
                took.as_secs_f64()
            ));
        }
        let failed = self.rows.iter().filter(|row| !row.ok).count();
        let total: Duration = self.rows.iter().map(|row| row.took).sum();
        say(&format!("  {:<6} {:>6.0} s  in all", "", total.as_secs_f64()));
        writeln!(
            std::io::stdout(),
            "{} passed, {failed} failed",
            self.rows.len() - failed
        )
        .ok();
        failed == 0
    }
}
