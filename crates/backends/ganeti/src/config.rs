//! The configuration of a cluster's RAPI, and the limits of visits.

use std::path::PathBuf;
use std::time::Duration;

use regex::Regex;
use serde::{Deserialize, Serialize};
use stagger_core::model::{ClusterName, IdError};
use stagger_engine::hosts::Hosts;

/// A Ganeti cluster as the configuration has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RapiConfig {
    /// What the cluster is called here.
    pub name: ClusterName,
    /// Where RAPI may be found: the cluster's own name, or the nodes that may be master. `host`,
    /// `host:port` or `https://host:port`; the port is 5080 if none is given.
    pub addresses: Vec<String>,
    /// The authority that signed RAPI's certificate, as a PEM file; the system's authorities, if not given.
    #[serde(default)]
    pub ca: Option<PathBuf>,
    /// Instead of an authority: the SHA-256 fingerprint of RAPI's certificate, in hexadecimal, with or
    /// without colons. The certificates that Ganeti makes by itself can only be trusted so.
    #[serde(default)]
    pub fingerprint: Option<String>,
    /// A user of RAPI who may write. Without one a cluster can be looked at for `hroller`, and no more.
    #[serde(default)]
    pub user: Option<String>,
    /// The file with that user's password, which nobody else may read.
    #[serde(default)]
    pub password_file: Option<PathBuf>,
    /// How long one question may take, in seconds. Ganeti asks every node for some of them, and waits 60 s for one that is silent:
    /// with no more than that, one hung node would keep every answer away.
    #[serde(default = "timeout")]
    pub timeout: u64,
    /// How long a connection may take, in seconds.
    #[serde(default = "connect_timeout")]
    pub connect_timeout: u64,
    /// A lock not renewed for so many seconds may be taken over. More than twice `failover_timeout`, since
    /// RAPI does not answer while the master changes.
    #[serde(default = "lock_expires")]
    pub lock_expires: u64,
    /// Seconds between two observations while something is waited for.
    #[serde(default = "poll")]
    pub poll: u64,
    /// What is done about the jobs of others, and how nodes and instances are treated.
    #[serde(default)]
    pub visits: Visits,
}

fn timeout() -> u64 {
    150
}
fn connect_timeout() -> u64 {
    15
}
fn lock_expires() -> u64 {
    300
}
fn poll() -> u64 {
    5
}

/// How visits are carried out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Visits {
    /// Whether jobs of others wait in the queue while a stage runs.
    pub drain: bool,
    /// Which of them.
    pub drain_scope: DrainScope,
    /// Guards go by themselves after so many seconds, unless they are renewed.
    pub guards_expire: u32,
    /// How many migrations a node may take part in at once.
    pub migrations_per_node: usize,
    /// How long one job may take, in seconds, before it counts as stuck.
    pub job_timeout: u64,
    /// How long disks may take to be in sync again, in seconds.
    pub sync_timeout: u64,
    /// The command that reboots `{node}`, run on this machine. Not given: [`CLEAN_REBOOT`]. The word `powercycle`: RAPI's, which
    /// writes `b` to the node's sysrq trigger, so that nothing is synchronized and nothing is unmounted.
    pub reboot: Option<String>,
    /// How long a node may take to come back, in seconds.
    pub reboot_timeout: u64,
    /// The command that makes `{successor}` the master instead of `{master}`, run on this machine:
    /// `ssh root@{successor} gnt-cluster master-failover`. RAPI has none. Without it the
    /// master is left alone. It should copy the job queue first: jobs that were written while the successor was
    /// drained are not in its copy, and as a master it would not know them (Ganeti 3.0.2).
    pub failover: Option<String>,
    /// How long it may take until the new master answers, in seconds, with the command for it.
    pub failover_timeout: u64,
    /// The command that copies the journal (by `stagger db copy`) and the artifacts to `{successor}` before it becomes
    /// master. Needed where stagger runs on a node of the cluster.
    pub copy_journal: Option<String>,
    /// The command that moves `{instance}` with its disks to `{node}`, run on this machine:
    /// `ssh root@{master} gnt-instance move -f --reason={reason} -n {node} {instance}`. RAPI has none. The reason
    /// lets its job pass while jobs of others wait. Every other command and hook may name `{reason}` for the same.
    pub relocate: Option<String>,
    /// How instances are migrated that cannot be migrated as the others are; the first rule that matches counts.
    pub migrate: Vec<MigrationRule>,
    /// Commands around the visit of each node, run on this machine.
    pub hooks: GanetiHooks,
    /// Who becomes master while the master reboots; the first fitting candidate, if not given.
    pub successor: Option<String>,
    /// The commands for Ganeti's own watcher, run on this machine.
    pub watcher: Option<Watcher>,
}

/// Which jobs of others wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DrainScope {
    /// All: nothing that was observed changes behind a wave's back.
    Cluster,
    /// Those that name a node of the wave, or an instance of one ([`drain_scope`](crate::drain_scope)).
    #[default]
    Wave,
}

