//! A Ceph cluster that cephadm manages, on three hosts of its own: systemd, sshd and podman on each, a registry beside them with images
//! of two versions of Ceph, made of Debian's packages.
//!
//! [`Cluster::boot`] begins with one that cephadm itself has made ([`base`]), kept in the cache.

mod base;
mod machines;
pub mod root;

use std::collections::BTreeMap;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::ceph::is_clean;
use crate::command::{output, run};
use crate::files::{put, script};
use crate::folder::Folder;
use crate::hosts::host::Host;
use crate::load::Load;
use crate::machine::Needed;
use crate::rados::{self, Rados};
use crate::sandbox::Sandbox;
use base::Base;
use machines::{DISKS, HOSTS, Machines};
use root::Roots;

/// After this time a cluster that is not healthy will not be.
const LIMIT: Duration = Duration::from_mins(5);

/// Hosts with a cluster on them. Dropping it ends every process and removes its folder.
#[derive(Debug)]
pub struct Cluster {
    // Before the machines, so that it is dropped first: it ends in order rather than being ended.
    rados: Rados,
    machines: Machines,
    // After the machines, which are in it.
    _folder: Folder,
    versions: [String; 2],
    took: Duration,
}

impl Cluster {
    /// Boots the hosts with a cluster that is healthy, on the first of the two versions.
    ///
    /// # Errors
    /// The base cannot be made, or the cluster does not become healthy.
    pub fn boot() -> Result<Self> {
        Needed::Iproute2.ensure()?;
        let roots = Roots::ensure()?;
        let base = Base::ensure(&roots)?;
        let begun = Instant::now();
        let folder = Folder::make("hosts-", base::DISK)?;
        base.copy_to(folder.path())?;
        let machines = Machines::start(&folder, &roots)?;
        let ceph = format!("ceph -c '{}'", machines.dir().join("ceph.conf").display());
        let ceph = machines
            .sandbox
            .entrance(&roots.ceph.path, "A command of Ceph: ceph orch ps", &ceph)?;
        script(&machines.dir().join("ceph"), &ceph)?;
        wait_healthy(&machines, LIMIT)?;
        let rados = connect(&machines)?;
        Ok(Self {
            rados,
            machines,
            _folder: folder,
            versions: base.versions,
            took: begun.elapsed(),
        })
    }

    /// The folder of the cluster.
    pub fn dir(&self) -> &Path {
        self.machines.dir()
    }

    /// The namespaces that the hosts are in. Its network is the one that they are on.
    pub fn sandbox(&self) -> &Sandbox {
        &self.machines.sandbox
    }

    /// The root that clients beside the hosts run from.
    pub fn client_root(&self) -> &Path {
        &self.machines.roots.ceph.path
    }

    /// How long the boot took, without what is in the cache.
    pub fn took(&self) -> Duration {
        self.took
    }

    /// The version that the cluster begins with, `20.2.4`, and the one that the registry has besides.
    pub fn versions(&self) -> [&str; 2] {
        [&self.versions[0], &self.versions[1]]
    }

    /// The image of a version, `{release}` standing for any.
    pub fn image(version: &str) -> String {
        base::image(version)
    }

    /// All hosts in order.
    pub fn hosts(&self) -> &[Host] {
        &self.machines.hosts
    }

    /// A lasting connection as `client.admin`, from a place that is on none of the hosts.
    pub fn rados(&mut self) -> &mut Rados {
        &mut self.rados
    }

    /// One more lasting connection.
    ///
    /// # Errors
    /// The cluster is not reached.
    pub fn connect(&self) -> Result<Rados> {
        connect(&self.machines)
    }

    /// Runs the `ceph` program, which must succeed, and gives its stdout.
    ///
    /// # Errors
    /// It does not succeed.
    pub fn ceph(&self, words: &[&str]) -> Result<String> {
        run(&mut self.machines.ceph(words))
    }

    /// The same as JSON.
    ///
    /// # Errors
    /// It does not succeed, or prints none.
    pub fn ceph_json(&self, words: &[&str]) -> Result<Value> {
        let said = self.ceph(&[words, &["--format", "json"]].concat())?;
        serde_json::from_str(&said).with_context(|| format!("ceph {} printed {said:?}", words.join(" ")))
    }

