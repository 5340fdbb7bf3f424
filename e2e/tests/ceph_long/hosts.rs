//! Reboots of hosts: all of a cluster under load, killed in mid-wave and resumed, and one that does not come back.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use stagger_e2e::case::of_shape_under_load;
use stagger_e2e::ceph::{CephSpec, Cluster};
use stagger_e2e::command::say;
use stagger_e2e::roots::Release;
use stagger_e2e::stagger::{Journal, Machine, OWN_HOST, Setup};
use stagger_e2e::verify;

use super::LIMIT;

const RELEASES: [Release; 1] = [Release::Reef];

/// Three managers, so that one is on a host outside of any wave of two; and so few placement groups that some pairs of hosts
/// have none in common.
fn hosts() -> CephSpec {
    CephSpec {
        mgrs: 3,
        host_pgs: 8,
        rack_pgs: 8,
        ec_pgs: 4,
        named_hosts: true,
        ..CephSpec::default()
    }
}

/// How often each host was rebooted.
fn reboots(cluster: &Cluster) -> Result<BTreeMap<String, u32>> {
    let path = cluster.dir().join("reboots");
    let text = fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
    let mut count = BTreeMap::new();
    for host in text.lines() {
        *count.entry(host.to_owned()).or_insert(0) += 1;
    }
    Ok(count)
}

/// The waves that were carried out, in order.
fn waves(journal: &Journal) -> Vec<Vec<String>> {
    let passed = journal.passed("reboot").into_iter();
    passed.map(|wave| wave.units).collect()
}

#[test]
#[ignore = "long; needs root and Ceph; cargo xtask test --long runs it"]
fn hosts_are_rebooted_under_load() -> Result<()> {
    let name = "hosts_are_rebooted_under_load";
    of_shape_under_load(name, hosts(), Release::Reef, &RELEASES, |cluster, phases| {
        let setup = Setup {
            // A host takes its monitor with it: the others write nothing until they have elected.
            lock_expires: 60,
            ..Setup::default()
        };
        let machine = Machine::new(cluster, "anna", &setup)?;
        let planned = machine.planned(&["reboot"], "reboot")?;
        say(format!("   planned: {planned:?}"));
        let count = (cluster.spec().racks * cluster.spec().hosts_per_rack) as usize;
        let all: BTreeSet<&String> = planned.iter().flatten().collect();
        ensure!(all.len() == count, "{} of {count} hosts are planned", all.len());
        let own = format!("host.{OWN_HOST}");
        ensure!(
            planned.last() == Some(&vec![own.clone()]),
            "{own} is not last and alone"
        );
        phases.lap("planned");

        let mut run = machine.start(&["run", "reboot"])?;
        let journal = machine.stop_when(&run, "a visit in a wave of several", LIMIT, |journal| {
            let wide = journal.waves().last().is_some_and(|wave| wave.units.len() > 1);
            Ok(wide && journal.visits("host"))
        })?;
        let wave = journal.waves().pop().context("no wave")?;
        run.kill()?;
        phases.lap(format!("killed in the wave {:?}", wave.units));
        machine
            .resume_to_the_end(LIMIT)?
            .expect(0)
            .with_context(|| machine.history_tail(60))?;
        phases.lap("resumed to the end");

        let counted = reboots(cluster)?;
        ensure!(
            counted.len() == count && counted.values().all(|times| *times == 1),
            "reboots: {counted:?}"
        );
        let journal = machine.journal()?;
        journal.both_judges_agreed()?;
        let waves = waves(&journal);
        say(format!("   waves: {waves:?}"));
        ensure!(
            waves.iter().any(|wave| wave.len() > 1),
            "no two hosts went together: {waves:?}"
        );
        ensure!(
            waves.len() < count,
            "{} waves for {count} hosts: no fewer than one after another",
            waves.len()
        );
        ensure!(
            waves.last() == Some(&vec![own]),
            "the last wave: {:?}",
            waves.last()
        );
        verify::nothing_is_left(cluster)?;
        let since = ["plan", "reboot", "--since", "2020-01-01T00:00:00Z"];
        let again = machine.call(&since)?.expect(1)?;
        ensure!(again.said.contains("has booted since"), "{}", again.said);
        verify::is_healthy(cluster)?;
        phases.lap("no host is rebooted twice");
        osds_are_restarted(cluster, &machine)
    })
}

/// The OSDs of two hosts are restarted once each, by a run whose process is killed on the way, and no other daemon is.
fn osds_are_restarted(cluster: &Cluster, machine: &Machine) -> Result<()> {
    let hosts = ["host1", "host5"];
    let mut wanted = BTreeSet::new();
    for entry in fs::read_dir(cluster.dir().join("host-of")).context("reading where daemons are")? {
        let path = entry?.path();
        let daemon = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let host = fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
        if daemon.starts_with("osd.") && hosts.contains(&host.trim()) {
            wanted.insert(daemon);
        }
    }
    ensure!(!wanted.is_empty(), "no OSD is on {hosts:?}");
    let mut run = machine.start(&["run", "restart", "--daemons", "osd", "--host", &hosts.join(",")])?;
    machine.stop_when(&run, "a host in its turn", LIMIT, |journal| {
        Ok(journal.visits("host"))
    })?;
    run.kill()?;
    machine
        .resume_to_the_end(LIMIT)?
        .expect(0)
        .with_context(|| machine.history_tail(60))?;
    let visits = fs::read_to_string(cluster.dir().join("visits")).context("reading what was restarted")?;
    let mut begun: Vec<&str> = visits
        .lines()
        .filter_map(|line| line.strip_prefix("begin "))
        .collect();
    say(format!("   restarted: {begun:?}"));
    begun.sort_unstable();
    ensure!(
        begun.iter().copied().eq(wanted.iter().map(String::as_str)),
        "restarted were {begun:?}, and wanted {wanted:?}"
    );
    verify::nothing_is_left(cluster)?;
    verify::is_healthy(cluster)
}

