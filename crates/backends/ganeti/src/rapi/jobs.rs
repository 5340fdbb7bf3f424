//! Jobs: submitted with a reason, found again by it, waited for.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use serde::Deserialize;
use serde_json::{Value, json};
use stagger_engine::cluster::{BackendError, Call};

use crate::rapi::client::{HttpMethod, Rapi, RapiClientError, encoded};
use crate::rapi::fence;
use crate::rapi::opcode::names;
use crate::rapi::reason::JobReason;

/// So often a job is submitted whose answers were lost.
const SUBMISSIONS: u32 = 3;

/// What a person can do about a queue that takes no jobs.
const OPENS_THE_QUEUE: &str = "`gnt-cluster queue undrain` opens a queue that is drained, `gnt-job archive` makes room in one that is full";

/// A job for which nobody waits at RAPI is looked at after so many polls.
const LOOKED_AT: u32 = 2;

/// How far a job has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum JobStatus {
    /// It waits to be started, also behind a filter that pauses it.
    Queued,
    /// It is started, and waits for locks.
    Waiting,
    /// It is being cancelled.
    Canceling,
    /// It is at work.
    Running,
    /// It was cancelled, by a person or by a filter that rejects it.
    Canceled,
    /// It is done.
    Success,
    /// It failed.
    Error,
}

impl JobStatus {
    /// Whether it will not change any more.
    pub fn is_final(self) -> bool {
        match self {
            Self::Canceled | Self::Success | Self::Error => true,
            Self::Queued | Self::Waiting | Self::Canceling | Self::Running => false,
        }
    }

    /// Whether it may change the cluster now.
    pub fn is_at_work(self) -> bool {
        match self {
            Self::Waiting | Self::Canceling | Self::Running => true,
            Self::Queued | Self::Canceled | Self::Success | Self::Error => false,
        }
    }
}

/// A job as listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GanetiJob {
    /// Its number: it only grows.
    pub id: u64,
    /// How far it has come.
    pub status: JobStatus,
    /// What it does: `INSTANCE_MIGRATE(web1)`.
    pub summary: String,
    /// Why, if it is one of ours.
    pub reason: Option<JobReason>,
    /// The nodes and instances that it names, as whoever submitted it has typed them.
    pub names: BTreeSet<String>,
}

#[derive(Deserialize)]
struct JobDocument {
    id: u64,
    status: JobStatus,
    #[serde(default)]
    summary: Vec<String>,
    #[serde(default)]
    ops: Vec<Op>,
    #[serde(default)]
    opresult: Value,
}

#[derive(Deserialize)]
struct Op {
    /// Source, text, nanoseconds.
    #[serde(default)]
    reason: Vec<(String, String, Value)>,
    #[serde(flatten)]
    fields: Value,
}

impl From<&JobDocument> for GanetiJob {
    fn from(document: &JobDocument) -> Self {
        let texts = document.ops.iter().flat_map(|op| &op.reason);
        Self {
            id: document.id,
            status: document.status,
            summary: document.summary.join(", "),
            reason: texts.into_iter().find_map(|(_, text, _)| JobReason::parse(text)),
            names: document.ops.iter().flat_map(|op| names(&op.fields)).collect(),
        }
    }
}

/// How a job ended.
#[derive(Debug, Clone, PartialEq)]
pub struct Ended {
    /// Its number.
    pub id: u64,
    /// Done, failed or cancelled.
    pub status: JobStatus,
    /// What it returned, or its error.
    pub result: Value,
}

impl Ended {
    /// Its error in words.
    pub fn error_text(&self) -> String {
        // An error is [["OpExecError", ["what happened", "its kind"]]].
        let said = &self.result[0][1];
        let text = match said {
            Value::Array(parts) => parts.iter().find_map(Value::as_str),
            Value::String(text) => Some(text.as_str()),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => None,
        };
        text.map_or_else(|| self.result.to_string(), str::to_owned)
    }
}

