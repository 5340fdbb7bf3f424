//! `bench ceph`: planning on large maps, beside Ceph's own tools and Rook's walk, in one run.
//!
//! Maps are made with `crushtool` and `osdmaptool`, and written as the answers that `ceph … -f json`
//! would print; the program that users run reads and plans them. Figures are ratios against the named
//! peer on the same input in the same run; seconds alone say little on a shared machine.

mod answers;
pub(crate) mod cephadm;
pub(crate) mod child;
pub(crate) mod ganeti;
pub(crate) mod ironic;
pub(crate) mod kubernetes;
pub(crate) mod maps;
mod peers;
pub(crate) mod versioned;

use std::fmt::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use serde::Deserialize;
use serde_json::Value;

use crate::report::{cargo, root, say, target_folder};
use crate::test::must_be_root;
use maps::{Map, Mapper, Shape};
use peers::Rounds;

/// How a program ran.
#[derive(Debug)]
struct Measured {
    took: Duration,
    /// The most memory that it held, in MB.
    memory: u64,
    out: String,
}

/// What came of one map.
#[derive(Debug)]
struct Row {
    shape: Shape,
    groups: u32,
    mapping: f64,
    first: Planned,
    improved: Planned,
    rounds: Rounds,
    oracle: Measured,
    dump_mb: u64,
    loaded: Loaded,
}

/// What takes place in a process that has read its map, in milliseconds.
#[derive(Debug, Deserialize)]
struct Loaded {
    #[serde(rename = "ok_to_stop_ms")]
    ok_to_stop: f64,
    #[serde(rename = "first_plan_ms")]
    first_plan: f64,
    #[serde(rename = "plan_again_ms")]
    plan_again: f64,
}

/// Maps whose copies are in distinct racks: OSDs, OSDs on a host, hosts in a rack. Few large racks, and many small ones.
const RACKS: [(u32, u32, u32); 3] = [(720, 12, 2), (1_000, 20, 5), (4_000, 20, 10)];

/// What came of a map of racks.
#[derive(Debug)]
struct RackRow {
    shape: Shape,
    groups: u32,
    first: u64,
    improved: Planned,
    rounds: Rounds,
}

/// A plan as `stagger plan` printed it.
#[derive(Debug)]
struct Planned {
    ran: Measured,
    /// Of the OSDs.
    waves: u64,
    at_least: u64,
}

/// Whether a goal is reached.
fn goal(reached: bool) -> &'static str {
    if reached { "yes" } else { "**no**" }
}

/// Runs the bench on maps of these many OSDs and writes `docs/bench.md`.
pub(crate) fn bench(sizes: &[u32]) -> Result<()> {
    must_be_root()?;
    say("building the release binary");
    if !cargo(&["build", "--release", "--quiet", "--package", "stagger-cli"])
        .status()?
        .success()
    {
        bail!("stagger does not build");
    }
    let ceph = maps::root_of_ceph()?;
    let made = |shape: Shape| {
        say(&format!(
            "{} OSDs in {} domains: making the map",
            shape.osds,
            shape.domains()
        ));
        let (map, mapper) = Map::make(&ceph, shape)?;
        let folder = tempfile::tempdir().context("make a folder for the answers")?;
        answers::write(&map, folder.path())?;
        anyhow::Ok((map, mapper, folder))
    };
    let mut rows = Vec::new();
    for osds in sizes {
        let (map, mapper, folder) = made(Shape::of_hosts(*osds))?;
        rows.push(one(&map, &mapper, folder.path())?);
    }
    let mut racks = Vec::new();
    for (osds, host, rack) in RACKS {
        let (map, _, folder) = made(Shape::of_racks(osds, host, rack))?;
        racks.push(of_racks(&map, folder.path())?);
    }
    let page = format!("{}{}", page(&rows), page_of_racks(&racks));
    std::fs::create_dir_all(root().join("docs")).context("make docs/")?;
    std::fs::write(root().join("docs/bench.md"), &page).context("write docs/bench.md")?;
    say(&page);
    Ok(())
}

