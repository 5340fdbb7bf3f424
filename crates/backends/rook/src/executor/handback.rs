//! Releases skipped daemons to Rook.

use kube::api::{Patch, PatchParams};
use kube::{Api, Client, ResourceExt as _};
use stagger_engine::cluster::BackendError;

use crate::api::failed;
use crate::api::objects::Deployment;
use crate::executor::managed_fields::release_patch;

/// Takes the labels off a Deployment, just as it was seen or not at all. Nothing of its pods changes.
pub(crate) async fn release_to_rook(
    client: &Client,
    namespace: &str,
    deployment: &Deployment,
) -> Result<(), BackendError> {
    let api: Api<Deployment> = Api::namespaced(client.clone(), namespace);
    let name = deployment.name_any();
    let patch = release_patch(deployment);
    let tried = format!("return Deployment {name} to Rook");
    match api
        .patch(&name, &PatchParams::default(), &Patch::Merge(&patch))
        .await
    {
        Ok(_) => tracing::info!(deployment = name, "returned to Rook"),
        // It is another by now: what is seen of it next is looked at again.
        Err(kube::Error::Api(answer)) if answer.code == 409 || answer.code == 404 => {}
        Err(error) => return Err(failed(&tried, &error)),
    }
    Ok(())
}
