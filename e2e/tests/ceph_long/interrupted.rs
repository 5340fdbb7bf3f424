//! Runs that are interrupted: by SIGKILL to `stagger`, and by an OSD that has nothing to do with the wave.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use stagger_e2e::case::under_load;
use stagger_e2e::ceph::Cluster;
use stagger_e2e::command::{run, say};
use stagger_e2e::oracle::{Random, may_stop};
use stagger_e2e::roots::Release;
use stagger_e2e::stagger::{Machine, Setup, says};
use stagger_e2e::verify;

use super::LIMIT;

const RELEASES: [Release; 2] = [Release::Pacific, Release::Reef];
/// How often `stagger` is killed.
const KILLS: u32 = 12;

#[test]
#[ignore = "long; needs root and Ceph; cargo xtask test --long runs it"]
fn killed_at_every_kind_of_moment() -> Result<()> {
    let name = "killed_at_every_kind_of_moment";
    under_load(name, Release::Pacific, &RELEASES, |cluster, phases| {
        let setup = Setup {
            lock_expires: 9,
            ..Setup::default()
        };
        let machine = Machine::new(cluster, "anna", &setup)?;
        let to = verify::version(cluster, Release::Reef)?;
        let mut random = Random(42);
        let mut process = machine.start(&["run", "upgrade", "--to", &to])?;
        process.until("its start", LIMIT, |line| says(line, "started", ""))?;
        for kill in 1..=KILLS {
            // After so many lines, and then at any time of what follows.
            let lines = random.below(7);
            let goes_on = (0..lines).all(|_| process.until("a line", LIMIT, |_| true).is_ok());
            if !goes_on {
                break;
            }
            std::thread::sleep(Duration::from_millis(u64::from(random.below(1500))));
            process.kill()?;
            let journal = machine.journal()?;
            let last = &journal.events.last().context("an empty journal")?["event"];
            phases.lap(format!(
                "kill {kill}: after {last}, {} effects open",
                journal.open().len()
            ));
            process = machine.start(&["resume"])?;
            process.until("the lease", LIMIT, |line| says(line, "lease", "token"))?;
        }
        process
            .end(LIMIT)?
            .expect(0)
            .with_context(|| machine.history_tail(40))?;
        phases.lap("resumed to the end");
        verify::is_on(cluster, &machine, Release::Reef)?;
        verify::nothing_is_left(cluster)?;
        verify::visited_each(cluster, 1)?;
        machine.journal()?.both_judges_agreed()
    })
}

#[test]
#[ignore = "long; needs root and Ceph; cargo xtask test --long runs it"]
fn noout_goes_at_its_expiry_though_nobody_resumes() -> Result<()> {
    let name = "noout_goes_at_its_expiry_though_nobody_resumes";
    under_load(name, Release::Pacific, &RELEASES, |cluster, phases| {
        let setup = Setup {
            noout_expires: 20,
            ..Setup::default()
        };
        let machine = Machine::new(cluster, "anna", &setup)?;
        let to = verify::version(cluster, Release::Reef)?;
        let mut process = machine.start(&["run", "upgrade", "--to", &to])?;
        machine.stop_in_visit(&process, "osd", LIMIT)?;
        process.kill()?;
        let noout = |cluster: &Cluster| -> Result<bool> {
            let dump = cluster.rados().mon("osd dump")?;
            Ok(dump["osds"].to_string().contains("noout"))
        };
        ensure!(noout(cluster)?, "no OSD of the wave has noout");
        let held = machine.call(&["ceph", "guards"])?.expect(0)?;
        ensure!(held.out.contains("noout on osd."), "{}", held.out);
        phases.lap("killed in mid wave, noout is set");

        let limit = Duration::from_mins(1);
        cluster.wait_for("an osdmap without noout", limit, |rados| {
            Ok(!rados.mon("osd dump")?["osds"].to_string().contains("noout"))
        })?;
        // The record goes right after the flag. What the whole stage pauses stays longer.
        let begun = Instant::now();
        while machine
            .call(&["ceph", "guards"])?
            .expect(0)?
            .out
            .contains("noout on osd.")
        {
            ensure!(begun.elapsed() < limit, "the record of noout is left");
        }
        phases.lap("noout went by itself");

        let process = machine.start(&["resume"])?;
        process
            .end(LIMIT)?
            .expect(0)
            .with_context(|| machine.history_tail(40))?;
        verify::is_on(cluster, &machine, Release::Reef)?;
        verify::nothing_is_left(cluster)
    })
}

#[test]
#[ignore = "long; needs root and Ceph; cargo xtask test --long runs it"]
fn osd_crashes_in_mid_wave() -> Result<()> {
    let name = "osd_crashes_in_mid_wave";
    under_load(name, Release::Pacific, &RELEASES, |cluster, phases| {
        // A wave as wide as it can be leaves nobody who could be spared beside it.
        let narrow = Setup {
            max_in_parallel: "2",
            ..Setup::default()
        };
        let machine = Machine::new(cluster, "anna", &narrow)?;
        let to = verify::version(cluster, Release::Reef)?;
        let mut process = machine.start(&["run", "upgrade", "--to", &to])?;
        for _ in 0..3 {
            process.until("an OSD wave", LIMIT, |line| says(line, "wave", "osd:"))?;
        }
        let waves = machine.stop_in_visit(&process, "osd", LIMIT)?.waves();
        let wave = waves.last().context("no wave")?;
        let victim = bystander(cluster, &wave.units)?;
        crash(cluster, victim)?;
        process.signal("CONT")?;
        phases.lap(format!("osd.{victim} killed beside {:?}", wave.units));

        // The wave is finished: its units come up on the new release. And nothing more is stopped.
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(30) {
            let now = machine.journal()?.waves();
            ensure!(
                now.len() == waves.len(),
                "a wave was begun while osd.{victim} was down: {:?}",
                now.last()
            );
            std::thread::sleep(Duration::from_secs(2));
        }
        let visited: BTreeSet<String> = verify::visits(cluster)?.into_keys().collect();
        ensure!(
            wave.units.iter().all(|unit| visited.contains(unit)),
            "the wave {:?} was not finished: {visited:?}",
            wave.units
        );
        phases.lap("nothing more was begun");
        cluster.daemonctl(&["start", "osd", &victim.to_string()])?;
        process
            .end(LIMIT)?
            .expect(0)
            .with_context(|| machine.history_tail(40))?;
        phases.lap("started again, and to the end");
        verify::is_on(cluster, &machine, Release::Reef)?;
        verify::nothing_is_left(cluster)?;
        machine.journal()?.both_judges_agreed()
    })
}

/// An OSD that may go down beside the wave: the clients must not notice even this.
fn bystander(cluster: &Cluster, wave: &[String]) -> Result<u32> {
    let wave: Vec<u32> = wave
        .iter()
        .filter_map(|unit| unit.strip_prefix("osd.")?.parse().ok())
        .collect();
    for osd in (0..cluster.spec().osds).filter(|osd| !wave.contains(osd)) {
        if may_stop(cluster, &[wave.as_slice(), &[osd]].concat())? {
            return Ok(osd);
        }
    }
    say("no OSD may go down beside the wave");
    anyhow::bail!("no OSD may go down beside {wave:?}")
}

fn crash(cluster: &Cluster, osd: u32) -> Result<()> {
    let status = cluster.daemonctl(&["status", "osd", &osd.to_string()])?;
    let pid = status
        .split_whitespace()
        .nth(2)
        .context("a status without a pid")?;
    run(cluster.sandbox().command("kill").args(["-s", "KILL", pid]))?;
    Ok(())
}
