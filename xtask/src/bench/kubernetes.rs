//! The operator on 1,000 OSD Deployments: a real API server, a Ceph that is only played (`e2e/src/fake_ceph.rs`).

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};
use serde::Deserialize;

use super::maps::{self, Map};
use super::{answers, goal, peers};
use crate::report::{cargo, root, say, target_folder};
use crate::test::must_be_root;

/// What `rook-bench` measured.
#[derive(Debug, Deserialize)]
struct Figures {
    osds: u32,
    hosts: u32,
    quiet_usual: u32,
    quiet_others: BTreeMap<String, u32>,
    quiet_kb: u64,
    evictions: Evictions,
    blocked_ms: Vec<u64>,
    drained_kb: u64,
    waves: u32,
    smallest: u32,
    largest: u32,
    large_waves: u32,
    large_osds: u32,
    large_requests: BTreeMap<String, u32>,
    took_s: u64,
    cpu_s: u64,
    peak_kb: u64,
    pod_kb: u64,
    most_down: u32,
}

/// What it measured of questions whether a pod may be evicted.
#[derive(Debug, Deserialize)]
struct Evictions {
    asked_us: Vec<u64>,
    alone_us: Vec<u64>,
    webhook_within_ms: BTreeMap<u64, u64>,
}

impl Evictions {
    /// How soon the webhook answered, in words.
    fn of_the_webhook(&self) -> String {
        let within = self.webhook_within_ms.range(5..=500);
        let within: Vec<String> = within
            .map(|(limit, count)| format!("{count} within {limit} ms"))
            .collect();
        format!("of {}: {}", self.asked_us.len(), within.join(", "))
    }

    /// Whether 99 of a hundred answers came within 50 ms.
    fn is_soon(&self) -> bool {
        let soon = self.webhook_within_ms.range(..=50).next_back();
        soon.is_some_and(|(_, count)| count * 100 >= self.asked_us.len() as u64 * 99)
    }
}

/// The value, in milliseconds, below which so many of a hundred lie.
fn ms(microseconds: &[u64], percent: usize) -> f64 {
    percentile(microseconds, percent) as f64 / 1000.0
}

/// The value below which so many of a hundred lie.
fn percentile(values: &[u64], percent: usize) -> u64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    let last = sorted.len().saturating_sub(1);
    sorted
        .get((sorted.len() * percent / 100).min(last))
        .copied()
        .unwrap_or(u64::MAX)
}

/// Runs the bench on a cluster of so many OSDs and writes `docs/bench-kubernetes.md`.
pub(crate) fn bench(osds: u32) -> Result<()> {
    must_be_root()?;
    say("building what is installed, and the bench");
    for (profile, package) in [("dist", "stagger-cli"), ("release", "stagger-e2e")] {
        let words = ["build", "--profile", profile, "--quiet", "--package", package];
        if !cargo(&words).status()?.success() {
            bail!("{package} does not build");
        }
    }
    say(&format!("{osds} OSDs: making the map"));
    let (map, _) = Map::make(&maps::root_of_ceph()?, maps::Shape::of_hosts(osds))?;
    let folder = tempfile::tempdir().context("make a folder for the answers")?;
    answers::write(&map, folder.path())?;
    let walk = peers::rounds(&map).rook;
    let ran = Command::new(target_folder().join("release/rook-bench"))
        .arg("measure")
        .arg("--answers")
        .arg(folder.path())
        .arg("--stagger")
        .arg(target_folder().join("dist/stagger"))
        .stderr(Stdio::inherit())
        .output()
        .context("start rook-bench")?;
    if !ran.status.success() {
        bail!("rook-bench ended with {}", ran.status);
    }
    let figures: Figures = serde_json::from_slice(&ran.stdout).context("read what rook-bench measured")?;
    let page = page(&figures, walk);
    std::fs::write(root().join("docs/bench-kubernetes.md"), &page)
        .context("write docs/bench-kubernetes.md")?;
    say(&page);
    Ok(())
}

