//! Queries to a cluster: one small trait with four implementations.
//!
//! [`exec::Exec`] starts the `ceph` program for each query, which works with every version and installation.
//! [`session::Session`] keeps one connection open. [`recorded::Recorded`] answers from a folder of files,
//! [`saved::FromSaved`] from an inventory that [`saved::AnswerRecorder`] made.

mod body;
mod command_line;
pub mod exec;
pub mod recorded;
pub mod saved;
pub mod session;

use std::path::PathBuf;
use std::time::Duration;

use async_trait::async_trait;
use serde_json::Value;

pub use body::{Body, Chunks};
pub use command_line::command_line;

/// Which of the cluster's daemons answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum QueryTarget {
    /// The monitors. They pass on what only the manager knows, at the price of a detour.
    Mon,
    /// The active manager: placement groups, `ok-to-stop`, crash reports.
    Mgr,
    /// One monitor, by its place in their map, about itself.
    MonAt(u32),
    /// One OSD, about itself.
    Osd(u32),
}

/// What came back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CephAnswer {
    /// 0, or the errno of Ceph's refusal, as a positive number: 16 is EBUSY. A refusal may have an answer in
    /// `out` too.
    pub rc: i32,
    /// The answer; empty for many commands that only change something.
    pub out: Vec<u8>,
    /// What Ceph says for people.
    pub err: String,
}

/// Asks a cluster.
#[async_trait]
pub trait CephApi: Send + Sync {
    /// Sends one query: `{"prefix": "osd ok-to-stop", "ids": ["0"], "format": "json"}`, in the form in which
    /// the `ceph` program itself sends it. The call ends within the configured time, even if this process is
    /// gone by then.
    ///
    /// # Errors
    /// There was no answer. A refusal is a [`CephAnswer`] with its `rc`.
    async fn command(&self, whom: QueryTarget, command: Value) -> Result<CephAnswer, CephApiError>;

    /// Why each question starts the `ceph` program although a connection was to be kept open; `None`: none was, or it is open.
    fn fallback_reason(&self) -> Option<&str> {
        None
    }

    /// Asks for JSON and takes only a yes.
    ///
    /// # Errors
    /// As [`CephApi::command`], and [`CephApiError::Refused`] for an answer that says no.
    async fn ask(&self, whom: QueryTarget, mut command: Value) -> Result<Vec<u8>, CephApiError> {
        command["format"] = Value::from("json");
        let asked = command_line(&command);
        let CephAnswer { rc, out, err } = self.command(whom, command).await?;
        if rc == 0 {
            Ok(out)
        } else {
            Err(CephApiError::Refused {
                command: asked.join(" "),
                rc,
                why: err.trim().to_owned(),
            })
        }
    }

    /// As [`CephApi::ask`], of what may be long: where it can, it comes as it is read.
    ///
    /// # Errors
    /// As [`CephApi::ask`]. That an answer breaks off is told by reading it.
    async fn ask_for_much(&self, whom: QueryTarget, command: Value) -> Result<Body, CephApiError> {
        self.ask(whom, command).await.map(Body::Whole)
    }
}

/// How to reach a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Access {
    /// The `ceph` program with what stands before it: `["ceph"]`, `["ssh", "admin", "ceph"]`.
    pub ceph: Vec<String>,
    /// The Python that has the `rados` module, with what stands before it; `None`: never keep a
    /// connection open. The module comes with the `ceph` program, which is written in Python itself.
    /// It must hand on words as they are, which ssh does not.
    pub python: Option<Vec<String>>,
    /// `ceph.conf`; the usual places, if `None`.
    pub conf: Option<PathBuf>,
    /// The user: `client.admin`.
    pub name: Option<String>,
    /// The user's keyring; where `ceph.conf` says, if `None`.
    pub keyring: Option<PathBuf>,
    /// How long one question may take.
    pub timeout: Duration,
}

impl Default for Access {
    fn default() -> Self {
        Self {
            ceph: vec!["ceph".to_owned()],
            python: Some(vec!["/usr/bin/python3".to_owned()]),
            conf: None,
            name: None,
            keyring: None,
            timeout: Duration::from_secs(30),
        }
    }
}

/// A question that got no answer.
#[derive(Debug, thiserror::Error)]
pub enum CephApiError {
    /// The program could not be started.
    #[error("cannot start {program:?} to ask the cluster {command:?}")]
    Start {
        /// The program.
        program: String,
        /// The question.
        command: String,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// Nobody answered in time.
    #[error("no answer to {command:?} from {via} within {seconds} s")]
    TimedOut {
        /// The question.
        command: String,
        /// Through what it was asked.
        via: String,
        /// How long was waited.
        seconds: u64,
    },
    /// There was no connection to the cluster, or it broke.
    #[error("cannot ask the cluster {command:?} through {via}: {why}")]
    Unreachable {
        /// The question.
        command: String,
        /// Through what it was asked.
        via: String,
        /// What was said about it.
        why: String,
    },
    /// The cluster answered, and said no.
    #[error("the cluster refused {command:?} with code {rc}: {why}")]
    Refused {
        /// The question.
        command: String,
        /// The errno, positive.
        rc: i32,
        /// Its words.
        why: String,
    },
    /// The folder of recorded answers has none to this question.
    #[error("no recorded answer to {command:?} in {}", file.display())]
    NotRecorded {
        /// The question.
        command: String,
        /// Where it would stand.
        file: PathBuf,
    },
    /// The inventory has no answer to this question.
    #[error("no answer to {command:?} in the inventory {}", file.display())]
    NotSaved {
        /// The question.
        command: String,
        /// The snapshot.
        file: PathBuf,
    },
    /// A recorded answer could not be read.
    #[error("cannot read the recorded answer {}", file.display())]
    Recording {
        /// The file.
        file: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
}

/// errno values that pass: EINTR, EAGAIN, EBUSY, ETIMEDOUT, ECONNREFUSED, EHOSTUNREACH and their like.
const PASSING: [i32; 8] = [4, 11, 16, 104, 107, 110, 111, 113];

impl CephApiError {
    /// Whether asking again later may help.
    pub fn passes(&self) -> bool {
        match self {
            Self::Start { source, .. } => !matches!(
                source.kind(),
                std::io::ErrorKind::NotFound | std::io::ErrorKind::PermissionDenied
            ),
            Self::TimedOut { .. } | Self::Unreachable { .. } => true,
            Self::Refused { rc, .. } => PASSING.contains(rc),
            Self::NotRecorded { .. } | Self::NotSaved { .. } | Self::Recording { .. } => false,
        }
    }

    /// What to do about it.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Start { program, .. } => Some(format!(
                "install {program:?}, or say in the configuration how to call it"
            )),
            Self::TimedOut { .. } | Self::Unreachable { .. } => Some(
                "run `ceph status` with the same configuration, name and keyring; the monitors must have quorum"
                    .to_owned(),
            ),
            Self::Refused { rc: 1 | 13, .. } => {
                Some("give the user `mon 'allow *' mgr 'allow *'`, as client.admin has".to_owned())
            }
            Self::NotRecorded { command, file } => Some(format!(
                "ceph {command} -f json > {}",
                file.display()
            )),
            Self::NotSaved { .. } => Some("make a new one: stagger observe --save FILE".to_owned()),
            Self::Refused { .. } | Self::Recording { .. } => None,
        }
    }
}
