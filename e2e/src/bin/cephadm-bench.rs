//! The same cluster, load and images, updated by `ceph orch upgrade start` and by stagger: prints what each took as JSON.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use serde::Serialize;
use serde_json::Value;
use stagger_e2e::cephadm_hosts::Cluster;
use stagger_e2e::command::say;
use stagger_e2e::rados::Rados;
use stagger_e2e::stagger::{CephadmSetup, Machine};

/// Whoever is not done by then will not be.
const LIMIT: Duration = Duration::from_mins(30);

/// Between two looks at the cluster.
const LOOK: Duration = Duration::from_millis(250);

/// What an update took.
#[derive(Debug, Default, Serialize)]
struct Took {
    /// From the command until the orchestrator is idle and every daemon runs the new version.
    seconds: f64,
    /// How often OSDs were started.
    osd_starts: usize,
    /// From the first OSD that goes down until the last is up.
    osd_seconds: f64,
    osds: usize,
    most_down: usize,
    /// How long some placement group was not active, as far as looks tell.
    inactive_seconds: f64,
    requests: u64,
    failed: u64,
    worst_request: f64,
}

/// What was seen of OSDs.
#[derive(Debug, Default)]
struct Seen {
    up_from: BTreeMap<u64, BTreeSet<u64>>,
    most_down: usize,
    first_down: Option<Instant>,
    last_up: Option<Instant>,
    inactive: Duration,
}

fn main() -> Result<()> {
    let by_cephadm = measured("cephadm", by_cephadm)?;
    let by_stagger = measured("stagger", by_stagger)?;
    let both = BTreeMap::from([("cephadm", by_cephadm), ("stagger", by_stagger)]);
    let text = serde_json::to_string(&both)?;
    writeln!(std::io::stdout(), "{text}").context("printing the figures")?;
    Ok(())
}

fn by_cephadm(cluster: &Cluster, to: &str) -> Result<()> {
    cluster.ceph(&["orch", "upgrade", "start", "--image", &Cluster::image(to)])?;
    let begun = Instant::now();
    let mut told = String::new();
    loop {
        let status = cluster
            .ceph(&["orch", "upgrade", "status", "--format", "json"])
            .unwrap_or_default();
        if status.contains("no upgrades in progress") {
            return Ok(());
        }
        let status: Value = serde_json::from_str(&status).unwrap_or_default();
        let progress = status["progress"].as_str().unwrap_or_default();
        if progress != told {
            progress.clone_into(&mut told);
            say(format!("cephadm: {told}"));
        }
        ensure!(
            begun.elapsed() < LIMIT,
            "cephadm does not end its upgrade: {status}"
        );
        thread::sleep(LOOK);
    }
}

/// By the program that `STAGGER_BIN` names.
fn by_stagger(cluster: &Cluster, to: &str) -> Result<()> {
    let machine = Machine::new(cluster, "bench", &CephadmSetup)?;
    machine
        .start(&["run", "upgrade", "--to", to])?
        .end(LIMIT)?
        .expect(0)?;
    Ok(())
}

fn measured(who: &str, update: impl FnOnce(&Cluster, &str) -> Result<()>) -> Result<Took> {
    let mut cluster = Cluster::boot()?;
    let to = cluster.versions()[1].to_owned();
    say(format!(
        "{who}: healthy after {:.0} s, updating to {to}",
        cluster.took().as_secs_f64()
    ));
    let load = cluster.load()?;
    let (ended, rados) = (Arc::new(AtomicBool::new(false)), cluster.connect()?);
    let watcher = watch(rados, Arc::clone(&ended))?;
    let begun = Instant::now();
    let came = update(&cluster, &to);
    let seconds = begun.elapsed().as_secs_f64();
    ended.store(true, Ordering::Relaxed);
    let seen = watcher.join().map_err(|_| anyhow!("the watcher panicked"))??;
    came?;
    cluster.wait_clean(LIMIT)?;
    let report = load.stop()?;
    let versions = cluster.ceph_json(&["versions"])?;
    let all = versions["overall"].as_object().context("versions of daemons")?;
    ensure!(
        all.len() == 1 && all.keys().all(|one| one.contains(&to)),
        "they run {versions}"
    );
    cluster.stop()?;
    let span = seen
        .first_down
        .zip(seen.last_up)
        .map(|(first, last)| last.duration_since(first));
    let took = Took {
        seconds,
        osd_starts: seen.up_from.values().map(|starts| starts.len() - 1).sum(),
        osd_seconds: span.unwrap_or_default().as_secs_f64(),
        osds: seen.up_from.len(),
        most_down: seen.most_down,
        inactive_seconds: seen.inactive.as_secs_f64(),
        requests: report.clients.iter().map(|client| client.ops).sum(),
        failed: report.clients.iter().map(|client| client.failures).sum(),
        worst_request: report.worst(),
    };
    say(format!("{who}: {took:?}"));
    Ok(took)
}

/// Looks at the cluster until it has ended.
fn watch(mut rados: Rados, ended: Arc<AtomicBool>) -> Result<JoinHandle<Result<Seen>>> {
    let look = move || -> Result<Seen> {
        let (mut seen, mut last, mut down_before) = (Seen::default(), Instant::now(), 0);
        while !ended.load(Ordering::Relaxed) {
            let dump = rados.mon("osd dump")?;
            let status = rados.mon("status")?;
            let now = Instant::now();
            let mut down = 0;
            for osd in dump["osds"].as_array().context("OSDs")? {
                let (Some(id), Some(up_from)) = (osd["osd"].as_u64(), osd["up_from"].as_u64()) else {
                    bail!("an OSD without a number: {osd}")
                };
                seen.up_from.entry(id).or_default().insert(up_from);
                down += usize::from(osd["up"] == 0);
            }
            seen.most_down = seen.most_down.max(down);
            if down > 0 {
                seen.first_down.get_or_insert(now);
            } else if down_before > 0 {
                seen.last_up = Some(now);
            }
            down_before = down;
            let states = status.pointer("/pgmap/pgs_by_state").and_then(Value::as_array);
            let inactive = states.into_iter().flatten().any(|state| {
                let name = state["state_name"].as_str().unwrap_or_default();
                !name.split('+').any(|word| word == "active")
            });
            if inactive {
                seen.inactive += now.duration_since(last);
            }
            last = now;
            thread::sleep(LOOK);
        }
        Ok(seen)
    };
    thread::Builder::new()
        .name("watch".to_owned())
        .spawn(look)
        .context("starting a thread")
}
