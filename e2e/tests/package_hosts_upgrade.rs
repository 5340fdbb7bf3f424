//! Hosts with Debian's packages, systemd and sshd, as sites have them: stagger upgrades them by the profile `debian`.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use stagger_e2e::case::{Phases, case};
use stagger_e2e::command::say;
use stagger_e2e::package_hosts::root::Repository;
use stagger_e2e::package_hosts::{Cluster, HostsSpec, debian};
use stagger_e2e::stagger::{Doors, Machine, PackageHostsSetup, says};

/// On a busy machine: packages are installed on all hosts.
const LIMIT: Duration = Duration::from_mins(15);

/// What ran as which process of each unit, by host and unit.
type Processes = BTreeMap<(String, String), String>;

#[test]
#[ignore = "long; needs root and Debian's packages; cargo xtask test --long runs it"]
fn from_18_to_20_on_six_hosts_killed_on_the_way() -> Result<()> {
    on_hosts("package_hosts_18_20", 6, |cluster, phases| {
        let machine = Machine::new(cluster, "anna", &PackageHostsSetup::default())?;
        let to = offered(cluster)?;
        let checked = machine.call(&["config", "check", "--to", "20"])?.expect(0)?;
        checked.expect_said(&["it can be reached"])?;
        let planned = machine.call(&["plan", "upgrade", "--to", "20"])?.expect(0)?;
        planned.expect_said(&[&format!("ceph 18.2.7 to {to}")])?;
        say(&planned.out);
        let before = processes(cluster)?;
        phases.lap("checked and planned");

        let mut run = machine.start(&["run", "upgrade", "--to", "20"])?;
        machine.stop_in_visit(&run, "mon", LIMIT)?;
        run.kill()?;
        phases.lap("killed with a mon's intent open");
        let mut run = machine.start(&["resume"])?;
        run.until("an OSD wave", LIMIT, |line| says(line, "wave", "osd:"))?;
        machine.stop_in_visit(&run, "osd", LIMIT)?;
        run.kill()?;
        phases.lap("killed in an OSD wave");
        machine.resume_to_the_end(LIMIT)?.expect(0)?;
        phases.lap("resumed to the end");

        on(cluster, &to)?;
        let after = processes(cluster)?;
        ensure!(
            after.keys().eq(before.keys()),
            "other units run: {before:?} and {after:?}"
        );
        let same: Vec<_> = after
            .iter()
            .filter(|(unit, pid)| before.get(*unit) == Some(pid))
            .collect();
        ensure!(same.is_empty(), "never restarted: {same:?}");
        cluster.wait_clean(LIMIT).map(drop)
    })
}

/// All daemons but the monitors go back from the point of no return: the software of their hosts from the packages that were
/// kept, the data of OSDs by the tools of the newer release.
#[test]
#[ignore = "long; needs root and Debian's packages; cargo xtask test --long runs it"]
fn managers_and_osds_go_back_with_the_software_of_their_hosts() -> Result<()> {
    on_hosts("package_hosts_back", 3, |cluster, phases| {
        let setup = PackageHostsSetup { doors: Doors::Ask };
        let machine = Machine::new(cluster, "anna", &setup)?;
        let to = offered(cluster)?;
        let run = machine.start(&["run", "upgrade", "--to", &to])?;
        run.end(LIMIT)?.expect(3)?;
        let name = machine.newest_run()?;
        machine.call(&["approve", &name, "last-mon"])?.expect(0)?;
        let held = machine.start(&["resume"])?.end(LIMIT)?.expect(3)?;
        held.expect_said(&["require-osd-release-20"])?;
        let versions: Vec<String> = cluster
            .osd_versions()?
            .into_iter()
            .map(|(_, version)| version)
            .collect();
        ensure!(versions.iter().all(|version| *version == to), "{versions:?}");
        phases.lap("all on 20, before the last step");

        let back = machine.start(&["rollback"])?.end(LIMIT)?;
        say(&back.said);
        let versions = cluster.osd_versions()?;
        ensure!(
            versions.iter().all(|(_, version)| version == "18.2.7"),
            "they run {versions:?}: {}",
            machine.history_tail(40)
        );
        cluster.wait_clean(LIMIT)?;
        phases.lap("back on 18");
        for host in cluster.hosts() {
            let amiss = host.run("dpkg --audit; apt-get -qq check 2>&1")?;
            ensure!(amiss.trim().is_empty(), "{}: {amiss}", host.name());
        }
        Ok(())
    })
}

/// Boots hosts that can be given the next release.
fn on_hosts(
    name: &str,
    hosts: u32,
    story: impl FnOnce(&mut Cluster, &mut Phases) -> Result<()>,
) -> Result<()> {
    case(name, || {
        let spec = HostsSpec {
            hosts,
            ..HostsSpec::default()
        };
        let mut cluster = Cluster::boot(spec)?;
        let mut phases = Phases::begin();
        for host in cluster.hosts() {
            debian::add_source(host, Repository::Next)?;
        }
        let result = story(&mut cluster, &mut phases);
        phases.print();
        result?;
        cluster.stop()
    })
}

/// The release of Ceph that the hosts can be given.
fn offered(cluster: &Cluster) -> Result<String> {
    let version = cluster.root().version(Repository::Next)?;
    let plain = version.split(['+', '-']).next().context("a version")?;
    Ok(plain.to_owned())
}

fn processes(cluster: &Cluster) -> Result<Processes> {
    let mut found = BTreeMap::new();
    for host in cluster.hosts() {
        let said = host.run("systemctl show -p Id,MainPID 'ceph-*@*.service'")?;
        for unit in said.split("\n\n") {
            let field = |name: &str| {
                unit.lines()
                    .find_map(|line| line.strip_prefix(name)?.strip_prefix('='))
            };
            if let (Some(id), Some(pid)) = (field("Id"), field("MainPID")) {
                ensure!(pid != "0", "{id} of {} is down", host.name());
                found.insert((host.name().to_owned(), id.to_owned()), pid.to_owned());
            }
        }
    }
    Ok(found)
}

/// Every daemon runs that release, and every host has it as a whole.
fn on(cluster: &mut Cluster, release: &str) -> Result<()> {
    let versions = cluster.rados().mon("versions")?;
    let all = versions["overall"].as_object().context("versions of daemons")?;
    ensure!(
        all.len() == 1 && all.keys().all(|version| version.contains(release)),
        "they run {versions}"
    );
    for host in cluster.hosts() {
        let amiss = host.run("dpkg --audit; apt-get -qq check 2>&1")?;
        ensure!(amiss.trim().is_empty(), "{}: {amiss}", host.name());
        let said = host.run(
            "dpkg-query -W -f '${source:Package} ${db:Status-Status} ${Version}\\n' | grep '^ceph installed ' | sort -u",
        )?;
        ensure!(
            said.lines().count() == 1 && said.contains(release),
            "{} has {said}",
            host.name()
        );
    }
    Ok(())
}
