//! One connection for many questions: about a millisecond each.
//!
//! The connection is held by a small Python process that uses the `rados` module, for two reasons: that
//! module is there wherever the `ceph` program is, which is written in Python too, and it knows every
//! release's protocol. Where it is missing, each question starts the `ceph` program instead.

use std::process::Stdio;
use std::sync::OnceLock;
use std::time::Duration;

use async_trait::async_trait;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};
use tokio::sync::Mutex;

use super::exec::Exec;
use super::{Access, Answer, ApiError, CephApi, Whom, words};

const SCRIPT: &str = include_str!("session.py");
/// How much longer than the script itself we wait, for its start and a large answer.
const GRACE: Duration = Duration::from_secs(5);
/// For so many bytes of an announced answer there is a place before they come.
const RESERVED: u64 = 1 << 24;
/// An answer of more bytes than this is none: 4 GB, four times the dump of 320,000 placement groups.
const LARGEST: u64 = 1 << 32;

/// Keeps one connection. When it breaks, the question that was open fails and the next one connects
/// anew: nothing is asked twice by itself, since a question may be an order.
///
/// The process ends when its input does, so it dies with this one, and a command that it had sent is
/// over after the configured time at the latest.
#[derive(Debug)]
pub struct Session {
    access: Access,
    exec: Exec,
    open: Mutex<Option<Connection>>,
    fell_back: OnceLock<String>,
}

#[derive(Debug)]
struct Connection {
    /// Killed when dropped.
    _process: Child,
    questions: ChildStdin,
    answers: BufReader<ChildStdout>,
}

/// What the script says: which of these fields are there tells what happened.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Head {
    ready: bool,
    missing: Option<String>,
    unreachable: Option<String>,
    timed_out: bool,
    rc: i32,
    err: String,
    bytes: u64,
}

impl Session {
    /// Connects when the first question comes.
    pub fn new(access: Access) -> Self {
        Self {
            exec: Exec::new(access.clone()),
            access,
            open: Mutex::new(None),
            fell_back: OnceLock::new(),
        }
    }

    /// Why no connection is kept, when each question starts the `ceph` program instead.
    pub fn fell_back(&self) -> Option<&str> {
        self.fell_back.get().map(String::as_str)
    }

    /// When the last command that was ever sent has surely ended, counted from its start.
    pub fn bound(&self) -> Duration {
        self.exec.bound()
    }

    fn via(&self) -> String {
        let python = self.access.python.iter().flatten();
        python.cloned().collect::<Vec<_>>().join(" ") + " with rados"
    }

    fn unreachable(&self, asked: &str, why: impl Into<String>) -> ApiError {
        ApiError::Unreachable {
            command: asked.to_owned(),
            via: self.via(),
            why: why.into(),
        }
    }

    fn timed_out(&self, asked: &str) -> ApiError {
        ApiError::TimedOut {
            command: asked.to_owned(),
            via: self.via(),
            seconds: self.access.timeout.as_secs(),
        }
    }

