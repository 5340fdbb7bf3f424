//! `bench ganeti`: reboot groups of large clusters, beside Ganeti's own hroller on the same file.
//!
//! Times are seconds of processor, since others work on the machine too. hroller takes minutes on some of these
//! clusters: what it said and took is kept in the cache, under a digest of its version, its options and its input.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use sha2::{Digest as _, Sha256};

use super::child::Child;
use crate::report::{cache, cargo, root, say, target_folder};
use crate::test::must_be_root;

const PAGE: &str = "docs/bench-ganeti.md";
/// A long search. The goals allow ten seconds for it.
const SEARCH: &str = "1000000";

/// One cluster, and what both are asked about it.
#[derive(Debug, Clone, Copy)]
struct Input {
    nodes: u32,
    /// As the example `generate` takes it.
    layout: &'static str,
    groups: &'static str,
    templates: &'static str,
    /// Options that both have.
    flags: &'static [&'static str],
    /// About how many seconds hroller takes. It would take hours for the largest, and is not asked.
    peer: Option<u32>,
    /// Whether a long search is measured too.
    search: bool,
}

const RANDOM: Input = Input {
    nodes: 1_000,
    layout: "random",
    groups: "1",
    templates: "mirrored",
    flags: &[],
    peer: Some(263),
    search: false,
};

/// The one of which the goals speak.
const GOAL: Input = Input {
    search: true,
    ..RANDOM
};
/// The largest.
const LARGE: Input = Input {
    nodes: 10_000,
    peer: None,
    search: true,
    ..RANDOM
};

const INPUTS: [Input; 11] = [
    Input {
        nodes: 100,
        peer: Some(1),
        ..RANDOM
    },
    Input {
        nodes: 300,
        peer: Some(7),
        ..RANDOM
    },
    GOAL,
    Input {
        flags: &["--offline-maintenance"],
        peer: Some(2),
        ..RANDOM
    },
    Input {
        layout: "ring",
        peer: Some(6),
        ..RANDOM
    },
    Input {
        layout: "pairs",
        peer: Some(6),
        ..RANDOM
    },
    Input {
        layout: "cells:10",
        peer: Some(27),
        ..RANDOM
    },
    Input {
        groups: "20",
        peer: Some(48),
        ..RANDOM
    },
    Input {
        templates: "movable",
        peer: Some(14),
        ..RANDOM
    },
    Input {
        nodes: 2_000,
        flags: &["--offline-maintenance"],
        peer: Some(9),
        ..RANDOM
    },
    LARGE,
];

/// What came of one input.
#[derive(Debug)]
struct Row {
    input: Input,
    theirs: Option<Child>,
    ours: Child,
    first: Child,
    searched: Option<Child>,
    capacity: Child,
}

/// Groups are lines.
fn groups(child: &Child) -> usize {
    child.out.lines().filter(|line| !line.is_empty()).count()
}

/// Runs the bench and writes its page. Runs of hroller that take more than so many seconds are left out, unless what
/// came of them is kept.
pub(crate) fn bench(patience: u32) -> Result<()> {
    must_be_root()?;
    say("building");
    for (package, what) in [("stagger-ganeti", "--examples"), ("stagger-cli", "--bins")] {
        let words = ["build", "--release", "--quiet", "--package", package, what];
        if !cargo(&words).status()?.success() {
            bail!("{package} does not build");
        }
    }
    let ganeti = root_of_ganeti()?;
    let mut rows = Vec::new();
    for input in INPUTS {
        say(&format!(
            "{} nodes, {}, {} groups, {} {}",
            input.nodes,
            input.layout,
            input.groups,
            input.templates,
            input.flags.join(" ")
        ));
        rows.push(one(input, &ganeti, patience)?);
    }
    say("other seeds");
    let seeds = seeds()?;
    say("stagger itself");
    let itself = itself()?;
    say("to the letter");
    let page = page(&rows, &seeds, &itself, &to_the_letter()?);
    std::fs::write(root().join(PAGE), &page).with_context(|| format!("write {PAGE}"))?;
    say(&page);
    Ok(())
}

/// The cluster of a seed, as a text.
fn generated(input: &Input, seed: u32) -> Result<String> {
    let generate = target_folder().join("release/examples/generate");
    let generate = generate.to_string_lossy();
    let (nodes, seed) = (input.nodes.to_string(), seed.to_string());
    let words = [
        &*generate,
        nodes.as_str(),
        input.layout,
        input.groups,
        input.templates,
        seed.as_str(),
    ];
    Ok(Child::run(&words)?.out)
}

