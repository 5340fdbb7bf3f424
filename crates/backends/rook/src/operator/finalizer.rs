//! The finalizer of a CephMaintenance: what is held for its cluster is given back before it goes.

use kube::api::{Patch, PatchParams};
use kube::{Api, Client, ResourceExt as _};
use serde_json::json;

use crate::backend::failed;
use crate::maintenance::{CephMaintenance, FINALIZER};
use stagger_engine::backend::BackendError;

/// Has it, before anything is held.
pub(super) async fn ensure(client: &Client, of: &CephMaintenance) -> Result<(), BackendError> {
    if of.finalizers().iter().any(|one| one == FINALIZER) || of.metadata.deletion_timestamp.is_some() {
        return Ok(());
    }
    let with = of.finalizers().iter().cloned().chain([FINALIZER.to_owned()]);
    write(client, of, with.collect()).await
}

/// Lets it go: nothing is held any more.
pub(super) async fn drop_it(client: &Client, of: &CephMaintenance) {
    if !of.finalizers().iter().any(|one| one == FINALIZER) {
        return;
    }
    let without = of.finalizers().iter().filter(|one| *one != FINALIZER).cloned();
    if let Err(error) = write(client, of, without.collect()).await {
        tracing::warn!(%error, name = of.name_any(), "the finalizer stays for now");
    }
}

/// Just as it was seen, or not at all: others have finalizers too.
async fn write(client: &Client, of: &CephMaintenance, finalizers: Vec<String>) -> Result<(), BackendError> {
    let namespace = of.namespace().unwrap_or_default();
    let api: Api<CephMaintenance> = Api::namespaced(client.clone(), &namespace);
    let name = of.name_any();
    let patch = json!({ "metadata": { "resourceVersion": of.resource_version(), "finalizers": finalizers } });
    match api
        .patch(&name, &PatchParams::default(), &Patch::Merge(&patch))
        .await
    {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(answer)) if answer.code == 404 => Ok(()),
        Err(error) => Err(failed(
            &format!("write the finalizers of CephMaintenance {name}"),
            &error,
        )),
    }
}
