//! The backend beside a running Rook: checks that Rook skips the daemons that are changed, and carries out
//! those steps.

use std::sync::atomic::Ordering;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client, ResourceExt as _};
use serde_json::json;
use stagger_ceph::facts::mds::FsMap;
use stagger_core::model::UnitId;
use stagger_engine::cluster::{BackendError, Call};

use super::{RookBackend, RookBackendParts, WRITES};
use crate::api::cluster::CephCluster;
use crate::api::daemons::kind_of;
use crate::api::failed;
use crate::api::names::{DO_NOT_RECONCILE, MANAGER};
use crate::api::objects::Deployment;
use crate::api::rook_operator;
use crate::executor::beside::{self, ClusterImage, RookProgress, is_image_active};
use crate::executor::managed_fields::{
    current_fields, fence_of, held_by, release_patch, skip_label_by_others,
};

impl RookBackend {
    /// The image that the CephCluster names.
    pub(super) fn cluster_image(&self) -> Option<String> {
        let desired = self.parts.desired.borrow();
        desired.cluster.spec.ceph_version.image.clone()
    }

    /// What Rook has done of its part. Whether it runs is asked only while something is missing.
    pub(super) async fn rook_progress(&self, filesystems: &FsMap) -> Result<RookProgress, BackendError> {
        let image = self.image_and_rook().await?;
        let RookBackendParts {
            client,
            namespace,
            watched,
            memory,
            ..
        } = &self.parts;
        let run = memory.changes();
        let is_named = image.named.as_ref() == Some(&run.wish.image);
        let missing = (run.mds_by_rook && is_named)
            .then(|| beside::servers_not_done(run, &watched.daemons().0, filesystems))
            .flatten();
        let servers = match missing {
            None => None,
            Some(why) => Some(match rook_operator::running(client, namespace, watched).await? {
                Some(_) => format!(
                    "Rook updates metadata servers by itself, and {why}; the log of Rook's operator says what it is at"
                ),
                None => format!(
                    "metadata servers are left to Rook, of which no operator runs, and {why}: start Rook; or end the run, and the next one \
                     updates them"
                ),
            }),
        };
        Ok(RookProgress { image, servers })
    }

    /// The image with what Rook makes of it. Whether Rook runs is asked only while it has not taken up what a run beside it has written.
    async fn image_and_rook(&self) -> Result<ClusterImage, BackendError> {
        let RookBackendParts {
            client,
            namespace,
            watched,
            memory,
            desired,
            ..
        } = &self.parts;
        let cluster = desired.borrow().cluster.clone();
        let is_named = cluster.spec.ceph_version.image.as_ref() == Some(&memory.wish.image);
        let waits = memory.beside.is_some()
            && is_named
            && !is_image_active(&cluster)
            && !self.taken_up.load(Ordering::Relaxed);
        let rook_runs = waits
            && rook_operator::running(client, namespace, watched)
                .await?
                .is_some();
        let image = ClusterImage::of(&cluster, rook_runs);
        if is_named && image.inactive_reason().is_none() {
            self.taken_up.store(true, Ordering::Relaxed);
        }
        Ok(image)
    }

