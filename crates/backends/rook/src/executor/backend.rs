//! The backend: Ceph's facts and guards as on plain hosts, daemons as Deployments.

mod beside_rook;
mod same_kind;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};
use stagger_ceph::backend::CephBackend;
use stagger_ceph::translate::Permitted;
use stagger_core::model::{ClusterId, ClusterName, PartName, Phase, Revision, Snapshot, UnitId};
use stagger_core::run::{Action, Answer};
use stagger_engine::cluster::{
    Anchor, BackendError, Call, Executor, Fencing, Holder, Lock, LockError, LockRecord,
};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::api::cache::ObjectCache;
use crate::api::daemons::{kind_of, osd_of};
use crate::api::failed;
use crate::api::maintenance::Desired;
use crate::api::names::MANAGER;
use crate::api::objects::{Deployment, Pod};
use crate::api::pod_revision::PodRevision;
use crate::api::settings::PolicySettings;
use crate::executor::beside;
use crate::executor::diagnostics::Gather;
use crate::executor::managed_fields::{
    FENCE, RESTARTED, current_fields, fence_of, fields, has_revision, held_by, restarted,
};
use crate::executor::memory::RookMemory;
use crate::executor::migrations;
use crate::executor::rollout::{Rollout, major, rollout, start_limit};
use crate::executor::skip_checks;
use crate::executor::snapshot::{drop_moved_gateways, permitted_interruptions, snapshot};
use crate::executor::wave_exposure::WaveExposure;

pub(crate) use beside_rook::{kept_by_others_text, set_image};

/// So long is waited until nothing outside a wave may be evicted, before it is asked again.
const CLOSING: Duration = Duration::from_secs(15);
/// How often a write is tried that another's write came before.
const WRITES: u32 = 5;

/// A Ceph cluster laid out by Rook.
pub struct RookBackend {
    parts: RookBackendParts,
    /// The interruptions that a person permits.
    permitted: Mutex<Permitted>,
    deployments: Api<Deployment>,
    /// Whether Rook had taken up the new image once, or none ran: from then on it is not asked for.
    taken_up: AtomicBool,
}

/// What a [`RookBackend`] is made of.
pub struct RookBackendParts {
    /// Ceph as on plain hosts; of it facts, guards, the oracle and the lock are used.
    pub ceph: CephBackend,
    /// How to reach Kubernetes.
    pub client: Client,
    /// Where the cluster is.
    pub namespace: String,
    /// What it is called.
    pub cluster: ClusterName,
    /// What Kubernetes shows.
    pub watched: Arc<ObjectCache>,
    /// What people and Rook have of the cluster, as it is now.
    pub desired: watch::Receiver<Arc<Desired>>,
    /// How things were before the run.
    pub memory: RookMemory,
    /// What the run has down or may stop, and how far the PodDisruptionBudgets are closed for it.
    pub exposed: Arc<WaveExposure>,
    /// Hears of each OSD that is stopped unchecked.
    pub unchecked: Box<dyn Fn(String) + Send + Sync>,
}

impl RookBackend {
    /// One for a run.
    pub fn new(parts: RookBackendParts) -> Self {
        Self {
            deployments: Api::namespaced(parts.client.clone(), &parts.namespace),
            permitted: Mutex::new(permitted_interruptions(Some(&parts.memory.wish)).collect()),
            taken_up: AtomicBool::new(false),
            parts,
        }
    }

    fn pod_revision(&self, revision: &Revision) -> Result<&PodRevision, BackendError> {
        self.parts.memory.book.get(revision).ok_or_else(|| {
            BackendError::permanent(
                format!("look up the revision {revision}"),
                "the run's memory does not say what it is made of",
            )
        })
    }

    fn name_of(&self, unit: &UnitId) -> Result<String, BackendError> {
        self.parts
            .watched
            .daemon(unit)
            .map(|deployment| deployment.name_any())
            .ok_or_else(|| {
                BackendError::transient(
                    format!("find the Deployment of {unit}"),
                    format!("none in {} has its labels", self.parts.namespace),
                )
            })
    }

