//! The `[cluster]`, `[hosts]` and `[software]` sections of the configuration, for Ceph on plain hosts.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use stagger_core::model::{ClusterName, Kind};
use stagger_engine::hosts::Hosts;

use crate::api::Access;
use crate::profile::SoftwareProfile;
use crate::software::Software;
use crate::target::Disturbance;

/// How to reach a cluster and how software is changed on its hosts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CephConfig {
    /// What the cluster is called here.
    pub name: ClusterName,
    /// The `ceph` program with what stands before it.
    #[serde(default = "ceph_program")]
    pub ceph: Vec<String>,
    /// The Python that has the `rados` module, with what stands before it; empty: start `ceph` for each
    /// question.
    #[serde(default = "python")]
    pub python: Vec<String>,
    /// `ceph.conf`; the usual places, if not given.
    #[serde(default)]
    pub conf: Option<PathBuf>,
    /// The user, `client.admin`.
    #[serde(default)]
    pub user: Option<String>,
    /// The user's keyring; where `ceph.conf` says, if not given.
    #[serde(default)]
    pub keyring: Option<PathBuf>,
    /// How long one question may take, in seconds.
    #[serde(default = "timeout")]
    pub timeout: u64,
    /// A lock not renewed for so many seconds may be taken over.
    #[serde(default = "lock_expires")]
    pub lock_expires: u64,
    /// `noout` stays on a wave's OSDs at most for so many seconds, if nobody renews it or gives it back.
    #[serde(default = "noout_expires")]
    pub noout_expires: u32,
    /// What is paused while OSDs have their turn, and goes on afterwards if it did before: `balancer`, `autoscaler`,
    /// `scrubs`.
    #[serde(default = "pause")]
    pub pause: BTreeSet<Disturbance>,
    /// Seconds between two observations while something is waited for.
    #[serde(default = "poll")]
    pub poll: u64,
    /// Seconds that one visit to a daemon of a kind usually takes, for the forecast.
    #[serde(default)]
    pub durations: BTreeMap<Kind, u32>,
}

fn ceph_program() -> Vec<String> {
    vec!["ceph".to_owned()]
}
fn python() -> Vec<String> {
    vec!["/usr/bin/python3".to_owned()]
}
fn timeout() -> u64 {
    30
}
/// A holder renews each third of it and gives up a sixth before its end: it outlasts half of it without an answer, 30 s. When
/// the last monitor moves to the next release all elect at once, and in stretch mode some follow a leader that others never
/// voted for, until their lease runs out (`mon_lease` × `mon_lease_ack_timeout_factor`, 10 s) and all elect again
/// (`mon_election_timeout`, 5 s). No write is answered meanwhile.
fn lock_expires() -> u64 {
    60
}
fn noout_expires() -> u32 {
    1200
}
fn pause() -> BTreeSet<Disturbance> {
    Disturbance::defaults()
}
fn poll() -> u64 {
    2
}

impl CephConfig {
    /// As the API takes it.
    pub fn access(&self) -> Access {
        Access {
            ceph: self.ceph.clone(),
            python: (!self.python.is_empty()).then(|| self.python.clone()),
            conf: self.conf.clone(),
            name: self.user.clone(),
            keyring: self.keyring.clone(),
            timeout: Duration::from_secs(self.timeout),
        }
    }
}

/// The commands of all kinds: those of the profile, overridden by those of `all`, and these by those of the kind itself.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SoftwareByKind {
    /// What kind of hosts it is for.
    #[serde(skip_serializing_if = "is_custom")]
    pub profile: SoftwareProfile,
    /// The image of a release, of the profile `cephadm`: `{release}` is replaced. Not given: that of Ceph's own registry.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// For kinds that say nothing of their own.
    pub all: Software,
    /// Monitors.
    pub mon: Software,
    /// Managers.
    pub mgr: Software,
    /// OSDs.
    pub osd: Software,
    /// Metadata servers.
    pub mds: Software,
    /// Object gateways.
    pub rgw: Software,
}

/// Where Ceph itself publishes the images of its releases.
const PUBLISHED: &str = "quay.io/ceph/ceph:v{release}";

impl SoftwareByKind {
    /// The name of the image of a release, in which `{release}` is to be replaced.
    pub fn image(&self) -> &str {
        self.image.as_deref().unwrap_or(PUBLISHED)
    }

