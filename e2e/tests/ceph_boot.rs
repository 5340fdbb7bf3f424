//! The harness itself, on a real cluster: everything comes up, the clients work through the first steps
//! of an upgrade, and nothing is left.

use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::json;
use stagger_e2e::ceph::{CephSpec, Cluster, Daemon, Kind};
use stagger_e2e::command::say;
use stagger_e2e::load::Load;
use stagger_e2e::rados::Target;
use stagger_e2e::roots::Release;

const LIMIT: Duration = Duration::from_secs(90);

#[test]
#[ignore = "needs root and Ceph; cargo xtask test --long runs it"]
fn clients_do_not_notice_the_first_steps_of_an_upgrade() -> Result<()> {
    let cluster = Cluster::boot(Release::Pacific, CephSpec::default())?;
    for lap in cluster.laps() {
        say(format!("boot: {:5.1} s {}", lap.until.as_secs_f64(), lap.part));
    }
    let result = first_steps(&cluster).with_context(|| cluster.logs_tail());

    let dir = cluster.dir().to_owned();
    let begun = Instant::now();
    cluster.stop(false)?;
    say(format!("gone after {:.1} s", begun.elapsed().as_secs_f64()));
    let path = dir.display().to_string();
    ensure!(!dir.exists(), "{path} is left");
    ensure!(
        processes_that_name(&path)?.is_empty(),
        "left: {:?}",
        processes_that_name(&path)?
    );
    let mounts = fs::read_to_string("/proc/self/mounts").context("reading the mounts")?;
    ensure!(!mounts.contains(&path), "a mount is left: {mounts}");
    result
}

fn first_steps(cluster: &Cluster) -> Result<()> {
    say(format!("memory {} MB", cluster.memory()? >> 20));
    ensure!(
        cluster.health_codes()?.is_empty(),
        "health: {:?}",
        cluster.health_codes()?
    );
    let mut load = Load::start(cluster)?;

    let mons = cluster.spec().daemons(Kind::Mon);
    for mon in &mons {
        step(cluster, mon, || {
            cluster.wait_for("full quorum", LIMIT, |rados| {
                let quorum = rados.mon("quorum_status")?;
                Ok(quorum["quorum_names"]
                    .as_array()
                    .is_some_and(|names| names.len() == mons.len()))
            })
        })?;
    }
    let mgrs = cluster.spec().daemons(Kind::Mgr);
    for mgr in &mgrs {
        step(cluster, mgr, || {
            cluster.wait_for("all mgrs", LIMIT, |rados| {
                let map = rados.mon("mgr dump")?;
                let standbys = map["standbys"].as_array().map_or(0, Vec::len);
                Ok(map["available"] == true && standbys == mgrs.len() - 1)
            })
        })?;
    }
    let osd = Daemon {
        kind: Kind::Osd,
        id: "0".to_owned(),
    };
    // A new mgr knows nothing until each OSD has reported to it.
    cluster.wait_for("the mgr knows all PGs", LIMIT, |rados| {
        let ask = stagger_e2e::rados::Request::new(Target::Mgr, "osd ok-to-stop", json!({ "ids": ["0"] }));
        Ok(rados.ask(&ask)?.rc == 0)
    })?;
    step(cluster, &osd, || cluster.wait_clean(LIMIT))?;
    ensure!(
        cluster
            .daemonctl(&["status", "osd", "0"])?
            .starts_with("running 18 "),
        "osd.0 is not on 18"
    );

    let told = load.failures();
    ensure!(told.is_empty(), "operations failed: {told:?}");
    let report = load.stop()?;
    say(format!("{report}"));
    ensure!(report.failures().is_empty(), "operations failed");
    ensure!(
        report.clients.len() == 5,
        "{} clients of 5 told their figures",
        report.clients.len()
    );
    ensure!(
        report.clients.iter().all(|client| client.wrong == 0),
        "wrong data at the end"
    );
    Ok(())
}

/// Upgrades a daemon and waits until it is back.
fn step(cluster: &Cluster, daemon: &Daemon, back: impl FnOnce() -> Result<Duration>) -> Result<()> {
    let begun = Instant::now();
    cluster.upgrade(daemon, Release::Reef)?;
    let restarted = begun.elapsed();
    // What the maps still say of a moment ago is not an answer.
    std::thread::sleep(Duration::from_millis(500));
    back()?;
    say(format!(
        "{daemon}: restarted {:.1} s, back {:.1} s",
        restarted.as_secs_f64(),
        begun.elapsed().as_secs_f64()
    ));
    Ok(())
}

fn processes_that_name(path: &str) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").context("reading /proc")? {
        let words = entry
            .map(|entry| entry.path().join("cmdline"))
            .and_then(fs::read)
            .unwrap_or_default();
        let words = String::from_utf8_lossy(&words).replace('\0', " ");
        if words.contains(path) {
            found.push(words);
        }
    }
    Ok(found)
}
