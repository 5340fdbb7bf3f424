//! Clients with load: those who must not notice that a cluster is being upgraded.
//!
//! One for each replicated pool and one for the erasure-coded one (librados, whole objects), one for the
//! file system (libcephfs), one for the gateways (S3). Each is a process of its own in the root of the
//! release that the cluster began with: nobody upgrades the clients. About twenty operations a second
//! each, half writes and half reads, every read compared; at the end everything is read once more.

mod report;

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};

pub use report::{Figures, Report, Trouble};

use crate::ceph::spec::FS;
use crate::ceph::{Cluster, Kind, LOAD_CLIENT, S3_USER, rgw_address};
use crate::files::put;
use report::Event;

/// The programs, by the names of their files.
const PROGRAMS: [(&str, &str); 4] = [
    ("common.py", include_str!("load/common.py")),
    ("load-rados.py", include_str!("load/load-rados.py")),
    ("load-cephfs.py", include_str!("load/load-cephfs.py")),
    ("load-s3.py", include_str!("load/load-s3.py")),
];

/// By then each client has done an operation.
const START: Duration = Duration::from_mins(1);
/// By then each client has read everything once more, or given up.
const END: Duration = Duration::from_mins(3);

/// Running clients. Dropping it ends them without a report.
#[derive(Debug)]
pub struct Load {
    clients: Vec<Client>,
    events: Receiver<(usize, Event)>,
    seen: Vec<Event>,
}

#[derive(Debug)]
struct Client {
    name: String,
    child: Child,
    // Some until it is asked to end.
    stdin: Option<ChildStdin>,
    reader: Option<JoinHandle<Result<()>>>,
}

impl Load {
    /// Starts a client for everything that the cluster offers, and returns when each has succeeded once.
    pub fn start(cluster: &Cluster) -> Result<Self> {
        write_programs(&cluster.dir().join("lib"))?;
        let mut clients = Vec::new();
        for pool in cluster.spec().load_pools().iter().copied() {
            let command = program(cluster, "load-rados.py", &[LOAD_CLIENT, pool, pool], true)?;
            clients.push((pool, command));
        }
        if cluster.spec().mdss > 0 {
            let command = program(cluster, "load-cephfs.py", &[LOAD_CLIENT, "cephfs", FS], true)?;
            clients.push(("cephfs", command));
        }
        let gateways = cluster.spec().daemons(Kind::Rgw).len();
        if gateways > 0 {
            let mut command = program(cluster, "load-s3.py", &["s3", S3_USER.0, S3_USER.1], false)?;
            command.args((0..gateways).map(rgw_address));
            clients.push(("s3", command));
        }
        Self::of(clients)
    }

    /// Starts the client of one pool, `python` being the start of its command, and returns when it has succeeded once. Its
    /// programs are written into `folder`.
    pub(crate) fn of_pool(
        mut python: Command,
        folder: &Path,
        conf: &Path,
        login: &str,
        pool: &str,
    ) -> Result<Self> {
        write_programs(folder)?;
        python.arg(folder.join("load-rados.py")).arg(conf);
        python.args([login, pool, pool]);
        Self::of(vec![(pool, python)])
    }

    fn of(clients: Vec<(&str, Command)>) -> Result<Self> {
        let (sender, events) = channel();
        let mut load = Self {
            clients: Vec::new(),
            events,
            seen: Vec::new(),
        };
        for (name, command) in clients {
            load.add(name, command, &sender)?;
        }
        drop(sender); // so that the channel ends with the last client
        let total = load.clients.len();
        load.collect(
            START,
            "have its first success",
            |event| matches!(event, Event::Ready { .. }),
            total,
        )?;
        Ok(load)
    }

    fn add(&mut self, name: &str, mut command: Command, sender: &Sender<(usize, Event)>) -> Result<()> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("starting the load's client {name}"))?;
        let stdin = child.stdin.take();
        let stdout = child
            .stdout
            .take()
            .with_context(|| format!("the client {name} has no stdout"))?;
        let (index, sender) = (self.clients.len(), sender.clone());
        let reader = thread::Builder::new()
            .name(format!("load-{name}"))
            .spawn(move || read(index, stdout, &sender))
            .context("starting a thread for a client of the load")?;
        self.clients.push(Client {
            name: name.to_owned(),
            child,
            stdin,
            reader: Some(reader),
        });
        Ok(())
    }

    /// What has failed up to now, without ending anything.
    pub fn failures(&mut self) -> Vec<Trouble> {
        while let Ok((_, event)) = self.events.try_recv() {
            self.seen.push(event);
        }
        report::troubles(&self.seen)
    }

    /// Asks the clients to end, waits for their last verification, and gives the figures.
    pub fn stop(mut self) -> Result<Report> {
        for client in &mut self.clients {
            drop(client.stdin.take());
        }
        let total = self.clients.len();
        let ended = self
            .seen
            .iter()
            .filter(|event| matches!(event, Event::End(_)))
            .count();
        self.collect(END, "end", |event| matches!(event, Event::End(_)), total - ended)?;
        for client in &mut self.clients {
            client
                .child
                .wait()
                .with_context(|| format!("waiting for the client {}", client.name))?;
            if let Some(reader) = client.reader.take() {
                let read = reader
                    .join()
                    .map_err(|_| anyhow!("reading from the client {} panicked", client.name))?;
                read.with_context(|| format!("what the client {} said", client.name))?;
            }
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
            match self
                .events
                .recv_timeout(until.saturating_duration_since(Instant::now()))
            {
                Ok((_, event)) => {
                    found += usize::from(wanted(&event));
                    self.seen.push(event);
                }
                Err(RecvTimeoutError::Timeout) => {
                    let troubles = report::troubles(&self.seen);
                    bail!(
                        "a client of the load did not {what} within {} s: {troubles:?}",
                        limit.as_secs()
                    );
                }
                Err(RecvTimeoutError::Disconnected) => {
                    let troubles = report::troubles(&self.seen);
                    bail!("the load's clients are gone; what they said on stderr is above: {troubles:?}");
                }
            }
        }
        Ok(())
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        for client in &mut self.clients {
            // Only ours, and only if `stop` has not waited for it already.
            if client.reader.is_some() {
                drop(client.stdin.take());
                client.child.kill().ok();
                client.child.wait().ok();
            }
        }
    }
}

fn write_programs(folder: &Path) -> Result<()> {
    PROGRAMS
        .iter()
        .try_for_each(|(name, text)| put(&folder.join(name), text))
}

/// The command of a client.
fn program(cluster: &Cluster, file: &str, args: &[&str], conf: bool) -> Result<Command> {
    let root = cluster.root(cluster.begun_with())?;
    let mut command = cluster.sandbox().command_in(&root.path, "python3");
    command.arg(cluster.dir().join("lib").join(file));
    if conf {
        command.arg(cluster.conf());
    }
    command.args(args);
    Ok(command)
}

/// Hands on a client's lines as events.
fn read(index: usize, stdout: ChildStdout, sender: &Sender<(usize, Event)>) -> Result<()> {
    for line in BufReader::new(stdout).lines() {
        let line = line.context("reading its stdout")?;
        let event = serde_json::from_str(&line).with_context(|| format!("no event: {line:.200}"))?;
        if sender.send((index, event)).is_err() {
            break; // nobody listens any more
        }
    }
    Ok(())
}
