//! The harness of hosts with packages itself: hosts with systemd and sshd come up with a healthy cluster; one is given the
//! software of the next release, with no daemon restarted, then its daemons are restarted, and it is taken back; one is
//! rebooted; nothing is left.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use stagger_e2e::case::Phases;
use stagger_e2e::command::{output, say};
use stagger_e2e::hosts::host::Host;
use stagger_e2e::package_hosts::root::Repository;
use stagger_e2e::package_hosts::{Cluster, HostsSpec, debian};
use stagger_e2e::rados::Target;

/// On a busy machine.
const LIMIT: Duration = Duration::from_mins(2);

#[test]
#[ignore = "needs root and Debian's packages; cargo xtask test --long runs it"]
fn software_of_hosts_goes_forward_and_back() -> Result<()> {
    let mut cluster = Cluster::boot(HostsSpec::default())?;
    say(format!("healthy after {:.1} s", cluster.took().as_secs_f64()));
    let mut phases = Phases::begin();
    let result = story(&mut cluster, &mut phases);
    phases.print();
    let dir = cluster.dir().to_owned();
    let begun = Instant::now();
    // Not stopped in order: as in a test that failed.
    drop(cluster);
    say(format!("gone after {:.1} s", begun.elapsed().as_secs_f64()));
    result?;
    nothing_left(&dir)
}

fn story(cluster: &mut Cluster, phases: &mut Phases) -> Result<()> {
    let old = cluster.root().version(Repository::Begun)?;
    let new = cluster.root().version(Repository::Next)?;
    everyone_gets_in(cluster)?;
    one_package_is_not_to_be_had(cluster, &new)?;
    phases.lap("looked around");

    let host = cluster.host(3)?;
    let before = daemons(host)?;
    ensure!(before.len() == 3, "a monitor and two OSDs: {before:?}");
    let ours = installed(host)?;
    ensure!(ours.iter().all(|(_, version)| *version == old), "{ours:?}");
    let told = debian::upgrade(host, &ceph_version(&new))?;
    ensure!(told.contains(&new) && told.contains("packages changed"), "{told}");
    ensure!(daemons(host)? == before, "daemons were restarted");
    consistent(host, &new, ours.len())?;
    let told = debian::upgrade(host, &ceph_version(&new))?;
    ensure!(
        !told.contains("changed"),
        "installed again, it changed something: {told}"
    );
    phases.lap("software installed");

    debian::restart(host, "mon", "h3")?;
    // Debian's units allow three starts in half an hour, and it is not the operator who counts them.
    for _ in 0..4 {
        for osd in ["4", "5"] {
            debian::restart(host, "osd", osd)?;
        }
    }
    on_version(cluster, &[4, 5], &ceph_version(&new))?;
    cluster.wait_clean(LIMIT)?;
    phases.lap("daemons restarted");

    reboot(cluster)?;
    phases.lap("another host rebooted");

    // What is not restarted may crash, and comes back with what is on the disk.
    let host = cluster.host(3)?;
    debian::before_rollback(host, 4, &ceph_version(&old))?;
    // The sources of the site may have nothing of the old release any more.
    host.run("rm /etc/apt/sources.list; apt-get -qq update")?;
    debian::rollback(host, &ceph_version(&old))?;
    consistent(host, &old, ours.len())?;
    // The tools of the newer release are needed once more.
    debian::before_rollback(host, 5, &ceph_version(&old))?;
    consistent(host, &new, ours.len())?;
    debian::rollback(host, &ceph_version(&old))?;
    consistent(host, &old, ours.len())?;
    debian::rollback(host, &ceph_version(&old))?;
    phases.lap("software taken back");
    back_on_it(cluster, &[4, 5])?;
    on_version(cluster, &[4, 5], &ceph_version(&old))?;
    cluster.wait_clean(LIMIT)?;
    cluster.wait_for("HEALTH_OK", LIMIT, |rados| {
        Ok(rados.mon("health")?["status"] == "HEALTH_OK")
    })?;
    phases.lap("daemons restarted on it");
    Ok(())
}

