//! Removal of OSDs that are out and safe to destroy, where the resource requests it.
//!
//! Ceph is queried only while some OSD does not serve, and nothing is removed while a run is under way, whose
//! plan includes the OSD. The removal is recorded at the OSD's Deployment before Ceph is told to forget it,
//! so that a successor finishes it. The manager checks once more by itself whether it is safe.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use kube::api::{DeleteParams, Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};
use stagger_ceph::api::{CephApi, QueryTarget};
use stagger_engine::cluster::BackendError;
use tokio::sync::watch;

use crate::api::cache::ObjectCache;
use crate::api::daemons::{is_being_replaced, osd_of};
use crate::api::failed;
use crate::api::maintenance::{Desired, Manage};
use crate::api::objects::Deployment;
use crate::api::rook_operator;
use crate::api::settings::PolicySettings;
use crate::observability::health::Pulse;
use crate::observability::metrics::ClusterMetrics;
use crate::observability::writer::StatusWriter;
use crate::provision::removal::{RemovalCandidate, SafeToDestroy, candidates, states};
use crate::reconcile::Shared;

/// How often it is looked again while an OSD does not serve.
const LOOK: Duration = Duration::from_secs(15);
/// The annotation of an OSD's Deployment that says that it goes.
const REMOVING: &str = "stagger.dev/removing";
/// The label of what is not to be touched.
const LEFT_ALONE: &str = "ceph.rook.io/do-not-reconcile";

/// What sees to the removal of one cluster's OSDs.
pub(crate) struct Removal {
    shared: Shared,
    namespace: String,
    name: String,
    watched: Arc<ObjectCache>,
    writer: Arc<StatusWriter>,
    metrics: Arc<ClusterMetrics>,
    pulse: Pulse,
    api: Option<Arc<dyn CephApi>>,
}

impl Removal {
    pub(crate) fn new(
        shared: Shared,
        namespace: &str,
        name: &str,
        watched: Arc<ObjectCache>,
        writer: Arc<StatusWriter>,
        metrics: Arc<ClusterMetrics>,
    ) -> Self {
        Self {
            pulse: shared
                .health
                .begins(format!("removal of OSDs of {namespace}/{name}")),
            shared,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            watched,
            writer,
            metrics,
            api: None,
        }
    }

    /// Sees to it until its task is ended.
    pub(crate) async fn run(mut self, mut told: watch::Receiver<Arc<Desired>>) {
        let mut changes = self.watched.changes();
        loop {
            changes.borrow_and_update();
            let desired = told.borrow_and_update().clone();
            self.pulse.begin_work();
            let waits = self.down();
            let wanted = PolicySettings::read(&desired, true).remove_osds
                && desired.manages(Manage::Provisioning)
                && !waits.is_empty()
                && self.watched.missing_rights().is_none();
            let said = if wanted {
                match self.pass(&waits).await {
                    Ok(said) => said,
                    Err(error) => {
                        self.api = None;
                        tracing::warn!(%error, "OSDs cannot be removed now");
                        Some(error.to_string())
                    }
                }
            } else {
                self.api = None;
                None
            };
            self.writer.update(|told| told.removal = said);
            self.pulse.begin_wait();
            if wanted {
                // Changes of pods are no news about data: the next look is soon enough.
                tokio::select! {
                    changed = told.changed() => if changed.is_err() { return },
                    () = tokio::time::sleep(LOOK) => {}
                }
            } else {
                tokio::select! {
                    changed = told.changed() => if changed.is_err() { return },
                    changed = changes.changed() => if changed.is_err() { return },
                }
            }
        }
    }

    /// The Deployments of OSDs that do not serve.
    fn down(&self) -> BTreeMap<u32, Arc<Deployment>> {
        let (daemons, _) = self.watched.daemons();
        let serves = |deployment: &Deployment| {
            let status = deployment.status.as_ref();
            status.and_then(|status| status.ready_replicas).unwrap_or(0) > 0
        };
        daemons
            .into_iter()
            .filter(|(_, deployment)| !serves(deployment))
            .filter_map(|(unit, deployment)| Some((osd_of(&unit)?, deployment)))
            .collect()
    }

