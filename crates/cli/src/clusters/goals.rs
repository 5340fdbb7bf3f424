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
                "`reboot` is for a Ganeti, and this is {kind}"
            ))
            .hint("`upgrade --to RELEASE`; for a Ganeti: a configuration with kind = \"ganeti\", or --from")),
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
}