/// Keys, known hosts and sudo work; a host has its own name, root and network.
fn everyone_gets_in(cluster: &Cluster) -> Result<()> {
    for host in cluster.hosts() {
        ensure!(host.run("hostname")?.trim() == host.name());
        let state = host.run("systemctl is-system-running")?;
        ensure!(state.trim() == "running", "{} is {state}", host.name());
        let id = output(&mut host.ssh_as("admin", "sudo -n id -u"))?;
        ensure!(String::from_utf8_lossy(&id.stdout).trim() == "0", "{id:?}");
    }
    let first = cluster.host(1)?;
    let known = first.run("ssh-keyscan -t ed25519 h2 2>/dev/null | grep -v '^#' | cut -d' ' -f3")?;
    let key = cluster
        .host(2)?
        .run("cut -d' ' -f2 /etc/ssh/ssh_host_ed25519_key.pub")?;
    ensure!(known == key && !key.is_empty(), "h2 shows {known}, and has {key}");
    Ok(())
}

/// What `ceph-mon` of another release does to a host: all or nothing.
fn one_package_is_not_to_be_had(cluster: &Cluster, new: &str) -> Result<()> {
    for host in cluster.hosts() {
        debian::add_source(host, Repository::Next)?;
        host.run("apt-get -qq update")?;
    }
    let host = cluster.host(2)?;
    let line = format!("apt-get -s install --only-upgrade ceph-mon={new} 2>&1");
    let said = host.run(&line)?;
    ensure!(
        said.contains("Inst ceph-osd ["),
        "only monitors are upgraded: {said}"
    );
    host.run(
        "printf 'Package: *\\nPin: release n=forky\\nPin-Priority: 100\\n' >/etc/apt/preferences.d/pin",
    )?;
    let said = output(&mut host.ssh(&line))?;
    let text = String::from_utf8_lossy(&said.stdout).into_owned();
    ensure!(
        !said.status.success() && text.contains("ceph-mon : Depends: ceph-common"),
        "{text}"
    );
    host.run("rm /etc/apt/preferences.d/pin").map(drop)
}

/// Each unit of Ceph that runs on a host, with its process.
fn daemons(host: &Host) -> Result<BTreeMap<String, String>> {
    let said = host.run("systemctl show -p Id,MainPID 'ceph-*@*.service'")?;
    let mut found = BTreeMap::new();
    for unit in said.split("\n\n") {
        let field = |name: &str| {
            unit.lines()
                .find_map(|line| line.strip_prefix(name)?.strip_prefix('='))
                .map(str::to_owned)
        };
        if let (Some(id), Some(pid)) = (field("Id"), field("MainPID"))
            && pid != "0"
        {
            found.insert(id, pid);
        }
    }
    Ok(found)
}

/// Ceph's packages that are installed, and their versions.
fn installed(host: &Host) -> Result<Vec<(String, String)>> {
    let said = host.run(
        "dpkg-query -W -f '${source:Package} ${db:Status-Status} ${Package} ${Version}\\n' | grep '^ceph installed '",
    )?;
    let words = |line: &str| {
        let mut words = line.split(' ').skip(2).map(str::to_owned);
        Some((words.next()?, words.next()?))
    };
    Ok(said.lines().filter_map(words).collect())
}

/// All packages of Ceph are at that version, as many as there were, and dpkg finds nothing amiss.
fn consistent(host: &Host, version: &str, count: usize) -> Result<()> {
    let ours = installed(host)?;
    ensure!(
        ours.len() == count && ours.iter().all(|(_, found)| found == version),
        "not all {count} packages of Ceph are at {version}: {ours:?}"
    );
    let amiss = host.run("dpkg --audit; apt-get -qq check 2>&1")?;
    ensure!(amiss.trim().is_empty(), "{amiss}");
    Ok(())
}

