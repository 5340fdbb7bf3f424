//! `test`: sets up all that the tests need and runs them.

use std::process::Command;

use anyhow::{Context as _, Result, bail};

use crate::report::{Outcome, Report, built, cargo, root, target_folder, workspace};
use crate::story::STORIES;
use crate::{disk, fuzz, generate, layers, postgres, prometheus, schemathesis, simulate, tools};

/// How much.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Extent {
    /// What needs neither root nor packages.
    Quick,
    /// That, and one story on each real system, unless it passed here with the same inputs.
    Usual,
    /// That, some seconds of fuzzing, and every story.
    All,
}

/// Runs the tests and prints one plain summary.
pub(crate) fn test(extent: Extent) -> Result<()> {
    let mut report = Report::default();
    if extent != Extent::Quick {
        must_be_root()?;
        disk::ensure_room()?;
    }
    let build = report.run("build", &mut workspace("build", &["--all-targets"]))?;
    if build == Outcome::Passed {
        quick(&mut report)?;
        if extent == Extent::All {
            report.done("fuzzing, 3 s a target", || fuzz::fuzz(3, None));
        }
        if extent == Extent::Quick || report.has_failures() {
            checks(&mut report)?;
        } else {
            set_up(&mut report, |_| true)?;
            postgres::tests(&mut report, extent == Extent::All)?;
            prometheus::test(&mut report)?;
            let versions = versions()?;
            let stories = |report: &mut Report, of_kubernetes: bool| {
                let mut all = STORIES
                    .iter()
                    .filter(|story| story.is_of_kubernetes() == of_kubernetes);
                all.try_for_each(|story| story.run(report, &versions, extent == Extent::All))
            };
            let kubernetes = |report: &mut Report| stories(report, true);
            let others = |report: &mut Report| stories(report, false);
            // A real cluster is mostly waited for: two of them go side by side, and whoever only reads the code has the time that is left.
            let meanwhile =
                |report: &mut Report| report.run("checks", &mut in_idle_time(&["checks"])).map(drop);
            report.beside([
                ("", &others),
                ("kubernetes | ", &kubernetes),
                ("checks     | ", &meanwhile),
            ])?;
        }
    }
    if report.summary() {
        Ok(())
    } else {
        bail!("not all is well")
    }
}

/// This program with these words, in time that nobody else wants. A session of its own, since the kernel shares its time between
/// sessions first (`sched(7)`, autogroup).
fn in_idle_time(words: &[&str]) -> Command {
    // As it is built by now: the one that runs may have been replaced.
    let own = target_folder().join("debug/xtask");
    let mut command = Command::new("setsid");
    command
        .args(["--wait", "sh", "-c"])
        .arg("{ echo 19 >/proc/self/autogroup; } 2>/dev/null; exec chrt --idle 0 \"$@\"")
        .arg("sh")
        .arg(own)
        .args(words)
        .current_dir(root());
    command
}

/// Runs what only reads the code.
pub(crate) fn checks_alone() -> Result<()> {
    let mut report = Report::default();
    checks(&mut report)?;
    if report.summary() {
        Ok(())
    } else {
        bail!("not all is well")
    }
}

/// Tests on real clusters make namespaces, mounts and roots of their own.
pub(crate) fn must_be_root() -> Result<()> {
    let id = Command::new("id").arg("-u").output()?;
    if String::from_utf8_lossy(&id.stdout).trim() == "0" {
        return Ok(());
    }
    bail!(
        "tests on real clusters need root, for namespaces and roots of their own: \
         run `sudo -E cargo xtask test`, or `cargo xtask test --quick` for what does without"
    )
}

/// Tests that need no real system.
fn quick(report: &mut Report) -> Result<()> {
    report.run(
        "quick tests",
        &mut workspace("test", &["--quiet", "--no-fail-fast"]),
    )?;
    schemathesis::test(report)?;
    report.done("new worlds in the simulator", simulate::new_worlds);
    // `cargo xtask fuzz` goes on from there.
    report.done("seeds of the fuzz targets", fuzz::seeds_alone);
    Ok(())
}

/// What is said of the code by those who only read it.
fn checks(report: &mut Report) -> Result<()> {
    report.done("layers", layers::layers);
    report.done("generated pages are up to date", || generate::generate(true));
    tools::checks(report)?;
    report.run("formatting", &mut cargo(&["fmt", "--all", "--check"]))?;
    report.run(
        "lints",
        &mut workspace("clippy", &["--quiet", "--", "-D", "warnings"]),
    )?;
    // Helpers of tests stop at the first surprise, and print what they saw.
    let mut tests = workspace("clippy", &["--all-targets", "--quiet", "--", "-D", "warnings"]);
    for lint in ["unwrap_used", "expect_used", "print_stdout", "print_stderr"] {
        tests.arg("-A").arg(format!("clippy::{lint}"));
    }
    report.run("lints of tests", &mut tests)?;
    let mut pages = workspace("doc", &["--no-deps", "--document-private-items", "--quiet"]);
    // Whoever reads them reads the private items too.
    pages.env("RUSTDOCFLAGS", "-D warnings -A rustdoc::private_intra_doc_links");
    report.run("pages of the crates", &mut pages)?;
    Ok(())
}

/// A real system that tests are run on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum System {
    /// Three releases of it.
    Ceph,
    /// Two.
    Ganeti,
    /// With its databases: PostgreSQL is that of its root.
    Ironic,
    /// Its servers, and ours.
    Kubernetes,
}

/// What real systems are made of, in the cache outside the checkout; built if it is missing, side by side: packages are waited for.
/// Only those are that are needed.
pub(crate) fn set_up(report: &mut Report, is_needed: impl Fn(System) -> bool) -> Result<()> {
    let root = |system: System, name: &'static str, program: &'static str| {
        let is_needed = is_needed(system);
        move |report: &mut Report| {
            if is_needed {
                report.run(name, &mut built(program))?;
            }
            Ok(())
        }
    };
    report.beside([
        (
            "ceph       | ",
            &root(System::Ceph, "roots of Ceph", "ceph-roots"),
        ),
        (
            "ganeti     | ",
            &root(System::Ganeti, "roots of Ganeti", "ganeti-root"),
        ),
        (
            "ironic     | ",
            &root(System::Ironic, "root of Ironic", "ironic-root"),
        ),
        (
            "kubernetes | ",
            &root(System::Kubernetes, "programs of Kubernetes", "kubernetes-servers"),
        ),
    ])
}

/// The exact versions of Ceph, Ganeti and Ironic in the cache.
pub(crate) fn versions() -> Result<Vec<String>> {
    let mut found = Vec::new();
    for program in ["ceph-roots", "ganeti-root", "ironic-root"] {
        let roots = built(program)
            .output()
            .with_context(|| format!("ask {program} for its versions"))?;
        found.extend(String::from_utf8_lossy(&roots.stdout).lines().map(str::to_owned));
    }
    Ok(found)
}
