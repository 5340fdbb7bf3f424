//! The remote API, as a test asks it: by `curl` in the cluster's namespaces, with the certificate verified.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::{CLUSTER_ADDRESS, Cluster, OPERATOR, RAPI_PORT, files};
use crate::command::run;
use crate::files::put;

/// How long the remote API may take to see who may use it.
const LIMIT: Duration = Duration::from_mins(1);

/// What it answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    /// The status of HTTP.
    pub status: u16,
    /// The body, which is JSON also where something failed.
    pub body: Value,
}

/// A job, as listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Job {
    /// Its number.
    pub id: u64,
    /// `queued`, `waiting`, `running`, `success`, `error`, `canceled` …
    pub status: String,
    /// What it does: `INSTANCE_MIGRATE(web)`.
    pub summary: String,
    /// The run's place and what it does there, if it is one of `stagger`'s.
    pub ours: Option<(String, String)>,
}

impl Job {
    fn read(job: &Value) -> Option<Self> {
        let reasons = job["ops"]
            .as_array()?
            .iter()
            .filter_map(|op| op["reason"].as_array());
        let mut texts = reasons.flatten().filter_map(|reason| reason[1].as_str());
        Some(Self {
            id: job["id"].as_u64()?,
            status: job["status"].as_str()?.to_owned(),
            summary: job["summary"][0].as_str()?.to_owned(),
            ours: texts.find_map(|text| {
                let mut words = text.strip_prefix("stagger:")?.splitn(4, ':').skip(2);
                Some((words.next()?.to_owned(), words.next()?.to_owned()))
            }),
        })
    }

    /// Whether it is under way.
    pub fn is_at_work(&self) -> bool {
        ["waiting", "running"].contains(&self.status.as_str())
    }

    /// What it does for `stagger`: `migrate-web-to-node2`; nothing, if it is not of `stagger`.
    pub fn what(&self) -> &str {
        self.ours.as_ref().map_or("", |(_, what)| what)
    }
}

impl Cluster {
    /// All jobs that there are, oldest first.
    ///
    /// # Errors
    /// Nobody answers, or another thing than jobs.
    pub fn jobs(&self) -> Result<Vec<Job>> {
        let reply = self.rapi("GET", "/2/jobs?bulk=1", None)?;
        let rows = reply
            .body
            .as_array()
            .with_context(|| format!("no jobs: {reply:?}"))?;
        let mut jobs = rows
            .iter()
            .map(|row| Job::read(row).with_context(|| format!("not understood as a job: {row}")))
            .collect::<Result<Vec<_>>>()?;
        jobs.sort_by_key(|job| job.id);
        Ok(jobs)
    }

    /// The address of the remote API, which is always the master's.
    pub fn rapi_url(&self) -> String {
        format!("https://{CLUSTER_ADDRESS}:{RAPI_PORT}")
    }

    /// Asks the master's remote API as the operator.
    ///
    /// # Errors
    /// Nobody answers, its certificate does not verify, or the answer is no JSON.
    pub fn rapi(&self, method: &str, path: &str, body: Option<&Value>) -> Result<Reply> {
        self.rapi_at(&self.rapi_url(), OPERATOR, method, path, body)
    }

