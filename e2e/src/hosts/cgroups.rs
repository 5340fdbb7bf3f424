//! The hosts' places in the machine's tree of control groups, version 2: what systemd makes below one is seen by its host alone.
//!
//! Groups belong to the kernel, not to a namespace, so they are removed here. One that still has processes cannot be.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

/// Below the root of the tree each cluster has one, named after its folder, and in it one for each host.
const PREFIX: &str = "stagger-";

/// The groups of one cluster. Dropping them removes them.
#[derive(Debug)]
pub(crate) struct Cgroups {
    path: PathBuf,
}

impl Cgroups {
    /// Makes them for hosts of these names, after those were removed that a killed process left. `cluster` is the cluster's
    /// folder.
    pub(crate) fn make(cluster: &Path, hosts: &[String]) -> Result<Self> {
        let tree = tree()?;
        for left in fs::read_dir(&tree).into_iter().flatten().flatten() {
            let name = left.file_name();
            let of = name.to_str().and_then(|name| name.strip_prefix(PREFIX));
            // A cluster's folder goes after its processes.
            if of.is_some_and(|folder| {
                folder.starts_with("hosts-") && !cluster.with_file_name(folder).exists()
            }) {
                remove(&left.path());
            }
        }
        let name = cluster.file_name().and_then(|name| name.to_str());
        let path = tree.join(format!(
            "{PREFIX}{}",
            name.context("the cluster folder has no name")?
        ));
        for host in hosts {
            let group = path.join(host);
            fs::create_dir_all(&group).with_context(|| format!("making {}", group.display()))?;
        }
        Ok(Self { path })
    }

    /// That of a host.
    pub(crate) fn of(&self, host: &str) -> PathBuf {
        self.path.join(host)
    }
}

impl Drop for Cgroups {
    fn drop(&mut self) {
        // The last processes are being reaped still.
        let begun = Instant::now();
        while self.path.exists() && begun.elapsed() < Duration::from_secs(10) {
            remove(&self.path);
            thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Removes a group with those below it, so far as nobody is in them.
fn remove(group: &Path) {
    for entry in fs::read_dir(group).into_iter().flatten().flatten() {
        // A group has files too, which go with it.
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove(&entry.path());
        }
    }
    fs::remove_dir(group).ok();
}

/// Where the tree of version 2 is mounted.
fn tree() -> Result<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mounts").context("reading the mounts")?;
    mounts
        .lines()
        .find_map(|line| {
            let mut words = line.split(' ').skip(1);
            let place = words.next()?;
            (words.next() == Some("cgroup2")).then(|| PathBuf::from(place))
        })
        .context("hosts with systemd need control groups of version 2, and none are mounted")
}