    /// A connection, or `None` where there can be none.
    async fn connect(&self, python: &[String], asked: &str) -> Result<Option<Connection>, ApiError> {
        let Access {
            ceph: _,
            python: _,
            conf,
            name,
            keyring,
            timeout,
        } = &self.access;
        let access =
            json!({ "conf": conf, "name": name, "keyring": keyring, "timeout": timeout.as_secs().max(1) });
        let Some((program, before)) = python.split_first() else {
            return Ok(self.fall_back("no python is configured"));
        };
        let started = Command::new(program)
            .args(before)
            .args(["-c", SCRIPT, &access.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true)
            .spawn();
        let mut process = match started {
            Ok(process) => process,
            Err(error) => return Ok(self.fall_back(&format!("cannot start {program}: {error}"))),
        };
        let (questions, answers) = (process.stdin.take(), process.stdout.take());
        let (Some(questions), Some(answers)) = (questions, answers) else {
            return Err(self.unreachable(asked, "its input and output are not there"));
        };
        let complaints = process.stderr.take();
        let mut connection = Connection {
            _process: process,
            questions,
            answers: BufReader::new(answers),
        };
        let hello = tokio::time::timeout(self.access.timeout + GRACE, connection.answer())
            .await
            .map_err(|_| self.timed_out(asked))?;
        let head = match hello {
            Ok((head, _)) => head,
            Err(why) => return Err(self.unreachable(asked, format!("{why}: {}", said(complaints).await))),
        };
        if let Some(why) = head.missing {
            return Ok(self.fall_back(&format!("{program} has no rados module: {why}")));
        }
        if !head.ready {
            return Err(self.unreachable(asked, head.unreachable.unwrap_or_default()));
        }
        Ok(Some(connection))
    }

    fn fall_back(&self, why: &str) -> Option<Connection> {
        self.fell_back.get_or_init(|| why.to_owned());
        None
    }
}

/// What a process that has ended wrote beside its answers.
async fn said(complaints: Option<ChildStderr>) -> String {
    const LONGEST: u64 = 2_000;
    let mut text = Vec::new();
    if let Some(complaints) = complaints {
        let mut complaints = complaints.take(LONGEST);
        let read = tokio::time::timeout(Duration::from_secs(1), complaints.read_to_end(&mut text));
        // Whatever came is better than nothing.
        drop(read.await);
    }
    String::from_utf8_lossy(&text).trim().to_owned()
}

impl Connection {
    async fn answer(&mut self) -> Result<(Head, Vec<u8>), String> {
        let mut line = Vec::new();
        let read = self.answers.read_until(b'\n', &mut line).await;
        if read.map_err(|e| e.to_string())? == 0 {
            return Err("the process that held the connection has ended".to_owned());
        }
        let head: Head = serde_json::from_slice(&line).map_err(|e| format!("garbled answer: {e}"))?;
        if head.bytes > LARGEST {
            return Err(format!("an answer of {} bytes is not taken", head.bytes));
        }
        let wanted = head.bytes;
        // Grown by doubling, it would take twice its place for a moment.
        let mut body = Vec::with_capacity(wanted.min(RESERVED) as usize);
        let got = (&mut self.answers).take(wanted).read_to_end(&mut body).await;
        if got.map_err(|e| e.to_string())? as u64 != wanted {
            return Err(format!(
                "the answer broke off after {} of {wanted} bytes",
                body.len()
            ));
        }
        Ok((head, body))
    }

    async fn ask(&mut self, question: &Value) -> Result<(Head, Vec<u8>), String> {
        let line = format!("{question}\n");
        self.questions
            .write_all(line.as_bytes())
            .await
            .map_err(|e| e.to_string())?;
        self.answer().await
    }
}

#[async_trait]
impl CephApi for Session {
    async fn command(&self, whom: Whom, command: Value) -> Result<Answer, ApiError> {
        let Some(python) = self.access.python.as_ref().filter(|_| self.fell_back().is_none()) else {
            return self.exec.command(whom, command).await;
        };
        let asked = words(&command).join(" ");
        let mut open = self.open.lock().await;
        // Taken out, so that a question that is given up half-way leaves no connection behind on which
        // its late answer would be taken for the next one's.
        let mut connection = match open.take() {
            Some(connection) => connection,
            None => match self.connect(python, &asked).await? {
                Some(connection) => connection,
                None => return self.exec.command(whom, command).await,
            },
        };
        let whom = match whom {
            Whom::Mon => json!("mon"),
            Whom::Mgr => json!("mgr"),
            Whom::MonAt(rank) => json!(["mon", rank]),
            Whom::Osd(id) => json!(["osd", id]),
        };
        let question = json!({ "whom": whom, "command": command });
        let (head, out) = tokio::time::timeout(self.access.timeout + GRACE, connection.ask(&question))
            .await
            .map_err(|_| self.timed_out(&asked))?
            .map_err(|why| self.unreachable(&asked, why))?;
        if head.timed_out {
            return Err(self.timed_out(&asked));
        }
        if let Some(why) = head.unreachable {
            return Err(self.unreachable(&asked, why));
        }
        *open = Some(connection);
        Ok(Answer {
            rc: head.rc,
            out,
            err: head.err,
        })
    }
}
