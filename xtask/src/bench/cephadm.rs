//! `bench cephadm`: the same cluster, load and images, updated by cephadm's own upgrade and by stagger.

use std::fmt::Write as _;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};
use serde::Deserialize;

use crate::report::{cargo, root, say, target_folder};
use crate::test::must_be_root;

/// What `cephadm-bench` measured of both.
#[derive(Debug, Deserialize)]
struct Both {
    cephadm: Took,
    stagger: Took,
}

#[derive(Debug, Deserialize)]
struct Took {
    seconds: f64,
    osd_starts: usize,
    osd_seconds: f64,
    osds: usize,
    most_down: usize,
    inactive_seconds: f64,
    requests: u64,
    failed: u64,
    worst_request: f64,
}

/// Runs the bench and writes `docs/bench-cephadm.md`.
pub(crate) fn bench() -> Result<()> {
    must_be_root()?;
    say("building what is installed, and the bench");
    for (profile, package) in [("dist", "stagger-cli"), ("release", "stagger-e2e")] {
        let words = ["build", "--profile", profile, "--quiet", "--package", package];
        if !cargo(&words).status()?.success() {
            bail!("{package} does not build");
        }
    }
    let program = target_folder().join("dist/stagger");
    let ran = Command::new(target_folder().join("release/cephadm-bench"))
        .env("STAGGER_BIN", &program)
        .stderr(Stdio::inherit())
        .output()
        .context("start cephadm-bench")?;
    if !ran.status.success() {
        bail!("cephadm-bench ended with {}", ran.status);
    }
    // What is told on the way is there too; the figures are the last line.
    let said = String::from_utf8_lossy(&ran.stdout);
    let last = said.lines().last().context("cephadm-bench said nothing")?;
    let both: Both = serde_json::from_str(last).context("read what cephadm-bench measured")?;
    let page = page(&both);
    std::fs::write(root().join("docs/bench-cephadm.md"), &page).context("write docs/bench-cephadm.md")?;
    say(&page);
    Ok(())
}

fn page(both: &Both) -> String {
    let Both { cephadm, stagger } = both;
    let mut text = String::from(
        "# Bench beside cephadm\n\nWritten by `cargo xtask bench cephadm`; not by hand. One cluster that cephadm has made, copied for each: \
         three hosts with systemd and podman, three monitors, two managers, nine OSDs, `crash` on each host, a pool with three copies and \
         `min_size` 2, Ceph 20.2.4. A client reads and writes. It is updated to a second build by `ceph orch upgrade start`, and by \
         `stagger run upgrade` with the profile `cephadm`, in one run on one machine; images are pulled on the way.\n\n\
         | | cephadm | stagger | ratio |\n|---|---|---|---|\n",
    );
    let mut row = |name: &str, of: fn(&Took) -> f64, unit: &str| {
        let (theirs, ours) = (of(cephadm), of(stagger));
        let ratio = if theirs > 0.0 {
            format!("{:.2}", ours / theirs)
        } else {
            "-".to_owned()
        };
        let _ = writeln!(text, "| {name} | {theirs:.0}{unit} | {ours:.0}{unit} | {ratio} |");
    };
    row("in all", |took| took.seconds, " s");
    row(
        "from the first OSD down to the last up",
        |took| took.osd_seconds,
        " s",
    );
    row("starts of OSDs", |took| took.osd_starts as f64, "");
    row("most OSDs down at once", |took| took.most_down as f64, "");
    row(
        "some placement group not active",
        |took| took.inactive_seconds,
        " s",
    );
    row("requests", |took| took.requests as f64, "");
    row("requests failed", |took| took.failed as f64, "");
    let _ = writeln!(
        text,
        "| longest request | {:.1} s | {:.1} s | |\n| starts per OSD | {:.1} | {:.1} | |\n\n\
         cephadm restarts every daemon once more at the end of its upgrade to 20.2.4 and later, with a new key; stagger rotates none. \
         The state of the cluster is looked at four times a second.",
        cephadm.worst_request,
        stagger.worst_request,
        cephadm.osd_starts as f64 / cephadm.osds.max(1) as f64,
        stagger.osd_starts as f64 / stagger.osds.max(1) as f64,
    );
    text
}