/// How many groups the cluster of the goals has with other seeds, by default and after a long search.
fn seeds() -> Result<Vec<(usize, usize)>> {
    let file = tempfile::NamedTempFile::new().context("make a file for a cluster")?;
    let program = target_folder().join("release/examples/hroller");
    let (program, path) = (program.to_string_lossy(), file.path().to_string_lossy());
    let of = |seed: u32| -> Result<(usize, usize)> {
        std::fs::write(file.path(), generated(&GOAL, seed)?).context("write the cluster")?;
        let usual = Child::run(&[&*program, &*path])?;
        let long = Child::run(&[&*program, &*path, "--steps", SEARCH])?;
        Ok((groups(&usual), groups(&long)))
    };
    (1..=6).map(of).collect()
}

/// What the command itself takes for the largest cluster: with the times without barriers, and a document of every move.
#[derive(Debug)]
struct Itself {
    plan: Child,
    check: Child,
    /// The size of the document, in bytes.
    document: u64,
}

fn itself() -> Result<Itself> {
    let work = tempfile::tempdir().context("make a folder for a plan")?;
    let (file, kept) = (work.path().join("data"), work.path().join("plan.json"));
    std::fs::write(&file, generated(&LARGE, 1)?).context("write the cluster")?;
    let program = target_folder().join("release/stagger");
    let (program, file, out) = (
        program.to_string_lossy(),
        file.to_string_lossy(),
        kept.to_string_lossy(),
    );
    let goal = ["reboot", "--max-in-parallel", "100%", "--no-growth"];
    let from = ["--from", &*file];
    let run = |words: &[&[&str]]| Child::run(&[&[&[&*program][..]], words].concat().concat());
    Ok(Itself {
        plan: run(&[&["plan"], &goal, &from, &["--out", &*out]])?,
        check: run(&[&["check", &*out], &from, &goal])?,
        document: std::fs::metadata(&kept).context("look at the plan")?.len(),
    })
}

/// The tests that count answers under hroller's name.
const LETTER: [&str; 2] = [
    "ganetis_own_shell_tests_pass",
    "strict_answers_are_those_of_hroller_byte_for_byte",
];

/// What they count, a line for each release and test.
fn to_the_letter() -> Result<Vec<String>> {
    let mut words = vec![
        "test",
        "--package",
        "stagger-e2e",
        "--test",
        "ganeti_differential",
        "--",
    ];
    words.extend(["--ignored", "--nocapture", "--exact"]);
    words.extend(LETTER);
    let out = cargo(&words)
        .output()
        .context("run the tests of hroller's answers")?;
    let said = [
        String::from_utf8_lossy(&out.stdout),
        String::from_utf8_lossy(&out.stderr),
    ]
    .concat();
    if !out.status.success() {
        bail!("hroller's answers are not ours:\n{said}");
    }
    let counts = said
        .lines()
        .filter_map(|line| Some(line[line.find("Ganeti 3.")?..].to_owned()));
    Ok(counts
        .filter(|line| line.contains(" shell tests ") || line.contains(" clusters, "))
        .collect())
}

fn one(input: Input, ganeti: &Root, patience: u32) -> Result<Row> {
    let work = tempfile::Builder::new()
        .prefix("stagger-bench-")
        .tempdir_in(ganeti.path.join("tmp"))
        .context("make a folder in the root of Ganeti")?;
    let file = work.path().join("data");
    let text = generated(&input, 1)?;
    std::fs::write(&file, &text).context("write the cluster")?;
    let ours = |more: &[&str]| -> Result<Child> {
        let program = target_folder().join("release/examples/hroller");
        let (program, file) = (program.to_string_lossy(), file.to_string_lossy());
        let mut words = vec![&*program, &*file];
        words.extend(input.flags);
        words.extend(more);
        Child::run(&words)
    };
    say("   ours");
    let row = Row {
        input,
        theirs: None,
        first: ours(&["--steps", "0"])?,
        ours: ours(&[])?,
        searched: input.search.then(|| ours(&["--steps", SEARCH])).transpose()?,
        capacity: ours(&["--capacity"])?,
    };
    let Some(seconds) = input.peer else {
        return Ok(row);
    };
    say("   hroller");
    let inside = Path::new("/tmp").join(work.path().file_name().context("a folder has a name")?);
    let theirs = hroller(
        ganeti,
        &inside.join("data"),
        &text,
        input.flags,
        seconds <= patience,
    )?;
    Ok(Row { theirs, ..row })
}

/// A root with Ganeti in the cache.
#[derive(Debug)]
struct Root {
    path: PathBuf,
    /// Its exact version, and what was patched.
    version: String,
}

