//! A plain Debian in which our own package is installed, tried and removed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use crate::cache;
use crate::command::{run, say};
use crate::roots::build::{Builder, Recipe, digest, find_or_build, newest};
use crate::sandbox::{Folder, Network, Sandbox};

/// The oldest that the package is for.
const SUITE: &str = "bookworm";

/// systemd checks our units.
const PACKAGES: [&str; 1] = ["systemd"];

/// The units that are checked; one of a template is given a name.
const UNITS: [&str; 9] = [
    "stagger-resume.service",
    "stagger-run@20.2.4.service",
    "stagger-guards@ceph.service",
    "stagger-guards@ceph.timer",
    "stagger-ganeti-resume.service",
    "stagger-ganeti-resume.timer",
    "stagger-operator.service",
    "stagger-serve.service",
    "stagger-serve.socket",
];

/// What a package is asked in a shell once it is installed, and a word that has to be in the answer.
const ASKED: [(&str, &str); 6] = [
    ("stagger --version", "stagger "),
    (
        "stagger --state /tmp/demo demo --fast 2>&1",
        "Done: every unit serves on the target",
    ),
    (
        "bash -c '. /usr/share/bash-completion/completions/stagger && complete -p stagger'",
        "stagger",
    ),
    ("zcat -f /usr/share/man/man1/stagger-run.1*", "stagger"),
    (
        "ls /usr/share/zsh/vendor-completions /usr/share/fish/vendor_completions.d",
        "stagger",
    ),
    ("stagger config check 2>&1 || echo refused", "refused"),
];

/// Builds the root if it is missing; where it is.
fn root() -> Result<PathBuf> {
    let base = cache::dir()?.join("debian-roots");
    fs::create_dir_all(&base).with_context(|| format!("making {}", base.display()))?;
    let changes = digest(PACKAGES)?;
    let recipe = Recipe {
        what: "Debian",
        key: SUITE,
        suite: SUITE,
        packages: &PACKAGES,
        named_by: "systemd",
        finish: &with_pages,
        name: &|version| Ok(format!("{version}-{changes}")),
    };
    find_or_build(&base, &recipe, || {
        Ok(newest(&base, &changes)?.map(|(_, path)| path))
    })
}

/// What is installed later keeps its manual pages.
fn with_pages(builder: &Builder<'_>) -> Result<()> {
    builder.write("etc/dpkg/dpkg.cfg.d/stagger", "force-unsafe-io\n")
}

/// Installs that package in a Debian of its own, tries what is in it, and removes it.
pub fn try_package(deb: &Path) -> Result<()> {
    let deb = fs::canonicalize(deb).with_context(|| format!("there is no {}", deb.display()))?;
    let lower = root()?;
    let scratch = tempfile::tempdir_in(cache::dir()?).context("making a folder")?;
    let place = scratch.path().to_owned();
    for folder in ["upper", "work", "root"] {
        fs::create_dir(place.join(folder)).with_context(|| format!("making {folder}"))?;
    }
    let mut sandbox = Sandbox::start_with(&place, &[], Network::Own, Folder::Stays)?;
    let merged = place.join("root");
    let layers = format!(
        "lowerdir={},upperdir={},workdir={}",
        lower.display(),
        place.join("upper").display(),
        place.join("work").display()
    );
    run(sandbox
        .command("mount")
        .args(["-t", "overlay", "overlay", "-o", &layers])
        .arg(&merged))?;
    run(sandbox
        .command("mount")
        .args(["-t", "proc", "proc"])
        .arg(merged.join("proc")))?;
    run(sandbox.command("cp").arg(deb).arg(merged.join("stagger.deb")))?;
    let inside = |program: &str, words: &[&str]| -> Command {
        let mut command = sandbox.command_in(&merged, program);
        command
            .args(words)
            .env("LC_ALL", "C")
            .env("HOME", "/root")
            .env_remove("TMPDIR");
        command
    };
    run(&mut inside("dpkg", &["--install", "/stagger.deb"]))?;
    for (asked, word) in ASKED {
        let said = run(&mut inside("sh", &["-c", asked]))?;
        ensure!(
            said.contains(word),
            "`{asked}` does not say {word:?}, but:\n{said}"
        );
        say(format!("package: `{asked}`"));
    }
    let units = UNITS.map(|unit| format!("/usr/lib/systemd/system/{unit}"));
    for unit in &units {
        let said = run(&mut inside(
            "sh",
            &["-c", &format!("systemd-analyze --man=no verify {unit} 2>&1")],
        ))?;
        ensure!(!said.contains("stagger"), "{unit}: {said}");
        say(format!("package: systemd takes {unit}"));
    }
    run(&mut inside("dpkg", &["--purge", "stagger"]))?;
    let left = run(&mut inside(
        "sh",
        &[
            "-c",
            "find / -xdev -name '*stagger*' -not -path '/tmp/*' -not -path '/proc/*' -not -name stagger.deb",
        ],
    ))?;
    let left: Vec<&str> = left
        .lines()
        .filter(|line| !line.starts_with("/etc/dpkg/"))
        .collect();
    ensure!(left.is_empty(), "after its removal there are {}", left.join(" "));
    say("package: removed, and nothing is left");
    sandbox.stop()
}