    /// Removes what may be removed, and says what is kept and why.
    async fn pass(&mut self, waits: &BTreeMap<u32, Arc<Deployment>>) -> Result<Option<String>, BackendError> {
        let rook = rook_operator::running(&self.shared.client, &self.namespace, &self.watched);
        if rook.await?.is_some() {
            return Ok(None);
        }
        let api = self.api().await?;
        let tried = "find OSDs that may be removed";
        let parsed = |answer: Vec<u8>| {
            serde_json::from_slice::<Value>(&answer)
                .map_err(|error| BackendError::transient(tried, error.to_string()))
        };
        let asked =
            |error: stagger_ceph::api::CephApiError| BackendError::transient(tried, error.to_string());
        let dump = api
            .ask(QueryTarget::Mon, json!({ "prefix": "osd dump" }))
            .await
            .map_err(asked)?;
        let states = states(&parsed(dump)?).map_err(|error| {
            BackendError::transient(tried, format!("`osd dump` is not understood: {error}"))
        })?;
        let mut osds = BTreeMap::new();
        for (id, deployment) in waits {
            let Some((up, is_in)) = states.get(id) else {
                // Somebody told Ceph to forget it: whoever began that did not come to the end.
                if deployment.annotations().contains_key(REMOVING) {
                    self.delete(*id, deployment).await?;
                }
                continue;
            };
            let labelled = deployment.labels().get(LEFT_ALONE);
            let left_alone = labelled.is_some_and(|value| value != "false") || is_being_replaced(deployment);
            osds.insert(
                *id,
                RemovalCandidate {
                    up: *up,
                    out: !is_in,
                    left_alone,
                },
            );
        }
        let candidates = candidates(&osds);
        if candidates.is_empty() {
            return Ok(None);
        }
        if self.writer.run_is_on() {
            return Ok(Some(format!(
                "{} are out and may be removed when the upgrade is over",
                listed(candidates)
            )));
        }
        let ids: Vec<String> = candidates.iter().map(u32::to_string).collect();
        let question = json!({ "prefix": "osd safe-to-destroy", "ids": ids });
        let answer = parsed(api.ask(QueryTarget::Mgr, question).await.map_err(asked)?)?;
        let answer: SafeToDestroy = serde_json::from_value(answer).map_err(|error| {
            BackendError::transient(tried, format!("`safe-to-destroy` is not understood: {error}"))
        })?;
        let (safe, why) = answer.removable(&candidates);
        for id in safe {
            let Some(deployment) = waits.get(&id) else {
                continue;
            };
            self.note(deployment).await?;
            let question = json!({ "prefix": "osd purge", "id": id, "yes_i_really_mean_it": true });
            let tried = format!("have Ceph forget osd.{id}");
            api.ask(QueryTarget::Mgr, question)
                .await
                .map_err(|error| BackendError::transient(tried, error.to_string()))?;
            self.delete(id, deployment).await?;
        }
        let kept: Vec<String> = why
            .iter()
            .map(|(id, why)| format!("osd.{id} stays: {why}"))
            .collect();
        Ok((!kept.is_empty()).then(|| kept.join("; ")))
    }

    async fn api(&mut self) -> Result<Arc<dyn CephApi>, BackendError> {
        if let Some(api) = &self.api {
            return Ok(Arc::clone(api));
        }
        let api = self
            .shared
            .ceph(&self.namespace, &self.name, &self.metrics)
            .await?;
        self.api = Some(Arc::clone(&api));
        Ok(api)
    }

    async fn note(&self, deployment: &Deployment) -> Result<(), BackendError> {
        let name = deployment.name_any();
        let api: Api<Deployment> = Api::namespaced(self.shared.client.clone(), &self.namespace);
        let patch = json!({ "metadata": { "annotations": { REMOVING: "true" } } });
        let params = PatchParams::default();
        let patch = Patch::Merge(&patch);
        let noted = api.patch(&name, &params, &patch).await;
        noted
            .map(drop)
            .map_err(|error| failed(&format!("note at Deployment {name} that it goes"), &error))
    }

    async fn delete(&self, id: u32, deployment: &Deployment) -> Result<(), BackendError> {
        let name = deployment.name_any();
        let api: Api<Deployment> = Api::namespaced(self.shared.client.clone(), &self.namespace);
        match api.delete(&name, &DeleteParams::background()).await {
            Ok(_) => tracing::info!(osd = id, "removed: it was out, and safe to destroy"),
            Err(kube::Error::Api(answer)) if answer.code == 404 => {}
            Err(error) => return Err(failed(&format!("remove Deployment {name}"), &error)),
        }
        Ok(())
    }
}

fn listed(osds: impl IntoIterator<Item = u32>) -> String {
    let names: Vec<String> = osds.into_iter().map(|osd| format!("osd.{osd}")).collect();
    names.join(", ")
}