fn root_of_ganeti() -> Result<Root> {
    let roots = cache()?.join("ganeti-roots");
    let missing = || {
        format!(
            "there is no root of Ganeti in {}: run `cargo xtask test` once",
            roots.display()
        )
    };
    let path = std::fs::read_dir(&roots)
        .with_context(missing)?
        .filter_map(Result::ok)
        .map(|entry| entry.path())
        // hroller plans the same in 3.1, and numbers are kept for this one.
        .filter(|path| {
            path.file_name()
                .is_some_and(|name| name.to_string_lossy().starts_with("3.0."))
        })
        .find(|path| path.join("versions.json").is_file())
        .with_context(missing)?;
    let version = path
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    Ok(Root { path, version })
}

/// Finds what came of hroller before, or runs it if it may.
fn hroller(ganeti: &Root, file: &Path, text: &str, flags: &[&str], may_run: bool) -> Result<Option<Child>> {
    let mut digest = Sha256::new();
    for part in [ganeti.version.as_str(), &flags.join(" "), text] {
        digest.update(part);
        digest.update([0]);
    }
    let mut name = String::from("hroller-");
    for byte in digest.finalize().iter().take(12) {
        write!(name, "{byte:02x}")?;
    }
    let kept = cache()?.join("bench");
    let path = kept.join(name + ".json");
    if path.exists() {
        let text = std::fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
        return serde_json::from_str(&text)
            .map(Some)
            .with_context(|| format!("{} is not what a run comes to; remove it", path.display()));
    }
    if !may_run {
        return Ok(None);
    }
    let (root, file) = (ganeti.path.to_string_lossy(), file.to_string_lossy());
    let mut words = vec!["chroot", &*root, "hroller", "-q", "--no-headers", "-t", &*file];
    words.extend(flags);
    let child = Child::run(&words)?;
    std::fs::create_dir_all(&kept).with_context(|| format!("make {}", kept.display()))?;
    // Whole or not at all, however this ends.
    let part = path.with_extension("part");
    std::fs::write(&part, serde_json::to_vec(&child)?)
        .with_context(|| format!("write {}", part.display()))?;
    std::fs::rename(&part, &path).with_context(|| format!("make {}", path.display()))?;
    Ok(Some(child))
}

fn mb(child: &Child) -> u64 {
    child.peak_kb.div_ceil(1024)
}

fn page(rows: &[Row], seeds: &[(usize, usize)], itself: &Itself, letter: &[String]) -> String {
    let mut text = String::from(
        "# Bench on Ganeti\n\n\
         Written by `cargo xtask bench ganeti`; not by hand. Ganeti's own hroller and ours on the same file with the same options,\n\
         whole processes: start, reading, planning, our judge, printing. Ours is the library of `stagger hroller` in a small\n\
         program (`crates/backends/ganeti/examples/hroller.rs`). Clusters are generated: nodes of 128 GiB with ten instances of\n\
         0.5 to 4 GiB each. Mirrored ones are DRBD, whose secondaries are on any node, on one of the next three (ring), on the\n\
         other of two (pairs), or in cells of ten; movable ones are half DRBD, half on shared storage. Times are seconds of\n\
         processor, memory is the most that was held; hroller ran once for each file on this machine.\n\n",
    );
    text.push_str(&goals(rows));
    text.push_str(
        "\nOurs by default, with hroller's rules; `capacity` is `--shared-secondary capacity`, where nodes may share a secondary\n\
         that has room for both.\n\n\
         | nodes | groups | instances | options | hroller | ours | capacity | hroller s | ours s | ratio | hroller MB | ours MB |\n\
         |---|---|---|---|---|---|---|---|---|---|---|---|\n",
    );
    for row in rows {
        let Input {
            nodes,
            layout,
            groups: node_groups,
            templates,
            flags,
            ..
        } = row.input;
        let (count, cpu, ratio, memory) = match &row.theirs {
            Some(theirs) => (
                groups(theirs).to_string(),
                format!("{:.2}", theirs.cpu),
                format!("{:.0}", theirs.cpu / row.ours.cpu.max(0.001)),
                mb(theirs).to_string(),
            ),
            None => ("not run".to_owned(), String::new(), String::new(), String::new()),
        };
        let _ = writeln!(
            text,
            "| {nodes} | {node_groups} | {templates}, {layout} | {} | {count} | {} | {} | {cpu} | {:.2} | {ratio} | {memory} | {} |",
            flags.join(" "),
            groups(&row.ours),
            groups(&row.capacity),
            row.ours.cpu,
            mb(&row.ours)
        );
    }
    text.push_str(
        "\n| nodes | first plan | s | MB | by default | s | MB | a million steps | s | MB |\n|---|---|---|---|---|---|---|---|---|---|\n",
    );
    for row in rows {
        let Some(searched) = &row.searched else { continue };
        let _ = write!(text, "| {} |", row.input.nodes);
        for child in [&row.first, &row.ours, searched] {
            let _ = write!(text, " {} | {:.2} | {} |", groups(child), child.cpu, mb(child));
        }
        text.push('\n');
    }
    let list = |of: fn(&(usize, usize)) -> usize| {
        let counts: Vec<String> = seeds.iter().map(|seed| of(seed).to_string()).collect();
        counts.join(", ")
    };
    let _ = writeln!(
        text,
        "\nSix clusters of the kind that the first goals are about, of which that above is the first: {} groups by default, {}\n\
         after a million steps.",
        list(|(usual, _)| *usual),
        list(|(_, long)| *long)
    );
    let summary = itself
        .plan
        .out
        .lines()
        .find(|line| line.contains(" waves, at least "));
    let _ = writeln!(
        text,
        "\nThe command itself, on {} nodes: `stagger plan reboot --max-in-parallel 100% --no-growth --out FILE`, with capacity,\n\
         N+1 kept, the times without barriers, and a document of every move ({:.1} MB), and `stagger check FILE` with the same.\n\n\
         | | s | MB | |\n|---|---|---|---|\n| `plan` | {:.2} | {} | {} |\n| `check` | {:.2} | {} | {} |",
        LARGE.nodes,
        itself.document as f64 / 1e6,
        itself.plan.cpu,
        mb(&itself.plan),
        summary.unwrap_or_default(),
        itself.check.cpu,
        mb(&itself.check),
        itself.check.out.trim_end()
    );
    text.push_str(
        "\nUnder hroller's name, beside the real one: the shell tests of Ganeti's own, and random mixed and tight clusters of which every\n\
         byte of both answers is the same.\n\n",
    );
    for line in letter {
        let _ = writeln!(text, "- {line}");
    }
    text
}