/// What a job is to do.
#[derive(Debug, Clone, PartialEq)]
pub struct JobRequest {
    /// In words, for the reason: `migrate-web1`.
    pub what: String,
    /// RAPI's method.
    pub method: HttpMethod,
    /// RAPI's path, without a query.
    pub path: String,
    /// What stands in the query beside the reason: `force=1`.
    pub query: Vec<(String, String)>,
    /// What RAPI is told.
    pub body: Option<Value>,
}

impl JobRequest {
    /// A change of something that a path names.
    pub fn new(what: impl Into<String>, method: HttpMethod, path: impl Into<String>) -> Self {
        Self {
            what: what.into(),
            method,
            path: path.into(),
            query: Vec::new(),
            body: None,
        }
    }

    /// The same with a word in the query.
    #[must_use]
    pub fn query(mut self, name: &str, value: impl Into<String>) -> Self {
        self.query.push((name.to_owned(), value.into()));
        self
    }

    /// The same with a body.
    #[must_use]
    pub fn body(mut self, body: Value) -> Self {
        self.body = Some(body);
        self
    }
}

/// Distinguishes the jobs of this process.
static NONCE: AtomicU64 = AtomicU64::new(1);

impl Rapi {
    /// All jobs that are not archived, oldest first.
    ///
    /// # Errors
    /// No answer, or one that cannot be read.
    pub async fn jobs(&self) -> Result<Vec<GanetiJob>, RapiClientError> {
        let listed = self.get("/2/jobs?bulk=1").await?;
        let listed: Vec<JobDocument> =
            serde_json::from_value(listed).map_err(|error| RapiClientError::Unreadable(error.to_string()))?;
        let mut jobs: Vec<GanetiJob> = listed.iter().map(GanetiJob::from).collect();
        jobs.sort_by_key(|job| job.id);
        Ok(jobs)
    }

    /// Carries work out by a job of its own, and waits for its end.
    ///
    /// # Errors
    /// It failed, was cancelled, takes too long, or nobody knows.
    pub async fn carry_out(&self, call: &Call, work: &JobRequest) -> Result<Ended, BackendError> {
        let id = self.submit(call, work).await?;
        let ended = self.wait(id, &work.what).await?;
        match ended.status {
            JobStatus::Success => Ok(ended),
            JobStatus::Canceled => Err(BackendError::transient(
                &work.what,
                format!("job {id} was cancelled"),
            )
            .hint("an operator or a job filter canceled it: see `gnt-job info` and `gnt-filter list`")),
            JobStatus::Error
            | JobStatus::Queued
            | JobStatus::Waiting
            | JobStatus::Canceling
            | JobStatus::Running => Err(BackendError::permanent(
                &work.what,
                format!("job {id} failed: {}", ended.error_text()),
            )),
        }
    }