/// How some instances are migrated. Without a rule an instance is migrated live, and by nothing else.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MigrationRule {
    /// A regular expression that is found in the names of the instances that are meant.
    pub matching: String,
    /// Whether it runs meanwhile.
    #[serde(default)]
    pub mode: MigrationMode,
    /// Whether it is shut down here and started there where it cannot be migrated.
    #[serde(default)]
    pub allow_failover: bool,
    /// Whether it is migrated also between different versions of the hypervisor.
    #[serde(default)]
    pub ignore_hvversions: bool,
}

/// Whether an instance runs while it is migrated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MigrationMode {
    /// It runs on.
    #[default]
    Live,
    /// It is stopped, and goes on there where it was.
    NonLive,
}

impl MigrationMode {
    /// As Ganeti has it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Live => "live",
            Self::NonLive => "non-live",
        }
    }
}

/// What others have to say to the visit of `{node}`: a storage pool on the nodes' own disks, a load balancer.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct GanetiHooks {
    /// Whether it may go away now: 0 is yes, 1 is no, and what it prints is why. Anything else: nobody could
    /// tell, and it is asked again.
    pub may_stop: Option<String>,
    /// Takes it out of service, once its instances are elsewhere and before it is rebooted.
    pub enter: Option<String>,
    /// Takes it back into service, once it has booted and before its instances come back.
    pub leave: Option<String>,
}

/// Ganeti's watcher starts instances and activates disks by itself, and RAPI cannot pause it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Watcher {
    /// Pauses it for `{seconds}`: `ssh root@{master} gnt-cluster watcher pause {seconds}`.
    pub pause: String,
    /// Lets it go on: `ssh root@{master} gnt-cluster watcher continue`.
    #[serde(rename = "continue")]
    pub resume: String,
    /// Tells whether it is paused: `ssh root@{master} gnt-cluster watcher info`.
    pub info: String,
}

/// How a node is rebooted if the configuration does not say: cleanly, by ssh, as Ganeti itself reaches its nodes. The master
/// runs `reboot` there; no job is needed for it. What it prints tells whether the node took the command. 255, ssh's own code, says
/// that nobody knows: the connection to the node ended, as a reboot ends it and a host key that is another does too, or the one to
/// the master did. So does 124: a node that is gone before it has said so leaves ssh waiting.
pub const CLEAN_REBOOT: &str = "said=$(timeout 120 ssh -oBatchMode=yes root@{master} gnt-cluster command -n {node} reboot 2>&1); code=$?; \
printf '%s\\n' \"$said\"; case \"$said\" in *'return code = 0'*) exit 0;; *'return code = 255'*) exit 255;; \
*'return code = '*) exit 1;; esac; test $code -ne 0 || exit 255; exit $code";

/// The word for RAPI's own way.
const POWERCYCLE: &str = "powercycle";

/// How nodes are rebooted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RebootMethod<'a> {
    /// By RAPI, without a word to the node's own system: what is not on its disks is lost.
    Powercycle,
    /// By a command.
    Command(&'a str),
}

impl Visits {
    /// How nodes are rebooted.
    pub fn reboot_method(&self) -> RebootMethod<'_> {
        match self.reboot.as_deref() {
            Some(POWERCYCLE) => RebootMethod::Powercycle,
            Some(command) => RebootMethod::Command(command),
            None => RebootMethod::Command(CLEAN_REBOOT),
        }
    }

    /// How that instance is migrated; `None`: as all that no rule names.
    pub fn migration_of(&self, instance: &str) -> Option<&MigrationRule> {
        let matches =
            |rule: &&MigrationRule| Regex::new(&rule.matching).is_ok_and(|regex| regex.is_match(instance));
        self.migrate.iter().find(matches)
    }
}

impl Default for Visits {
    fn default() -> Self {
        Self {
            drain: true,
            drain_scope: DrainScope::default(),
            guards_expire: 1800,
            migrations_per_node: 1,
            job_timeout: 3600,
            sync_timeout: 3600,
            reboot: None,
            reboot_timeout: 900,
            failover: None,
            failover_timeout: 120,
            copy_journal: None,
            relocate: None,
            migrate: Vec::new(),
            hooks: GanetiHooks::default(),
            successor: None,
            watcher: None,
        }
    }
}

/// A guard lasts at least so many seconds: it is renewed in time, and jobs of others take a moment to be seen.
const LEAST_GUARD: u32 = 30;

/// The times of a client and of what waits for something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GanetiTiming {
    /// One question.
    pub call: Duration,
    /// One connection.
    pub connect: Duration,
    /// Between two looks at what is waited for.
    pub poll: Duration,
    /// Between two tries of a question that failed.
    pub again: Duration,
    /// The expiry of the lock.
    pub lock: Duration,
    /// One job.
    pub job: Duration,
    /// Disks in sync again.
    pub sync: Duration,
    /// A node back again.
    pub reboot: Duration,
    /// A new master.
    pub failover: Duration,
}