/// What was to be reached, and whether it is.
fn goals(rows: &[Row]) -> String {
    let mut text = String::from("| | goal | measured | reached |\n|---|---|---|---|\n");
    let mut goal = |what: &str, aim: &str, measured: String, reached: bool| {
        let reached = if reached { "yes" } else { "**no**" };
        let _ = writeln!(text, "| {what} | {aim} | {measured} | {reached} |");
    };
    let same = |row: &&Row, input: &Input| {
        (
            row.input.nodes,
            row.input.layout,
            row.input.templates,
            row.input.groups,
        ) == (input.nodes, input.layout, input.templates, input.groups)
            && row.input.flags == input.flags
    };
    if let Some(row) = rows.iter().find(|row| same(row, &GOAL)) {
        let (measured, ratio) = match &row.theirs {
            Some(theirs) => {
                let ratio = theirs.cpu / row.ours.cpu.max(0.001);
                (
                    format!("{ratio:.0} times: {:.2} s and {:.2} s", row.ours.cpu, theirs.cpu),
                    ratio,
                )
            }
            None => (format!("{:.2} s; hroller was not run", row.ours.cpu), 0.0),
        };
        goal(
            "1,000 nodes, 10,000 instances: faster than hroller",
            "at least 1,000 times",
            measured,
            ratio >= 1000.0,
        );
        goal(
            "groups of the same plan",
            "at most 27",
            groups(&row.ours).to_string(),
            groups(&row.ours) <= 27,
        );
        goal(
            "groups with capacity instead of shared secondaries",
            "at most 8",
            groups(&row.capacity).to_string(),
            groups(&row.capacity) <= 8,
        );
    }
    if let Some(row) = rows.iter().find(|row| same(row, &LARGE)) {
        goal(
            "10,000 nodes, 100,000 instances: the first plan",
            "under 3 s and 500 MB",
            format!("{:.2} s, {} MB", row.first.cpu, mb(&row.first)),
            row.first.cpu < 3.0 && mb(&row.first) < 500,
        );
        if let Some(searched) = &row.searched {
            goal(
                "groups within 10 s",
                "at most 29",
                format!(
                    "{} after {:.2} s, {} after {:.2} s",
                    groups(&row.ours),
                    row.ours.cpu,
                    groups(searched),
                    searched.cpu
                ),
                [&row.ours, searched]
                    .iter()
                    .any(|child| groups(child) <= 29 && child.cpu < 10.0),
            );
        }
    }
    let worst = rows
        .iter()
        .filter(|row| row.input.nodes >= 1_000)
        .filter_map(|row| Some(row.ours.peak_kb as f64 / row.theirs.as_ref()?.peak_kb.max(1) as f64))
        .fold(0.0, f64::max);
    goal(
        "memory from 1,000 nodes up, beside hroller's",
        "at most half",
        format!("{worst:.2} at most"),
        worst <= 0.5,
    );
    text
}
