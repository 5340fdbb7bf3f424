//! One test case: what it prints for whoever collects results, and what it tells when it fails.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::ceph::{CephSpec, Cluster};
use crate::command::say;
use crate::load::Load;
use crate::roots::Release;
use crate::{ganeti, ironic};

/// The watcher of a run sees at its next look that its cluster was taken away, and its last question may wait for a
/// machine that is gone.
const LAST_LOOK: Duration = Duration::from_mins(1);

/// Runs a case and prints `case NAME ok|FAILED SECONDS`, on stderr, as the last line of it.
pub fn case(name: &str, work: impl FnOnce() -> Result<()>) -> Result<()> {
    let begun = Instant::now();
    let result = work();
    let word = if result.is_ok() { "ok" } else { "FAILED" };
    if let Err(error) = &result {
        say(format!("{error:#}"));
    }
    say(format!("case {name} {word} {:.1}", begun.elapsed().as_secs_f64()));
    result
}

/// A case on a cluster of the usual shape under load. Whatever happens, the cluster is gone afterwards.
///
/// `work` must leave the cluster serving; then the clients are asked: no operation may have failed, and
/// everything that was written must be there.
pub fn under_load(
    name: &str,
    release: Release,
    releases: &[Release],
    work: impl FnOnce(&Cluster, &mut Phases) -> Result<()>,
) -> Result<()> {
    of_shape_under_load(name, CephSpec::default(), release, releases, work)
}

/// The same on a cluster of another shape.
pub fn of_shape_under_load(
    name: &str,
    spec: CephSpec,
    release: Release,
    releases: &[Release],
    work: impl FnOnce(&Cluster, &mut Phases) -> Result<()>,
) -> Result<()> {
    case(name, || {
        let mut phases = Phases::begin();
        let cluster = Cluster::boot_with(release, spec, releases)?;
        phases.lap("boot");
        let result = loaded(&cluster, &mut phases, |phases| work(&cluster, phases));
        if result.is_err() {
            // Apart from the error, which would drown in it.
            say(cluster.logs_tail());
        }
        let dir = cluster.dir().to_owned();
        let stopped = cluster.stop(false);
        phases.print();
        result?;
        stopped?;
        ensure!(!dir.exists(), "{} is left", dir.display());
        Ok(())
    })
}

/// A case on a virtual cluster of Ganeti. Whatever happens, the cluster is gone afterwards, nothing in it has tried to
/// reboot the machine under it, and nothing of it is left.
pub fn on_ganeti(
    name: &str,
    spec: ganeti::GanetiSpec,
    work: impl FnOnce(&ganeti::Cluster, &mut Phases) -> Result<()>,
) -> Result<()> {
    case(name, || {
        let mut phases = Phases::begin();
        let cluster = ganeti::Cluster::boot(spec)?;
        phases.lap("boot");
        let result = work(&cluster, &mut phases);
        if result.is_err() {
            // Apart from the error, which would drown in it.
            say(cluster.logs_tail());
        }
        let dir = cluster.dir().to_owned();
        let untouched = cluster.ensure_machine_untouched();
        let stopped = cluster.stop(false);
        phases.print();
        result?;
        untouched?;
        stopped?;
        ensure_gone(&dir)
    })
}

/// A case on an Ironic. Whatever happens, the cluster is gone afterwards, and nothing of it is left.
pub fn on_ironic(
    name: &str,
    spec: ironic::IronicSpec,
    work: impl FnOnce(&ironic::Cluster, &mut Phases) -> Result<()>,
) -> Result<()> {
    case(name, || {
        let mut phases = Phases::begin();
        let cluster = ironic::Cluster::boot(spec)?;
        for lap in cluster.laps() {
            say(format!("boot: {:5.1} s  {}", lap.until.as_secs_f64(), lap.part));
        }
        phases.lap("boot");
        let result = work(&cluster, &mut phases);
        if result.is_err() {
            // Apart from the error, which would drown in it.
            say(cluster.logs_tail());
        }
        let dir = cluster.dir().to_owned();
        let stopped = cluster.stop(false);
        phases.print();
        result?;
        stopped?;
        ensure_gone(&dir)
    })
}

