//! Builds the programs of a Kubernetes control plane into the cache, if they are not there yet.

use anyhow::Result;
use stagger_e2e::command::say;
use stagger_e2e::kubernetes::servers::{KUBERNETES, Servers};

fn main() -> Result<()> {
    let servers = Servers::get()?;
    let folder = servers.program("");
    say(format!("Kubernetes {KUBERNETES} is in {}", folder.display()));
    Ok(())
}
