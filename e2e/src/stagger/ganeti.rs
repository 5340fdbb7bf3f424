//! The configuration with which the nodes of a Ganeti are rebooted.

use std::fmt::Write as _;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use anyhow::{Context, Result};

use super::Setting;
use crate::certificates::Authority;
use crate::files::{put, script};
use crate::ganeti::{CLUSTER_ADDRESS, Cluster, OPERATOR, RAPI_PORT};

/// What the tests vary. The default is quick, and has every command that there is but those of hooks.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a switch of the configuration"
)]
pub struct GanetiSetup {
    /// The node that the program runs on; none: a machine beside the cluster.
    pub on: Option<String>,
    /// The URL of the database that has the journals; none: a file.
    pub store: Option<String>,
    /// Where RAPI is asked.
    pub address: String,
    /// Whether another authority is trusted than the cluster's.
    pub trusts_another: bool,
    /// Who asks: name and password.
    pub user: (String, String),
    /// Whether jobs of others wait.
    pub drain: bool,
    /// Which: `cluster` or `wave`.
    pub drain_scope: &'static str,
    /// Whether Ganeti's watcher is paused.
    pub watcher: bool,
    /// Whether there is a command by which the master changes.
    pub failover: bool,
    /// How long a new master may take to answer, in seconds.
    pub failover_timeout: u32,
    /// Whether there is a command by which instances are moved with their disks.
    pub relocate: bool,
    /// Whether nodes are rebooted by a command, and not by RAPI's powercycle.
    pub reboot: bool,
    /// Who becomes master, if not the first that can.
    pub successor: Option<&'static str>,
    /// After so many seconds without renewal the lock may be taken over.
    pub lock_expires: u32,
    /// Guards go by themselves after so many seconds.
    pub guards_expire: u32,
    /// How long a node may take to come back, in seconds.
    pub reboot_timeout: u32,
    /// The hooks `may_stop`, `enter`, `leave`, if there are any.
    pub hooks: [Option<String>; 3],
    /// `max_in_parallel`.
    pub max_in_parallel: &'static str,
    /// Whether the first waves are small.
    pub growth: bool,
    /// `gate_timeout`, in seconds.
    pub gate_timeout: u32,
    /// `on_failure`: rollback, continue or stop.
    pub on_failure: &'static str,
}

impl Default for GanetiSetup {
    fn default() -> Self {
        Self {
            on: None,
            store: None,
            address: format!("{CLUSTER_ADDRESS}:{RAPI_PORT}"),
            trusts_another: false,
            user: (OPERATOR.0.to_owned(), OPERATOR.1.to_owned()),
            drain: true,
            drain_scope: "wave",
            watcher: false,
            failover: false,
            failover_timeout: 15,
            relocate: false,
            reboot: false,
            successor: None,
            // Twice the time of a failover and a little; on a busy machine a question may take seconds.
            lock_expires: 36,
            guards_expire: 1800,
            reboot_timeout: 120,
            hooks: [const { None }; 3],
            max_in_parallel: "100%",
            growth: false,
            gate_timeout: 120,
            on_failure: "stop",
        }
    }
}

impl GanetiSetup {
    /// One in which the master changes too: RAPI does not answer meanwhile, and the lock has to outlast that.
    pub fn with_failover() -> Self {
        Self {
            failover: true,
            failover_timeout: 60,
            lock_expires: 150,
            ..Self::default()
        }
    }
}

impl GanetiSetup {
    /// What is done by commands: the end of the section on visits, and those of the watcher and of hooks.
    fn commands(&self, cluster: &Cluster, own: &Path, ssh: &str) -> Result<String> {
        let dir = cluster.dir().display();
        let mut text = String::new();
        if self.failover {
            let program = own.join("failover");
            script(&program, &format!("#!/bin/sh\nssh='{ssh}'\n{FAILOVER}"))?;
            // It is written down, so that a test sees when it is under way.
            writeln!(
                text,
                "failover = \"echo begin >>{dir}/{FAILOVERS}; {program} {{master}} {{successor}}; c=$?; \
                 echo end >>{dir}/{FAILOVERS}; exit $c\"",
                program = program.display(),
            )?;
        }
        if self.relocate {
            // It ends when its job is in the queue: whoever waits for the command has not waited for the move.
            writeln!(
                text,
                "relocate = \"{ssh} root@{{master}} gnt-instance move --submit --reason={{reason}} -f -n {{node}} {{instance}}\"",
            )?;
        }
        if self.reboot {
            // As ssh ends when the node goes away in the midst of it.
            let program = cluster.node_program();
            writeln!(
                text,
                "reboot = \"{} {{node}} reboot; exit 255\"",
                program.display()
            )?;
        } else if self.on.is_none() {
            // Of the default: `ssh` of the machine that the test runs on reaches no node.
            writeln!(text, "reboot = \"powercycle\"")?;
        }
        if let Some(successor) = self.successor {
            writeln!(text, "successor = \"{successor}\"")?;
        }
        if self.on.is_some() {
            // All machines of a test have their folders in one place.
            let own = own.display();
            writeln!(
                text,
                "copy_journal = \"to={dir}/machines/{{successor}}/state; mkdir -p $to && rm -f $to/journal.db* && \
                 {own}/stagger --state {own}/state db copy $to/journal.db && \
                 if [ -d {own}/state/artifacts ]; then cp -a {own}/state/artifacts $to/; fi\"",
            )?;
        }
        if self.watcher {
            let command = format!("{ssh} root@{{master}} gnt-cluster watcher");
            writeln!(
                text,
                "\n[cluster.visits.watcher]\npause = \"{command} pause {{seconds}}\"\n\
                 continue = \"{command} continue\"\ninfo = \"{command} info\"",
            )?;
        }
        if self.hooks.iter().any(Option::is_some) {
            writeln!(text, "\n[cluster.visits.hooks]")?;
            for (name, hook) in ["may_stop", "enter", "leave"].into_iter().zip(&self.hooks) {
                if let Some(hook) = hook {
                    writeln!(text, "{name} = {hook:?}")?;
                }
            }
        }
        Ok(text)
    }
}

