//! `test --long`: every named case, and `docs/long-run.md` written from what was seen.

use std::fmt::Write as _;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, Result, bail};

use crate::report::{Report, cargo, root, say};
use crate::test::{ignored, must_be_root, set_up};

/// Test files whose cases are long, with their package.
const FILES: [(&str, &str); 2] = [("stagger-engine", "model"), ("stagger-e2e", "ceph_long")];

/// Runs all long cases, or those named, and writes the page.
pub(crate) fn long(wanted: &[&str]) -> Result<()> {
    must_be_root()?;
    let mut report = Report::default();
    if !report.run("build", &mut cargo(&["build", "--workspace", "--all-targets"]))? {
        bail!("it does not build");
    }
    set_up(&mut report)?;
    let mut rows = Vec::new();
    let mut known = Vec::new();
    for (package, file) in FILES {
        for case in cases(package, file)? {
            known.push(case.clone());
            if !wanted.is_empty() && !wanted.contains(&case.as_str()) {
                continue;
            }
            let begun = Instant::now();
            let ok = report.run(&case, &mut ignored(package, file, Some(&case)))?;
            rows.push((case, ok, begun.elapsed().as_secs()));
        }
    }
    if let Some(stray) = wanted
        .iter()
        .find(|case| !known.iter().any(|known| known == *case))
    {
        bail!("there is no case {stray}; there are: {}", known.join(", "));
    }
    if wanted.is_empty() {
        write(&rows)?;
    } else {
        say("docs/long-run.md is written only when all cases are run");
    }
    if report.summary() {
        Ok(())
    } else {
        bail!("not all is well")
    }
}

fn cases(package: &str, file: &str) -> Result<Vec<String>> {
    let listed = cargo(&[
        "test",
        "--quiet",
        "--package",
        package,
        "--test",
        file,
        "--",
        "--list",
        "--ignored",
    ])
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

fn write(rows: &[(String, bool, u64)]) -> Result<()> {
    let commit = said(Command::new("git").args(["rev-parse", "--short=12", "HEAD"]))?;
    let dirty =
        !said(Command::new("git").args(["status", "--porcelain", "--untracked-files=no"]))?.is_empty();
    let mut text = String::from("# The long run\n\nWritten by `cargo xtask test --long`; not by hand.\n\n");
    let _ = writeln!(
        text,
        "- commit: `{commit}`{}",
        if dirty {
            " with changes that are not committed"
        } else {
            ""
        }
    );
    let _ = writeln!(
        text,
        "- when: {}",
        said(Command::new("date").args(["-u", "+%Y-%m-%dT%H:%MZ"]))?
    );
    let _ = writeln!(text, "- versions: {}\n", versions()?.join(", "));
    text.push_str("| case | result | seconds |\n|---|---|---|\n");
    for (case, ok, seconds) in rows {
        let _ = writeln!(
            text,
            "| {case} | {} | {seconds} |",
            if *ok { "passed" } else { "FAILED" }
        );
    }
    std::fs::write(root().join("docs/long-run.md"), text).context("write docs/long-run.md")
}

/// Rust, and the exact versions of Ceph in the cache.
fn versions() -> Result<Vec<String>> {
    let mut found = vec![said(Command::new("rustc").arg("--version"))?];
    let roots = cargo(&[
        "run",
        "--quiet",
        "--package",
        "stagger-e2e",
        "--bin",
        "ceph-roots",
    ])
    .output()
    .context("ask for the versions of Ceph")?;
    found.extend(String::from_utf8_lossy(&roots.stdout).lines().map(str::to_owned));
    Ok(found)
}

fn said(command: &mut Command) -> Result<String> {
    let output = command
        .current_dir(root())
        .output()
        .with_context(|| format!("run {command:?}"))?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
