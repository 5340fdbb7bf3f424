//! Starts runs: from a plan that the operator has reviewed, in a process that knows the cluster.

use std::time::Duration;

use aide::transform::TransformOperation;
use axum::extract::{FromRequest as _, Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use stagger_core::model::{ClusterName, RunId};

use crate::Shared;
use crate::access::{Caller, Role};
use crate::body::JsonBody;
use crate::description::described_as;
use crate::idempotency::{IdempotencyKeys, KEY, Repeat};
use crate::problem::ProblemDetails;
use crate::read_error::ReadError;
use crate::run_processes::{RunStarter, StartedProcess};

/// No plan is larger.
pub(crate) const LARGEST_PLAN: usize = 16 << 20;
/// How often the store is checked for the new run.
const LOOK: Duration = Duration::from_millis(500);
/// Flags of a plan that name a file. Here it would be a file of the server, and its errors would go to the
/// caller.
const APPROVING: [&str; 3] = ["--accept-risk", "--interrupt", "--partial"];
/// Flags of a plan that name a file. Here it would be one of the server's, and what is wrong in it is told to whoever asks.
const FILES: [&str; 1] = ["--risks"];

/// A run that is to begin.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct StartRequest {
    /// Of which cluster. Its configuration is the server's own.
    cluster: ClusterName,
    /// The document of `stagger plan --out`. The run is of exactly that plan, or is not begun.
    plan: Map<String, Value>,
}

/// The part of a plan that is checked here. The rest is for the process that carries it out.
#[derive(Debug, Deserialize)]
struct PlanSummary {
    id: String,
    cluster: ClusterName,
    #[serde(default)]
    flags: Vec<String>,
}

impl PlanSummary {
    fn of(plan: &Map<String, Value>) -> Result<Self, ProblemDetails> {
        let looked = Self::deserialize(plan).map_err(|error| {
            ProblemDetails::malformed(format!("`plan` is no document of `stagger plan --out`: {error}"))
        })?;
        if looked.id.len() != 16 || !looked.id.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(ProblemDetails::malformed(
                "the id of `plan` is not 16 hexadecimal digits",
            ));
        }
        if let Some(flag) = looked.names().find(|name| FILES.contains(name)) {
            return Err(ProblemDetails::malformed(format!(
                "`plan` was made with {flag}, which names a file on another machine: name it in the configuration of the cluster on the server"
            )));
        }
        Ok(looked)
    }

    fn names(&self) -> impl Iterator<Item = &str> {
        let flags = self.flags.iter();
        flags.map(|flag| flag.split('=').next().unwrap_or_default())
    }

    /// What it takes to begin it.
    fn role(&self) -> Role {
        if self.names().any(|name| APPROVING.contains(&name)) {
            Role::Approve
        } else {
            Role::Operate
        }
    }
}

/// A run that begins.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct StartedRun {
    /// Of which cluster.
    cluster: ClusterName,
    /// The plan that was sent.
    plan: String,
    /// Its name; not there: it is still planned, and `/v1/runs?cluster=` will list it, or there was nothing to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    run: Option<RunId>,
    /// What the process that begins it has said by now.
    #[serde(skip_serializing_if = "Option::is_none")]
    said: Option<String>,
    #[serde(skip)]
    status: StatusCode,
}

impl IntoResponse for StartedRun {
    fn into_response(self) -> Response {
        let mut response = (self.status, Json(&self)).into_response();
        let at = self
            .run
            .as_ref()
            .map(|run| format!("/v1/runs/{}", encoded(run.as_str())));
        if let Some(at) = at.and_then(|at| HeaderValue::try_from(at).ok()) {
            response.headers_mut().insert(header::LOCATION, at);
        }
        response
    }
}

impl aide::OperationOutput for StartedRun {
    type Inner = Self;
}

/// A name as a part of an address.
fn encoded(name: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    let bytes = name.bytes();
    bytes
        .map(|byte| {
            if plain(byte) {
                char::from(byte).to_string()
            } else {
                format!("%{byte:02X}")
            }
        })
        .collect()
}

