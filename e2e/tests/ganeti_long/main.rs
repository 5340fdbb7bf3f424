//! The long cases: each on a virtual cluster of Ganeti of its own, with one thing that goes wrong or is done in another
//! way.
//!
//! `cargo xtask test --long` runs them one after another and notes what each prints last:
//! `case NAME ok|FAILED SECONDS`.

mod broken;
mod hold;
mod init;
mod interrupted;
mod master;
mod others;
mod password;
mod refused;
#[expect(dead_code, reason = "tests of the library start it in other ways")]
#[path = "../../../crates/versioned/tests/all/server.rs"]
mod server;
mod story;
mod ways;
mod whole;

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use stagger_e2e::case::{Phases, on_ganeti};
use stagger_e2e::command::say;
use stagger_e2e::ganeti::{Cluster, GanetiSpec, Release};
use stagger_e2e::stagger::{Ended, Machine};

/// By then anything that goes well has gone.
const LIMIT: Duration = Duration::from_mins(8);

/// A case on so many nodes.
fn case(nodes: u32, name: &str, work: impl FnOnce(&Cluster, &mut Phases) -> Result<()>) -> Result<()> {
    case_of(Release::V3_0, nodes, name, work)
}

/// The same with a release of Ganeti.
fn case_of(
    release: Release,
    nodes: u32,
    name: &str,
    work: impl FnOnce(&Cluster, &mut Phases) -> Result<()>,
) -> Result<()> {
    let spec = GanetiSpec {
        release,
        nodes,
        // Long enough for a kill while a node is down.
        boot_seconds: 5,
        ..GanetiSpec::default()
    };
    on_ganeti(name, spec, work)
}

/// Fails if a node was rebooted by RAPI's powercycle: by default it is done cleanly, by ssh, and no job is needed for it.
fn ensure_none_powercycled(cluster: &Cluster) -> Result<()> {
    let jobs = cluster.jobs()?;
    ensure!(
        !jobs.iter().any(|job| job.summary.contains("POWERCYCLE")),
        "{jobs:?}"
    );
    Ok(())
}

/// Runs a reboot to its end, which is to have that code.
fn reboot(machine: &Machine, words: &[&str], code: i32) -> Result<Ended> {
    let ended = machine
        .start(&[&["run", "reboot"][..], words].concat())?
        .end(LIMIT)?
        .expect(code)
        .with_context(|| machine.history_tail(40))?;
    say(&ended.said);
    Ok(ended)
}
