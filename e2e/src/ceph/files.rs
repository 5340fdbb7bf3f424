//! The cluster's folder: configuration, keys, and the scripts by which it is worked on.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};

use super::spec::{CephSpec, Kind};
use super::{auth, conf};
use crate::files::{put, script};
use crate::rados;
use crate::roots::{Release, Root};
use crate::sandbox::Sandbox;

const DAEMONCTL: &str = include_str!("daemonctl.sh");
const HOSTCTL: &str = include_str!("hostctl.sh");

/// The path of a Unix socket may have 107 bytes; the longest name in `run/` has fewer than 40.
const LONGEST_DIR: usize = 67;

/// Writes everything that does not need the cluster to run.
pub(super) fn write(dir: &Path, fsid: &str, spec: &CephSpec, release: Release, roots: &[Root]) -> Result<()> {
    ensure!(
        dir.as_os_str().len() <= LONGEST_DIR,
        "the cluster folder {} is too long for sockets in it; set STAGGER_CACHE to a shorter path",
        dir.display()
    );
    for folder in ["run", "log", "crash", "keyring", "lib", "sw", "fault", "releases"] {
        let path = dir.join(folder);
        fs::create_dir(&path).with_context(|| format!("making {}", path.display()))?;
    }
    put(&dir.join("ceph.conf"), &conf::text(dir, fsid, spec))?;
    auth::write_keyrings(dir, spec)?;
    script(&dir.join("daemonctl"), DAEMONCTL)?;
    for root in roots {
        put(
            &dir.join("releases").join(root.release.to_string()),
            &format!("{}\n", root.path.display()),
        )?;
    }
    let first = fs::read_to_string(dir.join("releases").join(release.to_string()))
        .context("the first release has no root")?;
    for daemon in spec.all_daemons() {
        put(&dir.join("sw").join(daemon.to_string()), &first)?;
        if daemon.kind != Kind::Mon && daemon.kind != Kind::Osd {
            let path = dir.join(daemon.to_string());
            fs::create_dir(&path).with_context(|| format!("making {}", path.display()))?;
        }
    }
    if spec.named_hosts {
        write_hosts(dir, spec)?;
    }
    for (index, mon) in spec.daemons(Kind::Mon).iter().enumerate() {
        put(
            &dir.join("sw").join(format!("{mon}.addr")),
            &format!("{}\n", conf::mon_address(index)),
        )?;
    }
    put(&dir.join("lib/connection.py"), rados::PROGRAM)?;
    Ok(())
}

/// Which host each daemon stands on, and what a host is beside its daemons.
fn write_hosts(dir: &Path, spec: &CephSpec) -> Result<()> {
    script(&dir.join("hostctl"), HOSTCTL)?;
    let make = |path: &Path| fs::create_dir_all(path).with_context(|| format!("making {}", path.display()));
    make(&dir.join("host-of"))?;
    for daemon in spec.all_daemons() {
        let host = spec.host_of(&daemon)?;
        put(
            &dir.join("host-of").join(daemon.to_string()),
            &format!("{host}\n"),
        )?;
        let own = dir.join("hosts").join(&host);
        make(&own)?;
        put(&own.join("boot-id"), &format!("first-boot-of-{host}\n"))?;
    }
    Ok(())
}

/// Writes the scripts that lead in from outside.
pub(super) fn write_entrances(sandbox: &Sandbox, root: &Root) -> Result<()> {
    let dir = sandbox.dir();
    // Those who are inside already need not enter.
    let link = format!("/proc/{}/ns/net", sandbox.first_pid());
    let net = fs::read_link(&link).with_context(|| format!("reading {link}: has the sandbox ended?"))?;
    let enter = format!(
        "#!/bin/sh\n# Runs a command in the namespaces of this cluster.\n\
         if [ \"$(readlink /proc/self/ns/net)\" = '{net}' ]; then exec \"$@\"; fi\n\
         exec {prefix} \"$@\"\n",
        net = net.display(),
        prefix = sandbox.prefix().join(" "),
    );
    script(&dir.join("enter"), &enter)?;
    let ceph = format!(
        "#!/bin/sh\n# The `ceph` of the release that this cluster began with.\n\
         exec '{dir}/enter' chroot '{root}' ceph -c '{dir}/ceph.conf' \"$@\"\n",
        dir = dir.display(),
        root = root.path.display(),
    );
    script(&dir.join("ceph"), &ceph)
}