/// All that a Ganeti backend is made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GanetiSettings {
    /// `[cluster]`
    pub cluster: RapiConfig,
    /// Where commands of this machine keep locks and results.
    pub hosts: Hosts,
    /// The times of it, in one place.
    pub pace: GanetiTiming,
}

impl GanetiSettings {
    /// As the configuration says. Commands run on this machine and reach others by what they say themselves.
    pub fn new(cluster: RapiConfig, hosts: Hosts) -> Self {
        let hosts = Hosts {
            shell: Vec::new(),
            ..hosts
        };
        let seconds = Duration::from_secs;
        let visits = &cluster.visits;
        let pace = GanetiTiming {
            call: seconds(cluster.timeout.max(1)),
            connect: seconds(cluster.connect_timeout.max(1)),
            poll: seconds(cluster.poll.max(1)),
            again: Duration::from_millis(500),
            lock: seconds(cluster.lock_expires.max(6)),
            job: seconds(visits.job_timeout),
            sync: seconds(visits.sync_timeout),
            reboot: seconds(visits.reboot_timeout),
            failover: seconds(visits.failover_timeout),
        };
        Self { cluster, hosts, pace }
    }

    /// To look at a cluster of which only an address is known: by the authorities that this machine trusts,
    /// and as nobody.
    ///
    /// # Errors
    /// A name that is not valid.
    pub fn read_only(address: &str) -> Result<Self, IdError> {
        let cluster = RapiConfig {
            name: ClusterName::new("ganeti")?,
            addresses: vec![address.to_owned()],
            ca: None,
            fingerprint: None,
            user: None,
            password_file: None,
            timeout: timeout(),
            connect_timeout: connect_timeout(),
            lock_expires: lock_expires(),
            poll: poll(),
            visits: Visits::default(),
        };
        Ok(Self::new(cluster, Hosts::default()))
    }

    /// What in it does not fit together.
    ///
    /// # Errors
    /// In words, with the names of the settings.
    pub fn verify(&self) -> Result<(), String> {
        let RapiConfig {
            addresses,
            lock_expires,
            user,
            password_file,
            visits,
            ..
        } = &self.cluster;
        if addresses.is_empty() {
            return Err("`addresses` is empty".to_owned());
        }
        if let Some(address) = addresses.iter().find(|address| address.contains('@')) {
            return Err(format!(
                "the address …@{} names a user: name him with `user`, and the file of his password with `password_file`",
                address.rsplit('@').next().unwrap_or_default()
            ));
        }
        if user.is_some() != password_file.is_some() {
            return Err("`user` and `password_file` go together".to_owned());
        }
        // A renewal may be a third of the time ago when the master goes away, and a sixth before its end the
        // lock counts as lost.
        if visits.failover.is_some() && *lock_expires <= 2 * visits.failover_timeout {
            return Err(format!(
                "the lock would be lost while the master changes: `lock_expires` is {lock_expires}, and has to be \
                 more than twice `failover_timeout`, {}",
                visits.failover_timeout
            ));
        }
        if visits.guards_expire < LEAST_GUARD {
            return Err(format!(
                "`guards_expire` is {}, and has to be at least {LEAST_GUARD}: a guard is renewed when half of that is over",
                visits.guards_expire
            ));
        }
        for rule in &visits.migrate {
            if let Err(error) = Regex::new(&rule.matching) {
                return Err(format!(
                    "`matching` of `migrate` is no regular expression: {error}"
                ));
            }
        }
        let reboot = visits.reboot.clone().filter(|word| word != POWERCYCLE);
        let names_its_target = [
            ("failover", &visits.failover, "{successor}"),
            ("reboot", &reboot, "{node}"),
            ("relocate", &visits.relocate, "{instance}"),
            ("relocate", &visits.relocate, "{node}"),
            // Else its job would wait behind our own drain.
            ("relocate", &visits.relocate, "{reason}"),
        ];
        for (name, command, word) in names_its_target {
            if let Some(command) = command
                && !command.contains(word)
            {
                return Err(format!("`{name}` does not say {word}: {command}"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Seen: one node whose daemon took connections and did not answer hid all of them.
    #[test]
    fn a_question_outlasts_a_node_that_is_silent() {
        let settings = GanetiSettings::read_only("cluster.example.org").unwrap();
        // Twice as long as Ganeti waits for it (`Urgent`): two questions may come one after the other.
        assert!(settings.pace.call > Duration::from_mins(2));
    }

    #[test]
    fn an_address_with_a_password_is_refused() {
        let refused = |address: &str| {
            let settings = GanetiSettings::read_only(address).unwrap();
            settings.verify().unwrap_err()
        };
        let why = refused("https://stagger:hunter2hunter2@cluster.example.org:5080");
        assert!(why.contains("password_file") && !why.contains("hunter2"), "{why}");
        assert!(!refused("stagger:hunter2hunter2@cluster").contains("hunter2"));
        GanetiSettings::read_only("https://cluster.example.org:5080")
            .unwrap()
            .verify()
            .unwrap();
    }
}
