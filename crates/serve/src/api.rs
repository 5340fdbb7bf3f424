//! The HTTP API: its routes and its answers.

use std::sync::Arc;

use aide::axum::ApiRouter;
use aide::axum::routing::{get_with, post_with};
use aide::openapi::{Info, OpenApi, ReferenceOr, SecurityScheme};
use axum::extract::{DefaultBodyLimit, Path, Query, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Extension, Json, Router};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use stagger_core::model::{ClusterName, RunId};
use stagger_core::run::{Command, Entry};
use stagger_core::view::{RunVerdict, RunView};

use crate::Shared;
use crate::access::{Caller, Role};
use crate::asks::api as asks;
use crate::body::JsonBody;
use crate::commands::{ask, refusal, role_of};
use crate::description::{described_as, finished};
use crate::etag::{Tagged, body, names, tag};
use crate::idempotency::{IdempotencyKeys, KEY, Repeat};
use crate::metrics;
use crate::problem::ProblemDetails;
use crate::run_path::{RunPath, authorized_run};
use crate::runs::{Listing, ReadRun};
use crate::start;
use crate::stores::Away;
use crate::stream;

/// The most events of one answer.
const EVENTS: usize = 1_000;
/// A run at a glance, with what a person may say to it.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct RunDocument {
    #[serde(flatten)]
    pub(crate) view: RunView,
    /// The plan that it follows now; an approval names it.
    pub(crate) plan: Option<String>,
    /// The words that it knows and nobody has said: points of no return, interruptions, what may be left behind.
    pub(crate) words: Vec<String>,
    /// What it was asked for and nobody has heeded yet.
    asked: Vec<Pending>,
}

/// A command that nobody has heeded yet.
#[derive(Debug, Serialize, JsonSchema)]
struct Pending {
    #[serde(flatten)]
    command: Command,
    /// Who asks.
    by: String,
}

impl RunDocument {
    pub(crate) fn of(seen: &ReadRun) -> Self {
        let reading = &seen.journal.reading;
        Self {
            view: seen.view.clone(),
            plan: reading.run.plan().map(|plan| plan.id.clone()),
            words: reading.pending_approvals(),
            asked: seen
                .asked
                .iter()
                .map(|(command, by)| Pending {
                    command: command.clone(),
                    by: by.clone(),
                })
                .collect(),
        }
    }
}

/// A run in the list.
#[derive(Debug, Serialize, JsonSchema)]
struct RunInList {
    /// Its name.
    run: RunId,
    /// Of which cluster.
    cluster: ClusterName,
    /// When it began.
    started: jiff::Timestamp,
    /// In which store; not there: your token is for some clusters alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    store: Option<String>,
    /// At a glance; not there: its journal cannot be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    view: Option<RunView>,
    /// Why its journal cannot be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    unreadable: Option<String>,
}

/// The newest runs of the clusters that you may see.
#[derive(Debug, Serialize, JsonSchema)]
struct RunList {
    /// At most 100, the newest first.
    runs: Vec<RunInList>,
    /// Stores that do not answer, whose runs are missing here. Where none answers, neither does this.
    away: Vec<AwayStore>,
}

/// A store that does not answer.
#[derive(Debug, Serialize, JsonSchema)]
struct AwayStore {
    /// What it is called.
    store: String,
    /// Those of its clusters that are known, and that you may see.
    clusters: Vec<ClusterName>,
    /// Why.
    why: String,
}

/// Which runs.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct RunFilter {
    /// Of this cluster alone.
    cluster: Option<ClusterName>,
}

/// A part of a journal.
#[derive(Debug, Serialize, JsonSchema)]
struct EventList {
    /// The events, in order.
    events: Vec<Entry>,
    /// Whether there are more after these by now.
    more: bool,
}

/// Which part.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Part {
    /// Only events after that one.
    #[serde(default)]
    after: u64,
    /// At most so many, and never more than 1000.
    limit: Option<usize>,
}

/// What a run is asked for.
#[derive(Debug, Deserialize, JsonSchema)]
struct CommandRequest {
    #[serde(flatten)]
    command: Command,
    /// The plan that was looked at. An approval needs it.
    #[serde(default)]
    plan: Option<String>,
}

