//! A Ceph cluster on hosts of its own, as sites have it: systemd as the first process of each host, sshd, dpkg and apt with
//! Debian's packages of two releases, and Debian's units.
//!
//! [`Cluster::boot`] makes it from nothing: a [`root::Root`] that all hosts share as the lower layer of theirs, a network of its
//! own with a server of packages on it, and hosts in namespaces. A reboot inside a host ends its systemd, and the host comes back
//! with another boot id and clocks that begin anew. All of it ends with the process that made it, however that one ends.
//!
//! [`debian`] has the commands by which such hosts are given other software.

mod boot;
mod ceph_conf;
pub mod debian;
pub mod root;

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use crate::ceph::{Daemon, Kind, is_clean};
use crate::folder::Folder;
use crate::hosts::cgroups::Cgroups;
use crate::hosts::host::Host;
use crate::rados::Rados;
use crate::sandbox::Sandbox;
use root::Root;

/// How many of everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostsSpec {
    /// Hosts `h1`, `h2` …
    pub hosts: u32,
    /// Monitors, one on each of the first hosts, which they are named after.
    pub mons: u32,
    /// Managers, the same.
    pub mgrs: u32,
    /// Object stores on each host, numbered through.
    pub osds_per_host: u32,
}

impl Default for HostsSpec {
    fn default() -> Self {
        Self {
            hosts: 3,
            mons: 3,
            mgrs: 2,
            osds_per_host: 2,
        }
    }
}

impl HostsSpec {
    /// Says why a cluster of this shape cannot become healthy.
    fn check(self) -> Result<()> {
        ensure!(
            (3..=40).contains(&self.hosts),
            "{} hosts: from 3 to 40",
            self.hosts
        );
        ensure!(
            self.mons >= 1 && self.mons <= self.hosts,
            "a host has one monitor"
        );
        ensure!(
            self.mgrs >= 1 && self.mgrs <= self.hosts,
            "a host has one manager"
        );
        ensure!(self.osds_per_host >= 1, "each host needs an OSD");
        Ok(())
    }

    /// The daemons of a kind, each with the host that carries it, counted from 0.
    fn daemons(self, kind: Kind) -> Vec<(usize, Daemon)> {
        let (hosts, osds) = (self.hosts as usize, self.osds_per_host as usize);
        let named = |count: u32| {
            (0..count as usize)
                .map(|host| (host, format!("h{}", host + 1)))
                .collect()
        };
        let all: Vec<(usize, String)> = match kind {
            Kind::Mon => named(self.mons),
            Kind::Mgr => named(self.mgrs),
            Kind::Osd => (0..hosts * osds)
                .map(|osd| (osd / osds, osd.to_string()))
                .collect(),
            Kind::Mds | Kind::Rgw => Vec::new(),
        };
        let daemon = |(host, id)| (host, Daemon { kind, id });
        all.into_iter().map(daemon).collect()
    }
}

/// Hosts with a cluster on them. Dropping it ends every process and removes its folder.
#[derive(Debug)]
pub struct Cluster {
    // Before the sandbox, so that it is dropped first: it ends in order rather than being ended.
    rados: Rados,
    sandbox: Sandbox,
    // These after the sandbox, whose end empties them.
    _cgroups: Cgroups,
    _folder: Folder,
    root: Root,
    spec: HostsSpec,
    hosts: Vec<Host>,
    took: Duration,
}

impl Cluster {
    /// Boots the hosts and makes the cluster, on the release of the root, and waits until it is healthy.
    ///
    /// # Errors
    /// The root cannot be built, or the cluster does not become healthy.
    pub fn boot(spec: HostsSpec) -> Result<Self> {
        boot::boot(spec)
    }

    /// The folder of the cluster.
    pub fn dir(&self) -> &Path {
        self.sandbox.dir()
    }

    /// The namespaces that the hosts are in. Its network is the one that they are on.
    pub fn sandbox(&self) -> &Sandbox {
        &self.sandbox
    }

    /// What the hosts began with, and what there is to install.
    pub fn root(&self) -> &Root {
        &self.root
    }

    /// How long the boot took, without the building of the root.
    pub fn took(&self) -> Duration {
        self.took
    }

    /// All hosts in order.
    pub fn hosts(&self) -> &[Host] {
        &self.hosts
    }

    /// A host by its number, which begins with 1, as its name has it.
    ///
    /// # Errors
    /// There are fewer.
    pub fn host(&self, number: usize) -> Result<&Host> {
        let index = number.checked_sub(1).context("hosts begin with h1")?;
        self.hosts
            .get(index)
            .with_context(|| format!("no host h{number}"))
    }

    /// A lasting connection as `client.admin`, from a place that is on none of the hosts.
    pub fn rados(&mut self) -> &mut Rados {
        &mut self.rados
    }

    /// Waits until every OSD is up and every placement group is active and clean.
    ///
    /// # Errors
    /// It is not so in time.
    pub fn wait_clean(&mut self, limit: Duration) -> Result<Duration> {
        let osds = u64::from(self.spec.hosts * self.spec.osds_per_host);
        self.wait_for("all OSDs up and all PGs active+clean", limit, |rados| {
            Ok(is_clean(&rados.mon("status")?, osds))
        })
    }

    /// Asks again and again until `done` says yes.
    ///
    /// # Errors
    /// It does not say so in time.
    pub fn wait_for(
        &mut self,
        what: &str,
        limit: Duration,
        mut done: impl FnMut(&mut Rados) -> Result<bool>,
    ) -> Result<Duration> {
        let begun = Instant::now();
        loop {
            if done(&mut self.rados)? {
                return Ok(begun.elapsed());
            }
            if begun.elapsed() > limit {
                let status = self.rados.mon("status").unwrap_or_default();
                bail!("{what}: not within {} s: {status}", limit.as_secs());
            }
            thread::sleep(Duration::from_millis(200));
        }
    }

    /// The version that each OSD says it runs, by its number.
    ///
    /// # Errors
    /// The cluster does not tell.
    pub fn osd_versions(&mut self) -> Result<Vec<(u64, String)>> {
        let all = self.rados.mon("osd metadata")?;
        let all = all.as_array().context("`osd metadata` is no list")?;
        let version = |osd: &Value| {
            let version = osd["ceph_version_short"].as_str().unwrap_or_default();
            Some((osd["id"].as_u64()?, version.to_owned()))
        };
        all.iter()
            .map(|osd| version(osd).context("an OSD without a number"))
            .collect()
    }

    /// Ends the hosts and waits until nothing of them is left.
    ///
    /// # Errors
    /// The sandbox does not end.
    pub fn stop(mut self) -> Result<()> {
        self.sandbox.stop()
    }
}
