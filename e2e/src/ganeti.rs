//! A real Ganeti cluster, 3.0 or 3.1, on this machine: Ganeti's own virtual cluster, without a hypervisor, LVM or DRBD.
//!
//! `Cluster::boot` makes one from nothing: real node daemons, job queue, configuration daemons and remote API, the fake
//! hypervisor, and stand-ins for the devices (`stand_ins.py`). Each node has a network namespace of its own on a common
//! bridge; its power button is `nodectl.sh`. Everything is in one folder:
//!
//! - `node NODE run COMMAND…` runs a command on a node, and `node NODE reboot` reboots it, from outside or inside;
//! - `ssh root@ADDRESS COMMAND…` does it by ssh, as from a machine beside the nodes;
//! - `ca.pem` is the authority of the remote API's certificate;
//! - `fault/NODE` makes a node stay down at its next reboot; `sync-rate` is that of DRBD.

mod boot;
mod files;
mod htools;
mod instances;
mod rapi;
mod release;
mod root;
mod safety;
pub mod source;
mod spec;
mod state;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

pub use crate::ceph::Lap;
use crate::command::{ends_of_logs, output, run};
use crate::files::put;
use crate::folder::Folder;
use crate::sandbox::Sandbox;
pub use htools::{Answer, Group, Htools, Move, groups};
pub use instances::Made;
pub use rapi::{Job, Reply};
pub use release::Release;
pub use root::Root;
use safety::Mask;
pub use spec::{CLUSTER, CLUSTER_ADDRESS, GanetiSpec, MOST_NODES, STRANGER, address, name};
pub use state::{Placed, State};

/// Who may change things by the remote API: name and password.
pub const OPERATOR: (&str, &str) = files::OPERATOR;
/// Who may only read by it.
pub const READER: (&str, &str) = files::READER;

/// The port of the remote API.
pub const RAPI_PORT: u16 = 5080;

/// A running cluster. Dropping it ends every process of it and removes its folder.
#[derive(Debug)]
pub struct Cluster {
    sandbox: Sandbox,
    // After the sandbox, whose end removes it.
    _folder: Folder,
    mask: Mask,
    root: Root,
    spec: GanetiSpec,
    laps: Vec<Lap>,
}

impl Cluster {
    /// Makes a cluster and waits until it takes jobs. A missing root is built first, which takes minutes.
    ///
    /// # Errors
    /// The root's Ganeti could reboot this machine, or something does not come up; the ends of the logs are told.
    pub fn boot(spec: GanetiSpec) -> Result<Self> {
        Self::boot_in(Root::ensure_of(spec.release)?, spec)
    }

    /// The same with a given root.
    ///
    /// # Errors
    /// As of [`Cluster::boot`].
    pub fn boot_in(root: Root, spec: GanetiSpec) -> Result<Self> {
        boot::boot(root, spec)
    }

    /// The folder of the cluster: the same path outside and in the root inside.
    pub fn dir(&self) -> &Path {
        self.sandbox.dir()
    }

    /// The namespaces that it runs in. A program that is started there reaches every node.
    pub fn sandbox(&self) -> &Sandbox {
        &self.sandbox
    }

    /// The root that it runs from.
    pub fn root(&self) -> &Root {
        &self.root
    }

    /// What it consists of.
    pub fn spec(&self) -> &GanetiSpec {
        &self.spec
    }

    /// How long the parts of the boot took.
    pub fn laps(&self) -> &[Lap] {
        &self.laps
    }

    /// The certificate of the authority by which the remote API is known, as PEM.
    pub fn ca(&self) -> PathBuf {
        self.dir().join(files::CA)
    }

    /// What runs a command on a node, `node NODE run COMMAND…`, from outside or inside.
    pub fn node_program(&self) -> PathBuf {
        self.dir().join("node")
    }

    /// Works on a node: a verb of `nodectl`, which must succeed. Gives what it printed.
    ///
    /// # Errors
    /// It did not succeed; what it printed is told.
    pub fn node(&self, node: &str, verb: &str, words: &[&str]) -> Result<String> {
        run(&mut self.nodectl(node, verb, words))
    }

    /// Runs a command on a node, which must succeed. Gives what it printed.
    ///
    /// # Errors
    /// It did not succeed, or the node is down.
    pub fn on(&self, node: &str, command: &[&str]) -> Result<String> {
        self.node(node, "run", command)
    }

    /// Runs a command of Ganeti on the master.
    ///
    /// # Errors
    /// There is no master, or the command did not succeed.
    pub fn gnt(&self, command: &[&str]) -> Result<String> {
        self.on(&self.master()?, command)
    }

    fn nodectl(&self, node: &str, verb: &str, words: &[&str]) -> Command {
        let mut command = self
            .sandbox
            .command_in(&self.root.path, self.dir().join("nodectl"));
        command.args([node, verb]).args(words);
        command
    }

    /// The name of the master, as most of the nodes that are up have it.
    ///
    /// # Errors
    /// No node is up, or most do not agree.
    pub fn master(&self) -> Result<String> {
        let mut votes: Vec<String> = Vec::new();
        for name in self.spec.names() {
            // As `gnt-cluster getmaster` has it, without its half second.
            let path = self.dir().join(&name).join("var/lib/ganeti/ssconf_master_node");
            if self.is_up(&name)
                && let Ok(vote) = fs::read_to_string(path)
            {
                votes.push(vote.trim().to_owned());
            }
        }
        let most = votes
            .iter()
            .find(|name| votes.iter().filter(|vote| vote == name).count() * 2 > votes.len());
        most.cloned()
            .with_context(|| format!("the nodes that are up do not agree who is master: {votes:?}"))
    }

