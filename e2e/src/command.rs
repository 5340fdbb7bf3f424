//! Running programs and telling what happened when one fails; and progress lines.

use std::ffi::OsStr;
use std::io::Write as _;
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