    /// The same with the commands of the profile written out for each kind that it knows.
    #[must_use]
    pub fn with_profile(mut self) -> Self {
        if self.profile != SoftwareProfile::Custom {
            let of = |kind: &str| self.of(kind);
            let [mon, mgr, osd, mds, rgw] = ["mon", "mgr", "osd", "mds", "rgw"].map(of);
            (self.mon, self.mgr, self.osd, self.mds, self.rgw) = (mon, mgr, osd, mds, rgw);
        }
        self
    }

    /// What a kind of daemon is changed by.
    pub fn of(&self, kind: &str) -> Software {
        let own = match kind {
            "mon" => &self.mon,
            "mgr" => &self.mgr,
            "osd" => &self.osd,
            "mds" => &self.mds,
            "rgw" => &self.rgw,
            _ => &self.all,
        };
        let pick = |own: &Option<String>, all: &Option<String>, usual: Option<String>| {
            own.clone().or_else(|| all.clone()).or(usual)
        };
        let (all, usual) = (&self.all, self.profile.software(kind));
        Software {
            upgrade: pick(&own.upgrade, &all.upgrade, usual.upgrade),
            versions: pick(&own.versions, &all.versions, usual.versions),
            restart: pick(&own.restart, &all.restart, usual.restart),
            before_rollback: pick(&own.before_rollback, &all.before_rollback, usual.before_rollback),
            rollback: pick(&own.rollback, &all.rollback, usual.rollback),
            rebuild: pick(&own.rebuild, &all.rebuild, usual.rebuild),
            logs: pick(&own.logs, &all.logs, usual.logs),
        }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde gives it so")]
fn is_custom(profile: &SoftwareProfile) -> bool {
    *profile == SoftwareProfile::Custom
}

/// How hosts are rebooted: shell commands in which `{host}` is replaced. They run on the host, by `[hosts] shell`; where no
/// shell is given they run on this machine, and reach the host by themselves.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Reboot {
    /// Reboots the host. Not given: `systemctl reboot`, by ssh where there is no shell.
    pub command: Option<String>,
    /// Prints what another boot has another of. Not given: the kernel's boot id, by ssh where there is no shell.
    pub boot_id: Option<String>,
    /// Whether the host needs a reboot: 0 yes, 1 no, anything else: nobody knows. Not given: whether there is
    /// `/var/run/reboot-required`.
    pub needed: Option<String>,
    /// Prints for how many seconds the host has been up, as its first word. Not given: what the kernel says.
    pub uptime: Option<String>,
    /// Lays out on the host what its turn needs, for all of a wave at once, while everything serves: downloads. Not given: nothing,
    /// or for `patch` the packages.
    pub prepare: Option<String>,
    /// Run on the host once what is active on it has been handed over, before all else of its turn: a gateway leaves its balancer.
    /// While it fails the host is not rebooted. It may be run again where its turn has to be begun anew.
    pub before: Option<String>,
    /// Installs what is pending, of `patch`. Not given: Debian's upgrade of the distribution, which keeps changed files of
    /// configuration.
    pub patch: Option<String>,
    /// Run on the host once it is back, again and again until it ends with 0: that the kernel is the one that was wanted, that a
    /// gateway is in its balancer. Until then its wave is not done.
    pub after: Option<String>,
    /// Run once on this machine, where a host that was rebooted has not answered for `timeout`: power off and on, by its management
    /// board. The host then has as long again.
    pub power: Option<String>,
    /// How long a host may take to be back, in seconds. Firmware takes its time.
    pub timeout: u64,
    /// The host on which stagger runs, whose turn is the last. Not given: this machine's own name.
    #[serde(rename = "self")]
    pub own: Option<String>,
}

impl Default for Reboot {
    fn default() -> Self {
        Self {
            command: None,
            boot_id: None,
            needed: None,
            uptime: None,
            prepare: None,
            before: None,
            patch: None,
            after: None,
            power: None,
            timeout: 1800,
            own: None,
        }
    }
}

/// How this machine reaches a host where no shell is given.
const BY_SSH: &str = "ssh -oBatchMode=yes {host}";

impl Reboot {
    /// What reboots a host.
    pub fn command(&self, hosts: &Hosts) -> String {
        command_or_default(self.command.as_ref(), hosts, "systemctl reboot")
    }

