//! The goals of each kind of cluster.

use jiff::Timestamp;

use stagger_engine::hosts::Hosts;
use stagger_engine::template::unknown;

use crate::args::{ExecArgs, GoalAction, GoalArgs, RebootArgs, UpgradeArgs, VisitArgs};
use crate::error::CliError;

/// Clusters that have a goal.
#[derive(Clone, Copy)]
struct Others {
    name: &'static str,
    /// As in a configuration.
    kinds: &'static str,
}

const OF_HOSTS: Others = Others {
    name: "Ceph on hosts",
    kinds: "\"ceph\"",
};
const OF_NODES: Others = Others {
    name: "Ganeti or Ceph on hosts",
    kinds: "\"ganeti\" or \"ceph\"",
};

impl GoalArgs {
    /// The upgrade, the one goal of that kind of cluster: `a Ceph`.
    ///
    /// # Errors
    /// Another goal is given.
    pub(super) fn upgrade(&self, kind: &str) -> Result<&UpgradeArgs, CliError> {
        let (goal, others) = match &self.action {
            GoalAction::Upgrade(upgrade) => return Ok(upgrade),
            GoalAction::Reboot(reboot) if reboot.patches => ("patch", OF_HOSTS),
            GoalAction::Reboot(_) => ("reboot", OF_NODES),
            GoalAction::Restart(_) => ("restart", OF_HOSTS),
            GoalAction::Exec(_) => ("exec", OF_NODES),
        };
        let Others { name, kinds } = others;
        Err(
            CliError::usage(format!("`{goal}` is for {name}; this is {kind}")).hint(format!(
                "`upgrade --to RELEASE`; for the others: a configuration with kind = {kinds}, or --from"
            )),
        )
    }

    /// What is done to nodes, to which and how: the goals of a Ganeti. `cluster`: what it is called.
    ///
    /// # Errors
    /// Another goal is given.
    pub(super) fn maintenance(&self, cluster: &str) -> Result<NodeMaintenance<'_>, CliError> {
        match &self.action {
            GoalAction::Reboot(reboot) if reboot.patches => Err(CliError::usage(format!(
                "{cluster} is a Ganeti cluster; `patch` is for Ceph on hosts"
            ))
            .hint("`exec --command 'ssh root@{node} …'` runs a command for each node while it is empty")),
            GoalAction::Reboot(reboot) if reboot.up_for.is_some() => Err(CliError::usage(format!(
                "{cluster} is a Ganeti cluster; --up-for is for Ceph on hosts"
            ))
            .hint("use --needs-reboot COMMAND: it runs for each node and exits with 0 if the node needs a reboot")),
            GoalAction::Reboot(reboot) => Ok(NodeMaintenance {
                visit: &reboot.visit,
                work: Work::Reboot,
                needs_reboot: reboot.needs_reboot.as_deref(),
                since: reboot.since,
            }),
            GoalAction::Exec(exec) => Ok(NodeMaintenance {
                visit: &exec.visit,
                work: match exec.command.as_deref() {
                    Some(command) => Work::Command(command),
                    None => Work::Hold,
                },
                needs_reboot: None,
                since: None,
            }),
            GoalAction::Restart(_) => Err(CliError::usage(format!(
                "{cluster} is a Ganeti cluster; `restart` is for Ceph on hosts"
            ))
            .hint("`exec --command 'ssh root@{node} systemctl restart ganeti.target'` restarts the daemons of each node while it is empty")),
            GoalAction::Upgrade(_) => Err(CliError::usage(format!(
                "{cluster} is a Ganeti cluster; `upgrade` is for Ceph and Ironic"
            ))
            .hint("`reboot` reboots its nodes")),
        }
    }

    /// What a Ceph has of a reboot: the flags about instances are a Ganeti's.
    ///
    /// # Errors
    /// Another flag is given.
    pub(super) fn reboot_of_hosts(reboot: &RebootArgs) -> Result<(), CliError> {
        let shared = RebootArgs {
            needs_reboot: None,
            since: None,
            up_for: None,
            ..reboot.clone()
        };
        let others: Vec<String> = shared
            .to_args()
            .into_iter()
            .filter(|word| word.starts_with("--"))
            .map(|word| word.split('=').next().unwrap_or_default().to_owned())
            .collect();
        if others.is_empty() {
            return Ok(());
        }
        Err(CliError::usage(format!(
            "{} is for Ganeti; this is a Ceph cluster",
            others.join(", ")
        ))
        .hint("Ceph hosts are selected by --host, --domain, --limit, --needs-reboot, --up-for and --since"))
    }

    /// The command that is run in the turn of each host of a Ceph: the flags about instances are a Ganeti's.
    ///
    /// # Errors
    /// Another flag is given, a placeholder that is not filled in, or a command that would run here for every host.
    pub(super) fn command_on_hosts(exec: &ExecArgs, hosts: &Hosts) -> Result<String, CliError> {
        let plain = ExecArgs {
            command: exec.command.clone(),
            ..ExecArgs::default()
        };
        let plain = plain.to_args();
        let others: Vec<String> = exec
            .to_args()
            .into_iter()
            .filter(|word| word.starts_with("--") && !plain.contains(word))
            .map(|word| word.split('=').next().unwrap_or_default().to_owned())
            .collect();
        if !others.is_empty() {
            return Err(CliError::usage(format!(
                "{} is for Ganeti; this is a Ceph cluster",
                others.join(", ")
            ))
            .hint("Ceph hosts are selected by --host, --domain and --limit"));
        }
        let command = exec.command.as_deref().unwrap_or_default().trim();
        if command.is_empty() {
            return Err(CliError::usage("--command is empty"));
        }
        let odd: Vec<&str> = unknown(command, &["host"]).into_iter().collect();
        if let Some(word) = odd
            .iter()
            .find(|word| ["node", "master", "reason"].contains(*word))
        {
            return Err(CliError::usage(format!(
                "--command has {{{word}}}, which is only filled in for Ganeti"
            ))
            .hint("for Ceph {host} is filled in"));
        }
        if hosts.shell.is_empty() && !command.contains("{host}") {
            return Err(CliError::usage(
                "--command would run on this machine for every host: there is no [hosts] shell",
            )
            .hint("name {host} in it: --command 'ssh {host} …'"));
        }
        Ok(command.to_owned())
    }
}

/// What is done to the nodes of a Ganeti.
pub(super) struct NodeMaintenance<'a> {
    /// Which, and how.
    pub(super) visit: &'a VisitArgs,
    /// What is done to each.
    pub(super) work: Work<'a>,
    /// The command that tells whether a node needs it.
    pub(super) needs_reboot: Option<&'a str>,
    /// Nodes that have booted since are left out.
    pub(super) since: Option<Timestamp>,
}

/// What is done to a node while it is empty.
#[derive(Debug, Clone, Copy)]
pub(super) enum Work<'a> {
    /// It is rebooted.
    Reboot,
    /// This command is run for it.
    Command(&'a str),
    /// A person does it.
    Hold,
}
