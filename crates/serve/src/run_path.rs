//! The run in a request's path.

use axum::extract::Path;
use axum::extract::rejection::PathRejection;
use stagger_core::model::RunId;

use crate::Shared;
use crate::access::{Caller, Role};
use crate::problem::ProblemDetails;
use crate::runs::ReadRun;

/// The name of a run in an address.
pub(crate) type RunPath = Result<Path<RunId>, PathRejection>;

/// The run in a request's path, if the caller has the role for it. There is no other way to a run.
pub(crate) async fn authorized_run(
    shared: &Shared,
    caller: &Caller,
    run: &RunId,
    role: Role,
) -> Result<ReadRun, ProblemDetails> {
    let seen = shared
        .runs
        .run(run)
        .await
        .map_err(|error| ProblemDetails::of(&error))?;
    let cluster = &seen.view.cluster;
    if !caller.may_see(cluster) {
        return Err(ProblemDetails::no_such_run(run.as_str()));
    }
    if !caller.has_role(role, cluster) {
        return Err(ProblemDetails::forbidden(format!(
            "{} may {}, and this needs {}",
            caller.name,
            caller.role.as_str(),
            role.as_str()
        )));
    }
    Ok(seen)
}
