//! `generate`: pages made from the program itself, and the check that they are up to date.

use std::fmt::Write as _;

use anyhow::{Context as _, Result, bail};

use crate::chart;
use crate::report::{built, root, say, workspace};

const PAGE: &str = "docs/reference/commands.md";
const DEFINITIONS: &str = "deploy/crds.yaml";
const SCHEMAS: &str = "docs/reference/schemas";

/// Makes the pages and schemas anew; with `check`, only says which are old.
pub(crate) fn generate(check: bool) -> Result<()> {
    // As everything is built: the program alone would be built with other features, and all below it again.
    let complete = workspace("build", &["--quiet", "--all-targets"])
        .status()
        .context("build stagger")?;
    if !complete.success() {
        bail!("stagger does not build");
    }
    let definitions = ask(&["crds"])?;
    let mut pages = vec![(PAGE.to_owned(), commands()?)];
    pages.extend(chart::pages(&definitions)?);
    pages.push((DEFINITIONS.to_owned(), definitions));
    for name in ask(&["schema"])?.lines() {
        let schema = ask(&["schema", name])?;
        pages.push((format!("{SCHEMAS}/{name}.json"), schema));
    }
    let mut old = strangers(&pages)?;
    for (name, page) in &pages {
        let path = root().join(name);
        if std::fs::read_to_string(&path).is_ok_and(|found| found == *page) {
            continue;
        }
        if check {
            old.push(name.clone());
            continue;
        }
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).with_context(|| format!("make {}", folder.display()))?;
        }
        std::fs::write(&path, page).with_context(|| format!("write {name}"))?;
        say(&format!("wrote {name}"));
    }
    if !old.is_empty() {
        bail!(
            "not what the program says: {}; run `cargo xtask generate`, remove what it does not write, and commit",
            old.join(", ")
        );
    }
    Ok(())
}

/// Schemas of documents that there are no more, and templates of files that there are no more.
fn strangers(pages: &[(String, String)]) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for made in [SCHEMAS, chart::TEMPLATES] {
        let folder = root().join(made);
        if !folder.exists() {
            continue;
        }
        for entry in std::fs::read_dir(&folder).with_context(|| format!("read {}", folder.display()))? {
            let name = format!("{made}/{}", entry?.file_name().to_string_lossy());
            if !pages.iter().any(|(page, _)| *page == name) {
                found.push(name);
            }
        }
    }
    Ok(found)
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
    let text = ask(&[words, &["--help"]].concat())?;
    Ok(text.lines().map(str::trim_end).collect::<Vec<_>>().join("\n"))
}

/// What the program prints.
fn ask(words: &[&str]) -> Result<String> {
    let output = built("stagger")
        .args(words)
        .env("COLUMNS", "100")
        .output()
        .with_context(|| format!("ask stagger {}", words.join(" ")))?;
    if !output.status.success() {
        bail!("`stagger {}` failed", words.join(" "));
    }
    String::from_utf8(output.stdout).context("stagger prints UTF-8")
}

/// The commands that a help lists: all in one list, or in groups before the options; or the goals of a command.
fn names(help: &str) -> Vec<String> {
    let goals = help.lines().skip_while(|line| *line != "Goals:").skip(1);
    let goals = goals.map_while(|line| line.strip_prefix("  ")?.split_whitespace().next());
    let goals: Vec<String> = goals.map(str::to_owned).collect();
    if !goals.is_empty() {
        return goals;
    }
    if !help
        .lines()
        .any(|line| line.starts_with("Usage: ") && line.ends_with("<COMMAND>"))
    {
        return Vec::new();
    }
    help.lines()
        .skip_while(|line| !line.starts_with("Usage: "))
        .take_while(|line| *line != "Options:")
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
        let help = "x\n\nUsage: stagger [OPTIONS] <COMMAND>\n\nEvery run:\n  plan  Show\n        more words\n\nSet up:\n  run   \
                    Carry\n  help  Print\n\nOptions:\n  --json\n";
        assert_eq!(names(help), ["plan", "run"]);
        let help = "x\n\nUsage: stagger plan [OPTIONS] <GOAL>\n\nGoals:\n  upgrade  To\n  reboot   Nodes\n\nOptions:\n  --json\n";
        assert_eq!(names(help), ["upgrade", "reboot"]);
        assert!(names("x\n\nUsage: stagger plan [OPTIONS]\n\nArguments:\n  [RUN]  Which\n").is_empty());
    }
}
