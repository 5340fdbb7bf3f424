//! The finalizer of a CephMaintenance: everything held for its cluster is cleared before it is deleted.

use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, Client, ResourceExt as _};
use serde_json::json;

use crate::api::failed;
use crate::api::maintenance::{CephMaintenance, FINALIZER};
use stagger_engine::cluster::BackendError;

/// How often it is written because others change the CephMaintenance meanwhile.
const WRITES: u32 = 5;

/// Whether the CephMaintenance that was meant is still there.
enum Existence {
    Itself,
    /// It is gone, and maybe another has its name.
    Gone,
}

/// Has it, before anything is held.
///
/// # Errors
/// It could not be written, or the CephMaintenance is gone: nothing may be held in its name.
pub(crate) async fn ensure(client: &Client, of: &CephMaintenance) -> Result<(), BackendError> {
    let found = write(client, of, |of| {
        let lacks = !has(of) && of.metadata.deletion_timestamp.is_none();
        lacks.then(|| {
            of.finalizers()
                .iter()
                .cloned()
                .chain([FINALIZER.to_owned()])
                .collect()
        })
    })
    .await?;
    match found {
        Existence::Itself => Ok(()),
        Existence::Gone => Err(BackendError::transient(finalizer_action(of), "it is gone")),
    }
}

/// Lets it go: nothing is held any more.
pub(crate) async fn drop_it(client: &Client, of: &CephMaintenance) {
    let without = |of: &CephMaintenance| {
        let others = of.finalizers().iter().filter(|one| *one != FINALIZER);
        has(of).then(|| others.cloned().collect())
    };
    if let Err(error) = write(client, of, without).await {
        tracing::warn!(%error, name = of.name_any(), "the finalizer stays for now");
    }
}

/// Whether something may be held in its name.
pub(crate) fn has(of: &CephMaintenance) -> bool {
    of.finalizers().iter().any(|one| one == FINALIZER)
}

/// Just as it was seen, or not at all, for others have finalizers too; one that was changed meanwhile is looked at
/// again. `change` says which finalizers there are to be, or nothing where all is well.
async fn write(
    client: &Client,
    of: &CephMaintenance,
    change: impl Fn(&CephMaintenance) -> Option<Vec<String>>,
) -> Result<Existence, BackendError> {
    let namespace = of.namespace().unwrap_or_default();
    let api: Api<CephMaintenance> = Api::namespaced(client.clone(), &namespace);
    let name = of.name_any();
    let mut found = of.clone();
    let mut left = WRITES;
    while let Some(finalizers) = change(&found) {
        left -= 1;
        let patch =
            json!({ "metadata": { "resourceVersion": found.resource_version(), "finalizers": finalizers } });
        let patched = api
            .patch(&name, &PatchParams::default(), &Patch::Merge(&patch))
            .await;
        match patched {
            Ok(_) => return Ok(Existence::Itself),
            Err(kube::Error::Api(answer)) if answer.code == 404 => return Ok(Existence::Gone),
            Err(kube::Error::Api(answer)) if answer.code == 409 && left > 0 => {
                // It may list them: with that right this works under the rules of releases before, too.
                let named = ListParams::default().fields(&format!("metadata.name={name}"));
                let now = api
                    .list(&named)
                    .await
                    .map_err(|error| failed(&finalizer_action(of), &error))?;
                match now.items.into_iter().next() {
                    // Another of the same name is not meant.
                    Some(now) if now.metadata.uid == of.metadata.uid => found = now,
                    _ => return Ok(Existence::Gone),
                }
            }
            Err(error) => return Err(failed(&finalizer_action(of), &error)),
        }
    }
    Ok(Existence::Itself)
}

fn finalizer_action(of: &CephMaintenance) -> String {
    format!("write the finalizers of CephMaintenance {}", of.name_any())
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use axum::Router;
    use axum::extract::State;
    use axum::routing::get;
    use http::StatusCode;
    use serde_json::Value;

    use super::*;

    /// An API server with one CephMaintenance, of which the one who asks has an older version.
    type Server = Arc<Mutex<Value>>;

    const ALL: &str = "/apis/stagger.dev/v1alpha1/namespaces/rook-ceph/cephmaintenances";
    const ONE: &str = "/apis/stagger.dev/v1alpha1/namespaces/rook-ceph/cephmaintenances/rook-ceph";

    fn maintenance(version: &str, uid: &str, finalizers: &[&str]) -> Value {
        json!({
            "apiVersion": "stagger.dev/v1alpha1", "kind": "CephMaintenance",
            "metadata": {
                "name": "rook-ceph", "namespace": "rook-ceph", "uid": uid,
                "resourceVersion": version, "finalizers": finalizers,
            },
            "spec": { "cephCluster": "rook-ceph" },
        })
    }

    /// As the operator's rights are: it may list them, and not get one.
    async fn list(State(server): State<Server>, uri: http::Uri) -> String {
        assert_eq!(uri.query(), Some("&fieldSelector=metadata.name%3Drook-ceph"));
        json!({
            "apiVersion": "stagger.dev/v1alpha1", "kind": "CephMaintenanceList",
            "metadata": {}, "items": [*server.lock().unwrap()],
        })
        .to_string()
    }

    async fn patch(State(server): State<Server>, body: String) -> (StatusCode, String) {
        let mut stored = server.lock().unwrap();
        let patch: Value = serde_json::from_str(&body).unwrap();
        if patch["metadata"]["resourceVersion"] != stored["metadata"]["resourceVersion"] {
            let answer = json!({
                "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 409, "reason": "Conflict",
                "message": "the object has been modified",
            });
            return (StatusCode::CONFLICT, answer.to_string());
        }
        stored["metadata"]["finalizers"] = patch["metadata"]["finalizers"].clone();
        (StatusCode::OK, stored.to_string())
    }

    fn serves(stored: Value) -> (Server, Client) {
        let server = Server::new(Mutex::new(stored));
        let router = Router::new()
            .route(ALL, get(list))
            .route(ONE, axum::routing::patch(patch))
            .with_state(Arc::clone(&server));
        (server, Client::new(router, "rook-ceph"))
    }

    fn finalizers(server: &Server) -> Value {
        server.lock().unwrap()["metadata"]["finalizers"].clone()
    }

    #[tokio::test]
    async fn who_was_overtaken_looks_again_and_keeps_what_others_wrote() {
        let (server, client) = serves(maintenance("8", "a", &["example.org/theirs"]));
        let old: CephMaintenance = serde_json::from_value(maintenance("7", "a", &[])).unwrap();
        ensure(&client, &old).await.unwrap();
        assert_eq!(finalizers(&server), json!(["example.org/theirs", FINALIZER]));
        drop_it(
            &client,
            &serde_json::from_value(maintenance("7", "a", &[FINALIZER])).unwrap(),
        )
        .await;
        assert_eq!(finalizers(&server), json!(["example.org/theirs"]));
    }

    #[tokio::test]
    async fn another_of_the_same_name_is_not_touched() {
        let (server, client) = serves(maintenance("8", "b", &[FINALIZER]));
        let old: CephMaintenance = serde_json::from_value(maintenance("7", "a", &[FINALIZER])).unwrap();
        drop_it(&client, &old).await;
        assert_eq!(finalizers(&server), json!([FINALIZER]));
        let old: CephMaintenance = serde_json::from_value(maintenance("7", "a", &[])).unwrap();
        let gone = ensure(&client, &old).await.unwrap_err();
        assert_eq!(gone.why, "it is gone");
    }
}
