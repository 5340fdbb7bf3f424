//! The commands by which software is changed.

use serde::{Deserialize, Serialize};

/// How the software of a kind of daemon is changed on its host: shell commands in which `{kind}`,
/// `{id}`, `{release}` and `{host}` are replaced, and of the profile `cephadm` the cluster's `{fsid}` and the release's `{image}`. Each may be run again after it was interrupted.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Software {
    /// Makes `{release}` what the next start of the daemon runs. The daemon keeps running.
    pub upgrade: Option<String>,
    /// Prints the versions that the host can install, as `apt-cache madison ceph-base` or `dnf --showduplicates list ceph-base` does.
    /// `config check --to` compares them with the release, and `--to 20` is the newest that all hosts have.
    pub versions: Option<String>,
    /// Stops and starts the daemon.
    pub restart: Option<String>,
    /// Stops the daemon and makes its data readable for the older `{release}`, by the tools of the newer
    /// one, which is still there. Needed where [`rollback_table`](crate::rollback_table) says so.
    pub before_rollback: Option<String>,
    /// Makes the older `{release}` what the next start runs; `upgrade`, if not given.
    pub rollback: Option<String>,
    /// Recreates the daemon's store on `{release}` and starts it.
    pub rebuild: Option<String>,
    /// Prints the daemon's last log lines.
    pub logs: Option<String>,
}
