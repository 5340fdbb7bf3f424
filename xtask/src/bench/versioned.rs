//! What versions cost: sending and receiving beside `serde_json`, and rows brought up beside one `UPDATE` and beside
//! Ironic's own tool on a real MariaDB.

use std::fmt::Write as _;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};
use serde::Deserialize;

use super::goal;
use crate::postgres;
use crate::report::{built, cargo, root, say, workspace};
use crate::test::must_be_root;

/// How many rows are in one batch of ours.
const BATCH: &str = "20000";

/// Nanoseconds of one object.
#[derive(Debug, Deserialize)]
struct Cost {
    bytes: u64,
    encode_plain: f64,
    encode_free: f64,
    encode_down: f64,
    copy: f64,
    decode_plain: f64,
    decode_newest: f64,
    decode_up: f64,
}

#[derive(Debug, Deserialize)]
struct Costs {
    node: Cost,
    shared: Cost,
    port: Cost,
}

/// Seconds of so many rows in one database.
#[derive(Debug, Deserialize)]
struct Ours {
    database: String,
    version: String,
    rows: u64,
    batch: u64,
    single: f64,
    batches: f64,
    each_rows: u64,
    each: f64,
}

impl Ours {
    fn speed(&self) -> f64 {
        self.rows as f64 / self.batches
    }
}

/// What `ironic-rows` measured.
#[derive(Debug, Deserialize)]
struct Tool {
    release: String,
    database: String,
    rows: u64,
    seconds: u64,
    plain: u64,
    counted: u64,
    max_count: u64,
    single: f64,
    single_rows: u64,
}

impl Tool {
    fn speed(&self, rows: u64) -> f64 {
        rows as f64 / self.seconds as f64
    }
}

/// Runs the bench on so many rows and writes `docs/bench-versioned.md`.
pub(crate) fn bench(rows: u64) -> Result<()> {
    must_be_root()?;
    say("building");
    let programs = ["--quiet", "--bin", "ironic-root", "--bin", "ironic-rows"];
    if !workspace("build", &programs).status()?.success() {
        bail!("the programs of e2e do not build");
    }
    say("sending and receiving");
    let costs: Costs = measured(&mut benched("cost"))?;
    say(&format!("{rows} rows in SQLite and PostgreSQL"));
    let mut command = benched("rows");
    command.args(["--", &rows.to_string(), BATCH]);
    postgres::told(&mut command)?;
    let ours: Vec<Ours> = measured(&mut command)?;
    say(&format!("{rows} rows of a real Ironic in MariaDB"));
    let tool: Tool = measured(built("ironic-rows").args(["--rows", &rows.to_string()]))?;
    let page = page(&costs, &ours, &tool);
    std::fs::write(root().join("docs/bench-versioned.md"), &page).context("write docs/bench-versioned.md")?;
    say(&page);
    Ok(())
}

fn benched(name: &str) -> Command {
    cargo(&[
        "bench",
        "--quiet",
        "--package",
        "stagger-versioned",
        "--features",
        "store",
        "--bench",
        name,
    ])
}

fn measured<T: serde::de::DeserializeOwned>(command: &mut Command) -> Result<T> {
    let ran = command
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("run {command:?}"))?;
    if !ran.status.success() {
        bail!("{command:?} ended with {}", ran.status);
    }
    serde_json::from_slice(&ran.stdout).with_context(|| format!("read what {command:?} measured"))
}

/// Of an object: how long something takes, and how long its peer.
type Of = fn(&Cost) -> (f64, f64);

/// What is measured of sending and receiving, with the goal for its ratio.
const MEASURED: [(&str, Of, Option<f64>); 7] = [
    ("encode, serde_json", |c| (c.encode_plain, c.encode_plain), None),
    ("encode, no pin", |c| (c.encode_free, c.encode_plain), Some(1.1)),
    (
        "encode, pinned one version down",
        |c| (c.encode_down, c.encode_plain),
        Some(2.0),
    ),
    (
        "the copy alone, made and dropped",
        |c| (c.copy, c.encode_plain),
        None,
    ),
    ("decode, serde_json", |c| (c.decode_plain, c.decode_plain), None),
    (
        "decode, the newest version",
        |c| (c.decode_newest, c.decode_plain),
        Some(1.1),
    ),
    ("decode, one version up", |c| (c.decode_up, c.decode_plain), None),
];

fn page(costs: &Costs, ours: &[Ours], tool: &Tool) -> String {
    let mut text = "# Bench of the library\n\n\
         Written by `cargo xtask bench versioned`; not by hand. All of it in one run on one machine.\n"
        .to_owned();
    sending(costs, &mut text);
    rows(ours, &mut text);
    beside(ours, tool, &mut text);
    text
}