    /// The containers of the cluster's daemons, by the daemon, `osd.3`, with the image that each was started from.
    ///
    /// # Errors
    /// A host does not answer.
    pub fn containers(&self) -> Result<BTreeMap<String, (String, String)>> {
        let mut found = BTreeMap::new();
        for host in self.hosts() {
            let said = host.run("podman ps --no-trunc --format '{{.Names}} {{.ID}} {{.Image}}'")?;
            for line in said.lines() {
                if let [name, id, image] = line.split(' ').collect::<Vec<_>>()[..]
                    && let Some((_, daemon)) = name
                        .strip_prefix("ceph-")
                        .and_then(|name| name.split_at_checked(37))
                {
                    found.insert(daemon.replacen('-', ".", 1), (id.to_owned(), image.to_owned()));
                }
            }
        }
        Ok(found)
    }

    /// Starts a client of the cluster's pool, which must not notice what is done to its OSDs.
    ///
    /// # Errors
    /// It cannot be started, or does nothing within a minute.
    pub fn load(&self) -> Result<Load> {
        let python = self.sandbox().command_in(self.client_root(), "python3");
        Load::of_pool(
            python,
            self.dir(),
            &self.dir().join("ceph.conf"),
            "client.admin",
            "data",
        )
    }

    /// Waits until all OSDs are up and the cluster has complained of nothing for a while: its balancer moves groups when it likes.
    ///
    /// # Errors
    /// It is not so in time.
    pub fn wait_healthy(&self) -> Result<()> {
        wait_healthy(&self.machines, LIMIT)
    }

    /// Waits until every OSD is up and every placement group is active and clean.
    ///
    /// # Errors
    /// It is not so in time.
    pub fn wait_clean(&mut self, limit: Duration) -> Result<()> {
        let begun = Instant::now();
        loop {
            let status = self.rados.mon("status")?;
            if is_clean(&status, (HOSTS * DISKS) as u64) {
                return Ok(());
            }
            if begun.elapsed() > limit {
                bail!("not clean within {} s: {status}", limit.as_secs());
            }
            thread::sleep(Duration::from_millis(200));
        }
    }

    /// Ends the hosts and waits until nothing of them is left.
    ///
    /// # Errors
    /// The sandbox does not end.
    pub fn stop(mut self) -> Result<()> {
        self.machines.sandbox.stop()
    }
}

fn connect(machines: &Machines) -> Result<Rados> {
    let program = machines.dir().join("connection.py");
    put(&program, rados::PROGRAM)?;
    let mut command = machines.sandbox.command_in(&machines.roots.ceph.path, "python3");
    command
        .arg(program)
        .arg(machines.dir().join("ceph.conf"))
        .arg("client.admin");
    Rados::connect(&mut command)
}

/// Daemons that have just started peer once more, and managers load their modules.
const STEADY: Duration = Duration::from_secs(5);

/// Waits until all OSDs are up and the cluster has complained of nothing for a while.
fn wait_healthy(machines: &Machines, limit: Duration) -> Result<()> {
    let begun = Instant::now();
    let mut since: Option<Instant> = None;
    loop {
        let words = ["--connect-timeout", "5", "status", "--format", "json"];
        let said = output(&mut machines.ceph(&words))?;
        let status: Value = serde_json::from_slice(&said.stdout).unwrap_or_default();
        let managed = status.pointer("/mgrmap/available") == Some(&Value::Bool(true))
            && status.pointer("/mgrmap/num_standbys").and_then(Value::as_u64) == Some(1);
        let healthy = status.pointer("/health/status").and_then(Value::as_str) == Some("HEALTH_OK");
        if !(managed && healthy && is_clean(&status, (HOSTS * DISKS) as u64)) {
            since = None;
        } else if since.get_or_insert_with(Instant::now).elapsed() > STEADY {
            return Ok(());
        }
        if begun.elapsed() > limit {
            let told = run(&mut machines.ceph(&["health", "detail"])).unwrap_or_default();
            bail!("not healthy within {} s: {status}\n{told:.3000}", limit.as_secs());
        }
        thread::sleep(Duration::from_millis(500));
    }
}