fn page(figures: &Figures, walk: u32) -> String {
    let others: u32 = figures.quiet_others.values().sum();
    let asked: u32 = figures.large_requests.values().sum();
    let each = f64::from(asked) / f64::from(figures.large_osds.max(1));
    let mut blocked = figures.blocked_ms.clone();
    blocked.sort_unstable();
    let middle = blocked.get(blocked.len() / 2).copied().unwrap_or(u64::MAX);
    let most = blocked.last().copied().unwrap_or(u64::MAX);
    let mb = |kb: u64| kb as f64 / 1024.0;
    let mut text = format!(
        "# Bench on Kubernetes\n\n\
         Written by `cargo xtask bench kubernetes`; not by hand. The operator as it is installed, alone, with the rights of\n\
         its manifest, on a real control plane of one machine: {} OSDs on {} hosts, three monitors and two managers, each a\n\
         Deployment with Rook's labels and about Rook's size. Pods have no processes, and Ceph is only played: it answers from\n\
         the map of [the other bench](bench.md), by a `python3` that has Ceph's own module in memory, and an OSD is up while its pod is\n\
         ready. So times are the operator's and the\n\
         control plane's, not those of real OSDs. Requests are those that the API server wrote down in its audit log.\n\n\
         | | goal | measured | reached |\n|---|---|---|---|\n",
        figures.osds, figures.hosts
    );
    let mut row = |what: &str, aim: &str, measured: String, reached: bool| {
        let _ = writeln!(text, "| {what} | {aim} | {measured} | {} |", goal(reached));
    };
    row(
        "requests of a quiet minute, beyond watches and the Lease",
        "0",
        format!("{others}; and {} of watches and the Lease", figures.quiet_usual),
        others == 0,
    );
    row(
        "requests for each OSD, in waves of at least 8",
        "at most 3",
        format!(
            "{each:.2}, in {} waves of {} OSDs",
            figures.large_waves, figures.large_osds
        ),
        each <= 3.0,
    );
    row(
        "the most memory of the operator",
        "under 64 MB",
        format!(
            "{:.0} MB; {:.0} MB until the first drain, {:.0} MB until the revision",
            mb(figures.peak_kb),
            mb(figures.quiet_kb),
            mb(figures.drained_kb)
        ),
        figures.peak_kb < 64 * 1024,
    );
    row(
        "the most memory of its pod: with each `python3` that holds a connection to Ceph",
        "under 128 MB",
        format!("{:.0} MB", mb(figures.pod_kb)),
        figures.pod_kb < 128 * 1024,
    );
    row(
        "from an eviction until all other hosts are blocked",
        "under 1 s at the median",
        format!("{middle} ms, at most {most} ms, of {}", blocked.len()),
        middle < 1000,
    );
    let evictions = &figures.evictions;
    row(
        "from the API server's question whether an OSD may be evicted to the webhook's answer, 8 at once",
        "p99 under 50 ms",
        evictions.of_the_webhook(),
        evictions.is_soon(),
    );
    row(
        "waves of a revision of all OSDs, beside Rook's walk",
        "fewer",
        format!("{}, Rook's walk: {walk}", figures.waves),
        figures.waves < walk,
    );
    let _ = write!(
        text,
        "\nThe waves had {} to {} OSDs; at most {} were down at once, and no placement group was ever without `min_size`.\n\
         Rook's walk is counted on the same map without a limit on a batch; its default is 20 OSDs. The revision of all\n\
         daemons took {} s, most of which is for gates to hold; the operator took {} s of processor until its end.\n\n\
         Whoever asks for an eviction, 8 at once, has the API server's answer after {:.1} ms at the median, p99 {:.1} ms; without the\n\
         webhook, in the same run, after {:.1} ms, p99 {:.1} ms.\n\n\
         The requests of those waves:\n\n| request | number | for each OSD |\n|---|---|---|\n",
        figures.smallest,
        figures.largest,
        figures.most_down,
        figures.took_s,
        figures.cpu_s,
        ms(&evictions.asked_us, 50),
        ms(&evictions.asked_us, 99),
        ms(&evictions.alone_us, 50),
        ms(&evictions.alone_us, 99)
    );
    for (what, count) in &figures.large_requests {
        let each = f64::from(*count) / f64::from(figures.large_osds.max(1));
        let _ = writeln!(text, "| `{what}` | {count} | {each:.2} |");
    }
    text
}
