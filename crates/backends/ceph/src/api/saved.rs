//! All answers of one observation in one file: to plan elsewhere, and for reports of bugs.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;
use stagger_core::model::ClusterName;
use stagger_core::view::Schema;

use super::{Answer, ApiError, CephApi, Whom, words};

/// The questions whose answers are kept: those that [`collect`](fn@crate::facts::collect) asks. None of
/// them is answered with keys. Whatever else goes through the same connection is not kept.
const FACTS: [&str; 17] = [
    "crash ls-new",
    "fs dump",
    "health",
    "mds metadata",
    "mgr dump",
    "mgr metadata",
    "mon metadata",
    "orch status",
    "osd dump",
    "osd metadata",
    "osd tree",
    "pg dump",
    "pg ls",
    "pg ls-by-osd",
    "quorum_status",
    "status",
    "versions",
];

/// Everything that planning needs of a cluster, as the cluster said it.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Saved {
    /// `{"name": "ceph-answers", "version": 1}`.
    pub schema: Schema,
    /// When the cluster was asked.
    pub taken: Timestamp,
    /// What the cluster is called.
    pub cluster: ClusterName,
    /// The answers, by the command line that asks the question.
    answers: BTreeMap<String, SavedAnswer>,
}

/// One answer: JSON as it came, or text that is none, or that nothing came in time.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
struct SavedAnswer {
    #[cfg_attr(feature = "schema", schemars(with = "Option<serde_json::Value>"))]
    #[serde(skip_serializing_if = "Option::is_none")]
    json: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<String>,
    /// The errno by which Ceph said no.
    #[serde(skip_serializing_if = "zero")]
    rc: i32,
    #[serde(skip_serializing_if = "String::is_empty")]
    err: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    timed_out: Option<TimedOut>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct TimedOut {
    via: String,
    seconds: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands out references")]
fn zero(rc: &i32) -> bool {
    *rc == 0
}

/// Why a file is not taken for a saved snapshot.
#[derive(Debug, thiserror::Error)]
pub enum SavedError {
    /// It breaks off.
    #[error("the saved snapshot breaks off at line {line}, column {column}: it was not copied whole")]
    Truncated {
        /// Where.
        line: usize,
        /// Where in the line.
        column: usize,
    },
    /// It is no JSON, or not of this shape.
    #[error("it is not a saved snapshot")]
    Shape(#[source] serde_json::Error),
    /// It is another document.
    #[error("it is a document {0:?}, and not a saved snapshot, which is called {name:?}", name = Saved::SCHEMA)]
    Other(String),
    /// A newer release wrote it.
    #[error(
        "it is a saved snapshot of version {0}, and this program reads up to version {newest}",
        newest = Saved::VERSION
    )]
    Newer(u32),
}

impl SavedError {
    /// What to do about it.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Truncated { .. } => "copy it once more, or make a new one: stagger observe --save FILE",
            Self::Shape(_) | Self::Other(_) => {
                "`stagger observe --save FILE` makes one; what `observe --json` prints is for people and scripts"
            }
            Self::Newer(_) => "read it with the release that wrote it, or a later one",
        }
    }
}

impl From<serde_json::Error> for SavedError {
    fn from(error: serde_json::Error) -> Self {
        if error.is_eof() {
            Self::Truncated {
                line: error.line(),
                column: error.column(),
            }
        } else {
            Self::Shape(error)
        }
    }
}

impl Saved {
    /// The document's name.
    pub const SCHEMA: &str = "ceph-answers";
    /// The newest version of the document.
    pub const VERSION: u32 = 1;

    /// Reads the document.
    ///
    /// # Errors
    /// It breaks off, is another document, or is newer than this program.
    pub fn read(bytes: &[u8]) -> Result<Self, SavedError> {
        // Its name and version first: a later version may have another shape, and that is not damage.
        #[derive(Deserialize)]
        struct Head {
            schema: Option<Schema>,
            kind: Option<String>,
        }
        let head: Head = serde_json::from_slice(bytes)?;
        match head.schema {
            Some(schema) if schema.name != Self::SCHEMA => return Err(SavedError::Other(schema.name)),
            Some(schema) if schema.version > Self::VERSION => return Err(SavedError::Newer(schema.version)),
            None if head.kind.is_some() => {
                return Err(SavedError::Other(head.kind.unwrap_or_default()));
            }
            Some(_) | None => {}
        }
        Ok(serde_json::from_slice(bytes)?)
    }

