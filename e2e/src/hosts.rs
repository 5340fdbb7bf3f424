//! Hosts in namespaces of their own: systemd as the first process, sshd, a network between them. What they are for is another
//! module's: [`package_hosts`](crate::package_hosts), [`cephadm_hosts`](crate::cephadm_hosts).
//!
//! A reboot inside a host ends its systemd, and the host comes back with another boot id and clocks that begin anew. All of it ends
//! with the process that made it, however that one ends.

pub(crate) mod cgroups;
pub mod host;
pub(crate) mod network;

use std::path::Path;

use anyhow::Result;

use crate::command::run;
use crate::files::{put, script};
use crate::sandbox::Sandbox;
use host::{SSH_CONFIG, ssh_config};

/// Makes the key that all hosts let in and the script `ssh` in the folder of the sandbox, by which a host is reached, `ssh h1 COMMAND`.
///
/// # Errors
/// A file cannot be written.
pub(crate) fn make_ssh(sandbox: &Sandbox, root: &Path, names: &[String]) -> Result<()> {
    let dir = sandbox.dir();
    let mut keygen = sandbox.command_in(root, "ssh-keygen");
    keygen.args(["-q", "-t", "ed25519", "-N", "", "-f"]);
    run(keygen.arg(dir.join("key")))?;
    put(&dir.join(SSH_CONFIG), &ssh_config(dir, names))?;
    let ssh = format!("ssh -F '{}'", dir.join(SSH_CONFIG).display());
    let ssh = sandbox.entrance(root, "A command on a host: ssh h1 COMMAND", &ssh)?;
    script(&dir.join("ssh"), &ssh)
}
