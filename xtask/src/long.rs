//! `test --long`: every named case, and `docs/long-run.md` written from what was seen. The whole takes an
//! hour, so it may be run in parts, also at the same time: each case has a row of its own, with the commit that was tested.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, Result, bail, ensure};

use crate::postgres;
use crate::report::{Outcome, Report, ignored, root, said, target_folder, workspace};
use crate::simulate;
use crate::test::{System, must_be_root, set_up, versions};

/// Test files whose cases are long.
const FILES: [&str; 27] = [
    "model",
    // Of `versioned`: what needs a PostgreSQL of its own.
    "all",
    // Three releases of an example, one after the other.
    "inventory_upgrade",
    // Of the engine and of the commands: the same.
    "stores",
    "handover",
    "on_postgres",
    "sandbox_ends",
    "ceph_boot",
    "ceph_daemonctl",
    "ceph_long",
    // Builds the root of its hosts by itself.
    "cephadm_long",
    "package_hosts_boot",
    "package_hosts_upgrade",
    "ganeti_boot",
    "ganeti_long",
    "ganeti_differential",
    "ironic_boot",
    "ironic_hand",
    "ironic_long",
    "node_agent",
    "go_is_fetched",
    "rook_long",
    "rook_beside",
    "kube_commands",
    "helm_chart",
    "kubectl_plugin",
    "page_in_a_browser",
];

/// Runs all long cases, or those named, and writes what came of each into the page at once.
pub(crate) fn long(wanted: &[&str]) -> Result<()> {
    must_be_root()?;
    let mut report = Report::default();
    let build = report.run("build", &mut workspace("build", &["--all-targets"]))?;
    if build == Outcome::Failed {
        bail!("it does not build");
    }
    let mut known = Vec::new();
    for file in FILES {
        known.extend(cases(file)?.into_iter().map(|case| (file, case)));
    }
    known.push((WORLDS, simulate::MILLION.to_owned()));
    if let Some(stray) = wanted
        .iter()
        .find(|case| !known.iter().any(|(_, known)| known == *case))
    {
        let known: Vec<_> = known.iter().map(|(_, case)| case.as_str()).collect();
        bail!("there is no case {stray}; there are: {}", known.join(", "));
    }
    let is_wanted = |case: &String| wanted.is_empty() || wanted.contains(&case.as_str());
    set_up(&mut report, |system| {
        known
            .iter()
            .any(|(file, case)| is_wanted(case) && runs_on(file).contains(&system))
    })?;
    let names: Vec<&str> = known.iter().map(|(_, case)| case.as_str()).collect();
    for (file, case) in &known {
        if !is_wanted(case) {
            continue;
        }
        let begun = Instant::now();
        if *file == WORLDS {
            let mut came = (false, String::new());
            report.done(case, || {
                came = simulate::a_million()?;
                ensure!(
                    came.0,
                    "the truth has found something: see above, and scenarios/found"
                );
                Ok(())
            });
            let (ok, printed) = came;
            let row = Row::of(ok, begun.elapsed().as_secs())?;
            Page::record(case, row, &names, Some(printed))?;
            continue;
        }
        let mut command = ignored(file, Some(case));
        if runs_on(file).contains(&System::Ironic) {
            postgres::told(&mut command)?;
        }
        let outcome = report.cases(case, &mut command)?;
        // Of what was not run the page keeps what came of it before.
        if outcome != Outcome::Skipped {
            let row = Row::of(outcome == Outcome::Passed, begun.elapsed().as_secs())?;
            Page::record(case, row, &names, None)?;
        }
    }
    if report.summary() {
        Ok(())
    } else {
        bail!("not all is well")
    }
}

/// The systems that the cases of a file are run on.
fn runs_on(file: &str) -> &'static [System] {
    match file {
        "ceph_boot" | "ceph_daemonctl" | "ceph_long" => &[System::Ceph],
        "ganeti_boot" | "ganeti_differential" => &[System::Ganeti],
        // A journal of one of its runs is in a PostgreSQL.
        "ganeti_long" => &[System::Ganeti, System::Ironic],
        "ironic_boot" | "ironic_hand" | "ironic_long" => &[System::Ironic],
        "node_agent" | "go_is_fetched" | "rook_long" | "rook_beside" | "kube_commands" | "helm_chart"
        | "kubectl_plugin" => &[System::Ceph, System::Kubernetes],
        file if postgres::FILES.contains(&file) => &[System::Ironic],
        _ => &[],
    }
}

fn cases(file: &str) -> Result<Vec<String>> {
    let words = ["--quiet", "--test", file, "--", "--list", "--ignored"];
    let listed = workspace("test", &words)
        .output()
        .with_context(|| format!("list the cases of {file}"))?;
    let text = String::from_utf8_lossy(&listed.stdout).into_owned();
    let cases: Vec<_> = text
        .lines()
        .filter_map(|line| line.strip_suffix(": test").map(str::to_owned))
        .collect();
    if cases.is_empty() {
        bail!(
            "{file} lists no cases: {}",
            String::from_utf8_lossy(&listed.stderr)
        );
    }
    Ok(cases)
}

/// Not a test file: random worlds, by the program that plays them.
const WORLDS: &str = "worlds";

const PAGE: &str = "docs/long-run.md";

