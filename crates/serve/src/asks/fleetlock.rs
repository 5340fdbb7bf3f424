//! `FleetLock`, as Zincati speaks it. A client sends no token, so the base URL has it: `…/fleetlock/TOKEN/`.

use std::collections::BTreeSet;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use stagger_asks::ask::{Ask, AskEnd, AskState, NewAsk};
use stagger_asks::ledger::{AskLedger, AskedCluster, LedgerError};
use stagger_asks::view::AskDocument;
use stagger_core::model::ClusterName;

use super::{may_ask, settled};
use crate::Shared;
use crate::access::Caller;

/// A host that was granted is back after that, in seconds.
const HOLD: u32 = 1800;
/// A client that does not ask again within that time is forgotten: Zincati asks every five minutes.
const LAPSES: SignedDuration = SignedDuration::from_mins(15);
/// An answer is waited for so long.
const PATIENCE: Duration = Duration::from_secs(3);

pub(crate) fn routes() -> Router<Shared> {
    Router::new()
        .route("/fleetlock/{token}/v1/pre-reboot", post(pre_reboot))
        .route("/fleetlock/{token}/v1/steady-state", post(steady_state))
        .route("/fleetlock/{token}/{cluster}/v1/pre-reboot", post(pre_reboot))
        .route("/fleetlock/{token}/{cluster}/v1/steady-state", post(steady_state))
}

/// Where the request goes.
#[derive(Debug, Deserialize)]
struct Door {
    token: String,
    cluster: Option<String>,
}

#[derive(Debug, Deserialize)]
struct FleetLockBody {
    client_params: ClientParams,
}

#[derive(Debug, Deserialize)]
struct ClientParams {
    id: String,
    group: String,
}

/// Why not, as clients read it. There are few kinds.
#[derive(Debug, Serialize)]
struct LockRejection {
    kind: &'static str,
    value: String,
    #[serde(skip)]
    status: StatusCode,
}

impl IntoResponse for LockRejection {
    fn into_response(self) -> Response {
        (self.status, Json(self)).into_response()
    }
}

fn rejected(status: StatusCode, kind: &'static str, value: impl Into<String>) -> LockRejection {
    LockRejection {
        kind,
        value: value.into(),
        status,
    }
}

fn malformed(value: impl Into<String>) -> LockRejection {
    rejected(StatusCode::BAD_REQUEST, "malformed_request", value)
}

fn away(error: &LedgerError) -> LockRejection {
    match error {
        LedgerError::Ask(_) => malformed(error.to_string()),
        LedgerError::Failed { .. }
        | LedgerError::Unreadable { .. }
        | LedgerError::NoCluster(_)
        | LedgerError::NoAsk(_)
        | LedgerError::OtherAsk => rejected(
            StatusCode::SERVICE_UNAVAILABLE,
            "store_away",
            "the store of asks does not answer: nothing is granted",
        ),
    }
}

/// A client that is known.
struct Client {
    caller: Caller,
    id: String,
    cluster: AskedCluster,
    ledger: AskLedger,
}