    /// Writes what `change` makes of a Deployment, unless a newer fencing token has been there. What was
    /// read and what is written are one version of the object, or it is read anew: so a call that was
    /// held up for long cannot land on what another holder has fenced since.
    async fn write(
        &self,
        unit: &UnitId,
        fence: u64,
        tried: &str,
        change: impl Fn(&Deployment) -> Value,
    ) -> Result<(), BackendError> {
        let name = self.name_of(unit)?;
        let mut seen = self.parts.watched.daemon(unit);
        let mut tries = 0;
        loop {
            let deployment = match seen.take() {
                Some(cached) => cached,
                None => Arc::new(self.deployments.get(&name).await.map_err(|e| failed(tried, &e))?),
            };
            let newest = fence_of(&deployment);
            if newest > fence {
                let why = format!("its Deployment has seen the fencing token {newest}, ours is {fence}");
                return Err(BackendError::permanent(tried, why));
            }
            let mut patch = change(&deployment);
            patch["apiVersion"] = json!("apps/v1");
            patch["kind"] = json!("Deployment");
            patch["metadata"]["name"] = json!(name);
            patch["metadata"]["namespace"] = json!(self.parts.namespace);
            patch["metadata"]["resourceVersion"] = json!(deployment.metadata.resource_version);
            patch["metadata"]["annotations"][FENCE] = json!(fence.to_string());
            let params = PatchParams::apply(MANAGER).force();
            match self
                .deployments
                .patch_metadata(&name, &params, &Patch::Apply(&patch))
                .await
            {
                Ok(_) => return Ok(()),
                Err(kube::Error::Api(answer)) if answer.code == 409 && tries < WRITES => tries += 1,
                Err(error) => return Err(failed(tried, &error)),
            }
        }
    }

    /// Makes a daemon's pods of what a revision stands for, and waits until they are.
    async fn change(&self, call: &Call, unit: &UnitId, to: &Revision) -> Result<String, BackendError> {
        let made = self.pod_revision(to)?.clone();
        let tried = format!("make {unit} of {made}");
        let kind = kind_of(unit).to_owned();
        let before = self
            .parts
            .watched
            .daemon(unit)
            .map(|deployment| deployment.metadata.generation);
        let RookMemory { beside, wish, .. } = &self.parts.memory;
        let holder = beside::holder_with(beside.as_ref(), wish, &made.image);
        let since = Some(Timestamp::now());
        call.may_begin(&tried)?;
        self.write(unit, call.fence, &tried, |deployment| {
            let patch = fields(deployment, &kind, &made.image, &made.fields, Some(&made.release));
            match holder {
                Some(holder) => held_by(patch, deployment, holder, since),
                None => patch,
            }
        })
        .await?;
        self.wait_for_rollout(unit, &tried, |deployment| has_revision(deployment, &kind, &made))
            .await?;
        let same = self
            .parts
            .watched
            .daemon(unit)
            .map(|deployment| deployment.metadata.generation)
            == before;
        Ok(if same {
            format!("it is made of {made} already")
        } else {
            made.to_string()
        })
    }

    /// Ends a daemon's pods and has new ones started.
    async fn restart(&self, call: &Call, unit: &UnitId) -> Result<String, BackendError> {
        let tried = format!("restart {unit}");
        let (kind, key) = (kind_of(unit).to_owned(), call.key());
        call.may_begin(&tried)?;
        self.write(unit, call.fence, &tried, |deployment| {
            let mut patch = current_fields(deployment, &kind);
            patch["spec"]["template"]["metadata"]["annotations"][RESTARTED] = json!(key);
            patch
        })
        .await?;
        self.wait_for_rollout(unit, &tried, |deployment| restarted(deployment) == Some(&key))
            .await?;
        Ok("restarted".to_owned())
    }

