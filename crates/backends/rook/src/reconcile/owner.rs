//! The operator's own Deployment, which owns the objects that the operator creates for itself, so that they
//! are deleted with it.

use k8s_openapi::api::apps::v1::Deployment;
use kube::{Api, Client};
use serde_json::{Value, json};
use stagger_engine::cluster::BackendError;

use crate::api::failed;
use crate::api::names::OPERATOR;

/// A reference to it, for `ownerReferences`. None where the operator runs elsewhere.
///
/// # Errors
/// It cannot be read.
pub(crate) async fn reference(client: &Client, namespace: &str) -> Result<Option<Value>, BackendError> {
    let api: Api<Deployment> = Api::namespaced(client.clone(), namespace);
    let found = api.get_opt(OPERATOR).await;
    let found = found.map_err(|error| failed(&format!("read Deployment {OPERATOR}"), &error))?;
    Ok(found.map(|found| {
        json!({ "apiVersion": "apps/v1", "kind": "Deployment", "name": OPERATOR, "uid": found.metadata.uid })
    }))
}