/// Plans the upgrade of a map without limits on the size of a wave.
fn planned(folder: &Path, improve: &str) -> Result<Planned> {
    let from = folder.to_string_lossy();
    let words = [
        "plan",
        "upgrade",
        "--to",
        "20.2.4",
        "--from",
        &from,
        "--max-in-parallel",
        "100%",
        "--no-growth",
    ];
    let ran = measured(&words, &["--improve", improve, "--json"])?;
    let plan: Value = serde_json::from_str(&ran.out).context("read the plan")?;
    let parts = plan["parts"].as_array().context("a plan has parts")?;
    let osd = parts
        .iter()
        .filter_map(|part| part.get("stage"))
        .find(|stage| stage["name"] == "osd")
        .context("the plan has no OSDs")?;
    Ok(Planned {
        waves: osd["waves"].as_array().map_or(0, Vec::len) as u64,
        at_least: osd["at_least"].as_u64().unwrap_or(0),
        ran,
    })
}

fn of_racks(map: &Map, folder: &Path) -> Result<RackRow> {
    Ok(RackRow {
        shape: map.shape,
        groups: map.groups.len() as u32,
        first: planned(folder, "0s")?.waves,
        improved: planned(folder, "10s")?,
        rounds: peers::rounds(map),
    })
}

/// So often both programs are timed.
const TURNS: usize = 5;

/// `osdmaptool` and the first plan one after the other, some times: the median of the one's times, and the plan whose time
/// is the median of the other's. What disturbs the machine meets both.
fn in_turns(mapper: &Mapper, folder: &Path) -> Result<(Duration, Planned)> {
    let (mut mapped, mut plans) = (Vec::new(), Vec::new());
    for _ in 0..TURNS {
        mapped.push(mapper.time()?);
        plans.push(planned(folder, "0s")?);
    }
    mapped.sort_unstable();
    plans.sort_by_key(|plan| plan.ran.took);
    Ok((mapped[TURNS / 2], plans.swap_remove(TURNS / 2)))
}

fn one(map: &Map, mapper: &Mapper, folder: &Path) -> Result<Row> {
    let from = folder.to_string_lossy();
    say("   osdmaptool and the first plan, in turns");
    let (mapping, first) = in_turns(mapper, folder)?;
    say("   planning, 10 s of search");
    let improved = planned(folder, "10s")?;
    say("   Rook's walk and first fit");
    let rounds = peers::rounds(map);
    say("   once loaded");
    let loaded = cargo(&["bench", "--quiet", "--package", "stagger-ceph", "--bench"])
        .args(["once_loaded", "--", from.as_ref()])
        .output()
        .context("run the bench once_loaded")?;
    let loaded = serde_json::from_slice(&loaded.stdout).with_context(|| {
        let said = String::from_utf8_lossy(&loaded.stderr);
        format!("read what once_loaded measured; it said: {said}")
    })?;
    say("   one ok-to-stop, from a full dump");
    let dump = answers::full_dump(map, folder)?;
    let oracle = measured(&["ceph", "ok-to-stop", "0", "--from", &from], &["--json"])?;
    Ok(Row {
        shape: map.shape,
        groups: map.groups.len() as u32,
        mapping: mapping.as_secs_f64(),
        first,
        improved,
        rounds,
        oracle,
        dump_mb: dump >> 20,
        loaded,
    })
}