/// Makes a node the master. First it is given all jobs: one that was drained or down lacks those of that time, and
/// Ganeti 3.0 does not send them when it is a candidate again, so they would be lost.
const FAILOVER: &str = r#"# failover MASTER SUCCESSOR
set -eu
queue='"$GANETI_ROOTDIR"/var/lib/ganeti/queue'
# Without any, the second command has nothing to read, and fails.
$ssh "root@$1" "cd $queue && tar -c job-* serial" | $ssh "root@$2" "tar -x -C $queue"
exec $ssh "root@$2" gnt-cluster master-failover
"#;

/// What each failover writes down when it begins and ends.
const FAILOVERS: &str = "failovers";

/// Whether the command of a failover is under way.
pub fn is_failing_over(cluster: &Cluster) -> bool {
    let told = fs::read_to_string(cluster.dir().join(FAILOVERS)).unwrap_or_default();
    told.lines().last() == Some("begin")
}

impl Setting for GanetiSetup {
    type Cluster = Cluster;

    fn folder(cluster: &Cluster) -> &Path {
        cluster.dir()
    }

    fn program(&self, cluster: &Cluster, own: &Path, binary: &Path) -> Result<Vec<String>> {
        let words = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>();
        let Some(node) = &self.on else {
            // Nothing but the network is the cluster's: so a signal reaches the program itself.
            let first = cluster.sandbox().first_pid().to_string();
            let binary = binary.display().to_string();
            return Ok(words(&["nsenter", "-t", &first, "-n", "--", &binary]));
        };
        // Of the machine's files a node sees nothing but the cluster's folder.
        let copy = own.join("stagger");
        fs::copy(binary, &copy).with_context(|| format!("copying the program to {}", copy.display()))?;
        let (node_program, copy) = (cluster.node_program(), copy.display().to_string());
        Ok(words(&[&node_program.display().to_string(), node, "run", &copy]))
    }

    fn text(&self, cluster: &Cluster, own: &Path) -> Result<String> {
        let Self {
            on,
            address,
            trusts_another,
            user: (user, password),
            drain,
            drain_scope,
            failover_timeout,
            lock_expires,
            guards_expire,
            reboot_timeout,
            max_in_parallel,
            growth,
            gate_timeout,
            on_failure,
            ..
        } = self;
        let password_file = own.join("password");
        put(&password_file, password)?;
        fs::set_permissions(&password_file, Permissions::from_mode(0o600))
            .with_context(|| format!("closing {}", password_file.display()))?;
        let dir = cluster.dir().display();
        // A node reaches the others by ssh; so does a machine beside them, with the files that they have.
        let ssh = match on {
            Some(_) => "ssh".to_owned(),
            None => format!("{dir}/ssh"),
        };
        let mut ca = cluster.ca();
        if *trusts_another {
            ca = own.join("ca.pem");
            put(&ca, &Authority::new()?.pem())?;
        }
        let growth = if *growth { "double" } else { "none" };
        let mut text = String::new();
        write!(
            text,
            r#"[cluster]
kind = "ganeti"
name = "lab"
addresses = ["{address}"]
ca = "{ca}"
user = "{user}"
password_file = "{password_file}"
timeout = 30
poll = 1
lock_expires = {lock_expires}

[cluster.visits]
drain = {drain}
drain_scope = "{drain_scope}"
guards_expire = {guards_expire}
reboot_timeout = {reboot_timeout}
failover_timeout = {failover_timeout}
"#,
            ca = ca.display(),
            password_file = password_file.display(),
        )?;
        text += &self.commands(cluster, own, &ssh)?;
        if let Some(url) = &self.store {
            writeln!(text, "\n[store]\nurl = \"{url}\"")?;
        }
        write!(
            text,
            r#"
[policy]
max_in_parallel = "{max_in_parallel}"
growth = "{growth}"
soak = 0
canary_soak = 0
gate_hold = 1
gate_timeout = {gate_timeout}
on_failure = "{on_failure}"
retry = {{ first = 3, longest = 10, tries = 4 }}

[hosts]
folder = "{own}/hosts"
timeout = 100
"#,
            own = own.display(),
        )?;
        Ok(text)
    }
}
