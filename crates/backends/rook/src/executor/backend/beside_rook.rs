//! What a backend does beside a Rook that runs: sees whether Rook is kept from what is changed, and carries out those steps.

use k8s_openapi::api::apps::v1;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client, ResourceExt as _};
use serde_json::json;
use stagger_core::model::UnitId;
use stagger_engine::cluster::{BackendError, Call};

use super::{Parts, RookBackend, WRITES};
use crate::api::cluster::CephCluster;
use crate::api::daemons::kind_of;
use crate::api::failed;
use crate::api::names::MANAGER;
use crate::api::rook_operator;
use crate::executor::beside;
use crate::executor::managed_fields::{as_they_are, given_back, held_by};

impl RookBackend {
    /// The image that the CephCluster names.
    pub(super) fn cluster_image(&self) -> Option<String> {
        let desired = self.parts.desired.borrow();
        desired.cluster.spec.ceph_version.image.clone()
    }

    /// Why Rook may write what a wave changes too.
    pub(super) async fn rook_may_write(&self) -> Result<Option<String>, BackendError> {
        let Parts {
            client,
            namespace,
            watched,
            memory,
            ..
        } = &self.parts;
        if memory.beside.is_none() {
            // It may have been scaled up since the run began.
            return rook_operator::running(client, namespace, watched).await;
        }
        let (daemons, _) = watched.daemons();
        let open = beside::is_open(&memory.wish, &daemons, self.cluster_image().as_deref());
        let Some(why) = open else {
            return Ok(None);
        };
        let first = beside::open_to_rook(&memory.wish, &daemons);
        let by = match first.first() {
            Some(unit) => self.written_since(unit).await?,
            None => String::new(),
        };
        Ok(Some(format!("{why}{by}")))
    }

    /// Who wrote a daemon's Deployment since we did, in words to be added. Who only took a label away is not noted by Kubernetes.
    async fn written_since(&self, unit: &UnitId) -> Result<String, BackendError> {
        let name = self.name_of(unit)?;
        let tried = format!("ask who wrote Deployment {name}");
        let api: Api<v1::Deployment> = Api::namespaced(self.parts.client.clone(), &self.parts.namespace);
        let found = api
            .get_metadata(&name)
            .await
            .map_err(|error| failed(&tried, &error))?;
        let of_itself = |entry: &&ManagedFieldsEntry| entry.subresource.is_none();
        let entries = found.metadata.managed_fields.iter().flatten();
        let last = entries.filter(of_itself).max_by_key(|entry| entry.time.clone());
        let Some(entry) = last.filter(|entry| entry.manager.as_deref() != Some(MANAGER)) else {
            return Ok(String::new());
        };
        let who = entry.manager.as_deref().unwrap_or("somebody");
        let at = entry.time.as_ref().map(|time| format!(" at {:.0}", time.0));
        Ok(format!("; {who} wrote it last{}", at.unwrap_or_default()))
    }

    /// A step beside Rook.
    pub(super) async fn beside_step(&self, call: &Call, step: beside::Step) -> Result<String, BackendError> {
        let Parts {
            watched,
            memory,
            namespace,
            client,
            ..
        } = &self.parts;
        let Some(beside) = &memory.beside else {
            return Err(BackendError::permanent(
                "keep Rook from daemons",
                "the run's memory does not say that Rook is to run beside it",
            ));
        };
        if step == beside::Step::Image {
            let name = self.parts.cluster.to_string();
            let (from, to) = (beside.image_before.as_deref(), memory.wish.image.as_str());
            return set_image(client, namespace, &name, (from, to), call.run.as_str()).await;
        }
        let (daemons, _) = watched.daemons();
        let left = beside::left(step, &memory.wish, &daemons);
        for unit in &left {
            let kind = kind_of(unit).to_owned();
            let tried = format!("label the Deployment of {unit}");
            self.write(unit, call.fence, &tried, |deployment| match step {
                beside::Step::Hold => held_by(as_they_are(deployment, &kind), &beside.holder),
                beside::Step::Monitors | beside::Step::Image => given_back(deployment, &kind),
            })
            .await?;
        }
        Ok(format!("{} Deployments were labelled", left.len()))
    }
}

/// The annotation of a CephCluster with the run that wrote its image.
const IMAGE_BY: &str = "stagger.dev/image-by";

/// Has the CephCluster name an image, if it names that `from`, in the name of a run. One run does so once: who sets it back in its midst
/// means it.
///
/// # Errors
/// Somebody has it name another one, or the API server refuses it.
pub(crate) async fn set_image(
    client: &Client,
    namespace: &str,
    name: &str,
    (from, to): (Option<&str>, &str),
    run: &str,
) -> Result<String, BackendError> {
    let api: Api<CephCluster> = Api::namespaced(client.clone(), namespace);
    let tried = format!("write the image {to} into CephCluster {name}");
    for _ in 0..WRITES {
        let found = api.get(name).await.map_err(|error| failed(&tried, &error))?;
        let now = found.spec.ceph_version.image.as_deref();
        if now == Some(to) {
            return Ok(format!("it names {to}"));
        }
        let is_set_back = found.annotations().get(IMAGE_BY).is_some_and(|by| by == run);
        if now != from || is_set_back {
            let why = format!("somebody has it name {} since", now.unwrap_or("no image"));
            let hint = format!("have it name {to}, then `stagger resume`; or end the run");
            return Err(BackendError::permanent(tried, why).hint(hint));
        }
        let patch = json!({
            "metadata": { "resourceVersion": found.resource_version(), "annotations": { IMAGE_BY: run } },
            "spec": { "cephVersion": { "image": to } },
        });
        match api
            .patch(name, &PatchParams::default(), &Patch::Merge(&patch))
            .await
        {
            Ok(_) => return Ok(format!("it names {to} now")),
            Err(kube::Error::Api(answer)) if answer.code == 409 => {}
            Err(error) => return Err(failed(&tried, &error)),
        }
    }
    Err(BackendError::transient(tried, "others write it all the time"))
}
