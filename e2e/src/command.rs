//! Running programs and telling what happened when one fails; and progress lines.

use std::ffi::OsStr;
use std::fs;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Output};

use anyhow::{Context, Result, bail};

/// Writes one line of progress to stderr.
pub fn say(line: impl AsRef<str>) {
    // A closed stderr must not end a cluster.
    writeln!(std::io::stderr(), "{}", line.as_ref()).ok();
}

/// The command as one line for messages.
pub fn shown(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(OsStr::to_string_lossy).collect::<Vec<_>>().join(" ")
}

/// The last `count` lines of a text.
pub fn last_lines(text: &str, count: usize) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(count)..].join("\n")
}

/// The last lines of each log in these folders.
pub(crate) fn ends_of_logs(folders: &[PathBuf]) -> String {
    let mut paths: Vec<PathBuf> = folders
        .iter()
        .flat_map(fs::read_dir)
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .collect();
    paths.sort();
    let mut text = String::new();
    for path in paths {
        let log = fs::read(&path).unwrap_or_default();
        let log = String::from_utf8_lossy(&log[log.len().saturating_sub(20_000)..]).into_owned();
        if !log.trim().is_empty() {
            text.extend([
                "== ",
                &path.display().to_string(),
                "\n",
                &last_lines(&log, 8),
                "\n",
            ]);
        }
    }
    text
}

/// Runs a command to its end and gives its output, whatever its exit status.
pub fn output(command: &mut Command) -> Result<Output> {
    command
        .output()
        .with_context(|| format!("starting `{}`: is the program installed?", shown(command)))
}

/// Runs a command that must succeed, and gives its stdout.
pub fn run(command: &mut Command) -> Result<String> {
    let out = output(command)?;
    if !out.status.success() {
        let text = format!(
            "{}{}",
            String::from_utf8_lossy(&out.stdout),
            String::from_utf8_lossy(&out.stderr)
        );
        bail!(
            "`{}` ended with {}:\n{}",
            shown(command),
            out.status,
            last_lines(&text, 30)
        );
    }
    Ok(String::from_utf8_lossy(&out.stdout).into_owned())
}
