//! Error answers: RFC 9457, with a code for programs.

use aide::OperationOutput;
use aide::generate::GenContext;
use aide::openapi::{Operation, Response as Described};
use axum::Json;
use axum::extract::rejection::{FormRejection, JsonRejection, PathRejection, QueryRejection};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use serde::Serialize;
use stagger_core::model::ClusterName;

use crate::read_error::ReadError;

/// How the words of all of them begin.
const TYPES: &str = "urn:stagger:problem:";

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ProblemDetails {
    status: StatusCode,
    word: &'static str,
    title: &'static str,
    detail: String,
    /// After so many seconds it may be asked again.
    again: Option<u16>,
}

/// How it is told.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ProblemDocument {
    /// Which, for programs: `urn:stagger:problem:no-such-run`.
    r#type: String,
    /// Which, for people.
    title: &'static str,
    /// The status of the answer.
    status: u16,
    /// What it is here, and what to do.
    detail: String,
}

impl ProblemDetails {
    /// Why a run cannot be read.
    pub(crate) fn of(error: &ReadError) -> Self {
        match error {
            ReadError::NoRun(run) => Self::no_such_run(run.as_str()),
            ReadError::Over(_) | ReadError::InSeveral(_) => Self::conflict(error.to_string()),
            ReadError::Unreadable { .. } | ReadError::Store(_) => Self::store(error.to_string()),
        }
    }

    fn new(status: StatusCode, word: &'static str, title: &'static str, detail: impl Into<String>) -> Self {
        Self {
            status,
            word,
            title,
            detail: detail.into(),
            again: None,
        }
    }

    /// A temporary problem: a retry after that time may succeed.
    fn retry_after(self, seconds: u16) -> Self {
        Self {
            again: Some(seconds),
            ..self
        }
    }

    /// The caller is unknown.
    pub(crate) fn unknown_caller() -> Self {
        Self::new(
            StatusCode::UNAUTHORIZED,
            "no-token",
            "a token is needed",
            "send `Authorization: Bearer TOKEN`; `stagger token add` makes one",
        )
    }

    /// They may not do that.
    pub(crate) fn forbidden(detail: impl Into<String>) -> Self {
        Self::new(
            StatusCode::FORBIDDEN,
            "forbidden",
            "that is not permitted",
            detail,
        )
    }

    /// There is no such run, or none that they may know of.
    pub(crate) fn no_such_run(run: &str) -> Self {
        Self::new(
            StatusCode::NOT_FOUND,
            "no-such-run",
            "there is no such run",
            format!("no run {run} of a cluster that you may see"),
        )
    }

    /// There is no such cluster, or none that they may know of, or none of which runs are begun here.
    pub(crate) fn no_such_cluster(cluster: &ClusterName) -> Self {
        Self::new(
            StatusCode::NOT_FOUND,
            "no-such-cluster",
            "there is no such cluster",
            format!("this server has no configuration of a cluster {cluster} that you may see"),
        )
    }

    /// Nothing answers for that cluster, or nothing that they may know of.
    pub(crate) fn no_gate(cluster: Option<&ClusterName>) -> Self {
        let which = cluster.map_or("a cluster".to_owned(), |cluster| format!("cluster {cluster}"));
        Self::new(
            StatusCode::NOT_FOUND,
            "no-gate",
            "nothing answers for that cluster",
            format!("no gate has ever answered for {which} that you may ask for: `stagger gate` does"),
        )
    }

    /// There is no such ask, or none that they may know of.
    pub(crate) fn no_such_ask(id: &str) -> Self {
        Self::new(
            StatusCode::NOT_FOUND,
            "no-such-ask",
            "there is no such ask",
            format!("no ask {id} of yours, or of a cluster that you may see"),
        )
    }

    /// What is asked for cannot be meant.
    pub(crate) fn refused_ask(why: impl Into<String>) -> Self {
        Self::new(
            StatusCode::CONFLICT,
            "refused-ask",
            "that cannot be asked for",
            why,
        )
    }

    /// The process that was to start it refused.
    pub(crate) fn refused_plan(said: impl Into<String>) -> Self {
        Self::new(StatusCode::CONFLICT, "not-begun", "the run was not started", said)
    }

