//! Which goals each kind of cluster has.

use crate::args::{Action, Goal, Reboot, Upgrade};
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
        }
    }

    /// Which nodes are rebooted and how, the one goal of a Ganeti. `cluster`: what it is called.
    ///
    /// # Errors
    /// Another goal is given.
    pub(super) fn reboot(&self, cluster: &str) -> Result<&Reboot, CliError> {
        match &self.action {
            Action::Reboot(reboot) => Ok(reboot),
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
