//! The network of the hosts: a bridge in the namespace of the sandbox, which has an address on it too, and a namespace for each host.

use std::path::Path;

use anyhow::{Context, Result};

use crate::command::run;
use crate::sandbox::Sandbox;

const SCRIPT: &str = include_str!("network.sh");

/// The network that the cluster's daemons are on.
pub(crate) const NETWORK: &str = "10.88.0.0/24";

/// The address of the host number `index`, from 0.
pub(crate) fn address(index: usize) -> String {
    format!("10.88.0.{}", index + 11)
}

/// The address of the sandbox itself, where what the hosts need is served.
pub(crate) const OUTSIDE: &str = "10.88.0.254";

/// Makes the bridge, and a namespace for each host.
pub(crate) fn make(sandbox: &Sandbox, hosts: &[String]) -> Result<()> {
    let mut bridge = sandbox.command("sh");
    bridge.args(["-c", SCRIPT, "network"]).args(hosts);
    run(&mut bridge).context("making the network of the hosts")?;
    Ok(())
}

/// Starts a program of `root` that serves the hosts, and belongs to the sandbox.
pub(crate) fn serve(sandbox: &Sandbox, root: &Path, program: &[&str]) -> Result<()> {
    // Started by a shell that ends at once.
    let mut serve = sandbox.command("sh");
    serve.args([
        "-c",
        "PYTHONDONTWRITEBYTECODE=1 setsid \"$@\" </dev/null >/dev/null 2>&1 &",
        "serve",
    ]);
    serve.arg("chroot").arg(root).args(program);
    run(&mut serve).with_context(|| format!("starting {}", program.join(" ")))?;
    Ok(())
}
