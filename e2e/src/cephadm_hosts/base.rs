//! A cluster that cephadm has made, shut down and kept in the cache: made once, as an operator makes one.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::machines::{HOSTS, Machines};
use super::root::Roots;
use super::wait_healthy;
use crate::cache;
use crate::ceph::each;
use crate::command::{run, say};
use crate::files::put;
use crate::folder::Folder;
use crate::hosts::host::Host;
use crate::hosts::network;
use crate::roots::build::digest;
use crate::second_build::SecondBuild;

const IMAGE: &str = include_str!("image.sh");
const INIT: &str = include_str!("init.conf");

/// What it may take of the disk while it is made, in bytes.
pub(super) const DISK: u64 = 9_000_000_000;

/// What of a stopped cluster is kept.
const KEPT: [&str; 4] = ["hosts", "disks", "registry", "ceph.conf"];

/// A stopped cluster.
#[derive(Debug, Clone)]
pub(super) struct Base {
    pub(super) path: PathBuf,
    /// What it runs, and what its registry has besides.
    pub(super) versions: [String; 2],
}

/// The image of a version.
pub(super) fn image(version: &str) -> String {
    format!("{}:5000/ceph:v{version}", network::OUTSIDE)
}

impl Base {
    /// Gives the one in the cache, made if it is not there yet, which takes minutes.
    pub(super) fn ensure(roots: &Roots) -> Result<Self> {
        let next = SecondBuild::of(&roots.ceph)?;
        let versions = [roots.ceph.ceph_version().to_owned(), next.version.clone()];
        let texts = [
            roots.asked.as_str(),
            IMAGE,
            INIT,
            include_str!("base.rs"),
            &versions[1],
        ];
        let all = cache::dir()?.join("cephadm-clusters");
        fs::create_dir_all(&all).with_context(|| format!("making {}", all.display()))?;
        let base = Self {
            path: all.join(digest(texts)?),
            versions,
        };
        let lock = fs::File::create(all.join(".lock")).context("making the lock of clusters of cephadm")?;
        lock.lock()
            .context("waiting for whoever makes a cluster of cephadm")?;
        if !base.path.exists() {
            // Those of other roots are of no use to anybody.
            for old in fs::read_dir(&all)
                .context("reading the clusters of cephadm")?
                .flatten()
            {
                if old.file_type().is_ok_and(|kind| kind.is_dir()) {
                    fs::remove_dir_all(old.path())
                        .with_context(|| format!("removing {}", old.path().display()))?;
                }
            }
            base.make(roots, &next).context("making a cluster of cephadm")?;
        }
        Ok(base)
    }

    fn make(&self, roots: &Roots, next: &SecondBuild) -> Result<()> {
        let begun = Instant::now();
        let lap = |what: &str| say(format!("cephadm: {what} after {} s", begun.elapsed().as_secs()));
        let folder = Folder::make("hosts-", DISK)?;
        let machines = Machines::start(&folder, roots)?;
        lap("hosts are up");
        let [now, then] = [&self.versions[0], &self.versions[1]];
        push(&machines, None, now)?;
        push(&machines, Some(&next.layer), then)?;
        let pull = format!("podman pull -q {}", image(now));
        each(machines.hosts.iter().collect(), |host: &Host| {
            host.run(&pull).map(drop)
        })?;
        lap("images are in the registry");
        bootstrap(&machines, &image(now))?;
        lap("the first host has a cluster");
        others(&machines)?;
        lap("all hosts have OSDs");
        run(&mut machines.ceph(&["osd", "pool", "create", "data", "32", "32"]))?;
        // Groups that are split or moved have nothing to do with any test.
        run(&mut machines.ceph(&["osd", "pool", "set", "noautoscale"]))?;
        run(&mut machines.ceph(&["osd", "pool", "application", "enable", "data", "test"]))?;
        wait_healthy(&machines, Duration::from_mins(5))?;
        machines.shut_down()?;
        lap("made");
        // Else the folder goes with the namespaces.
        machines.sandbox.keep_folder()?;
        drop(machines);
        let place = self.path.with_extension("new");
        fs::remove_dir_all(&place).ok();
        fs::create_dir(&place).with_context(|| format!("making {}", place.display()))?;
        for disk in fs::read_dir(folder.path().join("disks")).context("reading the disks")? {
            run(Command::new("fallocate")
                .arg("--dig-holes")
                .arg(disk.context("a disk")?.path()))?;
        }
        for name in KEPT {
            fs::rename(folder.path().join(name), place.join(name))
                .with_context(|| format!("keeping {name}"))?;
        }
        fs::rename(&place, &self.path).with_context(|| format!("keeping {}", self.path.display()))?;
        fs::remove_dir_all(folder.path()).with_context(|| format!("removing {}", folder.path().display()))
    }

