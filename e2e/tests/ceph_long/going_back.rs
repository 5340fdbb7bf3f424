//! Going back: what happens when the new release does not hold.

use anyhow::{Context, Result, ensure};
use stagger_e2e::case::{Phases, under_load};
use stagger_e2e::ceph::{Cluster, Daemon, Kind};
use stagger_e2e::command::say;
use stagger_e2e::roots::Release;
use stagger_e2e::stagger::{Ended, Machine, Setup, says};
use stagger_e2e::verify;

use super::LIMIT;

const RELEASES: [Release; 2] = [Release::Pacific, Release::Reef];

#[test]
#[ignore = "long; needs root and Ceph; cargo xtask test --long runs it"]
fn new_release_fails_before_its_store_is_opened() -> Result<()> {
    let name = "new_release_fails_before_its_store_is_opened";
    under_load(name, Release::Pacific, &RELEASES, |cluster, phases| {
        let machine = Machine::new(cluster, "anna", &Setup::default())?;
        let osd = first(cluster, &machine, Release::Reef, Kind::Osd)?;
        cluster.set_fault(&osd, Some("18 fail"))?;
        run(cluster, &machine, Release::Reef, 1)?.expect_said(&["rolled back"])?;
        phases.lap("rolled back");
        runs(cluster, &osd, Release::Pacific)?;
        ensure!(
            went_back(&machine)? == [(osd.to_string(), false)],
            "went back: {:?}",
            went_back(&machine)?
        );
        verify::nothing_is_left(cluster)?;
        verify::is_healthy(cluster)?;

        // The other policy: it stays behind. What comes after OSDs waits for a word, and then the rest goes on.
        let machine = Machine::new(
            cluster,
            "bert",
            &Setup {
                on_failure: "continue",
                ..Setup::default()
            },
        )?;
        run(cluster, &machine, Release::Reef, 3)?.expect_said(&["units-left-behind"])?;
        phases.lap("held, with one OSD left behind");
        machine.call(&["approve", "left-behind-osd"])?.expect(0)?;
        let held = machine.resume_to_the_end(LIMIT)?.expect(3);
        let held = held.with_context(|| machine.history_tail(40))?;
        held.expect_said(&["require-osd-release-18 comes after"])?;
        machine.call(&["abort"])?.expect(1)?;
        phases.lap("done but for one, and what would shut it out");
        let running = verify::running(cluster)?;
        ensure!(
            running.get("osd 18.2.7") == Some(&u64::from(cluster.spec().osds - 1)),
            "running: {running:?}"
        );
        runs(cluster, &osd, Release::Pacific)?;
        verify::nothing_is_left(cluster)?;
        verify::is_healthy(cluster)?;
        heal(cluster, Release::Reef, phases)
    })
}

#[test]
#[ignore = "long; needs root and Ceph; cargo xtask test --long runs it"]
fn mon_crashes_after_ten_seconds() -> Result<()> {
    crashes("mon_crashes_after_ten_seconds", Kind::Mon, true)
}

#[test]
#[ignore = "long; needs root and Ceph; cargo xtask test --long runs it"]
fn mon_crashes_and_may_not_be_rebuilt() -> Result<()> {
    crashes("mon_crashes_and_may_not_be_rebuilt", Kind::Mon, false)
}

#[test]
#[ignore = "long; needs root and Ceph; cargo xtask test --long runs it"]
fn osd_crashes_after_ten_seconds_16_to_18() -> Result<()> {
    crashes("osd_crashes_after_ten_seconds_16_to_18", Kind::Osd, true)
}

#[test]
#[ignore = "long; needs root and Ceph; cargo xtask test --long runs it"]
fn osd_crashes_and_may_not_be_rebuilt_16_to_18() -> Result<()> {
    crashes("osd_crashes_and_may_not_be_rebuilt_16_to_18", Kind::Osd, false)
}

/// From 16 to 18 the first of a kind crashes ten seconds after each start on 18: its store cannot go
/// back as it is.
fn crashes(name: &str, kind: Kind, rebuild_to_go_back: bool) -> Result<()> {
    under_load(name, Release::Pacific, &RELEASES, |cluster, phases| {
        let setup = Setup {
            rebuild_to_go_back,
            // A crash of a mon shows only when the others miss it, up to ten seconds later.
            gate_hold: if kind == Kind::Mon { 25 } else { 12 },
            ..Setup::patient()
        };
        let machine = Machine::new(cluster, "anna", &setup)?;
        let daemon = first(cluster, &machine, Release::Reef, kind)?;
        cluster.set_fault(&daemon, Some("18 crash-after 10"))?;
        if rebuild_to_go_back {
            run(cluster, &machine, Release::Reef, 1)?.expect_said(&["rolled back"])?;
            phases.lap("rolled back by a rebuild");
            ensure!(
                went_back(&machine)?.last() == Some(&(daemon.to_string(), true)),
                "went back: {:?}",
                went_back(&machine)?
            );
            runs(cluster, &daemon, Release::Pacific)?;
            verify::nothing_is_left(cluster)?;
            return verify::is_healthy(cluster);
        }
        run(cluster, &machine, Release::Reef, 3)?
            .expect_said(&["going-back-needs-a-rebuild", "rebuild_to_go_back"])?;
        phases.lap("held for a person");
        ensure!(went_back(&machine)?.is_empty(), "something went back");
        let kept = machine.call(&["artifacts"])?.expect(0)?.out;
        ensure!(
            kept.contains(&format!("{daemon}.log")),
            "nothing was gathered: {kept}"
        );
        // The person finds out what is wrong, resumes, and has seen enough when the wave has passed.
        cluster.set_fault(&daemon, None)?;
        let mut resumed = machine.start(&["resume"])?;
        resumed
            .until("the restart", LIMIT, |line| says(line, "restart", ""))
            .with_context(|| machine.history_tail(40))?;
        resumed.signal("INT")?;
        resumed
            .end(LIMIT)?
            .expect(130)
            .with_context(|| machine.history_tail(40))?;
        phases.lap("resumed, and stopped behind the wave");
        runs(cluster, &daemon, Release::Reef)?;
        // Its stage is not over: what is paused for that stays so, until somebody goes on or says that nobody will.
        machine.call(&["abort"])?.expect(1)?;
        verify::nothing_is_left(cluster)?;
        verify::is_healthy(cluster)
    })
}