    /// Patches each Deployment that a migration has left. Where another's write came before ours, all of it is
    /// tried again, and finds less to do.
    async fn migrate(
        &self,
        call: &Call,
        step: &PartName,
        patch: fn(&Deployment) -> Option<Value>,
    ) -> Result<String, BackendError> {
        let mut changed = 0;
        for deployment in self.parts.watched.deployments() {
            let Some(mut patch) = patch(&deployment) else {
                continue;
            };
            let name = deployment.name_any();
            let tried = format!("migrate Deployment {name} ({step})");
            let newest = fence_of(&deployment);
            if newest > call.fence {
                let why = format!(
                    "its Deployment has seen the fencing token {newest}, ours is {}",
                    call.fence
                );
                return Err(BackendError::permanent(tried, why));
            }
            patch["metadata"]["resourceVersion"] = json!(deployment.metadata.resource_version);
            let params = PatchParams::default();
            let written = self
                .deployments
                .patch_metadata(&name, &params, &Patch::Merge(&patch))
                .await;
            written.map_err(|error| failed(&tried, &error))?;
            changed += 1;
        }
        Ok(format!("{changed} Deployments were changed"))
    }

    /// Waits until nothing may be evicted beside these, where they are OSDs, and says why that is not so. Of others, whether one of
    /// their kind is on its way out.
    ///
    /// What was granted an eviction before then is on its way down, and Ceph may not see that yet.
    async fn check_others_stay(&self, units: &[UnitId]) -> Result<(), String> {
        let wave: BTreeSet<u32> = units.iter().filter_map(osd_of).collect();
        if wave.is_empty() {
            return self.check_same_kind(units).await;
        }
        let closed = self.parts.exposed.closed_for(&wave);
        if tokio::time::timeout(CLOSING, closed).await.is_err() {
            return Err(
                "neither PodDisruptionBudgets of ours nor the webhook keep the other OSDs from being evicted yet; if it stays so: drains in spec.manage, \
                 or --webhook"
                    .to_owned(),
            );
        }
        let (daemons, _) = self.parts.watched.daemons();
        let leaving: Vec<u32> = daemons
            .iter()
            .filter_map(|(unit, deployment)| Some((osd_of(unit)?, deployment)))
            .filter(|(osd, _)| !wave.contains(osd))
            .filter(|(_, deployment)| {
                let pods = self.parts.watched.pods_of(deployment);
                pods.iter().any(|pod| pod.metadata.deletion_timestamp.is_some())
            })
            .map(|(osd, _)| osd)
            .collect();
        if leaving.is_empty() {
            return Ok(());
        }
        // One that Ceph has down counts as down for both judges.
        let facts = self.parts.ceph.facts().await.map_err(|error| error.to_string())?;
        let up = |osd: &u32| facts.osds.osds.get(osd).is_some_and(|seen| seen.up);
        match leaving.into_iter().find(up) {
            Some(osd) => Err(format!(
                "the pod of osd.{osd} is ending, and Ceph still has it up"
            )),
            None => Ok(()),
        }
    }

