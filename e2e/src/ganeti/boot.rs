//! From nothing to a cluster that takes jobs.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::root::Root;
use super::safety::{self, Mask};
use super::spec::{self, GanetiSpec};
use super::{Cluster, files, logs_tail};
use crate::ceph::Lap;
use crate::command::run;
use crate::folder::Folder;
use crate::machine::Needed;
use crate::sandbox::Sandbox;

/// What a cluster may take of the disk, in bytes; volumes are sparse.
const DISK: u64 = 2_000_000_000;

/// How long the remote API may take to answer.
const LIMIT: Duration = Duration::from_mins(2);

/// Every kind of disk that instances may have here. Free disk is that of the first.
const TEMPLATES: &str = "drbd,plain,diskless,file,sharedfile,rbd";

/// As wide as possible: what a test does not ask about does not stand in its way.
const BOUNDS: &str = "min:disk-size=0,cpu-count=1,disk-count=0,memory-size=1,nic-count=0,spindle-use=0/\
    max:disk-size=1048576,cpu-count=8,disk-count=16,memory-size=32768,nic-count=8,spindle-use=12";

pub(super) fn boot(root: Root, spec: GanetiSpec) -> Result<Cluster> {
    // First of all: what follows starts Ganeti.
    safety::check(&root.path)?;
    spec.check().context("this cluster cannot be made")?;
    Needed::Iproute2.ensure()?;
    let begun = Instant::now();
    let folder = Folder::make("ganeti-", DISK)?;
    files::write(folder.path(), &spec)?;
    let sandbox = Sandbox::start(folder.path(), &[&root.path])?;
    let mask = Mask::lay(&sandbox, &root.path)?;
    files::write_entrances(&sandbox, &root)?;
    let mut cluster = Cluster {
        sandbox,
        _folder: folder,
        mask,
        root,
        spec,
        laps: Vec::new(),
    };
    start(&mut cluster, begun).with_context(|| {
        format!(
            "booting Ganeti {} in {}; the ends of its logs:\n{}",
            cluster.root.version,
            cluster.dir().display(),
            logs_tail(&cluster)
        )
    })?;
    Ok(cluster)
}

fn start(cluster: &mut Cluster, begun: Instant) -> Result<()> {
    let mut laps = Vec::new();
    let mut lap = |part| {
        laps.push(Lap {
            part,
            until: begun.elapsed(),
        });
    };
    wires(&cluster.sandbox, &cluster.root.path)?;
    for number in 1..=cluster.spec.nodes {
        let name = spec::name(number);
        cluster.node(&name, "wire", &[&spec::address(number)])?;
        cluster.node(&name, "start", &[])?;
    }
    lap("nodes wired");
    let first = spec::name(1);
    let pool = format!("--candidate-pool-size={}", cluster.spec.nodes);
    let bounds = format!("--ipolicy-bounds-specs={BOUNDS}");
    let init = [
        "gnt-cluster",
        "init",
        "--no-etc-hosts",
        "--no-ssh-init",
        "--master-netdev=eth0",
        "--enabled-hypervisors=fake",
        "--enabled-disk-templates=diskless,file,sharedfile",
        "--file-storage-dir=/srv/ganeti/file-storage",
        "--shared-file-storage-dir=/srv/ganeti/shared-file-storage",
        // There are no bridges for instances on the nodes.
        "--nic-parameters=mode=routed",
        &pool,
        &bounds,
        spec::CLUSTER,
    ];
    cluster.on(&first, &init)?;
    lap("cluster made");
    for number in 2..=cluster.spec.nodes {
        let add = ["gnt-node", "add", "--no-ssh-key-check", &spec::name(number)];
        cluster.on(&first, &add)?;
    }
    lap("nodes added");
    let enabled = format!("--enabled-disk-templates={TEMPLATES}");
    let allowed = format!("--ipolicy-disk-templates={TEMPLATES}");
    let modify = [
        "gnt-cluster",
        "modify",
        "--vg-name=xenvg",
        "--drbd-usermode-helper=/bin/true",
        &enabled,
        &allowed,
    ];
    cluster.on(&first, &modify)?;
    let ratios = ["--ipolicy-spindle-ratio=1000", "--ipolicy-vcpu-ratio=100"];
    cluster.on(&first, &[&["gnt-cluster", "modify"][..], &ratios].concat())?;
    lap("templates enabled");
    cluster.wait_for("the remote API answers", LIMIT, |cluster| {
        // Refused until it listens.
        Ok(cluster
            .rapi("GET", "/2/info", None)
            .is_ok_and(|answer| answer.status == 200))
    })?;
    lap("remote API");
    cluster.laps = laps;
    Ok(())
}

/// What the nodes' machine has besides them: folders that a boot would make, and the bridge.
fn wires(sandbox: &Sandbox, root: &Path) -> Result<()> {
    let inside = |words: &[&str]| {
        let mut command = sandbox.command_in(root, words[0]);
        run(command.args(&words[1..]))
    };
    inside(&["mkdir", "-p", "/run/sshd", "/run/netns", "/run/lock"])?;
    inside(&["ip", "link", "add", "lan", "type", "bridge"])?;
    let address = format!("{}/24", spec::BRIDGE_ADDRESS);
    inside(&["ip", "addr", "add", &address, "dev", "lan"])?;
    inside(&["ip", "link", "set", "lan", "up"])?;
    let links = inside(&["ip", "-o", "link"])?;
    ensure!(
        links.lines().count() == 2,
        "a sandbox has its own network with nothing but a loopback, and this one has:\n{links}"
    );
    Ok(())
}
