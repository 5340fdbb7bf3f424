//! A process of `stagger` that goes on beside the test.

use std::io::{BufRead as _, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::command::{last_lines, run, shown};

/// How a call ended, and what it printed.
#[derive(Debug, Clone)]
pub struct Ended {
    /// The command line.
    pub command: String,
    /// The exit code; none after a signal.
    pub code: Option<i32>,
    /// Its stdout; of a [`Running`] both streams are in `said`.
    pub out: String,
    /// Its stderr.
    pub said: String,
}

impl Ended {
    /// Fails, with its last words, unless it ended with that code.
    pub fn expect(self, code: i32) -> Result<Self> {
        ensure!(
            self.code == Some(code),
            "`{}` ended with {:?}, not {code}; its last words:\n{}",
            self.command,
            self.code,
            last_lines(&format!("{}\n{}", self.out, self.said), 30)
        );
        Ok(self)
    }

    /// Fails unless it said each of these, in whichever stream.
    pub fn expect_said(&self, words: &[&str]) -> Result<()> {
        for word in words {
            ensure!(
                self.said.contains(word) || self.out.contains(word),
                "`{}` did not say {word:?}, but:\n{}\n{}",
                self.command,
                self.out,
                self.said
            );
        }
        Ok(())
    }
}

/// A running `stagger`. Dropping it kills it.
#[derive(Debug)]
pub struct Running {
    command: String,
    child: Child,
    lines: Receiver<String>,
    said: Vec<String>,
}

impl Running {
    pub(super) fn start(command: &mut Command) -> Result<Self> {
        let text = shown(command);
        command.stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().with_context(|| format!("starting `{text}`"))?;
        let (sender, lines) = channel();
        let out = child.stdout.take().context("no stdout")?;
        let err = child.stderr.take().context("no stderr")?;
        let other = sender.clone();
        // Both end with the process: the pipes are its own.
        thread::spawn(move || hand_on(out, &sender));
        thread::spawn(move || hand_on(err, &other));
        Ok(Self {
            command: text,
            child,
            lines,
            said: Vec::new(),
        })
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits for a line that it prints; fails when it ends before, or is not that far in time.
    pub fn until(
        &mut self,
        what: &str,
        limit: Duration,
        mut wanted: impl FnMut(&str) -> bool,
    ) -> Result<String> {
        let end = Instant::now() + limit;
        loop {
            match self
                .lines
                .recv_timeout(end.saturating_duration_since(Instant::now()))
            {
                Ok(line) => {
                    self.said.push(line.clone());
                    if wanted(&line) {
                        return Ok(line);
                    }
                }
                Err(RecvTimeoutError::Timeout) => bail!(
                    "waiting for {what}: not within {} s; it said:\n{}",
                    limit.as_secs(),
                    self.last_words()
                ),
                Err(RecvTimeoutError::Disconnected) => {
                    let status = self.child.wait().context("waiting for stagger")?;
                    bail!(
                        "waiting for {what}: stagger ended with {status}; it said:\n{}",
                        self.last_words()
                    );
                }
            }
        }
    }

    /// SIGKILL.
    pub fn kill(&mut self) -> Result<()> {
        self.child.kill().context("killing stagger")?;
        self.child.wait().context("waiting for stagger")?;
        Ok(())
    }

    /// A signal by its name: `STOP`, `CONT`, `INT`.
    pub fn signal(&self, name: &str) -> Result<()> {
        let pid = self.pid().to_string();
        run(Command::new("kill").args(["-s", name, &pid]))?;
        Ok(())
    }

    /// Waits until it ends.
    pub fn end(mut self, limit: Duration) -> Result<Ended> {
        let end = Instant::now() + limit;
        loop {
            match self
                .lines
                .recv_timeout(end.saturating_duration_since(Instant::now()))
            {
                Ok(line) => self.said.push(line),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => bail!(
                    "`{}` did not end within {} s; it said:\n{}",
                    self.command,
                    limit.as_secs(),
                    self.last_words()
                ),
            }
        }
        let status = self.child.wait().context("waiting for stagger")?;
        Ok(Ended {
            command: self.command.clone(),
            code: status.code(),
            out: String::new(),
            said: self.said.join("\n"),
        })
    }

    fn last_words(&self) -> String {
        let from = self.said.len().saturating_sub(30);
        self.said[from..].join("\n")
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // A stopped process dies of SIGKILL too.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

fn hand_on(stream: impl Read, lines: &Sender<String>) {
    for line in BufReader::new(stream).lines().map_while(Result::ok) {
        if lines.send(line).is_err() {
            break; // nobody listens any more
        }
    }
}