/// How it is described.
pub(crate) fn described(of: TransformOperation<'_>) -> TransformOperation<'_> {
    described_as(
        of,
        "Begins a run of a plan, where this server is to (`--carry-on`). With `Idempotency-Key`, once however often it is sent. A \
         plan whose flags permit an interruption or a part, or accept a known risk, takes the role `approve`; one made with `--risks` is \
         refused.",
        &[403, 404, 409, 413, 415],
    )
    .input::<Json<StartRequest>>()
    .response_with::<201, Json<StartedRun>, _>(|said| said.description("It has started."))
    .response_with::<202, Json<StartedRun>, _>(|said| said.description("It is being planned anew, or was started before by the \
                                                                   same key."))
    .response_with::<200, Json<StartedRun>, _>(|said| said.description("There was nothing to do."))
}

/// Starts a run. A large body is read only from callers who may start runs somewhere.
pub(crate) async fn begin(
    State(shared): State<Shared>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
    request: Request,
) -> Result<StartedRun, ProblemDetails> {
    let carrier = shared.carrier.as_ref();
    let carrier = carrier.ok_or_else(|| {
        ProblemDetails::forbidden("this server starts no runs: it was started without --carry-on")
    })?;
    if caller.role < Role::Operate {
        return Err(forbidden(&caller, Role::Operate));
    }
    let JsonBody(StartRequest { cluster, plan }) =
        JsonBody::<StartRequest>::from_request(request, &()).await?;
    if !caller.may_see(&cluster) || !carrier.begins(&cluster) {
        return Err(ProblemDetails::no_such_cluster(&cluster));
    }
    let looked = PlanSummary::of(&plan)?;
    if looked.cluster != cluster {
        return Err(ProblemDetails::malformed(format!(
            "the plan is for the cluster {}, not for {cluster}",
            looked.cluster
        )));
    }
    if !caller.has_role(looked.role(), &cluster) {
        return Err(forbidden(&caller, looked.role()));
    }
    let text = serde_json::to_string(&plan).unwrap_or_default();
    let question = format!("begin {cluster} {text}");
    let mut claim = match headers.get(&KEY) {
        None => None,
        Some(key) => match shared
            .once
            .claim(IdempotencyKeys::key(&caller.name, key)?, &question)
        {
            Ok(claim) => Some(claim),
            Err(Repeat::Before) => {
                let open = shared
                    .runs
                    .newest_of(&cluster)
                    .await
                    .map_err(|error| ProblemDetails::of(&error))?;
                return Ok(StartedRun {
                    cluster,
                    plan: looked.id,
                    run: open.newest,
                    said: None,
                    status: StatusCode::ACCEPTED,
                });
            }
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
    let (before, beginning) = start(&shared, carrier, &caller, &cluster, &looked, text.as_bytes()).await?;
    // From here on something happens, also where whoever asked hangs up.
    if let Some(claim) = &mut claim {
        claim.mark(true);
    }
    let came = follow(&shared, cluster, looked.id, before, beginning).await;
    if let (Some(claim), Err(_)) = (&mut claim, &came) {
        claim.mark(false);
    }
    came
}

fn forbidden(caller: &Caller, role: Role) -> ProblemDetails {
    ProblemDetails::forbidden(format!(
        "{} may {}, and this needs {}",
        caller.name,
        caller.role.as_str(),
        role.as_str()
    ))
}

/// Starts the process, if no run of the cluster is in progress; returns also the newest run before it.
async fn start(
    shared: &Shared,
    carrier: &RunStarter,
    caller: &Caller,
    cluster: &ClusterName,
    plan: &PlanSummary,
    text: &[u8],
) -> Result<(Option<RunId>, StartedProcess), ProblemDetails> {
    let before = shared
        .runs
        .newest_of(cluster)
        .await
        .map_err(|error| ProblemDetails::of(&error))?;
    if let Some(open) = before.open {
        return Err(ProblemDetails::conflict(format!(
            "run {open} of {cluster} is not over"
        )));
    }
    let by = format!("{} with plan {}", caller.name, plan.id);
    let failed = |error: std::io::Error| {
        ProblemDetails::start_failed(format!("start a process for {cluster}: {error}"))
    };
    let beginning = carrier.begin(cluster, text, &by).map_err(failed)?;
    let beginning =
        beginning.ok_or_else(|| ProblemDetails::conflict(format!("a run of {cluster} is being started")))?;
    Ok((before.newest, beginning))
}

/// Waits until the run stands in the store, or the process has said why not; no longer than an answer may take.
async fn follow(
    shared: &Shared,
    cluster: ClusterName,
    plan: String,
    before: Option<RunId>,
    mut beginning: StartedProcess,
) -> Result<StartedRun, ProblemDetails> {
    let begun = |cluster, run, said, status| StartedRun {
        cluster,
        plan,
        run,
        said,
        status,
    };
    let late = tokio::time::sleep(shared.patience / 2);
    tokio::pin!(late);
    loop {
        let ended = tokio::select! {
            ended = &mut beginning.ended => Some(ended),
            () = tokio::time::sleep(LOOK) => None,
            () = &mut late => return Ok(begun(cluster, None, Some(beginning.output_tail()), StatusCode::ACCEPTED)),
        };
        // One that cannot be read now is looked at again: the process goes on.
        let now: Result<_, ReadError> = shared.runs.newest_of(&cluster).await;
        if let Ok(now) = now
            && now.newest.is_some()
            && now.newest != before
        {
            return Ok(begun(cluster, now.newest, None, StatusCode::CREATED));
        }
        match ended {
            None => {}
            Some(Ok(Ok(status))) if status.success() => {
                return Ok(begun(
                    cluster,
                    None,
                    Some(beginning.output_tail()),
                    StatusCode::OK,
                ));
            }
            Some(_) => return Err(ProblemDetails::refused_plan(beginning.output_tail())),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn looked(plan: Value) -> Result<PlanSummary, ProblemDetails> {
        let Value::Object(plan) = plan else {
            panic!("a plan is an object");
        };
        PlanSummary::of(&plan)
    }

    #[test]
    fn a_plan_that_permits_what_is_approved_takes_the_right_to_approve() {
        let of = |flags: &[&str]| {
            let plan = json!({ "id": "0123456789abcdef", "cluster": "lab", "flags": flags });
            looked(plan).unwrap().role()
        };
        assert_eq!(of(&["upgrade", "--to", "20.2.4"]), Role::Operate);
        for flags in [
            &["upgrade", "--to", "20.2.4", "--interrupt", "mgr"][..],
            &["upgrade", "--to=20.2.4", "--interrupt=mds.a"],
            &["--partial"],
            &["upgrade", "--to", "20.2.4", "--accept-risk", "site-1"],
        ] {
            assert_eq!(of(flags), Role::Approve, "{flags:?}");
        }
    }

    #[test]
    fn what_is_no_plan_is_refused() {
        for plan in [
            json!({}),
            json!({ "id": "0123456789abcdef" }),
            json!({ "id": "../../etc/passwd", "cluster": "lab" }),
            json!({ "id": 7, "cluster": "lab" }),
            json!({ "id": "0123456789abcdef", "cluster": "a b" }),
            json!({ "id": "0123456789abcdef", "cluster": "lab", "flags": "upgrade" }),
            json!({ "id": "0123456789abcdef", "cluster": "lab", "flags": ["upgrade", "--risks=site.toml"] }),
        ] {
            assert!(looked(plan.clone()).is_err(), "{plan}");
        }
    }

    #[test]
    fn a_name_of_any_characters_is_one_part_of_an_address() {
        assert_eq!(encoded("lab-20260101-000000"), "lab-20260101-000000");
        assert_eq!(encoded("a/b?c#é"), "a%2Fb%3Fc%23%C3%A9");
    }
}
