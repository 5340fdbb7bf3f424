//! The long cases: each on an Ironic of its own, with one thing that goes wrong or is done in another way.
//!
//! `cargo xtask test --long` runs them one after another and notes what each prints last:
//! `case NAME ok|FAILED SECONDS`.

mod back;
mod broken;
mod groups;
mod in_flight;
mod interrupted;
mod later;
mod order;
mod postgres;
mod rabbitmq;
mod refused;
mod rivals;
mod stopping;

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use stagger_e2e::case::{Phases, ironic_loaded, on_ironic};
use stagger_e2e::command::say;
use stagger_e2e::ironic::{Cluster, IronicSpec, Release};
use stagger_e2e::stagger::{Ended, IronicSetup, Machine};

/// By then anything that goes well has gone.
const LIMIT: Duration = Duration::from_mins(8);

/// A case on an Ironic of that release.
fn case(name: &str, release: Release, work: impl FnOnce(&Cluster, &mut Phases) -> Result<()>) -> Result<()> {
    let spec = IronicSpec {
        release,
        ..IronicSpec::default()
    };
    on_ironic(name, spec, work)
}

/// The same under load: no request may fail but by these defects of Ironic's own, and nothing that was acknowledged may
/// be lost. At the end nobody has the lock, and the balancer is as it was.
fn loaded(
    name: &str,
    release: Release,
    defects: &[&str],
    work: impl FnOnce(&Cluster, &mut Phases) -> Result<()>,
) -> Result<()> {
    let spec = IronicSpec {
        release,
        ..IronicSpec::default()
    };
    loaded_on(name, spec, defects, work)
}

/// The same on an Ironic of that shape.
fn loaded_on(
    name: &str,
    spec: IronicSpec,
    defects: &[&str],
    work: impl FnOnce(&Cluster, &mut Phases) -> Result<()>,
) -> Result<()> {
    on_ironic(name, spec, |cluster, phases| {
        let before = cluster.servers()?;
        let report = ironic_loaded(cluster, phases, |_, phases| work(cluster, phases))?;
        let log = cluster.log()?;
        let judged = report.judge(&log);
        say(format!(
            "{} requests, Ironic's own failures: {:?}",
            report.requests(),
            judged.defects()
        ));
        judged.ensure_only(defects)?;
        cluster.ensure_let_go()?;
        let after = cluster.servers()?;
        ensure!(
            after == before,
            "the balancer had {before:?}, and now has {after:?}"
        );
        Ok(())
    })
}

/// A lock that is soon free again after a kill.
fn hasty() -> IronicSetup {
    IronicSetup {
        lock_expires: 10,
        ..IronicSetup::default()
    }
}

/// Runs to that release, to an end with that code.
fn run(machine: &Machine, to: Release, code: i32) -> Result<Ended> {
    let ended = machine
        .start(&["run", "upgrade", "--to", to.version()])?
        .end(LIMIT)?
        .expect(code)
        .with_context(|| machine.history_tail(40))?;
    say(&ended.said);
    Ok(ended)
}

/// Resumes to an end with that code.
fn resume(machine: &Machine, code: i32) -> Result<Ended> {
    let ended = machine
        .resume_to_the_end(LIMIT)?
        .expect(code)
        .with_context(|| machine.history_tail(40))?;
    say(&ended.said);
    Ok(ended)
}