    /// Whether a node is up.
    pub fn is_up(&self, node: &str) -> bool {
        !self.dir().join(node).join("down").exists()
    }

    /// Which boot of a node this is, or was if it is down.
    ///
    /// # Errors
    /// There is no such node.
    pub fn boot_id(&self, node: &str) -> Result<String> {
        let path = self.dir().join(node).join("boot_id");
        let text = fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
        Ok(text.trim().to_owned())
    }

    /// How often a node has lost its power or was rebooted since the cluster was made.
    ///
    /// # Errors
    /// There is no such node.
    pub fn reboots(&self, node: &str) -> Result<usize> {
        let path = self.dir().join(node).join("boots");
        let text = fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
        Ok(text.lines().count().saturating_sub(1))
    }

    /// Cuts a node's power: its processes and what was in its memory are gone. Its instances no longer run.
    ///
    /// # Errors
    /// There is no such node.
    pub fn crash(&self, node: &str) -> Result<()> {
        self.node(node, "crash", &[]).map(drop)
    }

    /// Starts a node that is down.
    ///
    /// # Errors
    /// It does not start.
    pub fn start(&self, node: &str) -> Result<()> {
        self.node(node, "start", &[]).map(drop)
    }

    /// How long a node takes to boot from now on, in seconds.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn set_boot_seconds(&self, node: &str, seconds: u32) -> Result<()> {
        put(
            &self.dir().join(format!("boot-seconds-{node}")),
            &seconds.to_string(),
        )
    }

    /// Whether a node stays down at its next reboots, as one does that is broken.
    ///
    /// # Errors
    /// The file that says so cannot be written.
    pub fn set_stays_down(&self, node: &str, stays_down: bool) -> Result<()> {
        let path = self.dir().join("fault").join(node);
        if stays_down {
            fs::write(&path, "").with_context(|| format!("writing {}", path.display()))
        } else if path.exists() {
            fs::remove_file(&path).with_context(|| format!("removing {}", path.display()))
        } else {
            Ok(())
        }
    }

    /// How fast DRBD devices are resynchronised from now on, in MiB/s; 0 is at once.
    ///
    /// # Errors
    /// The file that says so cannot be written.
    pub fn set_sync_rate(&self, rate: u32) -> Result<()> {
        let path = self.dir().join("sync-rate");
        fs::write(&path, rate.to_string()).with_context(|| format!("writing {}", path.display()))
    }

    /// The names of the instances that run on a node, as its hypervisor has them.
    ///
    /// # Errors
    /// Its folder cannot be read.
    pub fn running_on(&self, node: &str) -> Result<Vec<String>> {
        let path = self.dir().join(node).join("var/run/ganeti/fake-hypervisor");
        if !path.exists() {
            return Ok(Vec::new());
        }
        let entries = fs::read_dir(&path).with_context(|| format!("reading {}", path.display()))?;
        let mut names: Vec<String> = entries
            .flatten()
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        Ok(names)
    }

    /// Asks again and again until something is so. Gives how long it took.
    ///
    /// # Errors
    /// It is not so in time, or asking failed.
    pub fn wait_for(
        &self,
        what: &str,
        limit: Duration,
        mut done: impl FnMut(&Self) -> Result<bool>,
    ) -> Result<Duration> {
        let begun = Instant::now();
        loop {
            if done(self)? {
                return Ok(begun.elapsed());
            }
            if begun.elapsed() > limit {
                bail!("{what}: not within {} s", limit.as_secs());
            }
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    /// Whether nothing in the cluster tried to reboot the machine under it.
    ///
    /// # Errors
    /// Something did.
    pub fn ensure_machine_untouched(&self) -> Result<()> {
        self.mask.ensure_untouched()
    }

    /// The last lines of every log that has any, for the message of a failed test.
    pub fn logs_tail(&self) -> String {
        logs_tail(self)
    }

    /// Memory of all processes inside, in bytes (resident, shared pages counted for each).
    ///
    /// # Errors
    /// `ps` failed.
    pub fn memory(&self) -> Result<u64> {
        let list = output(self.sandbox.command("ps").args(["-e", "-o", "rss="]))?;
        ensure!(list.status.success(), "`ps` failed in the sandbox");
        Ok(String::from_utf8_lossy(&list.stdout)
            .lines()
            .filter_map(|line| line.trim().parse::<u64>().ok())
            .sum::<u64>()
            * 1024)
    }

    /// Ends the cluster and waits until nothing of it is left. `keep` leaves its folder.
    ///
    /// # Errors
    /// It does not end.
    pub fn stop(mut self, keep: bool) -> Result<()> {
        if keep {
            self.sandbox.keep_folder()?;
        }
        self.sandbox.stop()
    }
}

fn logs_tail(cluster: &Cluster) -> String {
    let of_node = |name: String| {
        let folder = cluster.dir().join(name).join("var/log");
        [folder.clone(), folder.join("ganeti")]
    };
    let folders: Vec<PathBuf> = cluster.spec.names().into_iter().flat_map(of_node).collect();
    ends_of_logs(&folders)
}
