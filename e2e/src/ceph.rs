//! A real Ceph cluster on this machine, without containers and without systemd.
//!
//! `Cluster::boot` makes one from nothing, cephx and all, and waits for `HEALTH_OK`. Its folder holds
//! everything: stores, logs, keys, and the scripts by which it is worked on:
//!
//! - `enter COMMAND…` runs a command in the cluster's namespaces, from outside;
//! - `ceph …` is the `ceph` of the release that it began with, from outside or inside;
//! - `daemonctl` stands for a host's package and service managers; see its head for its verbs;
//! - `hostctl` stands for hosts that are rebooted, where [`CephSpec::named_hosts`] gives each daemon one.

mod auth;
mod boot;
mod conf;
mod files;
pub mod spec;
mod stretch;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use crate::command::{ends_of_logs, output, run};
use crate::folder::Folder;
use crate::rados::Rados;
use crate::roots::{Release, Root};
use crate::sandbox::Sandbox;

pub(crate) use auth::{LOAD_CLIENT, write_keys};
pub(crate) use boot::each;
pub(crate) use conf::{quick, rgw_address};
pub use spec::{CephSpec, Daemon, Kind};

/// The S3 user that each cluster with gateways has: access key and secret.
pub const S3_USER: (&str, &str) = ("STAGGERTESTACCESSKEY", "staggertestsecretstaggertestsecret");

/// How long one part of a boot took.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lap {
    /// The part.
    pub part: &'static str,
    /// From the beginning of the boot to the end of the part.
    pub until: Duration,
}

/// A running cluster. Dropping it ends every process of it and removes its folder.
#[derive(Debug)]
pub struct Cluster {
    // Before the sandbox, so that it is dropped first: it ends in order rather than being ended.
    rados: Mutex<Rados>,
    sandbox: Sandbox,
    // After the sandbox, whose end removes it.
    _folder: Folder,
    roots: Vec<Root>,
    begun: Release,
    spec: CephSpec,
    laps: Vec<Lap>,
}

impl Cluster {
    /// Makes a cluster on `release` and waits until it is healthy. Its daemons can later be moved to
    /// any release that [`Release::ALL`] knows; missing roots are built first, which takes minutes.
    pub fn boot(release: Release, spec: CephSpec) -> Result<Self> {
        boot::boot(release, spec, &Release::ALL)
    }

    /// As [`Cluster::boot`], with no more than the given releases at hand.
    pub fn boot_with(release: Release, spec: CephSpec, releases: &[Release]) -> Result<Self> {
        boot::boot(release, spec, releases)
    }

    /// The folder of the cluster: the same path outside and in every root inside.
    pub fn dir(&self) -> &Path {
        self.sandbox.dir()
    }

    /// The `ceph.conf`.
    pub fn conf(&self) -> PathBuf {
        self.dir().join("ceph.conf")
    }

    /// The namespaces that it runs in.
    pub fn sandbox(&self) -> &Sandbox {
        &self.sandbox
    }

    /// What it consists of.
    pub fn spec(&self) -> &CephSpec {
        &self.spec
    }

    /// The release that it began with.
    pub fn begun_with(&self) -> Release {
        self.begun
    }

    /// The root of a release at hand.
    pub fn root(&self, release: Release) -> Result<&Root> {
        let found = self.roots.iter().find(|root| root.release == release);
        found.with_context(|| format!("this cluster was made without Ceph {release} at hand"))
    }

    /// How long the parts of the boot took.
    pub fn laps(&self) -> &[Lap] {
        &self.laps
    }

    /// The lasting connection as `client.admin`.
    pub fn rados(&self) -> MutexGuard<'_, Rados> {
        // A panic of another test thread leaves at worst one answer unread, which is then told.
        self.rados.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs the `ceph` command of the first release with `-f json`, and gives its JSON.
    ///
    /// Half a second each; [`Cluster::rados`] is quicker.
    pub fn ceph(&self, args: &[&str]) -> Result<Value> {
        let text = run(Command::new(self.dir().join("ceph"))
            .args(args)
            .args(["-f", "json"]))?;
        if text.trim().is_empty() {
            return Ok(Value::Null);
        }
        serde_json::from_str(&text)
            .with_context(|| format!("`ceph {}` did not print JSON: {text:.200}", args.join(" ")))
    }

    /// Runs `daemonctl`, which must succeed, and gives its stdout.
    pub fn daemonctl(&self, args: &[&str]) -> Result<String> {
        run(self.sandbox.command(self.dir().join("daemonctl")).args(args))
    }

