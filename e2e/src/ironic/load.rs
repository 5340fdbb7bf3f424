//! Clients of an Ironic with load: those who must not notice that it is being upgraded. See `load.py`.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};

use super::failure::Failure;
use super::report::{self, CLIENTS, Event, Report};
use super::{API_PORT, Cluster};

/// By then the nodes are made, and each client has succeeded once.
const START: Duration = Duration::from_mins(3);
/// By then each client has read back what it wrote, or given up.
const END: Duration = Duration::from_mins(4);

/// Running clients. Dropping it ends them without a report.
#[derive(Debug)]
pub struct Load {
    child: Child,
    // Some until it is asked to end.
    stdin: Option<ChildStdin>,
    reader: Option<JoinHandle<Result<()>>>,
    events: Receiver<Event>,
    seen: Vec<Event>,
}

impl Load {
    /// Makes nodes and starts the clients, and returns when each has succeeded once.
    ///
    /// # Errors
    /// A node cannot be made, or a client has no success.
    pub fn start(cluster: &Cluster) -> Result<Self> {
        let mut command = cluster.command("python3");
        command
            .arg(cluster.dir().join("lib/load.py"))
            .arg(format!("127.0.0.1:{API_PORT}"))
            .args(cluster.spec().groups());
        if let Some(token) = &cluster.token {
            command.env("TOKEN", token);
        }
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("starting the load's clients")?;
        let stdin = child.stdin.take();
        let stdout = child.stdout.take().context("the load has no stdout")?;
        let (sender, events) = channel();
        let reader = thread::Builder::new()
            .name("load".to_owned())
            .spawn(move || read(stdout, &sender))
            .context("starting a thread for the load")?;
        let mut load = Self {
            child,
            stdin,
            reader: Some(reader),
            events,
            seen: Vec::new(),
        };
        load.collect(START, "begin", |event| matches!(event, Event::Ready {}), 1)?;
        Ok(load)
    }

    /// What has failed up to now, without ending anything.
    pub fn failures(&mut self) -> Vec<Failure> {
        while let Ok(event) = self.events.try_recv() {
            self.seen.push(event);
        }
        report::failures(&self.seen)
    }

    /// Asks the clients to end, waits until they have read back what they wrote, and gives the figures.
    ///
    /// # Errors
    /// They do not end.
    pub fn stop(mut self) -> Result<Report> {
        drop(self.stdin.take());
        // Some may have ended by themselves, which their failures say.
        self.failures();
        let ended = self.seen.iter().filter(|event| is_end(event)).count();
        self.collect(END, "end", is_end, CLIENTS.saturating_sub(ended))?;
        self.child.wait().context("waiting for the load's clients")?;
        if let Some(reader) = self.reader.take() {
            reader
                .join()
                .map_err(|_| anyhow!("reading from the load panicked"))?
                .context("what the load said")?;
        }
        Ok(Report::new(&self.seen))
    }

    /// Reads events until `count` of a kind have come.
    fn collect(
        &mut self,
        limit: Duration,
        what: &str,
        wanted: impl Fn(&Event) -> bool,
        count: usize,
    ) -> Result<()> {
        let until = Instant::now() + limit;
        let mut found = 0;
        while found < count {
            let left = until.saturating_duration_since(Instant::now());
            let why = match self.events.recv_timeout(left) {
                Ok(event) => {
                    found += usize::from(wanted(&event));
                    self.seen.push(event);
                    continue;
                }
                Err(RecvTimeoutError::Timeout) => format!("within {} s", limit.as_secs()),
                Err(RecvTimeoutError::Disconnected) => "and are gone; what they said is above".to_owned(),
            };
            bail!(
                "the load's clients did not {what} {why}: {:?}",
                report::failures(&self.seen)
            );
        }
        Ok(())
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        // Only if `stop` has not waited for it already.
        if self.reader.is_some() {
            drop(self.stdin.take());
            self.child.kill().ok();
            self.child.wait().ok();
        }
    }
}

fn is_end(event: &Event) -> bool {
    matches!(event, Event::End(_))
}

/// Hands on the lines as events.
fn read(stdout: ChildStdout, sender: &Sender<Event>) -> Result<()> {
    for line in BufReader::new(stdout).lines() {
        let line = line.context("reading its stdout")?;
        let event = serde_json::from_str(&line).with_context(|| format!("no event: {line:.200}"))?;
        if sender.send(event).is_err() {
            break; // nobody listens any more
        }
    }
    Ok(())
}
