//! `generate`: pages made from the program itself, and the check that they are up to date.

use std::fmt::Write as _;
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use crate::report::{cargo, root, say, target_folder};

const PAGE: &str = "docs/reference/commands.md";

/// Makes the pages anew; with `check`, only says whether they are old.
pub(crate) fn generate(check: bool) -> Result<()> {
    let built = cargo(&["build", "--quiet", "--package", "stagger-cli"])
        .status()
        .context("build stagger")?;
    if !built.success() {
        bail!("stagger does not build");
    }
    let page = commands()?;
    let path = root().join(PAGE);
    if std::fs::read_to_string(&path).is_ok_and(|found| found == page) {
        return Ok(());
    }
    if check {
        bail!("{PAGE} is not what the program says: run `cargo xtask generate` and commit it");
    }
    std::fs::write(&path, page).with_context(|| format!("write {PAGE}"))?;
    say(&format!("wrote {PAGE}"));
    Ok(())
}

/// The help of every command.
fn commands() -> Result<String> {
    let mut page =
        String::from("# Commands\n\nMade by `cargo xtask generate` from the program's own help.\n");
    let top = help(&[])?;
    add(&mut page, "stagger", &top);
    for name in names(&top) {
        let text = help(&[&name])?;
        add(&mut page, &format!("stagger {name}"), &text);
        for inner in names(&text) {
            add(
                &mut page,
                &format!("stagger {name} {inner}"),
                &help(&[&name, &inner])?,
            );
        }
    }
    Ok(page)
}

fn add(page: &mut String, title: &str, text: &str) {
    let _ = write!(page, "\n## `{title}`\n\n```text\n{}\n```\n", text.trim_end());
}

fn help(words: &[&str]) -> Result<String> {
    let output = Command::new(target_folder().join("debug/stagger"))
        .args(words)
        .arg("--help")
        .env("COLUMNS", "100")
        .output()
        .context("ask stagger for its help")?;
    if !output.status.success() {
        bail!("`stagger {} --help` failed", words.join(" "));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(text.lines().map(str::trim_end).collect::<Vec<_>>().join("\n"))
}

/// The commands that a help lists.
fn names(help: &str) -> Vec<String> {
    help.lines()
        .skip_while(|line| *line != "Commands:")
        .skip(1)
        .take_while(|line| !line.is_empty())
        // A wrapped line goes on further in.
        .filter(|line| line.starts_with("  ") && !line.starts_with("   "))
        .filter_map(|line| line.split_whitespace().next())
        .filter(|name| *name != "help")
        .map(str::to_owned)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_found_in_a_help() {
        let help = "x\n\nCommands:\n  plan  Show\n        more words\n  run   Carry\n  help  Print\n\nOptions:\n  --json\n";
        assert_eq!(names(help), ["plan", "run"]);
    }
}