/// The command was left for whoever carries the run out.
#[derive(Debug, Clone, Serialize, JsonSchema)]
struct QueuedCommand {
    /// Which run.
    run: RunId,
    /// The verdict when it was left: `interrupted` says that nobody is at work to heed it.
    verdict: RunVerdict,
}

/// The routes without their state, and the description that was made from them.
pub(crate) fn described() -> (Router<Shared>, Value) {
    let mut api = OpenApi {
        info: Info {
            title: "stagger".to_owned(),
            summary: Some("Runs, from their journals, and commands to them.".to_owned()),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            ..Info::default()
        },
        ..OpenApi::default()
    };
    by_token(&mut api);
    aide::generate::extract_schemas(true);
    let documented = ApiRouter::new()
        .api_route(
            "/v1/runs",
            get_with(list, |of| described_as(of, "Lists runs.", &[]))
                .post_with(start::begin, start::described)
                .layer(DefaultBodyLimit::max(start::LARGEST_PLAN)),
        )
        .api_route(
            "/v1/runs/{run}",
            get_with(run, |of| {
                described_as(of, "The status of a run. `If-None-Match` is answered with 304.", &[404, 409])
                    .response_with::<304, (), _>(|said| said.description("It is as it was."))
            }),
        )
        .api_route(
            "/v1/runs/{run}/events",
            get_with(events, |of| described_as(of, "Lists events of a run's journal.", &[404, 409])),
        )
        .api_route(
            "/v1/runs/{run}/stream",
            get_with(stream::stream, |of| {
                described_as(
                    of,
                    "Server-sent events: `entry` for each event of the journal, its place as the id; `run` when the run is to be \
                     looked at anew. `Last-Event-ID` continues where a stream ended.",
                    &[404, 409],
                )
                .response_with::<200, String, _>(|said| said.description("text/event-stream"))
            }),
        )
        .api_route(
            "/v1/runs/{run}/commands",
            post_with(command, |of| {
                described_as(
                    of,
                    "Queues a command for the process that carries out the run. With `If-Match`, only if the run is \
                     unchanged; with `Idempotency-Key`, once however often it is sent.",
                    &[403, 404, 409, 412, 413, 415],
                )
                .response::<202, Json<QueuedCommand>>()
            }),
        )
        .api_route(
            "/v1/asks",
            get_with(asks::list, asks::described_list).post_with(asks::put, asks::described_put),
        )
        .api_route(
            "/v1/asks/{id}",
            get_with(asks::get, asks::described_get).delete_with(asks::withdraw, asks::described_withdraw),
        )
        .api_route("/v1/asks/{id}/done", post_with(asks::done, asks::described_done));
    let router = documented.finish_api(&mut api);
    let api = finished(&api);
    let described = Arc::new(api.clone());
    let router = router
        .route(
            "/v1/openapi.json",
            get(move || {
                let described = Arc::clone(&described);
                async move { Json((*described).clone()) }
            }),
        )
        .route("/metrics", get(metrics::metrics));
    (router, api)
}

/// Says that a token is asked for.
fn by_token(api: &mut OpenApi) {
    const TOKEN: &str = "token";
    let scheme = SecurityScheme::Http {
        scheme: "bearer".to_owned(),
        bearer_format: None,
        description: Some(
            "`stagger token add` makes one. Over a socket of your own none is asked for.".to_owned(),
        ),
        extensions: std::iter::empty().collect(),
    };
    let components = api.components.get_or_insert_default();
    components
        .security_schemes
        .insert(TOKEN.to_owned(), ReferenceOr::Item(scheme));
    api.security = vec![[(TOKEN.to_owned(), Vec::new())].into_iter().collect()];
}

async fn list(
    State(shared): State<Shared>,
    Extension(caller): Extension<Caller>,
    which: Result<Query<RunFilter>, axum::extract::rejection::QueryRejection>,
) -> Result<Json<RunList>, ProblemDetails> {
    let Query(which) = which?;
    let sees_all = caller.clusters.is_none();
    let listing = shared.runs.list(caller, which.cluster).await;
    let Listing { runs, away } = listing.map_err(|error| ProblemDetails::of(&error))?;
    let runs = runs.into_iter().map(|run| {
        let (view, unreadable) = match run.view {
            Ok(view) => (Some((*view).clone()), None),
            Err(error) => (None, Some(error.to_string())),
        };
        RunInList {
            run: run.listed.run,
            cluster: run.listed.cluster,
            started: run.listed.started,
            store: sees_all.then_some(run.store),
            view,
            unreadable,
        }
    });
    let away = away
        .into_iter()
        .map(|Away { store, clusters, why }| AwayStore { store, clusters, why });
    Ok(Json(RunList {
        runs: runs.collect(),
        away: away.collect(),
    }))
}