    /// The node on which alone a pod of that daemon may run, if it waits to be scheduled and that node takes none.
    fn has_nowhere_to_go(&self, unit: &UnitId) -> Option<String> {
        let watched = &self.parts.watched;
        let deployment = watched.daemon(unit)?;
        let pods = watched.pods_of(&deployment);
        let waits = |pod: &Arc<Pod>| {
            let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_ref());
            pod.metadata.deletion_timestamp.is_none() && node.is_none()
        };
        pods.iter()
            .any(waits)
            .then(|| watched.closed_node(&deployment))
            .flatten()
    }

    /// How long a daemon may take to start, as people have it now.
    fn start_limit(&self, unit: &UnitId) -> Duration {
        let RookMemory {
            baseline, book, wish, ..
        } = &self.parts.memory;
        let said = PolicySettings::read(&self.parts.desired.borrow(), wish.release_changes).start_timeout;
        let before = baseline.daemons.get(unit);
        let before = before.and_then(|daemon| daemon.revision.as_ref());
        let wanted = book.values().find(|made| made.image == wish.image);
        let majors = (
            before.and_then(|revision| major(revision.as_str())),
            wanted.and_then(|made| major(&made.release)),
        );
        start_limit(said, wish.policy.gate_timeout, majors)
    }

    /// Waits until the change is seen and its rollout has ended.
    async fn wait_for_rollout(
        &self,
        unit: &UnitId,
        tried: &str,
        seen: impl Fn(&Deployment) -> bool,
    ) -> Result<(), BackendError> {
        let begun = Instant::now();
        let mut changes = self.parts.watched.changes();
        loop {
            changes.borrow_and_update();
            let state = match self.parts.watched.daemon(unit) {
                Some(deployment) if seen(&deployment) => {
                    rollout(&deployment, &self.parts.watched.pods_of(&deployment))
                }
                Some(_) => Rollout::Waiting("the change is not observed yet".to_owned()),
                None => Rollout::Waiting("there is no such Deployment".to_owned()),
            };
            let why = match state {
                Rollout::Serves => return Ok(()),
                Rollout::Failed(why) => return Err(BackendError::permanent(tried, why)),
                Rollout::Waiting(why) => why,
            };
            if let Some(node) = self.has_nowhere_to_go(unit) {
                let why = format!("its pod cannot be scheduled: node {node} takes no new pods");
                return Err(BackendError::permanent(tried, why));
            }
            let longest = self.start_limit(unit);
            if begun.elapsed() > longest {
                let why = format!(
                    "not within {} s: {why}; spec.updatePolicy.startTimeoutMinutes lets it take longer",
                    longest.as_secs()
                );
                return Err(BackendError::permanent(tried, why));
            }
            // Now and then also when nothing changes: the time passes.
            tokio::time::timeout(Duration::from_secs(5), changes.changed())
                .await
                .ok();
        }
    }
}

#[async_trait]
impl Executor for RookBackend {
    async fn observe(&self) -> Result<Snapshot, BackendError> {
        if let Some(why) = self.parts.watched.missing_rights() {
            return Err(BackendError::transient("see the cluster", why));
        }
        let mut facts = self.parts.ceph.facts().await?;
        drop_moved_gateways(&mut facts);
        let RookBackendParts {
            cluster,
            memory,
            watched,
            ..
        } = &self.parts;
        let permitted = self
            .permitted
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        let rook = self.rook_progress(&facts.fs).await?;
        snapshot(cluster, &facts, Some(memory), &permitted, watched, Some(&rook))
    }

    fn permit(&self, interruptions: BTreeSet<String>) {
        let all: BTreeSet<String> = permitted_interruptions(Some(&self.parts.memory.wish))
            .chain(interruptions)
            .collect();
        let permitted = all.iter().cloned().collect();
        *self.permitted.lock().unwrap_or_else(PoisonError::into_inner) = permitted;
        self.parts.ceph.permit(all);
    }

    async fn check_stop(&self, units: &[UnitId]) -> Result<Answer, BackendError> {
        if let Some(why) = self.rook_may_write().await? {
            return Ok(Answer::Unknown { why });
        }
        if let Err(why) = self.check_others_stay(units).await {
            return Ok(Answer::Unknown { why });
        }
        let said = self.parts.ceph.check_stop(units).await;
        if !self.parts.memory.wish.skip_checks {
            return said;
        }
        let (answer, note) = skip_checks::answer(units, said.map_err(|error| error.to_string()));
        note.into_iter().for_each(&self.parts.unchecked);
        Ok(answer)
    }