/// Does something to an Ironic under load, then asks the clients. What failed is in the report, for the caller to judge.
///
/// # Errors
/// It failed, or something that was acknowledged is not so.
pub fn ironic_loaded(
    cluster: &ironic::Cluster,
    phases: &mut Phases,
    work: impl FnOnce(&mut ironic::Load, &mut Phases) -> Result<()>,
) -> Result<ironic::Report> {
    let mut load = ironic::Load::start(cluster)?;
    phases.lap("load on all clients");
    let result = work(&mut load, phases);
    let failed: Vec<String> = load.failures().iter().map(ToString::to_string).collect();
    result.with_context(|| format!("requests that failed by then: {failed:?}"))?;
    let report = load.stop()?;
    phases.lap("all data verified");
    say(format!("{report}"));
    report.ensure_nothing_lost()?;
    Ok(report)
}

/// Whether nothing of a cluster is left: no folder, no mount, no process that was told of it.
pub(crate) fn ensure_gone(dir: &Path) -> Result<()> {
    ensure!(!dir.exists(), "{} is left", dir.display());
    let path = dir.display().to_string();
    let mounts = fs::read_to_string("/proc/self/mounts").context("reading the mounts")?;
    ensure!(!mounts.contains(&path), "a mount is left: {mounts}");
    let begun = Instant::now();
    while let Some(words) = told_of(&path)? {
        ensure!(begun.elapsed() < LAST_LOOK, "a process is left: {words}");
        thread::sleep(Duration::from_millis(200));
    }
    Ok(())
}

/// The command line of a process that was told of this path.
fn told_of(path: &str) -> Result<Option<String>> {
    for entry in fs::read_dir("/proc").context("reading /proc")? {
        // Most entries are no processes, and some of those have just ended.
        let words = fs::read(entry?.path().join("cmdline")).unwrap_or_default();
        let words = String::from_utf8_lossy(&words).replace('\0', " ");
        if words.contains(path) {
            return Ok(Some(words));
        }
    }
    Ok(None)
}

/// Does something under load, then asks the clients.
///
/// # Errors
/// It failed, an operation of a client failed, or something that was written is not there.
pub fn loaded(
    cluster: &Cluster,
    phases: &mut Phases,
    work: impl FnOnce(&mut Phases) -> Result<()>,
) -> Result<()> {
    let mut load = Load::start(cluster)?;
    phases.lap("load on all clients");
    let result = work(phases);
    let failed: Vec<String> = load.failures().iter().map(ToString::to_string).collect();
    result.with_context(|| format!("operations that failed by then: {failed:?}"))?;
    let report = load.stop()?;
    phases.lap("all data verified");
    say(format!("{report}"));
    ensure!(
        report.failures().is_empty(),
        "{} operations failed, the first: {}",
        report.failures().len(),
        report.failures()[0]
    );
    for client in &report.clients {
        ensure!(
            client.failures == 0 && client.wrong == 0 && client.verified > 0,
            "the client {} at the end: {client:?}",
            client.client
        );
    }
    Ok(())
}

/// How long the parts of a case took.
#[derive(Debug)]
pub struct Phases {
    begun: Instant,
    last: Instant,
    rows: Vec<(String, Duration)>,
}

impl Phases {
    /// Begins now.
    pub fn begin() -> Self {
        let now = Instant::now();
        Self {
            begun: now,
            last: now,
            rows: Vec::new(),
        }
    }

    /// A part has ended; it began when the one before ended.
    pub fn lap(&mut self, part: impl Into<String>) {
        let part = part.into();
        let now = Instant::now();
        let took = now.duration_since(self.last);
        say(format!("-- {:6.1} s  {part}", took.as_secs_f64()));
        self.rows.push((part, took));
        self.last = now;
    }

    /// Prints the table.
    pub fn print(&self) {
        for (part, took) in &self.rows {
            say(format!("{:7.1} s  {part}", took.as_secs_f64()));
        }
        say(format!("{:7.1} s  in all", self.begun.elapsed().as_secs_f64()));
    }
}