    /// The document as it is written.
    ///
    /// # Errors
    /// None that could be met: the answers are plain data.
    pub fn to_json(&self) -> Result<Vec<u8>, serde_json::Error> {
        let mut bytes = serde_json::to_vec_pretty(self)?;
        bytes.push(b'\n');
        Ok(bytes)
    }
}

/// Answers as they were saved.
#[derive(Debug, Clone)]
pub struct FromSaved {
    saved: Saved,
    file: PathBuf,
}

impl FromSaved {
    /// Answers from this document, which was read from `file`.
    pub fn new(saved: Saved, file: impl Into<PathBuf>) -> Self {
        Self {
            saved,
            file: file.into(),
        }
    }
}

#[async_trait]
impl CephApi for FromSaved {
    async fn command(&self, _whom: Whom, command: Value) -> Result<Answer, ApiError> {
        let asked = words(&command).join(" ");
        let Some(answer) = self.saved.answers.get(&asked) else {
            return Err(ApiError::NotSaved {
                command: asked,
                file: self.file.clone(),
            });
        };
        let SavedAnswer {
            json,
            text,
            rc,
            err,
            timed_out,
        } = answer;
        if let Some(TimedOut { via, seconds }) = timed_out {
            return Err(ApiError::TimedOut {
                command: asked,
                via: via.clone(),
                seconds: *seconds,
            });
        }
        let out = json.as_deref().map(RawValue::get).or(text.as_deref());
        Ok(Answer {
            rc: *rc,
            out: out.unwrap_or_default().as_bytes().to_vec(),
            err: err.clone(),
        })
    }
}

/// Asks another and keeps what it answers to questions for facts.
pub struct Recorder {
    asked: Arc<dyn CephApi>,
    answers: Mutex<BTreeMap<String, SavedAnswer>>,
}

impl Recorder {
    /// Keeps what this one answers.
    pub fn new(asked: Arc<dyn CephApi>) -> Self {
        Self {
            asked,
            answers: Mutex::default(),
        }
    }

    /// What was answered so far. To a question that was asked twice, the last answer counts.
    pub fn saved(&self, cluster: ClusterName, taken: Timestamp) -> Saved {
        Saved {
            schema: Schema {
                name: Saved::SCHEMA.to_owned(),
                version: Saved::VERSION,
            },
            taken,
            cluster,
            answers: self
                .answers
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .clone(),
        }
    }
}

#[async_trait]
impl CephApi for Recorder {
    async fn command(&self, whom: Whom, command: Value) -> Result<Answer, ApiError> {
        let prefix = command["prefix"].as_str().unwrap_or_default();
        let fact = FACTS.contains(&prefix).then(|| words(&command).join(" "));
        let answer = self.asked.command(whom, command).await;
        if let Some(asked) = fact
            && let Some(kept) = keep(&answer)
        {
            let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
            answers.insert(asked, kept);
        }
        answer
    }
}

/// What is kept of an answer. That a manager gave none in time is a fact too; what ends the observation
/// is none.
fn keep(answer: &Result<Answer, ApiError>) -> Option<SavedAnswer> {
    match answer {
        Ok(Answer { rc, out, err }) => {
            let text = String::from_utf8_lossy(out).into_owned();
            let mut kept = SavedAnswer {
                rc: *rc,
                err: err.clone(),
                ..SavedAnswer::default()
            };
            match serde_json::from_str(text.trim()) {
                Ok(json) => kept.json = Some(json),
                Err(_) => kept.text = Some(text),
            }
            Some(kept)
        }
        Err(ApiError::TimedOut {
            command: _,
            via,
            seconds,
        }) => Some(SavedAnswer {
            timed_out: Some(TimedOut {
                via: via.clone(),
                seconds: *seconds,
            }),
            ..SavedAnswer::default()
        }),
        Err(_) => None,
    }
}

/// Writes a file whole or not at all: under another name first, in the same folder.
///
/// # Errors
/// The folder cannot be written to.
pub fn write_whole(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    use std::io::Write as _;
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.part", std::process::id()));
    let part = path.with_file_name(name);
    // It tells how a cluster is laid out, and that is its operators' own.
    let written = stagger_engine::secrets::create(&part).and_then(|mut file| {
        file.write_all(bytes)?;
        file.sync_all()?;
        std::fs::rename(&part, path)
    });
    if written.is_err() {
        std::fs::remove_file(&part).ok();
    }
    written
}
