//! The answers of one observation, as an inventory keeps them ([`stagger_engine::inventory`]).

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use super::{CephAnswer, CephApi, CephApiError, QueryTarget, command_line};

/// The questions whose answers are kept: those that [`collect`](fn@crate::facts::collect) asks. None of
/// them is answered with keys. Whatever else goes through the same connection is not kept.
const FACTS: [&str; 20] = [
    "config get",
    "crash ls-new",
    "fs dump",
    "health",
    "mds metadata",
    "mgr dump",
    "mgr metadata",
    "mon metadata",
    "orch ps",
    "orch status",
    "orch upgrade status",
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

/// Everything that planning needs of a cluster, as the cluster said it: the answers, by the command line that asks the question.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SavedAnswers(BTreeMap<String, SavedAnswer>);

/// One answer: JSON as it came, or text that is none, or that nothing came in time.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct SavedAnswer {
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
#[serde(deny_unknown_fields)]
struct TimedOut {
    via: String,
    seconds: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands out references")]
fn zero(rc: &i32) -> bool {
    *rc == 0
}

/// Answers as they were saved.
#[derive(Debug, Clone)]
pub struct FromSaved {
    saved: SavedAnswers,
    file: PathBuf,
}

impl FromSaved {
    /// These answers, which were read from `file`.
    pub fn new(saved: SavedAnswers, file: impl Into<PathBuf>) -> Self {
        Self {
            saved,
            file: file.into(),
        }
    }
}

#[async_trait]
impl CephApi for FromSaved {
    async fn command(&self, _whom: QueryTarget, command: Value) -> Result<CephAnswer, CephApiError> {
        let asked = command_line(&command).join(" ");
        let Some(answer) = self.saved.0.get(&asked) else {
            return Err(CephApiError::NotSaved {
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
            return Err(CephApiError::TimedOut {
                command: asked,
                via: via.clone(),
                seconds: *seconds,
            });
        }
        let out = json.as_deref().map(RawValue::get).or(text.as_deref());
        Ok(CephAnswer {
            rc: *rc,
            out: out.unwrap_or_default().as_bytes().to_vec(),
            err: err.clone(),
        })
    }
}

/// Asks another and keeps what it answers to questions for facts.
pub struct AnswerRecorder {
    asked: Arc<dyn CephApi>,
    answers: Mutex<BTreeMap<String, SavedAnswer>>,
}

impl AnswerRecorder {
    /// Keeps what this one answers.
    pub fn new(asked: Arc<dyn CephApi>) -> Self {
        Self {
            asked,
            answers: Mutex::default(),
        }
    }

    /// What was answered so far. To a question that was asked twice, the last answer counts.
    pub fn answers(&self) -> SavedAnswers {
        let answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        SavedAnswers(answers.clone())
    }
}

#[async_trait]
impl CephApi for AnswerRecorder {
    async fn command(&self, whom: QueryTarget, command: Value) -> Result<CephAnswer, CephApiError> {
        let prefix = command["prefix"].as_str().unwrap_or_default();
        let fact = FACTS.contains(&prefix).then(|| command_line(&command).join(" "));
        let answer = self.asked.command(whom, command).await;
        if let Some(asked) = fact
            && let Some(kept) = saved_answer(&answer)
        {
            let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
            answers.insert(asked, kept);
        }
        answer
    }
}

/// What is kept of an answer. That a manager gave none in time is a fact too; what ends the observation
/// is none.
fn saved_answer(answer: &Result<CephAnswer, CephApiError>) -> Option<SavedAnswer> {
    match answer {
        Ok(CephAnswer { rc, out, err }) => {
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
        Err(CephApiError::TimedOut {
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