    /// Asks one at some address as somebody.
    ///
    /// # Errors
    /// As of [`Cluster::rapi`].
    pub fn rapi_at(
        &self,
        url: &str,
        (user, password): (&str, &str),
        method: &str,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Reply> {
        let mut curl: Command = self.sandbox().command_in(&self.root().path, "curl");
        curl.args([
            "--silent",
            "--show-error",
            "--noproxy",
            "*",
            "--max-time",
            "90",
            "--request",
            method,
            "--write-out",
            "\n%{http_code}",
        ]);
        curl.arg("--cacert").arg(self.ca());
        curl.arg("--user").arg(format!("{user}:{password}"));
        if let Some(body) = body {
            curl.args(["--header", "Content-Type: application/json", "--data"])
                .arg(body.to_string());
        }
        let said = run(curl.arg(format!("{url}{path}")))?;
        reply(&said).with_context(|| format!("{method} {url}{path}"))
    }

    /// Gives the remote API one more user who may change things, or that user another password.
    ///
    /// # Errors
    /// It does not count in time.
    pub fn set_user(&self, user: (&str, &str)) -> Result<()> {
        let text = format!("{}{} {} write\n", files::users(), user.0, user.1);
        for node in self.spec.names() {
            put(&self.dir().join(node).join(files::USERS), &text)?;
        }
        // It looks at the file by itself.
        let question = json!({ "fields": ["name"] });
        self.wait_for("the new password counts", LIMIT, |cluster| {
            let url = cluster.rapi_url();
            let reply = cluster.rapi_at(&url, user, "PUT", "/2/query/node", Some(&question))?;
            Ok(reply.status == 200)
        })?;
        Ok(())
    }

    /// Asks for something that is a job, and gives the job's number.
    ///
    /// # Errors
    /// What was asked was refused.
    pub fn submit(&self, method: &str, path: &str, body: Option<&Value>) -> Result<u64> {
        let reply = self.rapi(method, path, body)?;
        ensure!(
            reply.status == 200,
            "{method} {path} was refused with {}: {}",
            reply.status,
            reply.body
        );
        let number = match &reply.body {
            Value::String(text) => text.parse().ok(),
            number => number.as_u64(),
        };
        number.with_context(|| format!("{method} {path} answered no number of a job: {}", reply.body))
    }

    /// Waits until a job has ended, however it ends, and gives what is known of it.
    ///
    /// # Errors
    /// It does not end in time, or nothing is known of it.
    pub fn ended(&self, job: u64, limit: Duration) -> Result<Value> {
        let mut last = Value::Null;
        self.wait_for(&format!("the end of job {job}"), limit, |cluster| {
            let reply = cluster.rapi("GET", &format!("/2/jobs/{job}"), None)?;
            ensure!(
                reply.status == 200,
                "nothing is known of job {job}: {}",
                reply.body
            );
            last = reply.body;
            let status = last["status"].as_str().unwrap_or_default();
            Ok(["success", "error", "canceled"].contains(&status))
        })?;
        Ok(last)
    }

    /// Does something that is a job, and waits until it has succeeded.
    ///
    /// # Errors
    /// It was refused, failed or was cancelled.
    pub fn job(&self, method: &str, path: &str, body: Option<&Value>, limit: Duration) -> Result<Value> {
        let number = self.submit(method, path, body)?;
        let job = self.ended(number, limit)?;
        ensure!(
            job["status"] == "success",
            "job {number} of {method} {path} ended with {}: {}",
            job["status"],
            job["opresult"]
        );
        Ok(job)
    }
}

/// What `curl` printed: the body, then a line with the status.
fn reply(said: &str) -> Result<Reply> {
    let (body, status) = said.rsplit_once('\n').context("no status")?;
    let status = status.trim().parse().context("no status")?;
    let body = if body.trim().is_empty() {
        Value::Null
    } else {
        serde_json::from_str(body)
            .with_context(|| format!("the answer ({status}) is no JSON: {body:.300}"))?
    };
    Ok(Reply { status, body })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_are_read() {
        let job = |reason: &str| {
            Job::read(&json!({
                "id": 38, "status": "running", "summary": ["INSTANCE_MIGRATE(web)"],
                "ops": [{ "reason": [["gnt:user", reason, 1], ["gnt:library:rlib2", "", 1]] }],
            }))
        };
        let ours = job("stagger:000000000007:2:r-4:migrate-web").unwrap();
        assert_eq!(ours.ours, Some(("r-4".to_owned(), "migrate-web".to_owned())));
        assert!(ours.is_at_work());
        assert_eq!(job("nightly").unwrap().what(), "");
    }

    #[test]
    fn answers_are_read() {
        let expected = Reply {
            status: 404,
            body: json!({ "code": 404 }),
        };
        assert_eq!(reply("{\"code\":\n404}\n\n404").unwrap(), expected);
        assert_eq!(reply("\n200").unwrap().body, Value::Null);
        assert!(reply("<html>\n502").is_err());
        assert!(reply("").is_err());
    }
}
