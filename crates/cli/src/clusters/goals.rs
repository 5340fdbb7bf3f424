//! Which goals each kind of cluster has.

use jiff::Timestamp;

use crate::args::{Action, Goal, Upgrade, Visit};
use crate::error::CliError;

impl Goal {
    /// The upgrade, the one goal of that kind of cluster: `a Ceph`.
    ///
    /// # Errors
    /// Another goal is given.
    pub(super) fn upgrade(&self, kind: &str) -> Result<&Upgrade, CliError> {
        match &self.action {
            Action::Upgrade(upgrade) => Ok(upgrade),
            Action::Reboot(_) => Err(of_a_ganeti("reboot", kind)),
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

fn of_a_ganeti(goal: &str, kind: &str) -> CliError {
    CliError::usage(format!("`{goal}` is for a Ganeti, and this is {kind}"))
        .hint("`upgrade --to RELEASE`; for a Ganeti: a configuration with kind = \"ganeti\", or --from")
}