/// How the part on random worlds begins, after what, and how it ends.
const OF_WORLDS: &str = "\n## A million random worlds\n\nWhat was printed of them the last time. Their seed is drawn each time.\n\n```text\n";
const FENCE: &str = "```\n";

/// The page: what came of each case when it was run last.
struct Page {
    rows: BTreeMap<String, Row>,
    /// What was printed of random worlds; empty: nothing yet.
    worlds: String,
}

/// What came of one case. The commit has a `+` where the tree had changes that were not committed.
struct Row {
    result: String,
    seconds: String,
    commit: String,
    when: String,
}

impl Row {
    fn of(ok: bool, seconds: u64) -> Result<Self> {
        let commit = said(Command::new("git").args(["rev-parse", "--short=12", "HEAD"]))?;
        // The page itself changes with each case.
        let changed = [
            "status",
            "--porcelain",
            "--untracked-files=no",
            "--",
            ".",
            ":!docs/long-run.md",
        ];
        let dirty = !said(Command::new("git").args(changed))?.is_empty();
        Ok(Self {
            result: if ok { "passed" } else { "FAILED" }.to_owned(),
            seconds: seconds.to_string(),
            commit: format!("{commit}{}", if dirty { "+" } else { "" }),
            when: said(Command::new("date").args(["-u", "+%Y-%m-%dT%H:%MZ"]))?,
        })
    }
}

impl Page {
    /// Writes a row. Parts of the long run may go on at the same time, so the page is read anew for each, and is
    /// one writer's meanwhile.
    fn record(case: &str, row: Row, cases: &[&str], worlds: Option<String>) -> Result<()> {
        let path = target_folder().join("long-run.lock");
        let lock = std::fs::File::create(&path).with_context(|| format!("make {}", path.display()))?;
        lock.lock().context("wait for another part of the long run")?;
        let mut page = Self::read()?;
        page.rows.insert(case.to_owned(), row);
        page.worlds = worlds.unwrap_or(page.worlds);
        page.rows.retain(|case, _| cases.contains(&case.as_str()));
        page.write(cases)
    }

    /// The rows of the page as it is; none, if there is no page.
    fn read() -> Result<Self> {
        let path = root().join(PAGE);
        let text = if path.exists() {
            std::fs::read_to_string(&path).with_context(|| format!("read {PAGE}"))?
        } else {
            String::new()
        };
        Ok(Self::of(&text))
    }

    fn of(text: &str) -> Self {
        let (text, worlds) = text.split_once(OF_WORLDS).unwrap_or((text, ""));
        let rows = text
            .lines()
            .filter_map(|line| {
                let cells: Vec<_> = line.trim_matches('|').split('|').map(str::trim).collect();
                let [case, result, seconds, commit, when] = cells.as_slice() else {
                    return None;
                };
                let row = Row {
                    result: (*result).to_owned(),
                    seconds: (*seconds).to_owned(),
                    commit: commit.trim_matches('`').to_owned(),
                    when: (*when).to_owned(),
                };
                // The head of the table, and cases that were never run.
                (!row.commit.is_empty() && *result != "result" && !result.starts_with('-'))
                    .then(|| ((*case).to_owned(), row))
            })
            .collect();
        let worlds = worlds.strip_suffix(FENCE).unwrap_or_default().to_owned();
        Self { rows, worlds }
    }

    fn write(&self, cases: &[&str]) -> Result<()> {
        let rust = said(Command::new("rustc").arg("--version"))?;
        let versions = [&[rust], versions()?.as_slice()].concat();
        let text = self.text(cases, &versions.join(", "));
        std::fs::write(root().join(PAGE), text).with_context(|| format!("write {PAGE}"))
    }

    fn text(&self, cases: &[&str], versions: &str) -> String {
        let mut text = String::from(
            "# The long run\n\nWritten by `cargo xtask test --long`, case by case; not by hand. Each row is of the commit \
             that it names.\n\n",
        );
        let _ = writeln!(text, "Versions of the last run: {versions}.\n");
        text.push_str("| case | result | seconds | commit | when |\n|---|---|---|---|---|\n");
        for case in cases {
            let _ = match self.rows.get(*case) {
                Some(row) => writeln!(
                    text,
                    "| {case} | {} | {} | `{}` | {} |",
                    row.result, row.seconds, row.commit, row.when
                ),
                None => writeln!(text, "| {case} | not run | | | |"),
            };
        }
        if !self.worlds.is_empty() {
            let _ = write!(text, "{OF_WORLDS}{}{FENCE}", self.worlds);
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::{Page, Row};

    #[test]
    fn a_page_is_read_as_it_was_written() {
        let row = Row {
            result: "FAILED".to_owned(),
            seconds: "7".to_owned(),
            commit: "0123456789ab+".to_owned(),
            when: "2026-11-21T08:00Z".to_owned(),
        };
        let page = Page {
            rows: [("a::b".to_owned(), row)].into(),
            worlds: "seed 7, 1000000 worlds\n".to_owned(),
        };
        let cases = ["a::b", "never"];
        let text = page.text(&cases, "rustc 1");
        assert!(text.contains("| a::b | FAILED | 7 | `0123456789ab+` | 2026-11-21T08:00Z |\n"));
        assert!(text.contains("| never | not run |"));
        let read = Page::of(&text);
        assert_eq!(read.rows.len(), 1, "what was never run has no row");
        assert_eq!(read.text(&cases, "rustc 1"), text);
    }
}