    /// Submits a job. Where the answer is lost, jobs with its very reason are refused from then on, so that
    /// it cannot land later, and then it is looked for: it is there, or will never be. Where the queue takes no jobs the call stays open.
    async fn submit(&self, call: &Call, work: &JobRequest) -> Result<u64, BackendError> {
        let mut submissions = 0;
        loop {
            submissions += 1;
            let reason = JobReason::new(call, &work.what, NONCE.fetch_add(1, Ordering::Relaxed));
            let words = work
                .query
                .iter()
                .map(|(name, value)| format!("&{name}={}", encoded(value)));
            let words: String = words.collect();
            let path = format!("{}?reason={}{words}", work.path, encoded(&reason.to_string()));
            let lost = match self.write(work.method, &path, work.body.as_ref()).await {
                Ok(Value::Number(id)) => match id.as_u64() {
                    Some(id) => return Ok(id),
                    None => RapiClientError::Unreadable(format!("{id} is not a job")),
                },
                // Older releases say the number as a text.
                Ok(Value::String(id)) if id.parse::<u64>().is_ok() => {
                    return Ok(id.parse().unwrap_or_default());
                }
                Ok(other) => RapiClientError::Unreadable(format!("{other} is not a job")),
                Err(error) => error,
            };
            let closed = lost.queue_is_closed().is_some();
            let error = lost.of(&work.what, true);
            if closed {
                // There is nothing to refuse, and what is in hand outlasts a queue that takes nothing for a while.
                return Err(error.outcome_unknown().hint(OPENS_THE_QUEUE));
            }
            if !error.outcome_unknown {
                return Err(error);
            }
            fence::refuse_one(self, call, &reason)
                .await
                .map_err(BackendError::outcome_unknown)?;
            let jobs = self
                .jobs()
                .await
                .map_err(|error| error.of(&work.what, true).outcome_unknown())?;
            if let Some(job) = jobs.iter().find(|job| job.reason.as_ref() == Some(&reason)) {
                // One that was still queued may be cancelled by that very filter: then it never was.
                let status = match job.status {
                    JobStatus::Queued => self.wait(job.id, &work.what).await?.status,
                    known => known,
                };
                if status != JobStatus::Canceled {
                    return Ok(job.id);
                }
            }
            if submissions >= SUBMISSIONS {
                return Err(error);
            }
        }
    }

    /// Waits for a job's end.
    ///
    /// # Errors
    /// It takes too long, or nobody knows: it may still have its effect.
    pub async fn wait(&self, id: u64, what: &str) -> Result<Ended, BackendError> {
        let begun = Instant::now();
        let mut before = Value::Null;
        let mut serial = Value::Null;
        loop {
            match self.change_of(id, &before, &serial).await {
                // Nothing has changed for a while.
                Ok(Value::Null) => {}
                Ok(changed) => {
                    before = changed["job_info"].clone();
                    // Without the newest serial all that the job has logged would count as news, at once.
                    if let Some([newest, ..]) = changed["log_entries"]
                        .as_array()
                        .and_then(|entries| entries.last()?.as_array())
                        .map(Vec::as_slice)
                    {
                        serial = newest.clone();
                    }
                    let status: Result<JobStatus, _> = serde_json::from_value(before[0].clone());
                    if status.is_ok_and(JobStatus::is_final) {
                        return self.ended(id, what).await;
                    }
                }
                Err(error) => {
                    return Err(error
                        .of(format!("wait for job {id}, {what}"), true)
                        .outcome_unknown());
                }
            }
            if begun.elapsed() > self.pace().job {
                let why = format!(
                    "job {id} has not ended after {} s; it is {}",
                    begun.elapsed().as_secs(),
                    before[0].as_str().unwrap_or("in a state that is not known"),
                );
                return Err(BackendError::transient(what, why)
                    .outcome_unknown()
                    .hint(format!("see `gnt-job info {id}`")));
            }
        }
    }

    /// What has changed in a job, as soon as something has. RAPI keeps a child for each question of that kind, and has no more
    /// than twenty for everybody: jobs beyond a few are looked at from time to time.
    async fn change_of(&self, id: u64, before: &Value, serial: &Value) -> Result<Value, RapiClientError> {
        if let Ok(_permit) = self.wait_permits().try_acquire() {
            let body = json!({
                "fields": ["status"],
                "previous_job_info": before,
                "previous_log_serial": serial,
            });
            return self
                .read(HttpMethod::Get, &format!("/2/jobs/{id}/wait"), Some(&body))
                .await;
        }
        let job = self.get(&format!("/2/jobs/{id}")).await?;
        let status = json!([job["status"]]);
        if status == *before {
            tokio::time::sleep(self.pace().poll * LOOKED_AT).await;
        }
        Ok(json!({ "job_info": status, "log_entries": [] }))
    }