/// Runs the release binary to its end and watches its memory.
fn measured(words: &[&str], more: &[&str]) -> Result<Measured> {
    let begun = Instant::now();
    let mut child = Command::new(target_folder().join("release/stagger"))
        .args(words)
        .args(more)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .context("start stagger")?;
    let status = format!("/proc/{}/status", child.id());
    let reader = child.stdout.take().context("stagger has no output")?;
    let output = std::thread::spawn(move || std::io::read_to_string(reader));
    let mut memory = 0;
    let ended = loop {
        // The high-water mark is gone with the process: the last reading before its end stands.
        let text = std::fs::read_to_string(&status).unwrap_or_default();
        let mark = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kb = mark.and_then(|mark| mark.trim().trim_end_matches(" kB").parse::<u64>().ok());
        memory = memory.max(kb.unwrap_or(0) >> 10);
        if let Some(ended) = child.try_wait()? {
            break ended;
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    let took = begun.elapsed();
    let Ok(out) = output.join() else {
        bail!("the reader of stagger's output ended early")
    };
    if !matches!(ended.code(), Some(0 | 1)) {
        bail!("`stagger {}` ended with {ended}", words.join(" "));
    }
    Ok(Measured {
        took,
        memory,
        out: out?,
    })
}

fn page(rows: &[Row]) -> String {
    let mut text = String::from(
        "# Bench\n\nWritten by `cargo xtask bench ceph`; not by hand. Whole processes of the release binary: start, reading,\n\
         planning and printing included. Maps: three copies, `min_size` 2, 20 OSDs a host, 20 hosts a rack, the host as\n\
         failure domain, made with `crushtool` and `osdmaptool`. The peer of the time is `osdmaptool --test-map-pgs-dump`\n\
         on the same map in the same run, each five times in turns: medians. Rook's walk and first fit are counted on the\n\
         same placement groups, with no limit on the size of a set.\n\n",
    );
    text.push_str(
        "| OSDs | groups | waves, 10 s of search | first plan | at least | Rook's walk | first fit |\n|---|---|---|---|---|---|---|\n",
    );
    for row in rows {
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} | {} | {} |",
            row.shape.osds,
            row.groups,
            row.improved.waves,
            row.first.waves,
            row.improved.at_least,
            row.rounds.rook,
            row.rounds.first_fit
        );
    }
    text.push_str(
        "\n| OSDs | osdmaptool maps | first plan | ratio | peak MB | peak MB, 10 s of search | full dump, MB | one ok-to-stop from it |\n|---|---|---|---|---|---|---|---|\n",
    );
    for row in rows {
        let first = row.first.ran.took.as_secs_f64();
        let _ = writeln!(
            text,
            "| {} | {:.2} s | {first:.2} s | {:.2} | {} | {} | {} | {:.2} s, {} MB |",
            row.shape.osds,
            row.mapping,
            first / row.mapping,
            row.first.ran.memory,
            row.improved.ran.memory,
            row.dump_mb,
            row.oracle.took.as_secs_f64(),
            row.oracle.memory
        );
    }
    text.push_str(
        "\nIn a process that has read its map: the median of 5 times from the facts to the first plan, of as many to\n\
         the next one after a wave has passed, and of 1001 questions about four OSDs. The ratio is that of the first plan to\n\
         `osdmaptool`.\n\n\
         | OSDs | first plan | ratio | planning again | one ok-to-stop |\n|---|---|---|---|---|\n",
    );
    for row in rows {
        let Loaded {
            ok_to_stop,
            first_plan,
            plan_again,
        } = row.loaded;
        let _ = writeln!(
            text,
            "| {} | {first_plan:.0} ms | {:.3} | {plan_again:.0} ms | {ok_to_stop:.3} ms |",
            row.shape.osds,
            first_plan / 1000.0 / row.mapping
        );
    }
    text
}

fn page_of_racks(rows: &[RackRow]) -> String {
    let mut text = String::from(
        "\n## Racks as failure domain\n\nMaps made in the same way with `chooseleaf firstn 0 type rack`. Rack after rack takes as many waves \
         as there\nare racks. The time is that of the whole process with `--improve 10s`.\n\n\
         | OSDs | racks | groups | waves, 10 s of search | time | first plan | at least | Rook's walk | first fit |\n\
         |---|---|---|---|---|---|---|---|---|\n",
    );
    for row in rows {
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {:.1} s | {} | {} | {} | {} |",
            row.shape.osds,
            row.shape.domains(),
            row.groups,
            row.improved.waves,
            row.improved.ran.took.as_secs_f64(),
            row.first,
            row.improved.at_least,
            row.rounds.rook,
            row.rounds.first_fit
        );
    }
    text
}
