//! Which goals each kind of cluster has.

use jiff::Timestamp;

use crate::args::{Action, Goal, Reboot, Upgrade, Visit};
use crate::error::CliError;

impl Goal {
    /// The upgrade, the one goal of that kind of cluster: `a Ceph`.
    ///
    /// # Errors
    /// Another goal is given.
    pub(super) fn upgrade(&self, kind: &str) -> Result<&Upgrade, CliError> {
        match &self.action {
            Action::Upgrade(upgrade) => Ok(upgrade),
            Action::Reboot(_) => Err(CliError::usage(format!(
                "`reboot` is for a Ganeti or a Ceph on hosts, and this is {kind}"
            ))
            .hint(
                "`upgrade --to RELEASE`; for the others: a configuration with kind = \"ganeti\" or \"ceph\", or --from",
            )),
            Action::Exec(_) => Err(of_a_ganeti("exec", kind)),
        }
    }

    /// What is done to nodes, to which and how: the goals of a Ganeti. `cluster`: what it is called.
    ///
    /// # Errors
    /// Another goal is given.
    pub(super) fn maintenance(&self, cluster: &str) -> Result<Maintenance<'_>, CliError> {
        match &self.action {
            Action::Reboot(reboot) => Ok(Maintenance {
                visit: &reboot.visit,
                command: None,
                needs_reboot: reboot.needs_reboot.as_deref(),
                since: reboot.since,
            }),
            Action::Exec(exec) => Ok(Maintenance {
                visit: &exec.visit,
                command: Some(&exec.command),
                needs_reboot: None,
                since: None,
            }),
            Action::Upgrade(_) => Err(CliError::usage(format!(
                "{cluster} is a Ganeti, and `upgrade` is for a Ceph or an Ironic"
            ))
            .hint("`reboot` reboots its nodes")),
        }
    }

    /// What a Ceph has of a reboot: the flags about instances are a Ganeti's.
    ///
    /// # Errors
    /// Another flag is given.
    pub(super) fn reboot_of_hosts(reboot: &Reboot) -> Result<(), CliError> {
        let shared = Reboot {
            needs_reboot: None,
            since: None,
            ..reboot.clone()
        };
        let others: Vec<String> = shared
            .words()
            .into_iter()
            .filter(|word| word.starts_with("--"))
            .map(|word| word.split('=').next().unwrap_or_default().to_owned())
            .collect();
        if others.is_empty() {
            return Ok(());
        }
        Err(CliError::usage(format!(
            "{} is for a Ganeti, and this is a Ceph",
            others.join(", ")
        ))
        .hint("hosts of a Ceph are selected by --host, --domain, --limit, --needs-reboot and --since"))
    }
}

/// What is done to the nodes of a Ganeti.
pub(super) struct Maintenance<'a> {
    /// Which, and how.
    pub(super) visit: &'a Visit,
    /// The command that is run for each; `None`: it is rebooted.
    pub(super) command: Option<&'a str>,
    /// The command that tells whether a node needs it.
    pub(super) needs_reboot: Option<&'a str>,
    /// Nodes that have booted since are left out.
    pub(super) since: Option<Timestamp>,
}

/// That goal is not for that kind of cluster.
fn of_a_ganeti(goal: &str, kind: &str) -> CliError {
    CliError::usage(format!("`{goal}` is for a Ganeti, and this is {kind}"))
        .hint("`upgrade --to RELEASE`; for a Ganeti: a configuration with kind = \"ganeti\", or --from")
}