    /// Gives a daemon the software of a release and restarts it.
    pub fn upgrade(&self, daemon: &Daemon, release: Release) -> Result<()> {
        let (kind, id) = (daemon.kind.to_string(), &daemon.id);
        self.daemonctl(&["use", &kind, id, &release.to_string()])?;
        self.daemonctl(&["restart", &kind, id])?;
        Ok(())
    }

    /// Sets (or with `None` takes away) a daemon's fault: see the head of `daemonctl`.
    pub fn set_fault(&self, daemon: &Daemon, fault: Option<&str>) -> Result<()> {
        let path = self.dir().join("fault").join(daemon.to_string());
        match fault {
            Some(text) => {
                fs::write(&path, format!("{text}\n")).with_context(|| format!("writing {}", path.display()))
            }
            None if path.exists() => {
                fs::remove_file(&path).with_context(|| format!("removing {}", path.display()))
            }
            None => Ok(()),
        }
    }

    /// Asks again and again until `done` says yes; when `limit` has passed, fails with the health.
    pub fn wait_for(
        &self,
        what: &str,
        limit: Duration,
        mut done: impl FnMut(&mut Rados) -> Result<bool>,
    ) -> Result<Duration> {
        let begun = Instant::now();
        loop {
            if done(&mut self.rados())? {
                return Ok(begun.elapsed());
            }
            if begun.elapsed() > limit {
                let health = self.rados().mon("health").unwrap_or_default();
                bail!("{what}: not within {} s; health: {health}", limit.as_secs());
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Waits until every OSD is up and every placement group is active and clean.
    pub fn wait_clean(&self, limit: Duration) -> Result<Duration> {
        self.wait_clean_of(u64::from(self.spec.osds), limit)
    }

    /// The same where there are so many OSDs by now.
    ///
    /// # Errors
    /// It is not so in time.
    pub fn wait_clean_of(&self, osds: u64, limit: Duration) -> Result<Duration> {
        self.wait_for("all OSDs up and all PGs active+clean", limit, |rados| {
            Ok(is_clean(&rados.mon("status")?, osds))
        })
    }

    /// The codes of the health checks that are raised, in order.
    pub fn health_codes(&self) -> Result<Vec<String>> {
        let health = self.rados().mon("health")?;
        let checks = health
            .get("checks")
            .and_then(Value::as_object)
            .context("`health` without `checks`")?;
        Ok(checks.keys().cloned().collect())
    }

    /// The last lines of every log that has any, for the message of a failed test.
    pub fn logs_tail(&self) -> String {
        logs_tail(self.dir())
    }

    /// Ends the cluster and waits until nothing of it is left. `keep` leaves its folder.
    pub fn stop(mut self, keep: bool) -> Result<()> {
        if keep {
            self.sandbox.keep_folder()?;
        }
        self.sandbox.stop()
    }

    /// Memory of all processes inside, in bytes (resident, shared pages counted for each).
    pub fn memory(&self) -> Result<u64> {
        let list = output(self.sandbox.command("ps").args(["-e", "-o", "rss="]))?;
        ensure!(list.status.success(), "`ps` failed in the sandbox");
        Ok(String::from_utf8_lossy(&list.stdout)
            .lines()
            .filter_map(|line| line.trim().parse::<u64>().ok())
            .sum::<u64>()
            * 1024)
    }
}

/// Whether a `status` shows all OSDs up and all placement groups active and clean.
pub(crate) fn is_clean(status: &Value, osds: u64) -> bool {
    let number = |path: &str| status.pointer(path).and_then(Value::as_u64);
    let states = status.pointer("/pgmap/pgs_by_state").and_then(Value::as_array);
    let clean: u64 = states
        .into_iter()
        .flatten()
        .filter(|state| state["state_name"] == "active+clean")
        .filter_map(|state| state["count"].as_u64())
        .sum();
    number("/osdmap/num_up_osds") == Some(osds) && number("/pgmap/num_pgs") == Some(clean) && clean > 0
}

/// The states in a `status` of placement groups that have fewer copies than their pool serves with. One that just peers has not
/// lost any.
pub fn out_of_reach(status: &Value) -> Result<Vec<&Value>> {
    let states = status.pointer("/pgmap/pgs_by_state").and_then(Value::as_array);
    let is_lost = |state: &&Value| {
        let name = state["state_name"].as_str().unwrap_or_default();
        ["peered", "down", "incomplete"]
            .iter()
            .any(|word| name.contains(word))
    };
    let states = states.context("no states of placement groups")?;
    Ok(states.iter().filter(is_lost).collect())
}

fn logs_tail(dir: &Path) -> String {
    ends_of_logs(&[dir.join("log")])
}
