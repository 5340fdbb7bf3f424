//! The network of the hosts: a bridge in the namespace of the sandbox, with a server of packages on it, and a namespace for each
//! host.

use std::path::Path;

use anyhow::{Context, Result};

use super::root::{PACKAGES_DIR, SERVER};
use crate::command::run;
use crate::sandbox::Sandbox;

const SCRIPT: &str = include_str!("network.sh");

/// The network that the cluster's daemons are on.
pub(super) const NETWORK: &str = "10.88.0.0/24";

/// The address of the host number `index`, from 0.
pub(super) fn address(index: usize) -> String {
    format!("10.88.0.{}", index + 11)
}

/// Makes the bridge, a namespace for each host, and serves the packages of `root`.
pub(super) fn make(sandbox: &Sandbox, root: &Path, hosts: &[String]) -> Result<()> {
    let mut bridge = sandbox.command("sh");
    bridge.args(["-c", SCRIPT, "network"]).args(hosts);
    run(&mut bridge).context("making the network of the hosts")?;
    let (address, port) = SERVER.split_once(':').context("a server without a port")?;
    // Started by a shell that ends at once: it belongs to the sandbox then.
    let mut serve = sandbox.command("sh");
    serve.args([
        "-c",
        "PYTHONDONTWRITEBYTECODE=1 setsid \"$@\" </dev/null >/dev/null 2>&1 &",
        "serve",
    ]);
    serve.arg("chroot").arg(root);
    serve.args(["python3", "-m", "http.server", "--bind", address]);
    serve.args(["--directory", PACKAGES_DIR, port]);
    run(&mut serve).context("serving packages")?;
    Ok(())
}
