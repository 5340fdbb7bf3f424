//! One lasting connection to a cluster, for many commands at about a millisecond each.
//!
//! The `ceph` command takes half a second to start. This is a small Python program in a Ceph root,
//! which holds a librados connection and answers JSON lines.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// The program, to be put where the root can see it; a name of `rados` would hide the library.
pub(crate) const PROGRAM: &str = include_str!("connection.py");

/// Who is to carry out a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Target {
    /// The monitors.
    Mon,
    /// The active manager.
    Mgr,
}

/// A command of Ceph's, in its JSON form, and its input.
#[derive(Debug, Clone, Serialize)]
pub struct Request {
    target: Target,
    cmd: Value,
    #[serde(rename = "in")]
    input: String,
}

impl Request {
    /// A command: its words (`prefix`), and its other fields as a JSON object. The answer is asked for
    /// as JSON unless a field `format` says otherwise.
    pub fn new(target: Target, prefix: &str, fields: Value) -> Self {
        let mut cmd = json!({ "prefix": prefix, "format": "json" });
        if let (Value::Object(all), Value::Object(more)) = (&mut cmd, fields) {
            all.extend(more);
        }
        Self {
            target,
            cmd,
            input: String::new(),
        }
    }

    /// The command with input, like the file of `-i`.
    #[must_use]
    pub fn with_input(mut self, input: impl Into<String>) -> Self {
        self.input = input.into();
        self
    }
}

/// What came back, whatever the code.
#[derive(Debug, Clone, Deserialize)]
pub struct Answer {
    /// Zero, or a negative errno. It alone says little: some commands answer 0 and "no" in the text.
    pub rc: i32,
    /// What a shell would have on stdout.
    pub out: String,
    /// What a shell would have on stderr.
    pub err: String,
}

impl Answer {
    /// The text as JSON; empty text is null.
    pub fn json(&self) -> Result<Value> {
        let text = self.out.trim();
        if text.is_empty() {
            return Ok(Value::Null);
        }
        serde_json::from_str(text).with_context(|| format!("the answer is no JSON: {text:.200}"))
    }
}

/// The connection.
#[derive(Debug)]
pub struct Rados {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Rados {
    /// Connects by a command that starts the program; returns as soon as the mons have a quorum.
    pub(crate) fn connect(command: &mut Command) -> Result<Self> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("starting the connection's Python program")?;
        let stdin = child.stdin.take().context("the connection has no stdin")?;
        let stdout = BufReader::new(child.stdout.take().context("the connection has no stdout")?);
        let mut this = Self { child, stdin, stdout };
        let hello: Value = this.read()?;
        ensure!(
            hello.get("connected").is_some(),
            "the connection began with {hello}"
        );
        Ok(this)
    }

    /// Sends a command and gives what came back, whatever its code.
    pub fn ask(&mut self, request: &Request) -> Result<Answer> {
        self.write(request)?;
        self.read()
    }

    /// Sends a command that must succeed, and gives its JSON.
    pub fn command(&mut self, target: Target, prefix: &str, fields: Value) -> Result<Value> {
        let request = Request::new(target, prefix, fields);
        let answer = self.ask(&request)?;
        checked(&request, answer)?.json()
    }

    /// Sends a mon a command without further fields that must succeed, and gives its JSON.
    pub fn mon(&mut self, prefix: &str) -> Result<Value> {
        self.command(Target::Mon, prefix, json!({}))
    }

    /// Sends many commands at the same time; all must succeed.
    pub fn all(&mut self, requests: &[Request]) -> Result<Vec<Answer>> {
        self.write(&requests)?;
        let answers: Vec<Answer> = self.read()?;
        requests
            .iter()
            .zip(answers)
            .map(|(request, answer)| checked(request, answer))
            .collect()
    }

    fn write(&mut self, value: &impl Serialize) -> Result<()> {
        let mut line = serde_json::to_string(value).context("writing a request")?;
        line.push('\n');
        self.stdin
            .write_all(line.as_bytes())
            .context("the connection's program has ended")
    }

    fn read<T: DeserializeOwned>(&mut self) -> Result<T> {
        let mut line = String::new();
        self.stdout
            .read_line(&mut line)
            .context("reading from the connection")?;
        if line.is_empty() {
            let status = self
                .child
                .wait()
                .context("waiting for the connection's program")?;
            bail!("the connection's program ended with {status}; what it said is above");
        }
        serde_json::from_str(&line).with_context(|| format!("the connection said {line:.300}"))
    }
}

impl Drop for Rados {
    fn drop(&mut self) {
        // It may hang on a cluster that has gone.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

fn checked(request: &Request, answer: Answer) -> Result<Answer> {
    if answer.rc != 0 {
        bail!(
            "Ceph answered {} to {}: {}",
            answer.rc,
            request.cmd,
            answer.err.trim()
        );
    }
    Ok(answer)
}