async fn client(
    shared: &Shared,
    door: Door,
    headers: &HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Result<Client, LockRejection> {
    let is_meant = headers
        .get("fleet-lock-protocol")
        .is_some_and(|value| value == "true");
    if !is_meant {
        return Err(malformed("the header `fleet-lock-protocol: true` is missing"));
    }
    let caller = shared.tokens.holder(&door.token, Timestamp::now()).map_err(|_| {
        rejected(
            StatusCode::SERVICE_UNAVAILABLE,
            "tokens_away",
            "the tokens cannot be read",
        )
    })?;
    let caller = caller.filter(may_ask).ok_or_else(|| {
        rejected(
            StatusCode::FORBIDDEN,
            "forbidden",
            "the base URL has no token that may ask: `stagger token add NAME --role ask`",
        )
    })?;
    let body = body.map_err(|error| rejected(error.status(), "malformed_request", error.body_text()))?;
    let FleetLockBody {
        client_params: ClientParams { id, group },
    } = serde_json::from_slice(&body).map_err(|error| malformed(format!("the body: {error}")))?;
    let plain = |c: char| c.is_ascii_alphanumeric() || ".-".contains(c);
    if group.is_empty() || group.len() > 200 || !group.chars().all(plain) {
        return Err(malformed("`group` is letters, digits, dots and dashes"));
    }
    let name = door.cluster.map(ClusterName::try_from).transpose();
    let name = name.map_err(|error| malformed(error.to_string()))?;
    let (cluster, ledger) = shared
        .asks
        .cluster(&caller, name.as_ref())
        .await
        .map_err(|problem| rejected(problem.status(), "no_cluster", problem.detail()))?;
    Ok(Client {
        caller,
        id,
        cluster,
        ledger,
    })
}

impl Client {
    fn wanted(&self) -> NewAsk {
        NewAsk {
            cluster: self.cluster.identity.clone(),
            asker: self.caller.name.clone(),
            key: None,
            hosts: BTreeSet::from([self.id.clone()]),
            units: BTreeSet::new(),
            hold: HOLD,
            until: Timestamp::now().checked_add(LAPSES).ok(),
            lapses: true,
            why: "FleetLock".to_owned(),
            run: None,
        }
    }

    /// What this client has asked for and is not over.
    async fn open(&self) -> Result<Vec<Ask>, LedgerError> {
        let board = self.ledger.board(&self.cluster.identity).await?;
        let wanted = self.wanted();
        let ours = |ask: &Ask| ask.wanted.asker == wanted.asker && ask.wanted.hosts == wanted.hosts;
        Ok(board.asks.into_iter().filter(ours).collect())
    }

    async fn lock(&self) -> Result<Ask, LedgerError> {
        self.wanted().verify(Timestamp::now())?;
        let open = self.open().await?;
        let granted = |ask: &&Ask| matches!(ask.state, AskState::Granted(_));
        if let Some(ask) = open.iter().find(granted) {
            // It asks once more before it begins: its time begins now.
            self.ledger
                .extend(&ask.id, Duration::from_secs(u64::from(HOLD)))
                .await?;
            return self.ledger.ask(&ask.id).await;
        }
        let ask = match open.into_iter().next() {
            Some(ask) => {
                self.ledger.ask_anew(&ask.id, &self.wanted()).await?;
                ask
            }
            None => self.ledger.place(&self.wanted()).await?,
        };
        settled(&self.ledger, ask, PATIENCE).await
    }

    async fn unlock(&self) -> Result<(), LedgerError> {
        for ask in self.open().await? {
            let how = match ask.state {
                AskState::Waiting(_) => AskEnd::Withdrawn,
                AskState::Granted(_) | AskState::Ended { .. } => AskEnd::Done,
            };
            self.ledger.end(&ask.id, how, "steady state").await?;
        }
        Ok(())
    }
}

async fn pre_reboot(
    State(shared): State<Shared>,
    Path(door): Path<Door>,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Response {
    let client = match client(&shared, door, &headers, body).await {
        Ok(client) => client,
        Err(rejection) => return rejection.into_response(),
    };
    match client.lock().await {
        Ok(ask) => match &ask.state {
            AskState::Granted(_) => StatusCode::OK.into_response(),
            AskState::Waiting(_) => {
                let why = AskDocument::of(&ask, &client.cluster).line();
                rejected(StatusCode::CONFLICT, "not_now", why).into_response()
            }
            AskState::Ended { .. } => {
                let why = AskDocument::of(&ask, &client.cluster).line();
                rejected(StatusCode::CONFLICT, "refused", why).into_response()
            }
        },
        Err(error) => away(&error).into_response(),
    }
}

async fn steady_state(
    State(shared): State<Shared>,
    Path(door): Path<Door>,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Response {
    let client = match client(&shared, door, &headers, body).await {
        Ok(client) => client,
        Err(rejection) => return rejection.into_response(),
    };
    match client.unlock().await {
        Ok(()) => StatusCode::OK.into_response(),
        Err(error) => away(&error).into_response(),
    }
}
