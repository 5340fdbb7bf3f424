//! A cluster that cephadm manages is updated by stagger, under load, and cephadm agrees with all of it afterwards.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use stagger_e2e::case::{Phases, case};
use stagger_e2e::cephadm_hosts::Cluster;
use stagger_e2e::command::say;
use stagger_e2e::stagger::{CephadmSetup, Machine, says};

/// On a busy machine.
const LIMIT: Duration = Duration::from_mins(10);

#[test]
#[ignore = "needs root and Debian's packages; cargo xtask test runs it"]
fn an_update_by_stagger_beside_cephadm() -> Result<()> {
    case("cephadm_story", || {
        let mut cluster = Cluster::boot()?;
        say(format!(
            "cephadm: healthy after {:.1} s",
            cluster.took().as_secs_f64()
        ));
        let mut phases = Phases::begin();
        let result = story(&mut cluster, &mut phases);
        phases.print();
        result?;
        cluster.stop()
    })
}

fn story(cluster: &mut Cluster, phases: &mut Phases) -> Result<()> {
    let [from, to] = cluster.versions().map(str::to_owned);
    let machine = Machine::new(cluster, "anna", &CephadmSetup)?;

    // An upgrade of cephadm's own that somebody has paused is not run over.
    cluster.ceph(&["orch", "pause"])?;
    cluster.ceph(&["orch", "upgrade", "start", "--image", &Cluster::image(&to)])?;
    let refused = machine.call(&["plan", "upgrade", "--to", &to])?.expect(1)?;
    refused.expect_said(&["orchestrator-upgrading", "ceph orch upgrade stop"])?;
    cluster.ceph(&["orch", "upgrade", "stop"])?;
    cluster.ceph(&["orch", "resume"])?;
    cluster.wait_healthy()?;
    phases.lap("refused beside an upgrade of cephadm's");

    let planned = machine.call(&["plan", "upgrade", "--to", &to])?.expect(0)?;
    planned.expect_said(&[&format!("ceph {from} to {to}")])?;
    say(&planned.out);
    let before = cluster.containers()?;
    let load = cluster.load()?;
    phases.lap("planned");

    let mut run = machine.start(&["run", "upgrade", "--to", &to])?;
    run.until("an OSD wave", LIMIT, |line| says(line, "wave", "osd:"))?;
    machine.stop_in_visit(&run, "osd", LIMIT)?;
    run.kill()?;
    phases.lap("killed in an OSD wave");
    machine.resume_to_the_end(LIMIT)?.expect(0)?;
    phases.lap("resumed to the end");
    machine.journal()?.both_judges_agreed()?;
    cluster.wait_clean(LIMIT)?;
    let report = load.stop()?;
    say(format!("{report}"));
    ensure!(
        report.failures().is_empty(),
        "operations failed: {:?}",
        report.failures()
    );
    phases.lap("all data verified");

    agrees(cluster, &to)?;
    phases.lap("cephadm agrees");
    let after = cluster.containers()?;
    ensure!(
        after.keys().eq(before.keys()),
        "other daemons run: {before:?} and {after:?}"
    );
    let same: Vec<_> = after
        .iter()
        .filter(|(name, one)| before.get(*name) == Some(one))
        .collect();
    ensure!(same.is_empty(), "never restarted: {same:?}");
    let again = machine.call(&["plan", "upgrade", "--to", &to])?.expect(0)?;
    again.expect_said(&["Nothing to do"])?;

    // What cephadm does by itself afterwards: it looks at every daemon, and has nothing to deploy.
    let looked = looked_at(cluster)?;
    cluster.ceph(&["orch", "ps", "--refresh"])?;
    let begun = Instant::now();
    while looked_at(cluster)?
        .iter()
        .any(|(name, at)| looked.get(name) == Some(at))
    {
        ensure!(begun.elapsed() < LIMIT, "cephadm does not look at its daemons");
        std::thread::sleep(Duration::from_secs(1));
    }
    ensure!(
        cluster.containers()? == after,
        "cephadm has deployed daemons anew"
    );
    phases.lap("cephadm leaves it so");
    Ok(())
}

/// When cephadm looked at each daemon last.
fn looked_at(cluster: &Cluster) -> Result<BTreeMap<String, String>> {
    let all = cluster.ceph_json(&["orch", "ps"])?;
    let all = all.as_array().context("`orch ps` is no list")?;
    let word = |daemon: &Value, key: &str| daemon[key].as_str().unwrap_or_default().to_owned();
    Ok(all
        .iter()
        .map(|daemon| (word(daemon, "daemon_name"), word(daemon, "last_refresh")))
        .collect())
}

/// cephadm is at work, upgrades nothing, finds every daemon up to date with the image of that version, and starts others from it.
fn agrees(cluster: &Cluster, version: &str) -> Result<()> {
    let status = cluster.ceph_json(&["orch", "status"])?;
    ensure!(status["paused"] == false, "cephadm is left paused: {status}");
    let upgrade = cluster.ceph(&["orch", "upgrade", "status"])?;
    ensure!(upgrade.contains("no upgrades in progress"), "{upgrade}");
    let begun = Instant::now();
    let checked = loop {
        let checked =
            cluster.ceph_json(&["orch", "upgrade", "check", "--image", &Cluster::image(version)])?;
        if checked["needs_update"] == serde_json::json!({}) {
            break checked;
        }
        if begun.elapsed() > Duration::from_mins(2) {
            bail!("cephadm would update {}", checked["needs_update"]);
        }
        std::thread::sleep(Duration::from_secs(1));
    };
    let images = cluster.ceph_json(&["config", "dump"])?;
    let images: Vec<_> = images
        .as_array()
        .context("`config dump` is no list")?
        .iter()
        .filter(|option| option["name"] == "container_image")
        .map(|option| (option["section"].clone(), option["value"].clone()))
        .collect();
    ensure!(
        images == [(Value::from("global"), checked["target_digest"].clone())],
        "cephadm starts daemons from {images:?}, not {}",
        checked["target_digest"]
    );
    let health = cluster.ceph(&["health"])?;
    ensure!(health.starts_with("HEALTH_OK"), "{health}");
    for daemon in cluster
        .ceph_json(&["orch", "ps"])?
        .as_array()
        .context("no list")?
    {
        ensure!(
            daemon["version"] == version && daemon["status_desc"] == "running",
            "{daemon}"
        );
    }
    Ok(())
}
