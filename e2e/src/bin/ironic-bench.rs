//! Upgrades a real Ironic by hand and by `stagger`, in turn, under the same load; the figures go to stdout as JSON.

use std::io::Write as _;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use serde::Serialize;
use stagger_e2e::command::say;
use stagger_e2e::ironic::{Cluster, Hand, IronicSpec, Load, Release};
use stagger_e2e::stagger::{IronicSetup, Machine};

/// By then anything that goes well has gone.
const LIMIT: Duration = Duration::from_mins(10);

/// One upgrade.
#[derive(Debug, Serialize)]
struct Figures {
    way: &'static str,
    from: &'static str,
    to: &'static str,
    seconds: f64,
    requests: u64,
    ours: usize,
    of_ironic: usize,
    applied: usize,
    longest: f64,
    wrong: u64,
}

fn main() -> Result<()> {
    let mut all = Vec::new();
    for (from, to) in [
        (Release::Dalmatian, Release::Epoxy),
        (Release::Epoxy, Release::Flamingo),
    ] {
        all.push(upgrade("by hand", from, to, |cluster| {
            Hand::new(cluster).upgrade(from, to)
        })?);
        all.push(upgrade("by stagger", from, to, |cluster| {
            let machine = Machine::new(cluster, "anna", &IronicSetup::default())?;
            let ended = machine
                .start(&["run", "upgrade", "--to", to.version()])?
                .end(LIMIT)?;
            say(&ended.said);
            ended.expect(0).map(drop)
        })?);
    }
    let text = serde_json::to_string(&all).context("writing the figures")?;
    writeln!(std::io::stdout(), "{text}").context("printing the figures")
}

fn upgrade(
    way: &'static str,
    from: Release,
    to: Release,
    work: impl FnOnce(&Cluster) -> Result<()>,
) -> Result<Figures> {
    say(format!("== {from} to {to} {way}"));
    let cluster = Cluster::boot(IronicSpec {
        release: from,
        ..IronicSpec::default()
    })?;
    let load = Load::start(&cluster)?;
    let begun = Instant::now();
    work(&cluster)?;
    let seconds = begun.elapsed().as_secs_f64();
    let report = load.stop()?;
    say(format!("{seconds:.1} s\n{report}"));
    let log = cluster.log()?;
    let judged = report.judge(&log);
    let figures = Figures {
        way,
        from: from.version(),
        to: to.version(),
        seconds,
        requests: report.requests(),
        ours: judged.ours.len(),
        of_ironic: judged.of_ironic.len(),
        applied: judged
            .of_ironic
            .iter()
            .filter(|(failure, _)| failure.applied == Some(true))
            .count(),
        longest: report.worst(),
        wrong: report.clients.iter().map(|client| client.wrong).sum(),
    };
    cluster.ensure_upgraded(to)?;
    cluster.stop(false)?;
    Ok(figures)
}