fn sending(Costs { node, shared, port }: &Costs, text: &mut String) {
    let _ = write!(
        text,
        "\n## Sending and receiving\n\n\
         Beside plain `serde_json` on the same type: a node with three maps and a list, of {} bytes, which the goals are for,\n\
         and a port of {} bytes, of which the envelope is a good part. The shortest of 60 rounds, in turns, with the allocator\n\
         of `stagger` itself, jemalloc. One version down means a copy in that version, its JSON, and a way back to find what\n\
         would be lost. The node stands here twice: each version with maps and a list of its own, where a copy is of some seventy\n\
         texts; and with those behind an `Arc`, as [the guide](guides/versioned.md#what-it-costs) advises for what is large.\n\n\
         | | node, a copy of all | ratio | goal | reached | node, parts shared | ratio | reached | port | ratio |\n\
         |---|---|---|---|---|---|---|---|---|---|\n",
        node.bytes, port.bytes
    );
    for (what, of, aim) in MEASURED {
        let cell = |cost: &Cost| {
            let (took, plain) = of(cost);
            (
                format!("{:.2} µs | {:.2}", took / 1e3, took / plain),
                took / plain,
            )
        };
        let ((copied, all), (parts, some), (small, _)) = (cell(node), cell(shared), cell(port));
        let reached = |ratio: f64| aim.map_or("", |aim| goal(ratio <= aim));
        let aim = aim.map_or(String::new(), |aim| format!("at most {aim}"));
        let (all, some) = (reached(all), reached(some));
        let _ = writeln!(
            text,
            "| {what} | {copied} | {aim} | {all} | {parts} | {some} | {small} |"
        );
    }
}

fn rows(ours: &[Ours], text: &mut String) {
    text.push_str(
        "\n## Rows brought up\n\n\
         A field moves from one column to another, and the row gets its new version. The peer is the single `UPDATE` that does\n\
         so at once, on the same rows, while nobody can write any of them; a batch is a transaction of its own, and no row\n\
         is kept from others for longer than one takes. The shortest of 3 rounds. Databases have their usual settings, with their care for the disk.\n\
         Where SQL cannot say it, rows are read, converted by the code and saved one by one.\n\n\
         | database | rows | one `UPDATE` | in batches | a batch | speed | goal | reached | one by one, of a tenth |\n|---|---|---|---|---|---|---|---|---|\n",
    );
    for one in ours {
        let speed = one.single / one.batches;
        let _ = writeln!(
            text,
            "| {} {} | {} | {:.2} s | {:.2} s | {} rows, {:.0} ms | {speed:.2} | at least 0.5 | {} | {:.0} rows/s |",
            one.database,
            one.version,
            one.rows,
            one.single,
            one.batches,
            one.batch,
            one.batches * 1e3 / one.rows.div_ceil(one.batch) as f64,
            goal(speed >= 0.5),
            one.each_rows as f64 / one.each
        );
    }
}

fn beside(ours: &[Ours], tool: &Tool, text: &mut String) {
    let _ = write!(
        text,
        "\n## Beside Ironic's own tool\n\n\
         `ironic-dbsync online_data_migrations` of {}, for its first {} s on {} nodes that 26.1 wrote, in MariaDB ({}) without\n\
         anybody else at work. **The engines differ**: its rows are in MariaDB, whose log is written to the disk once a second, and\n\
         ours in SQLite and PostgreSQL. What the engine itself can do with them is the last row. Its rows are wider than ours, and it\n\
         changes their version only, where ours move a field as well. Called as its documentation says it goes on in batches of 50,\n\
         and counts all rows for each; with `--max-count` it ends after so many, and starts anew.\n\n\
         | | rows/s | ours in SQLite | ours in PostgreSQL | goal | reached |\n|---|---|---|---|---|---|\n",
        tool.release, tool.seconds, tool.rows, tool.database
    );
    let speed = |database: &str| {
        ours.iter()
            .find(|one| one.database == database)
            .map_or(0.0, Ours::speed)
    };
    let (sqlite, postgres) = (speed("SQLite"), speed("PostgreSQL"));
    let mut row = |what: &str, its: f64, aim: Option<f64>| {
        let ratio = |ours: f64| format!("{:.1} times", ours / its.max(f64::MIN_POSITIVE));
        let (words, reached) = aim.map_or((String::new(), ""), |aim| {
            (
                format!("at least {aim:.0} times"),
                goal(sqlite.min(postgres) >= aim * its),
            )
        });
        let _ = writeln!(
            text,
            "| {what} | {its:.0} | {} | {} | {words} | {reached} |",
            ratio(sqlite),
            ratio(postgres)
        );
    };
    row("as documented", tool.speed(tool.plain), Some(20.0));
    row(
        &format!("again and again with `--max-count {}`", tool.max_count),
        tool.speed(tool.counted),
        None,
    );
    row(
        &format!("one `UPDATE` of MariaDB, of {} rows", tool.single_rows),
        tool.single_rows as f64 / tool.single,
        None,
    );
}
