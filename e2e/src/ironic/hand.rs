//! The upgrade as a careful person does it by hand, with the measured way of stopping a conductor: what `stagger` is
//! measured against.
//!
//! Before a conductor is stopped, its RPC port is drained at the balancer to the other one; before an API is, it is
//! drained too. Each is given back when it serves.

use std::fmt::Write as _;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};

use super::report::Judged;
use super::spec::{Release, Service};
use super::{Cluster, Failure};
use crate::command::{last_lines, say};

/// By then a conductor that serves is known to the APIs.
const ALIVE: Duration = Duration::from_mins(1);
/// How many rows one call of the online migration is asked for.
const BATCH: &str = "50";
/// After so many calls it is not going to end.
const MOST_CALLS: usize = 100;

/// One step of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    /// What was done.
    pub name: String,
    /// When it began, in seconds of Unix time.
    pub at: f64,
    /// How long it took.
    pub took: Duration,
}

/// Somebody who works on a cluster by hand, and notes what takes how long.
#[derive(Debug)]
pub struct Hand<'a> {
    cluster: &'a Cluster,
    steps: Vec<Step>,
}

impl<'a> Hand<'a> {
    /// Nothing is done yet.
    pub fn new(cluster: &'a Cluster) -> Self {
        Self {
            cluster,
            steps: Vec::new(),
        }
    }

    /// What was done up to now.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// Restarts a service so that no request fails: drained, stopped, changed, started, given back.
    ///
    /// # Errors
    /// One of these did not succeed; the service is then as it was left.
    pub fn restart(
        &mut self,
        service: Service,
        what: &str,
        change: impl FnOnce(&Cluster) -> Result<()>,
    ) -> Result<()> {
        let cluster = self.cluster;
        self.step(format!("{service} {what}: drain"), || {
            cluster.service(service, "drain", &[])
        })?;
        self.step(format!("{service} {what}: stop"), || {
            cluster.service(service, "stop", &[])
        })?;
        change(cluster)?;
        self.step(format!("{service} {what}: start"), || {
            cluster.service(service, "start", &[])
        })?;
        self.step(format!("{service} {what}: give back"), || {
            cluster.service(service, "give-back", &[])?;
            if let Some(name) = cluster.spec().registered(service) {
                cluster.wait_for(&format!("{service} is alive"), ALIVE, |cluster| {
                    Ok(cluster.conductors()?.get(name) == Some(&true))
                })?;
            }
            Ok(())
        })
    }

    /// Upgrades all of the cluster, from a release to the one after it.
    ///
    /// # Errors
    /// A step did not succeed; nothing is gone back.
    pub fn upgrade(&mut self, from: Release, to: Release) -> Result<()> {
        let cluster = self.cluster;
        self.step("upgrade check with the new code".to_owned(), || {
            let (code, said) = cluster.code(to, "ironic-status", &["upgrade", "check"])?;
            // From 26.1 to 29.0 it crashes: it reads columns that are not there yet.
            say(format!(
                "upgrade check: exit code {code}: {}",
                last_lines(&said, 1)
            ));
            Ok(())
        })?;
        self.step("schema upgrade".to_owned(), || {
            let (code, said) = cluster.code(to, "ironic-dbsync", &["upgrade"])?;
            match code {
                0 => Ok(()),
                _ => bail!("exit code {code}: {}", last_lines(&said, 12)),
            }
        })?;
        for service in self.cluster.spec().services() {
            cluster.service(service, "pin", &[from.pin()])?;
        }
        for service in self.cluster.spec().services() {
            self.restart(service, &format!("to {to}"), |cluster| {
                cluster.service(service, "install", &[to.version()]).map(drop)
            })?;
        }
        for service in self.cluster.spec().services() {
            self.restart(service, "unpinned", |cluster| {
                cluster.service(service, "pin", &[]).map(drop)
            })?;
        }
        self.step("online migration".to_owned(), || migrate(cluster, to))
    }

    fn step<T>(&mut self, name: String, work: impl FnOnce() -> Result<T>) -> Result<()> {
        let (at, begun) = (now()?, Instant::now());
        let result = work();
        let took = begun.elapsed();
        say(format!("   {:6.1} s  {name}", took.as_secs_f64()));
        result.with_context(|| format!("by hand: {name}"))?;
        self.steps.push(Step { name, at, took });
        Ok(())
    }

    /// A table of the steps, with the requests that began and failed in each.
    pub fn table(&self, judged: &Judged<'_>) -> String {
        let mut text = "seconds  ours  Ironic's  step\n".to_owned();
        let mut row = |seconds: f64, ours: usize, ironic: usize, name: &str| {
            // Writing to a text does not fail.
            writeln!(text, "{seconds:>7.1} {ours:>5} {ironic:>9}  {name}").ok();
        };
        for step in &self.steps {
            let within =
                |failure: &Failure| (step.at..step.at + step.took.as_secs_f64()).contains(&failure.at);
            row(
                step.took.as_secs_f64(),
                judged.ours.iter().filter(|failure| within(failure)).count(),
                judged
                    .of_ironic
                    .iter()
                    .filter(|(failure, _)| within(failure))
                    .count(),
                &step.name,
            );
        }
        let seconds: f64 = self.steps.iter().map(|step| step.took.as_secs_f64()).sum();
        row(seconds, judged.ours.len(), judged.of_ironic.len(), "in all");
        text
    }
}

fn migrate(cluster: &Cluster, release: Release) -> Result<()> {
    let words = ["online_data_migrations", "--max-count", BATCH];
    for _ in 0..MOST_CALLS {
        let (code, said) = cluster.code(release, "ironic-dbsync", &words)?;
        match code {
            0 => return Ok(()),
            // More to do; an error that nobody caught is 1 too, and then no call ever ends it.
            1 => {}
            _ => bail!("exit code {code}: {}", last_lines(&said, 12)),
        }
    }
    bail!("still more to do after {MOST_CALLS} calls of {BATCH} rows")
}

fn now() -> Result<f64> {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    Ok(since.context("the clock is before 1970")?.as_secs_f64())
}