/// Waits until these OSDs tell that version of Ceph.
fn on_version(cluster: &mut Cluster, osds: &[u64], version: &str) -> Result<()> {
    let begun = Instant::now();
    loop {
        let told = cluster.osd_versions()?;
        let there = |osd: &u64| told.iter().any(|(id, found)| id == osd && found == version);
        if osds.iter().all(there) {
            return Ok(());
        }
        ensure!(
            begun.elapsed() < LIMIT,
            "not {version} on all of {osds:?}: {told:?}"
        );
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// Ceph's own version of a version of its packages.
fn ceph_version(package: &str) -> String {
    package.split(['+', '-']).next().unwrap_or(package).to_owned()
}

/// Starts OSDs of the last host on the older release. It reads none of the maps that the newer one has stored, and one that is
/// marked up before it has fetched them may never become active: so they are not let up before.
fn back_on_it(cluster: &mut Cluster, osds: &[u64]) -> Result<()> {
    let group: Vec<String> = osds.iter().map(|osd| format!("osd.{osd}")).collect();
    let noup = json!({ "flags": "noup", "who": group });
    cluster
        .rados()
        .command(Target::Mon, "osd set-group", noup.clone())?;
    let epoch = cluster.rados().mon("osd dump")?["epoch"].as_u64();
    let host = cluster.host(3)?;
    debian::restart(host, "mon", "h3")?;
    for osd in osds {
        debian::restart(host, "osd", &osd.to_string())?;
    }
    for osd in osds {
        let begun = Instant::now();
        loop {
            let said = host.run(&format!("ceph daemon osd.{osd} status 2>/dev/null || true"))?;
            let said: Value = serde_json::from_str(&said).unwrap_or_default();
            if said["newest_map"].as_u64().is_some_and(|map| Some(map) >= epoch) {
                break;
            }
            ensure!(
                begun.elapsed() < LIMIT,
                "osd.{osd} does not fetch map {epoch:?}: {said}"
            );
            std::thread::sleep(Duration::from_millis(200));
        }
    }
    cluster
        .rados()
        .command(Target::Mon, "osd unset-group", noup)
        .map(drop)
}

/// A host goes down, stays away for as long as it is told to, and comes back in another boot with its daemons.
fn reboot(cluster: &mut Cluster) -> Result<()> {
    let host = cluster.host(2)?;
    let before = host.boot_id()?;
    host.stays_away(true)?;
    // The session may end before it is answered.
    output(&mut host.ssh("systemctl reboot"))?;
    let status = |cluster: &mut Cluster, up: u64| {
        cluster.wait_for("the OSDs of a host", LIMIT, |rados| {
            Ok(rados.mon("status")?["osdmap"]["num_up_osds"] == up)
        })
    };
    status(cluster, 4)?;
    let host = cluster.host(2)?;
    ensure!(host.boot_id().is_err(), "it is away");
    host.stays_away(false)?;
    host.wait_up(Some(&before), LIMIT)?;
    let up: f64 = host
        .run("cut -d' ' -f1 /proc/uptime")?
        .trim()
        .parse()
        .context("an uptime")?;
    ensure!(up < 60.0, "it tells that it is up for {up} s");
    let boots = host.run("journalctl --list-boots --no-pager -q | grep -c ' [0-9a-f]\\{32\\} '")?;
    ensure!(boots.trim() == "2", "its journal has {boots} boots");
    cluster.wait_clean(LIMIT).map(drop)
}

/// Folder and control groups are gone.
fn nothing_left(dir: &Path) -> Result<()> {
    ensure!(!dir.exists(), "{} is left", dir.display());
    let name = dir.file_name().and_then(|name| name.to_str());
    let name = format!("stagger-{}", name.context("a folder without a name")?);
    let mounts = std::fs::read_to_string("/proc/self/mounts")?;
    for mount in mounts.lines().filter(|line| line.contains(" cgroup2 ")) {
        let place = mount.split(' ').nth(1).unwrap_or_default();
        let group = Path::new(place).join(&name);
        ensure!(!group.exists(), "{} is left", group.display());
    }
    ensure!(
        !mounts.contains(&dir.display().to_string()),
        "mounts are left: {mounts}"
    );
    Ok(())
}
