//! `/v1/asks`.

use std::time::Duration;

use aide::transform::TransformOperation;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stagger_asks::ask::{AskEnd, AskId, AskState, NewAsk};
use stagger_asks::view::{AskDocument, AskStateWord};
use stagger_core::model::{ClusterName, HostName, UnitId};

use super::{may_ask, of, settled};
use crate::Shared;
use crate::access::{Caller, Role};
use crate::body::JsonBody;
use crate::description::described_as;
use crate::idempotency::{IdempotencyKeys, KEY};
use crate::problem::ProblemDetails;

/// An answer is waited for no longer, in seconds.
const LONGEST_WAIT: u8 = 25;
/// So many hosts are asked for at once, and so many units.
const MOST: usize = 100;
/// A reason has so many characters.
const LONGEST_WHY: usize = 60;
/// So many asks are listed.
const LISTED: u32 = 1_000;

/// What is to be taken down.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct AskRequest {
    /// Of which cluster; not there: of the only one that you may ask for.
    #[serde(default)]
    cluster: Option<ClusterName>,
    /// These hosts, with all that they carry.
    #[serde(default)]
    #[schemars(length(max = 100))]
    hosts: Vec<HostName>,
    /// These units alone.
    #[serde(default)]
    #[schemars(length(max = 100))]
    units: Vec<UnitId>,
    /// For how many seconds from the grant on.
    #[serde(rename = "for")]
    #[schemars(range(min = 1, max = 1_209_600))]
    hold: u32,
    /// It is of no use after that.
    #[serde(default)]
    until: Option<Timestamp>,
    /// For people: `kernel 6.12.9`.
    #[serde(default)]
    #[schemars(length(max = 60))]
    why: String,
}

/// Asks of the clusters that you may see.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct AskList {
    /// Those that are open first, then what came of others; at most 1000.
    asks: Vec<AskDocument>,
}

/// Which asks.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct AskFilter {
    /// Of this cluster alone.
    cluster: Option<ClusterName>,
}

/// How long an answer is waited for.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct WaitQuery {
    /// Seconds, while it waits.
    #[serde(default)]
    #[schemars(range(max = 25))]
    wait: u8,
}

/// An ask that was made now, or before by the same key.
pub(crate) struct PutAsk(AskDocument);

impl IntoResponse for PutAsk {
    fn into_response(self) -> Response {
        let at = HeaderValue::try_from(format!("/v1/asks/{}", self.0.id));
        let mut response = (StatusCode::CREATED, Json(self.0)).into_response();
        if let Ok(at) = at {
            response.headers_mut().insert(header::LOCATION, at);
        }
        response
    }
}

impl aide::OperationOutput for PutAsk {
    type Inner = AskDocument;
}