/// The run holds and names the host; once that is back, it goes on by a person's word.
#[test]
#[ignore = "long; needs root and Ceph; cargo xtask test --long runs it"]
fn a_host_that_stays_away_is_named() -> Result<()> {
    let name = "a_host_that_stays_away_is_named";
    of_shape_under_load(name, hosts(), Release::Reef, &RELEASES, |cluster, phases| {
        let setup = Setup {
            lock_expires: 60,
            reboot_timeout: 20,
            ..Setup::default()
        };
        let machine = Machine::new(cluster, "anna", &setup)?;
        let stays = cluster.dir().join("hosts/host5/stays-away");
        fs::write(&stays, "").with_context(|| format!("writing {}", stays.display()))?;
        let words = ["run", "reboot", "--host", "host5", "--host", "host9"];
        let mut run = machine.start(&words)?;
        run.until("a hold that names the host", LIMIT, |line| {
            line.contains("host.host5") && line.contains("not back after")
        })?;
        phases.lap("held");
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(15) {
            let counted = reboots(cluster)?;
            ensure!(
                counted.get("host5") == Some(&1),
                "it was rebooted again: {counted:?}"
            );
            std::thread::sleep(Duration::from_secs(1));
        }
        fs::remove_file(&stays).with_context(|| format!("removing {}", stays.display()))?;
        cluster.wait_clean(LIMIT)?;
        phases.lap("it is back");
        run.end(LIMIT)?;
        let ended = machine.resume_to_the_end(LIMIT)?;
        ended.expect(0).with_context(|| machine.history_tail(60))?;
        let counted = reboots(cluster)?;
        ensure!(
            counted == BTreeMap::from([("host5".to_owned(), 1), ("host9".to_owned(), 1)]),
            "reboots: {counted:?}"
        );
        verify::nothing_is_left(cluster)?;
        verify::is_healthy(cluster)
    })
}

/// Hosts are patched in their turn. The power of one that stays away is cut; one that comes back with the old kernel holds the run.
#[test]
#[ignore = "long; needs root and Ceph; cargo xtask test --long runs it"]
fn hosts_are_patched_powered_on_and_looked_at() -> Result<()> {
    let name = "hosts_are_patched_powered_on_and_looked_at";
    of_shape_under_load(name, hosts(), Release::Reef, &RELEASES, |cluster, phases| {
        let setup = Setup {
            lock_expires: 60,
            reboot_timeout: 20,
            around_reboots: true,
            ..Setup::default()
        };
        let machine = Machine::new(cluster, "anna", &setup)?;
        let of = |host: &str, file: &str| cluster.dir().join("hosts").join(host).join(file);
        for (host, file) in [("host5", "stays-away"), ("host9", "old-kernel")] {
            let path = of(host, file);
            fs::write(&path, "").with_context(|| format!("writing {}", path.display()))?;
        }
        let checked = machine.call(&["config", "check"])?.expect(0)?;
        ensure!(
            checked.out.contains("12 hosts report their boot id"),
            "not asked: {}",
            checked.out
        );
        let words = ["run", "patch", "--host", "host1,host5,host9"];
        let mut run = machine.start(&words)?;
        run.until("a host that is not as it is wanted", LIMIT, |line| {
            line.contains("host.host9") && line.contains("host9 has booted, but is not in the wanted state")
        })?;
        phases.lap("a host with the old kernel");
        let old = of("host9", "old-kernel");
        fs::remove_file(&old).with_context(|| format!("removing {}", old.display()))?;
        // The corrective step asks once more.
        run.end(LIMIT)?
            .expect(0)
            .with_context(|| machine.history_tail(60))?;
        phases.lap("to the end");

        let path = cluster.dir().join("turns");
        let text = fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
        let turn = |host: &str| -> Vec<&str> {
            let lines = text.lines().filter_map(|line| line.split_once(' '));
            lines
                .filter(|(_, of)| *of == host)
                .map(|(word, _)| word)
                .collect()
        };
        for (host, expected) in [
            ("host1", vec!["prepare", "before", "patch", "after"]),
            ("host5", vec!["prepare", "before", "patch", "power", "after"]),
            ("host9", vec!["prepare", "before", "patch", "after"]),
        ] {
            ensure!(turn(host) == expected, "{host}: {:?}", turn(host));
        }
        let counted = reboots(cluster)?;
        ensure!(
            counted.len() == 3 && counted.values().all(|times| *times == 1),
            "reboots: {counted:?}"
        );
        verify::nothing_is_left(cluster)?;
        verify::is_healthy(cluster)
    })
}