    /// Copies it, the holes in its disks too.
    pub(super) fn copy_to(&self, folder: &Path) -> Result<()> {
        let mut copy = Command::new("cp");
        copy.args(["-a", "--sparse=always"]);
        copy.args(KEPT.map(|name| self.path.join(name))).arg(folder);
        run(&mut copy).map(drop)
    }
}

/// Makes an image of Ceph's root, with a layer over it, through the first host, and has it in the registry alone.
fn push(machines: &Machines, layer: Option<&Path>, version: &str) -> Result<()> {
    let name = image(version);
    let first = machines.host(1)?;
    let mut pack = machines.sandbox.command("unshare");
    pack.args(["--mount", "--propagation", "private", "sh", "-c", IMAGE, "image"]);
    pack.arg(&machines.roots.ceph.path).args(layer);
    let mut pack = pack.stdout(Stdio::piped()).spawn().context("packing an image")?;
    let packed = pack.stdout.take().context("what is packed goes nowhere")?;
    let mut import = first.ssh(&format!(
        "podman import -q --change 'ENV CEPH_VOLUME_ALLOW_LOOP_DEVICES=1' \
         --change 'ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin' - {name}"
    ));
    run(import.stdin(packed)).with_context(|| format!("making the image of {version}"))?;
    let packed = pack.wait().context("waiting for an image to be packed")?;
    ensure!(packed.success(), "packing an image ended with {packed}");
    first
        .run(&format!("podman push -q {name} && podman rmi {name}"))
        .with_context(|| format!("pushing the image of {version}"))?;
    Ok(())
}

/// The first host, by `cephadm bootstrap`.
fn bootstrap(machines: &Machines, image: &str) -> Result<()> {
    let first = machines.host(1)?;
    let put_conf = format!("cat >/root/init.conf <<'END'\n{INIT}END\n");
    first.run(&put_conf)?;
    first.run(&format!(
        "cephadm --image {image} bootstrap --skip-pull --skip-monitoring-stack --skip-dashboard --mon-ip {} \
         --config /root/init.conf --output-config /etc/ceph/ceph.conf",
        first.address()
    ))?;
    let admin = first.run("cat /etc/ceph/ceph.client.admin.keyring")?;
    let conf = first.run("cat /etc/ceph/ceph.conf")?;
    let key = admin
        .lines()
        .find(|line| line.contains("key ="))
        .context("a key of client.admin")?;
    put(
        &machines.dir().join("ceph.conf"),
        &format!("{conf}[client.admin]\n{key}\n"),
    )
}

/// The other hosts, as cephadm's guide has it, and everything that is on them.
fn others(machines: &Machines) -> Result<()> {
    let ceph = |words: &[&str]| run(&mut machines.ceph(words)).map(drop);
    // What is in the image comes to crash reports of a new cluster, and no memory is to be measured.
    ceph(&["config", "set", "mgr", "mgr/crash/warn_recent_interval", "0"])?;
    let key = machines.host(1)?.run("cat /etc/ceph/ceph.pub")?;
    for number in 2..=HOSTS {
        let host = machines.host(number)?;
        host.run(&format!(
            "install -d -m 700 /root/.ssh && echo '{}' >>/root/.ssh/authorized_keys",
            key.trim()
        ))?;
        ceph(&["orch", "host", "add", host.name(), host.address()])?;
    }
    ceph(&["orch", "apply", "mon", "h1 h2 h3"])?;
    ceph(&["orch", "apply", "mgr", "h1 h2"])?;
    for host in &machines.hosts {
        let disks = host.run("ls /dev/loop*")?;
        let disks: Vec<&str> = disks.split_whitespace().collect();
        let devices = format!("{}:{}", host.name(), disks.join(","));
        ceph(&["orch", "daemon", "add", "osd", &devices, "raw"])?;
    }
    // Else it tries again and again to make an OSD of a disk that has one.
    ceph(&["orch", "set-unmanaged", "osd.default"])?;
    ensure!(HOSTS == 3, "monitors and managers are named for three hosts");
    Ok(())
}