    /// A daemon that is bound to a node is on that; another may be anywhere.
    fn host_of(&self, unit: &UnitId) -> Option<String> {
        let deployment = self.parts.watched.daemon(unit)?;
        ObjectCache::node_of(&deployment).cloned()
    }

    fn fencing(&self, action: &Action) -> Fencing {
        self.parts.ceph.fencing(action)
    }

    async fn perform(&self, call: &Call, action: &Action) -> Result<String, BackendError> {
        match action {
            Action::Visit {
                unit,
                phase,
                revision,
                ..
            } => match phase {
                // A daemon goes down and comes up in its restart: there is nothing to enter or to leave.
                Phase::Enter | Phase::Leave => Ok(String::new()),
                Phase::Prepare => self.parts.ceph.before_a_monitor(unit, revision).await,
                Phase::Change => self.change(call, unit, revision).await,
            },
            Action::Restart { unit } => self.restart(call, unit).await,
            Action::GoBack {
                unit,
                revision,
                rebuild: false,
            } => self.change(call, unit, revision).await,
            Action::GoBack { unit, .. } => Err(BackendError::permanent(
                format!("make the data of {unit} anew"),
                "on Kubernetes you do that by hand",
            )),
            Action::Step { step } => {
                if let Some(step) = beside::Step::of(step) {
                    return self.beside_step(call, step).await;
                }
                match migrations::of_step(step) {
                    Some(patch) => self.migrate(call, step, patch).await,
                    None => self.parts.ceph.perform(call, action).await,
                }
            }
            Action::TakeGuard { .. } | Action::DropGuard { .. } | Action::Collect { .. } => {
                self.parts.ceph.perform(call, action).await
            }
        }
    }

    async fn raise_fence(&self, fence: u64, units: &[UnitId]) -> Result<(), BackendError> {
        for unit in units {
            let tried = format!("raise the fence of {unit}");
            let kind = kind_of(unit).to_owned();
            self.write(unit, fence, &tried, |deployment| {
                current_fields(deployment, &kind)
            })
            .await?;
        }
        Ok(())
    }

    async fn diagnostics(
        &self,
        call: &Call,
        units: &[UnitId],
    ) -> Result<Vec<(String, Vec<u8>)>, BackendError> {
        let mut files = self.parts.ceph.diagnostics(call, units).await?;
        let gather = Gather {
            client: &self.parts.client,
            namespace: &self.parts.namespace,
        };
        for unit in units {
            if let Some(deployment) = self.parts.watched.daemon(unit) {
                gather.of_daemon(unit, &deployment, &mut files).await;
            }
        }
        gather.of_cluster(&mut files).await;
        Ok(files)
    }

    fn poll(&self) -> Duration {
        self.parts.ceph.poll()
    }
}

#[async_trait]
impl Lock for RookBackend {
    fn cluster(&self) -> &ClusterName {
        &self.parts.cluster
    }

    async fn identity(&self) -> Result<ClusterId, BackendError> {
        self.parts.ceph.identity().await
    }

    async fn lock(&self, claim: &LockRecord, at_least: u64) -> Result<u64, LockError> {
        self.parts.ceph.lock(claim, at_least).await
    }

    async fn renew(&self, claim: &LockRecord, fence: u64) -> Result<(), LockError> {
        self.parts.ceph.renew(claim, fence).await
    }

    async fn holder(&self) -> Result<Option<Holder>, LockError> {
        self.parts.ceph.holder().await
    }

    async fn anchor(&self, anchor: &Anchor) -> Result<(), LockError> {
        self.parts.ceph.anchor(anchor).await
    }

    async fn anchored(&self) -> Result<Option<Anchor>, LockError> {
        self.parts.ceph.anchored().await
    }

    async fn unlock(&self, claim: &LockRecord, fence: u64) -> Result<(), LockError> {
        self.parts.ceph.unlock(claim, fence).await
    }

    fn lock_expires(&self) -> Duration {
        self.parts.ceph.lock_expires()
    }
}