pub(crate) fn described_put(of: TransformOperation<'_>) -> TransformOperation<'_> {
    described_as(
        of,
        "Asks to take hosts or units down for a time. The answer is there when the gate of the cluster has judged: \
         `/v1/asks/{id}?wait=25`. With `Idempotency-Key`, the same ask however often it is sent. Takes the role `ask` or `operate`.",
        &[403, 404, 409, 413, 415],
    )
    .response::<201, Json<AskDocument>>()
}

pub(crate) async fn put(
    State(shared): State<Shared>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
    asked: Result<JsonBody<AskRequest>, ProblemDetails>,
) -> Result<PutAsk, ProblemDetails> {
    allowed(&caller)?;
    let JsonBody(asked) = asked?;
    if asked.hosts.len() > MOST || asked.units.len() > MOST || asked.why.chars().count() > LONGEST_WHY {
        return Err(ProblemDetails::malformed(format!(
            "an ask has at most {MOST} hosts, {MOST} units, and {LONGEST_WHY} characters of `why`"
        )));
    }
    let key = match headers.get(&KEY) {
        None => None,
        Some(key) => {
            IdempotencyKeys::key(&caller.name, key)?;
            key.to_str().ok().map(str::to_owned)
        }
    };
    if key.as_ref().is_some_and(|key| key.contains(char::is_whitespace)) {
        return Err(ProblemDetails::malformed("an Idempotency-Key has no white space"));
    }
    let (cluster, ledger) = shared.asks.cluster(&caller, asked.cluster.as_ref()).await?;
    let wanted = NewAsk {
        cluster: cluster.identity.clone(),
        asker: caller.name.clone(),
        key,
        hosts: asked.hosts.iter().map(ToString::to_string).collect(),
        units: asked.units.into_iter().collect(),
        hold: asked.hold,
        until: asked.until,
        lapses: false,
        why: asked.why,
        run: None,
    };
    let ask = ledger.place(&wanted).await.map_err(|error| of(&error))?;
    Ok(PutAsk(AskDocument::of(&ask, &cluster)))
}

fn allowed(caller: &Caller) -> Result<(), ProblemDetails> {
    if may_ask(caller) {
        return Ok(());
    }
    Err(ProblemDetails::forbidden(format!(
        "{} may {}, and this needs ask or operate",
        caller.name,
        caller.role.as_str()
    )))
}

pub(crate) fn described_list(of: TransformOperation<'_>) -> TransformOperation<'_> {
    described_as(
        of,
        "Lists asks and grants. With the role `ask`, your own.",
        &[404],
    )
}

pub(crate) async fn list(
    State(shared): State<Shared>,
    Extension(caller): Extension<Caller>,
    which: Result<Query<AskFilter>, QueryRejection>,
) -> Result<Json<AskList>, ProblemDetails> {
    let Query(AskFilter { cluster: wanted }) = which?;
    let (all, away) = shared.asks.clusters(&caller).await;
    if let (true, Some(error)) = (all.is_empty(), away) {
        return Err(of(&error));
    }
    let mut asks = Vec::new();
    for (cluster, ledger) in all {
        if wanted.as_ref().is_some_and(|wanted| *wanted != cluster.name) {
            continue;
        }
        let found = ledger.history(&cluster.identity, LISTED).await;
        let found = found.map_err(|error| of(&error))?;
        let seen = found.iter().filter(|ask| super::may_see(&caller, ask));
        asks.extend(seen.map(|ask| AskDocument::of(ask, &cluster)));
    }
    asks.sort_by_key(|ask| ask.state == AskStateWord::Ended);
    asks.truncate(LISTED as usize);
    Ok(Json(AskList { asks }))
}

pub(crate) fn described_get(of: TransformOperation<'_>) -> TransformOperation<'_> {
    described_as(
        of,
        "What came of an ask. With `wait`, the answer comes when it is granted or over, or after so many seconds.",
        &[404],
    )
}

pub(crate) async fn get(
    State(shared): State<Shared>,
    Extension(caller): Extension<Caller>,
    id: Result<Path<AskId>, PathRejection>,
    wait: Result<Query<WaitQuery>, QueryRejection>,
) -> Result<Json<AskDocument>, ProblemDetails> {
    let (Path(id), Query(WaitQuery { wait })) = (known(id)?, wait?);
    if wait > LONGEST_WAIT {
        return Err(ProblemDetails::malformed(format!(
            "`wait` is at most {LONGEST_WAIT}"
        )));
    }
    let (ask, cluster, ledger) = shared.asks.ask(&caller, &id).await?;
    let ask = settled(&ledger, ask, Duration::from_secs(wait.into()))
        .await
        .map_err(|error| of(&error))?;
    Ok(Json(AskDocument::of(&ask, &cluster)))
}

/// What is no name of an ask is no ask.
fn known(id: Result<Path<AskId>, PathRejection>) -> Result<Path<AskId>, ProblemDetails> {
    id.map_err(|_| ProblemDetails::no_such_ask("of that name"))
}

pub(crate) fn described_done(of: TransformOperation<'_>) -> TransformOperation<'_> {
    described_as(
        of,
        "What was granted is back: its grant ends. Of an ask that waits, it is withdrawn. Whose it is not needs `operate`.",
        &[403, 404],
    )
}

pub(crate) async fn done(
    State(shared): State<Shared>,
    Extension(caller): Extension<Caller>,
    id: Result<Path<AskId>, PathRejection>,
) -> Result<Json<AskDocument>, ProblemDetails> {
    end(&shared, &caller, &known(id)?.0, AskEnd::Done).await
}

pub(crate) fn described_withdraw(of: TransformOperation<'_>) -> TransformOperation<'_> {
    described_as(
        of,
        "Withdraws an ask; a grant ends. Whose it is not needs `operate`.",
        &[403, 404],
    )
}

pub(crate) async fn withdraw(
    State(shared): State<Shared>,
    Extension(caller): Extension<Caller>,
    id: Result<Path<AskId>, PathRejection>,
) -> Result<Json<AskDocument>, ProblemDetails> {
    end(&shared, &caller, &known(id)?.0, AskEnd::Withdrawn).await
}

async fn end(
    shared: &Shared,
    caller: &Caller,
    id: &AskId,
    how: AskEnd,
) -> Result<Json<AskDocument>, ProblemDetails> {
    allowed(caller)?;
    let (ask, cluster, ledger) = shared.asks.ask(caller, id).await?;
    if ask.wanted.asker != caller.name && caller.role < Role::Operate {
        return Err(ProblemDetails::forbidden(format!("{id} was asked by another")));
    }
    let how = match &ask.state {
        AskState::Waiting(_) => AskEnd::Withdrawn,
        AskState::Granted(_) | AskState::Ended { .. } => how,
    };
    let why = if ask.wanted.asker == caller.name {
        String::new()
    } else {
        format!("said by {}", caller.name)
    };
    ledger.end(id, how, &why).await.map_err(|error| of(&error))?;
    let ask = ledger.ask(id).await.map_err(|error| of(&error))?;
    Ok(Json(AskDocument::of(&ask, &cluster)))
}