    /// Why Rook may write what a wave changes too.
    pub(super) async fn rook_may_write(&self) -> Result<Option<String>, BackendError> {
        let RookBackendParts {
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
        let run = memory.changes();
        let open = beside::is_open(run, &daemons, self.cluster_image().as_deref());
        let Some(why) = open else {
            if !beside::changes_servers(run, &daemons) {
                return Ok(None);
            }
            // No label keeps it from those.
            let runs = rook_operator::running(client, namespace, watched).await?;
            return Ok(runs.map(|why| {
                format!("metadata servers are still to be changed, and {why}; or end the run, and the next one leaves them to Rook")
            }));
        };
        let first = beside::open_to_rook(memory.changes(), &daemons);
        let by = match first.first() {
            Some(unit) => self.writers_since(unit).await?,
            None => String::new(),
        };
        Ok(Some(format!("{why}{by}")))
    }

    /// Who wrote a daemon's Deployment since we did, in words to be added. Who only took a label away is not noted by Kubernetes.
    async fn writers_since(&self, unit: &UnitId) -> Result<String, BackendError> {
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
        let who = entry.manager.as_deref().unwrap_or("another manager");
        let at = entry.time.as_ref().map(|time| format!(" at {:.0}", time.0));
        Ok(format!("; {who} wrote it last{}", at.unwrap_or_default()))
    }

    /// A step beside Rook.
    pub(super) async fn beside_step(&self, call: &Call, step: beside::Step) -> Result<String, BackendError> {
        let RookBackendParts {
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
        let left = || beside::remaining(step, memory.changes(), &watched.daemons().0);
        match step {
            beside::Step::Hold => {
                let left = left();
                let since = Some(Timestamp::now());
                for unit in &left {
                    let kind = kind_of(unit).to_owned();
                    let tried = format!("label the Deployment of {unit}");
                    self.write(unit, call.fence, &tried, |deployment| {
                        held_by(
                            current_fields(deployment, &kind),
                            deployment,
                            &beside.holder,
                            since,
                        )
                    })
                    .await?;
                }
                Ok(format!("{} Deployments were labelled", left.len()))
            }
            beside::Step::Image => {
                let name = self.parts.cluster.to_string();
                let (from, to) = (beside.image_before.as_deref(), memory.wish.image.as_str());
                set_image(client, namespace, &name, (from, to), call.run.as_str()).await
            }
            beside::Step::Monitors => {
                let left = left();
                let mut told = vec![format!("{} Deployments were returned to Rook", left.len())];
                for unit in &left {
                    told.extend(
                        remove_skip_label(&self.deployments, &self.name_of(unit)?, call.fence).await?,
                    );
                }
                Ok(told.join("; "))
            }
            beside::Step::MetadataServers => Ok("they are left to Rook".to_owned()),
        }
    }
}

/// Takes off a Deployment what we keep Rook from it by, also where somebody has set the same once more: an apply would leave that, and
/// Rook would look after no monitor. Tells of a label that is somebody else's and stays.
async fn remove_skip_label(
    deployments: &Api<Deployment>,
    name: &str,
    fence: u64,
) -> Result<Option<String>, BackendError> {
    let tried = format!("return Deployment {name} to Rook");
    for _ in 0..WRITES {
        let found = deployments
            .get(name)
            .await
            .map_err(|error| failed(&tried, &error))?;
        let newest = fence_of(&found);
        if newest > fence {
            let why = format!("its Deployment has seen the fencing token {newest}, ours is {fence}");
            return Err(BackendError::permanent(tried, why));
        }
        let patch = Patch::Merge(release_patch(&found));
        match deployments
            .patch_metadata(name, &PatchParams::default(), &patch)
            .await
        {
            Ok(_) => return Ok(kept_by_others_text(&found)),
            Err(kube::Error::Api(answer)) if answer.code == 409 => {}
            Err(error) => return Err(failed(&tried, &error)),
        }
    }
    Err(BackendError::transient(tried, "others write it all the time"))
}

/// What is said of a Deployment from which Rook stays kept, as somebody else wants it so.
pub(crate) fn kept_by_others_text(deployment: &Deployment) -> Option<String> {
    let value = skip_label_by_others(deployment)?;
    let name = deployment.name_any();
    Some(format!(
        "Deployment {name} keeps the label {DO_NOT_RECONCILE}={value}, which others have set: Rook does not change it \
         until they take it off"
    ))
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
            let why = format!("it was changed since, and names {}", now.unwrap_or("no image"));
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

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use axum::Router;
    use axum::extract::State;
    use axum::routing::get;
    use http::{HeaderMap, StatusCode};
    use serde_json::Value;

    use super::*;
    use crate::api::names::HELD;
    use crate::executor::managed_fields::{FENCE, HELD_SINCE, labels};

    const ONE: &str = "/apis/apps/v1/namespaces/rook-ceph/deployments/rook-ceph-mon-a";

    type Server = Arc<Mutex<Value>>;

    /// As the API server does it with labels that two have set: an apply takes away only what no other has.
    async fn patch(State(server): State<Server>, headers: HeaderMap, body: String) -> (StatusCode, String) {
        let mut stored = server.lock().unwrap();
        let patch: Value = serde_json::from_str(&body).unwrap();
        assert_eq!(patch["metadata"]["resourceVersion"], "8");
        if headers["content-type"] == "application/merge-patch+json" {
            assert_eq!(patch["metadata"]["annotations"], json!({ HELD_SINCE: null }));
            for (name, value) in patch["metadata"]["labels"].as_object().unwrap() {
                assert!(value.is_null(), "{name}");
                stored["metadata"]["labels"].as_object_mut().unwrap().remove(name);
            }
        }
        (StatusCode::OK, stored.to_string())
    }

    async fn look(State(server): State<Server>) -> String {
        server.lock().unwrap().to_string()
    }

    fn serves(fence: &str, value: &str) -> (Server, Api<Deployment>) {
        let mut all = labels("m");
        all[DO_NOT_RECONCILE] = json!(value);
        all["app"] = json!("rook-ceph-mon");
        let server = Server::new(Mutex::new(json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {
                "name": "rook-ceph-mon-a", "namespace": "rook-ceph", "resourceVersion": "8", "labels": all,
                "annotations": { FENCE: fence },
            },
            "spec": { "selector": {}, "template": {} },
        })));
        let router = Router::new()
            .route(ONE, get(look).patch(patch))
            .with_state(Arc::clone(&server));
        let client = Client::new(router, "rook-ceph");
        (server, Api::namespaced(client, "rook-ceph"))
    }

    /// Somebody took it away in mid-run, was told to set it again, and did.
    #[tokio::test]
    async fn a_label_that_a_person_has_set_as_well_goes_when_the_monitor_goes_back_to_rook() {
        let (server, deployments) = serves("4", HELD);
        let stays = remove_skip_label(&deployments, "rook-ceph-mon-a", 4)
            .await
            .unwrap();
        assert_eq!(stays, None);
        let left = server.lock().unwrap()["metadata"]["labels"].clone();
        assert_eq!(left, json!({ "app": "rook-ceph-mon" }));
        let (server, deployments) = serves("5", HELD);
        let why = remove_skip_label(&deployments, "rook-ceph-mon-a", 4)
            .await
            .unwrap_err()
            .why;
        assert!(why.contains("the fencing token 5"), "{why}");
        let left = server.lock().unwrap()["metadata"]["labels"].clone();
        assert_eq!(left.as_object().unwrap().len(), 3);
    }

    /// It was set by a person, or another tool, while the run had it; whoever that is does not expect it to go.
    #[tokio::test]
    async fn a_label_that_is_somebody_else_s_stays_and_is_named() {
        let (server, deployments) = serves("4", "true");
        let stays = remove_skip_label(&deployments, "rook-ceph-mon-a", 4)
            .await
            .unwrap();
        let why = stays.unwrap();
        assert!(
            why.contains("rook-ceph-mon-a") && why.contains("do-not-reconcile=true"),
            "{why}"
        );
        let left = server.lock().unwrap()["metadata"]["labels"].clone();
        assert_eq!(left, json!({ "app": "rook-ceph-mon", DO_NOT_RECONCILE: "true" }));
    }
}