    /// No process could be started that begins it.
    pub(crate) fn start_failed(detail: impl Into<String>) -> Self {
        Self::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "not-started",
            "no process could be started for the run",
            detail,
        )
    }

    /// There is nothing at that address.
    pub(crate) fn not_found() -> Self {
        Self::new(
            StatusCode::NOT_FOUND,
            "nothing-there",
            "there is nothing at this address",
            "`/v1/openapi.json` lists what there is",
        )
    }

    /// That cannot be done to what is there.
    pub(crate) fn method() -> Self {
        Self::new(
            StatusCode::METHOD_NOT_ALLOWED,
            "method",
            "that cannot be done here",
            "`/v1/openapi.json` lists what can",
        )
    }

    /// It is not written as it has to be.
    pub(crate) fn malformed(detail: impl Into<String>) -> Self {
        Self::new(
            StatusCode::UNPROCESSABLE_ENTITY,
            "malformed",
            "the question cannot be understood",
            detail,
        )
    }

    /// It did not come in time, or could not be answered in time.
    pub(crate) fn too_slow() -> Self {
        Self::new(
            StatusCode::REQUEST_TIMEOUT,
            "too-slow",
            "that took too long",
            "it may have been applied all the same: check before you send it again",
        )
    }

    /// The run is over, or does not know what is asked for.
    pub(crate) fn conflict(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::CONFLICT, "conflict", "the run cannot do that", detail)
    }

    /// What it was asked upon has changed.
    pub(crate) fn moved(detail: impl Into<String>) -> Self {
        Self::new(
            StatusCode::PRECONDITION_FAILED,
            "moved",
            "the run is not as it was when you looked",
            detail,
        )
    }

    /// The store cannot be read or written.
    pub(crate) fn store(detail: impl Into<String>) -> Self {
        Self::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "store",
            "the store of the runs does not answer",
            detail,
        )
        .retry_after(5)
    }

    /// The maximum number of streams is reached.
    pub(crate) fn too_many(streams: usize) -> Self {
        Self::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "too-many-streams",
            "too many follow runs already",
            format!("{streams} streams are open, which is the limit; `/v1/runs/RUN/events` still answers"),
        )
        .retry_after(60)
    }

    /// It was left, and no process could be started that heeds it.
    pub(crate) fn continue_failed(detail: impl Into<String>) -> Self {
        Self::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "not-carried-on",
            "it is recorded, and the run is interrupted: no process carries it out",
            detail,
        )
    }

    /// What it says, for a page.
    pub(crate) fn detail(&self) -> &str {
        &self.detail
    }

    /// Its status, for a page.
    pub(crate) fn status(&self) -> StatusCode {
        self.status
    }

    /// Its title, for a page.
    pub(crate) fn title(&self) -> &'static str {
        self.title
    }
}

impl IntoResponse for ProblemDetails {
    fn into_response(self) -> Response {
        let document = ProblemDocument {
            r#type: format!("{TYPES}{}", self.word),
            title: self.title,
            status: self.status.as_u16(),
            detail: self.detail,
        };
        let mut response = (self.status, Json(document)).into_response();
        let headers = response.headers_mut();
        let json = HeaderValue::from_static("application/problem+json");
        headers.insert(header::CONTENT_TYPE, json);
        if let Some(seconds) = self.again {
            headers.insert(header::RETRY_AFTER, seconds.into());
        }
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

impl OperationOutput for ProblemDetails {
    type Inner = ProblemDocument;

    fn operation_response(ctx: &mut GenContext, operation: &mut Operation) -> Option<Described> {
        let mut described = Json::<ProblemDocument>::operation_response(ctx, operation)?;
        if let Some(json) = described.content.swap_remove("application/json") {
            described
                .content
                .insert("application/problem+json".to_owned(), json);
        }
        "why there is no answer".clone_into(&mut described.description);
        Some(described)
    }
}

impl From<JsonRejection> for ProblemDetails {
    fn from(rejection: JsonRejection) -> Self {
        let status = rejection.status();
        let problem = Self::malformed(rejection.body_text());
        match status {
            StatusCode::PAYLOAD_TOO_LARGE | StatusCode::UNSUPPORTED_MEDIA_TYPE => Self { status, ..problem },
            _ => problem,
        }
    }
}

impl From<FormRejection> for ProblemDetails {
    fn from(rejection: FormRejection) -> Self {
        Self::malformed(rejection.body_text())
    }
}

impl From<QueryRejection> for ProblemDetails {
    fn from(rejection: QueryRejection) -> Self {
        Self::malformed(rejection.body_text())
    }
}

impl From<PathRejection> for ProblemDetails {
    fn from(rejection: PathRejection) -> Self {
        Self::malformed(rejection.body_text())
    }
}