#[test]
#[ignore = "long; needs root and Ceph; cargo xtask test --long runs it"]
fn osd_crashes_18_to_20() -> Result<()> {
    let releases = [Release::Reef, Release::Tentacle];
    under_load(
        "osd_crashes_18_to_20",
        Release::Reef,
        &releases,
        |cluster, phases| {
            let machine = Machine::new(cluster, "anna", &Setup::patient())?;
            let osd = first(cluster, &machine, Release::Tentacle, Kind::Osd)?;
            cluster.set_fault(&osd, Some("20 crash-after 10"))?;
            run(cluster, &machine, Release::Tentacle, 1)?.expect_said(&["rolled back"])?;
            phases.lap("rolled back by a restart");
            ensure!(
                went_back(&machine)? == [(osd.to_string(), false)],
                "went back: {:?}",
                went_back(&machine)?
            );
            runs(cluster, &osd, Release::Reef)?;
            verify::nothing_is_left(cluster)?;
            verify::is_healthy(cluster)?;
            heal(cluster, Release::Tentacle, phases)
        },
    )
}

#[test]
#[ignore = "long; needs root and Ceph; cargo xtask test --long runs it"]
fn whole_wave_never_comes_back() -> Result<()> {
    let name = "whole_wave_never_comes_back";
    under_load(name, Release::Pacific, &RELEASES, |cluster, phases| {
        let machine = Machine::new(cluster, "anna", &Setup::default())?;
        let to = verify::version(cluster, Release::Reef)?;
        // All but those of the first two waves: whatever the third one is, all of it fails.
        let waves = machine.planned(&["upgrade", "--to", &to], "osd")?;
        let well: Vec<&String> = waves.iter().take(2).flatten().collect();
        for osd in cluster.spec().daemons(Kind::Osd) {
            if !well.contains(&&osd.to_string()) {
                cluster.set_fault(&osd, Some("18 fail"))?;
            }
        }
        run(cluster, &machine, Release::Reef, 1)?.expect_said(&["rolled back"])?;
        phases.lap("rolled back");
        let back = went_back(&machine)?;
        ensure!(
            back.len() > 1 && back.iter().all(|(_, rebuilt)| !rebuilt),
            "went back: {back:?}"
        );
        say(format!("the whole wave is back on 16: {back:?}"));
        verify::nothing_is_left(cluster)?;
        verify::is_healthy(cluster)
    })
}

/// The first of a kind that the plan visits.
fn first(cluster: &Cluster, machine: &Machine, to: Release, kind: Kind) -> Result<Daemon> {
    let to = verify::version(cluster, to)?;
    let waves = machine.planned(&["upgrade", "--to", &to], &kind.to_string())?;
    let unit = waves.first().and_then(|wave| wave.first());
    let (_, id) = unit
        .and_then(|unit| unit.split_once('.'))
        .context("a stage without units")?;
    Ok(Daemon {
        kind,
        id: id.to_owned(),
    })
}

/// Runs to a release; it must end with that code.
fn run(cluster: &Cluster, machine: &Machine, to: Release, code: i32) -> Result<Ended> {
    let to = verify::version(cluster, to)?;
    let ended = machine.start(&["run", "upgrade", "--to", &to])?.end(LIMIT)?;
    say(&ended.said);
    ended.expect(code).with_context(|| machine.history_tail(40))
}

/// The units that went back in the newest run, each with whether it was made anew.
fn went_back(machine: &Machine) -> Result<Vec<(String, bool)>> {
    let journal = machine.journal()?;
    let actions = journal.actions("go-back").into_iter();
    Ok(actions
        .map(|(unit, action)| (unit, action["rebuild"] == true))
        .collect())
}

/// Fails unless the daemon runs that release.
fn runs(cluster: &Cluster, daemon: &Daemon, release: Release) -> Result<()> {
    let status = cluster.daemonctl(&["status", &daemon.kind.to_string(), &daemon.id])?;
    ensure!(
        status.starts_with(&format!("running {release} ")),
        "{daemon} is {status}"
    );
    Ok(())
}

/// The fault is found; a new run finishes what the first one began.
fn heal(cluster: &Cluster, to: Release, phases: &mut Phases) -> Result<()> {
    let machine = Machine::new(cluster, "carla", &Setup::default())?;
    for daemon in cluster.spec().all_daemons() {
        cluster.set_fault(&daemon, None)?;
    }
    run(cluster, &machine, to, 0)?;
    phases.lap("healed, and a new run to the end");
    verify::is_on(cluster, &machine, to)?;
    verify::nothing_is_left(cluster)
}