async fn run(
    State(shared): State<Shared>,
    Extension(caller): Extension<Caller>,
    run: RunPath,
    headers: HeaderMap,
) -> Result<Tagged<RunDocument>, ProblemDetails> {
    let Path(run) = run?;
    let seen = authorized_run(&shared, &caller, &run, Role::Look).await?;
    Ok(Tagged::of(&RunDocument::of(&seen), &headers))
}

async fn events(
    State(shared): State<Shared>,
    Extension(caller): Extension<Caller>,
    run: RunPath,
    part: Result<Query<Part>, axum::extract::rejection::QueryRejection>,
) -> Result<Json<EventList>, ProblemDetails> {
    let (Path(run), Query(part)) = (run?, part?);
    let seen = authorized_run(&shared, &caller, &run, Role::Look).await?;
    let limit = part.limit.unwrap_or(EVENTS).min(EVENTS);
    let mut after = seen.journal.entries.iter().filter(|entry| entry.seq > part.after);
    let events = after.by_ref().take(limit).cloned().collect();
    Ok(Json(EventList {
        events,
        more: after.next().is_some(),
    }))
}

async fn command(
    State(shared): State<Shared>,
    Extension(caller): Extension<Caller>,
    run: RunPath,
    headers: HeaderMap,
    asked: Result<JsonBody<CommandRequest>, ProblemDetails>,
) -> Result<Accepted, ProblemDetails> {
    let (Path(run), JsonBody(CommandRequest { command, plan })) = (run?, asked?);
    let seen = authorized_run(&shared, &caller, &run, role_of(&command)).await?;
    let question = serde_json::to_string(&(&run, &command, &plan)).unwrap_or_default();
    let claim = match headers.get(&KEY) {
        None => None,
        Some(key) => match shared
            .once
            .claim(IdempotencyKeys::key(&caller.name, key)?, &question)
        {
            Ok(claim) => Some(claim),
            Err(Repeat::Before) => return Ok(Accepted::of(&seen)),
            Err(Repeat::UnderWay) => {
                return Err(ProblemDetails::conflict("a request with this key is in progress"));
            }
            Err(Repeat::Otherwise) => {
                return Err(ProblemDetails::malformed(
                    "this Idempotency-Key came with another request",
                ));
            }
        },
    };
    leave(&shared, &caller, &seen, &headers, command, plan.as_deref()).await?;
    if let Some(claim) = claim {
        claim.complete();
    }
    Ok(Accepted::of(&seen))
}

/// Leaves a command, if the run is still as the caller saw it.
async fn leave(
    shared: &Shared,
    caller: &Caller,
    seen: &ReadRun,
    headers: &HeaderMap,
    command: Command,
    plan: Option<&str>,
) -> Result<(), ProblemDetails> {
    let document = RunDocument::of(seen);
    if let Some(wanted) = headers.get(header::IF_MATCH)
        && !names(wanted, &tag(&body(&document)))
    {
        return Err(ProblemDetails::moved("its ETag is another by now"));
    }
    if let Command::Approve { .. } = command {
        let Some(plan) = plan else {
            return Err(ProblemDetails::malformed(
                "an approval names the plan that was looked at: `plan`",
            ));
        };
        if document.plan.as_deref() != Some(plan) {
            let now = document.plan.as_deref().unwrap_or("none");
            return Err(ProblemDetails::moved(format!(
                "it follows the plan {now}, not {plan}"
            )));
        }
    }
    if let Some(problem) = refusal(seen, &command) {
        return Err(problem);
    }
    ask(shared, caller, seen, command).await
}

/// It was left.
struct Accepted(QueuedCommand);

impl Accepted {
    fn of(seen: &ReadRun) -> Self {
        Self(QueuedCommand {
            run: seen.view.run.clone(),
            verdict: seen.view.verdict,
        })
    }
}

impl IntoResponse for Accepted {
    fn into_response(self) -> Response {
        (StatusCode::ACCEPTED, Json(self.0)).into_response()
    }
}

impl aide::OperationOutput for Accepted {
    type Inner = QueuedCommand;
}