    async fn ended(&self, id: u64, what: &str) -> Result<Ended, BackendError> {
        let tried = format!("see how job {id} ended, {what}");
        let answer = self
            .get(&format!("/2/jobs/{id}"))
            .await
            .map_err(|error| error.of(&tried, true).outcome_unknown())?;
        let document: JobDocument = serde_json::from_value(answer)
            .map_err(|error| BackendError::transient(&tried, error.to_string()).outcome_unknown())?;
        Ok(Ended {
            id,
            status: document.status,
            result: document.opresult,
        })
    }

    /// Waits for the jobs of others that are at work; with `names`, for those that name one of these.
    ///
    /// # Errors
    /// No answer, or one takes too long: nothing of ours may land by it.
    pub async fn wait_for_others(&self, names: Option<&BTreeSet<String>>) -> Result<(), BackendError> {
        let at_work = self.at_work_of_others(names).await;
        for job in at_work.map_err(|error| error.of("look for jobs of others", false))? {
            self.wait(job.id, &job.summary).await.map_err(|error| {
                BackendError::transient(format!("wait for a job of others, {}", job.summary), error.why)
            })?;
        }
        Ok(())
    }

    /// The jobs of others that are at work; with `names`, those that name one of these.
    ///
    /// # Errors
    /// As [`Rapi::jobs`].
    pub async fn at_work_of_others(
        &self,
        names: Option<&BTreeSet<String>>,
    ) -> Result<Vec<GanetiJob>, RapiClientError> {
        let mut jobs = self.jobs().await?;
        jobs.retain(|job| job.status.is_at_work() && job.reason.is_none());
        if let Some(names) = names {
            jobs.retain(|job| !job.names.is_disjoint(names));
        }
        Ok(jobs)
    }

    /// Waits for all jobs that a process before submitted for this effect, and tells how each ended.
    ///
    /// # Errors
    /// As [`Rapi::wait`].
    pub async fn wait_for_predecessors(&self, call: &Call) -> Result<Vec<GanetiJob>, BackendError> {
        let tried = format!("look for jobs of {}", call.key());
        let jobs = self.jobs().await.map_err(|error| error.of(tried, true))?;
        let key = call.key();
        let mut ours: Vec<GanetiJob> = jobs
            .into_iter()
            .filter(|job| job.reason.as_ref().is_some_and(|reason| reason.key == key))
            .collect();
        for job in ours.iter_mut().filter(|job| !job.status.is_final()) {
            // Whoever asks what was done before wants to know how it ended, not how it was.
            job.status = self.wait(job.id, &job.summary).await?.status;
        }
        Ok(ours)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recorded_job_is_read() {
        let text = r#"{"id": 38, "ops": [{"reason": [["gnt:user", "stagger:000000000007:2:r-4:migrate-web1", 1795219724236842496],
            ["gnt:library:rlib2:instances_name_migrate", "", 1795219724236842496]], "OP_ID": "OP_INSTANCE_MIGRATE"}],
            "status": "success", "summary": ["INSTANCE_MIGRATE(instance3)"], "opstatus": ["success"],
            "received_ts": [1795219732, 612889], "opresult": [null]}"#;
        let document: JobDocument = serde_json::from_str(text).unwrap();
        let job = GanetiJob::from(&document);
        assert_eq!(job.status, JobStatus::Success);
        assert_eq!(job.summary, "INSTANCE_MIGRATE(instance3)");
        let reason = job.reason.unwrap();
        assert_eq!((reason.token, reason.nonce, reason.key.as_str()), (7, 2, "r-4"));
    }

    #[test]
    fn an_error_says_what_happened() {
        let ended = |result| Ended {
            id: 1,
            status: JobStatus::Error,
            result,
        };
        assert_eq!(
            ended(json!([["OpPrereqError", ["Node is drained", "wrong_state"]]])).error_text(),
            "Node is drained"
        );
        assert_eq!(ended(json!([["OpExecError", "no"]])).error_text(), "no");
        assert_eq!(ended(json!([null])).error_text(), "[null]");
    }
}
