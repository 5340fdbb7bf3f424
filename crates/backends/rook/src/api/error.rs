//! Errors of the API server.

use stagger_engine::cluster::BackendError;

/// An error of the API server as the engine takes it.
pub(crate) fn failed(tried: &str, error: &kube::Error) -> BackendError {
    match error {
        kube::Error::Api(answer) if answer.code == 403 => {
            BackendError::permanent(tried, answer.message.clone()).hint(
                "the service account lacks rights; apply deploy/operator/rbac.yaml of this release again",
            )
        }
        kube::Error::Api(answer)
            if (400..500).contains(&answer.code) && answer.code != 409 && answer.code != 429 =>
        {
            BackendError::permanent(tried, answer.message.clone())
        }
        // A request whose answer was lost may have been carried out; each names a version, so that it
        // cannot land later than another's.
        other => BackendError::transient(tried, other.to_string()),
    }
}
