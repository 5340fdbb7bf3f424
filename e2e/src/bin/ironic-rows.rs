//! Measures how fast Ironic's own tool brings rows up, on so many nodes in MariaDB; the figures go to stdout as JSON.
//!
//! The rows are as a 26.1 wrote them, and the tool is that of 29.0, which changes nothing of them but the version. The
//! services are away meanwhile, so that nobody else asks the database.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use clap::Parser;
use serde::Serialize;
use stagger_e2e::command::say;
use stagger_e2e::ironic::{Cluster, DATABASE, IronicSpec, Release};

/// How fast `ironic-dbsync online_data_migrations` is.
#[derive(Debug, Parser)]
struct Args {
    /// How many nodes there are.
    #[arg(long, default_value_t = 1_000_000)]
    rows: u64,
    /// How long the tool is watched, in seconds.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
}

/// What was measured.
#[derive(Debug, Serialize)]
struct Figures {
    release: String,
    database: String,
    rows: u64,
    seconds: u64,
    /// Rows that it brought up when it was called as its documentation says.
    plain: u64,
    /// And when it was called again and again with `--max-count`.
    counted: u64,
    max_count: u64,
    /// How long one `UPDATE` of MariaDB takes for `single_rows`, in seconds.
    single: f64,
    single_rows: u64,
}

const OLD: Release = Release::Dalmatian;
const NEW: Release = Release::Epoxy;
const MAX_COUNT: u64 = 5000;

#[expect(clippy::print_stdout, reason = "figures are data")]
fn main() -> Result<()> {
    let Args { rows, seconds } = Args::parse();
    let cluster = Cluster::boot(IronicSpec {
        release: NEW,
        ..IronicSpec::default()
    })?;
    for service in cluster.spec().services() {
        cluster.service(service, "kill", &[])?;
    }
    say(format!("{rows} nodes as {OLD} writes them"));
    let insert = format!(
        "set sql_mode=''; insert into {DATABASE}.nodes (uuid, version, driver, power_state, provision_state, created_at) \
         select concat('00000000-0000-4000-8000-', lpad(hex(seq), 12, '0')), '{}', 'fake-hardware', 'power off', \
         'available', utc_timestamp() from {DATABASE}.seq_1_to_{rows}",
        OLD.node_version()
    );
    cluster.sql(&insert)?;
    ensure!(brought_up(&cluster)? == 0, "some have the new version already");
    let database = cluster.sql("select version()")?.concat();
    say(format!("{seconds} s of `ironic-dbsync online_data_migrations`"));
    let begun = Instant::now();
    let code = watched(&cluster, &[], Duration::from_secs(seconds))?;
    let took = begun.elapsed();
    if code == Some(0) {
        bail!("it came to its end within {} s: give more rows", took.as_secs());
    }
    ensure!(code.is_none(), "it ended with {code:?}");
    let plain = brought_up(&cluster)?;
    say(format!("{plain} rows; and now with `--max-count {MAX_COUNT}`"));
    let begun = Instant::now();
    let limit = Duration::from_secs(seconds);
    let words = ["--max-count".to_owned(), MAX_COUNT.to_string()];
    while let Some(left) = limit.checked_sub(begun.elapsed()) {
        match watched(&cluster, &words, left)? {
            // More to do, or out of time.
            Some(1) | None => {}
            Some(code) => bail!("it ended with {code}: give more rows"),
        }
    }
    let counted = brought_up(&cluster)? - plain;
    let single_rows = rows - plain - counted;
    say(format!(
        "{counted} rows; and one UPDATE of the other {single_rows}"
    ));
    let begun = Instant::now();
    cluster.sql(&format!(
        "update {DATABASE}.nodes set version = '{}' where version <> '{0}'",
        NEW.node_version()
    ))?;
    let figures = Figures {
        release: NEW.to_string(),
        database,
        rows,
        seconds,
        plain,
        counted,
        max_count: MAX_COUNT,
        single: begun.elapsed().as_secs_f64(),
        single_rows,
    };
    println!("{}", serde_json::to_string(&figures)?);
    cluster.stop(false)
}

/// How many nodes have the new version.
fn brought_up(cluster: &Cluster) -> Result<u64> {
    let versions = cluster.row_versions("nodes")?;
    Ok(versions
        .get(&Some(NEW.node_version().to_owned()))
        .copied()
        .unwrap_or(0))
}

/// Runs the tool, for so long at most. Its exit code, or none if it was ended.
fn watched(cluster: &Cluster, words: &[String], limit: Duration) -> Result<Option<i32>> {
    let mut command = cluster.command("timeout");
    command
        .arg(limit.as_secs_f64().max(0.01).to_string())
        .arg(cluster.dir().join("ironicctl.sh"))
        .args(["code", NEW.version(), "ironic-dbsync", "online_data_migrations"])
        .args(words);
    let ended = command.output().context("starting ironic-dbsync")?;
    match ended.status.code() {
        Some(124) => Ok(None),
        Some(code @ (0 | 1)) => Ok(Some(code)),
        _ => bail!(
            "`ironic-dbsync online_data_migrations` ended with {}: {}{}",
            ended.status,
            String::from_utf8_lossy(&ended.stdout),
            String::from_utf8_lossy(&ended.stderr)
        ),
    }
}