    /// What prints the host's boot id.
    pub fn boot_id(&self, hosts: &Hosts) -> String {
        command_or_default(
            self.boot_id.as_ref(),
            hosts,
            "cat /proc/sys/kernel/random/boot_id",
        )
    }

    /// What tells whether the host needs a reboot.
    pub fn reboot_check_command(&self, hosts: &Hosts) -> String {
        command_or_default(self.needed.as_ref(), hosts, "test -e /var/run/reboot-required")
    }

    /// What prints for how long the host has been up.
    pub fn uptime(&self, hosts: &Hosts) -> String {
        command_or_default(self.uptime.as_ref(), hosts, "cat /proc/uptime")
    }

    /// What installs what is pending.
    pub fn patch(&self, hosts: &Hosts) -> String {
        let usual = format!("'apt-get -q update && {APT} dist-upgrade'");
        in_a_shell(self.patch.as_ref(), hosts, &usual)
    }

    /// What is laid out ahead for a wave, if anything is. `patches`: for [`Reboot::patch`].
    pub fn prepare(&self, hosts: &Hosts, patches: bool) -> Option<String> {
        // What is installed by a command of its own is laid out by one.
        if self.prepare.is_some() || !patches || self.patch.is_some() {
            return self.prepare.clone();
        }
        let usual = format!("'apt-get -q update && {APT} --download-only dist-upgrade'");
        Some(in_a_shell(None, hosts, &usual))
    }

    /// The commands that are given, by their keys.
    pub fn configured_commands(&self) -> [(&'static str, Option<&String>); 9] {
        let Self {
            command,
            boot_id,
            needed,
            uptime,
            prepare,
            before,
            patch,
            after,
            power,
            timeout: _,
            own: _,
        } = self;
        [
            ("command", command.as_ref()),
            ("boot_id", boot_id.as_ref()),
            ("needed", needed.as_ref()),
            ("uptime", uptime.as_ref()),
            ("prepare", prepare.as_ref()),
            ("before", before.as_ref()),
            ("patch", patch.as_ref()),
            ("after", after.as_ref()),
            ("power", power.as_ref()),
        ]
    }

    /// Whether each command reaches the host that it is for: without a shell one that does not name `{host}` would reboot
    /// this machine.
    ///
    /// # Errors
    /// Which does not, in words.
    pub fn verify(&self, hosts: &Hosts) -> Result<(), String> {
        if self.timeout == 0 {
            return Err("[reboot] timeout is 0: no host is back at once; give seconds".to_owned());
        }
        for (key, command) in self.configured_commands() {
            let is_here = hosts.shell.is_empty() || key == "power";
            if let Some(command) = command.filter(|command| is_here && !command.contains("{host}")) {
                let cure = if key == "power" {
                    "name {host} in it"
                } else {
                    "name {host} in it, or give [hosts] a shell"
                };
                return Err(format!(
                    "[reboot] {key} would run on this machine for every host: {cure}\n      {command}"
                ));
            }
        }
        Ok(())
    }
}

/// Asks nothing, keeps what a person has changed, and waits for whoever else is installing.
const APT: &str = "DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=600 -o Dpkg::Options::=--force-confdef \
                   -o Dpkg::Options::=--force-confold";

/// A line of a shell, which ssh takes as it is and a shell without its quotes.
pub(crate) fn in_a_shell(given: Option<&String>, hosts: &Hosts, quoted: &str) -> String {
    match given {
        Some(command) => command.clone(),
        None if hosts.shell.is_empty() => format!("{BY_SSH} {quoted}"),
        None => quoted.trim_matches('\'').to_owned(),
    }
}

fn command_or_default(given: Option<&String>, hosts: &Hosts, usual: &str) -> String {
    match given {
        Some(command) => command.clone(),
        None if hosts.shell.is_empty() => format!("{BY_SSH} {usual}"),
        None => usual.to_owned(),
    }
}

/// All that a Ceph backend is made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CephSettings {
    /// `[cluster]`
    pub cluster: CephConfig,
    /// `[hosts]`
    pub hosts: Hosts,
    /// `[software]`
    pub software: SoftwareByKind,
    /// `[health]`
    pub health: crate::translate::HealthPolicy,
    /// `[reboot]`
    pub reboot: Reboot,
}
