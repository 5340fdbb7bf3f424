//! One cluster: whether there is something to do and whether it may be done; then a run, or the rest of one.

mod beside_rook;
mod known_risks;
mod run;
mod up_to_date;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use kube::{Resource as _, ResourceExt as _};
use stagger_ceph::backend::CephBackend;
use stagger_ceph::config::{CephConfig, CephSettings, SoftwareByKind};
use stagger_ceph::facts::release::Version;
use stagger_ceph::target::Disturbance;
use stagger_ceph::translate;
use stagger_core::model::{ClusterName, RunId, UnitId};
use stagger_engine::hosts::Hosts;
use stagger_engine::store::JournalStore as _;
use stagger_engine::supervisor::{self, SuperviseError};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::agent::daemon_set::AgentRollout;
use crate::api::cache::ObjectCache;
use crate::api::daemons::{osd_of, serves};
use crate::api::maintenance::{Desired, Manage};
use crate::api::settings::PolicySettings;
use crate::executor::goal::Goal;
use crate::executor::snapshot::permitted_interruptions;
use crate::journal::{CommandQueue, KubeStore};
use crate::observability::blocked::Blocked;
use crate::observability::conditions::OBSERVING;
use crate::observability::events::{self, EventPublisher};
use crate::observability::health::Pulse;
use crate::observability::last_run::Last;
use crate::observability::metrics::ClusterMetrics;
use crate::observability::writer::{StatusWriter, Watchers};
use crate::reconcile::Shared;
use crate::reconcile::agents;
use crate::reconcile::drains::DrainReconciler;
use crate::reconcile::finalizer;
use crate::reconcile::monitors;
use crate::reconcile::provision::Provision;
use crate::reconcile::removal::Removal;

/// After a pass that failed, another is tried after so long, and longer each time.
const FIRST_PAUSE: Duration = Duration::from_secs(5);
const LONGEST_PAUSE: Duration = Duration::from_mins(5);

/// Why nothing is changed while watches are forbidden.
const MISSING_RIGHTS: &str = "MissingRights";

/// `noout` stays on a wave's OSDs at most for so many seconds.
const NOOUT: u32 = 1200;

/// What a pass came to.
enum Pass {
    /// Nothing is to be done, or nothing may be done, until something changes.
    Rest,
    /// Look again at once.
    Again,
}

/// The CephMaintenance, or its CephCluster, is not there any more.
struct Gone;

/// One cluster's task.
struct ClusterReconciler {
    shared: Shared,
    namespace: String,
    name: String,
    cluster: ClusterName,
    watched: Arc<ObjectCache>,
    writer: Arc<StatusWriter>,
    asked: CommandQueue,
    /// What images hold, as they were asked.
    releases: BTreeMap<String, Version>,
    /// Whether it was looked for runs of before.
    looked_back: bool,
    /// The newest of those that are over.
    last: Option<Last>,
    /// The OSDs that are dead and out, or destroyed, as Ceph was asked: no plan changes them while they do not serve.
    absent: BTreeSet<UnitId>,
    metrics: Arc<ClusterMetrics>,
    pulse: Pulse,
    /// The generation of the spec of which people were told what to know of its fields.
    remarked: i64,
}

/// Sees to a cluster until the task is ended.
pub(crate) async fn run(shared: Shared, mut told: watch::Receiver<Arc<Desired>>) {
    let desired = told.borrow_and_update().clone();
    let found = &desired.cluster;
    let (namespace, name) = (found.namespace().unwrap_or_default(), found.name_any());
    let Ok(cluster) = ClusterName::new(&name) else {
        tracing::error!(namespace, name, "the name of this CephCluster cannot be used");
        return;
    };
    let pulse = shared.health.begins(format!("cluster {namespace}/{name}"));
    let metrics = Arc::new(shared.metrics.cluster(&namespace, &name));
    let watched = Arc::new(ObjectCache::begin(&shared.client, &namespace, shared.nodes()));
    let object = desired.maintenance.object_ref(&());
    let watchers = Watchers {
        events: EventPublisher::new(&shared.client, &shared.options.identity, object),
        metrics: Arc::clone(&metrics),
    };
    let writer = Arc::new(StatusWriter::new(&shared.client, &desired.maintenance, watchers));
    let remarked = writer.current_status().generation;
    let mut one = ClusterReconciler {
        pulse,
        metrics,
        remarked,
        writer,
        shared,
        namespace,
        name,
        cluster,
        watched,
        asked: CommandQueue::default(),
        releases: BTreeMap::new(),
        looked_back: false,
        last: None,
        absent: BTreeSet::new(),
    };
    one.wait_until_seen(&desired).await;
    if one.wait_while_outranked(&mut told).await.is_err() {
        return;
    }
    if one.wait_for_finalizer(&mut told).await.is_err() {
        return;
    }
    // It ends with this task.
    let _beside = one.beside(&told);
    let mut agents = one.shared.agents.subscribe();
    let mut pause = FIRST_PAUSE;
    loop {
        let desired = told.borrow_and_update().clone();
        let mut changes = one.watched.changes();
        changes.borrow_and_update();
        agents.borrow_and_update();
        one.pulse.begin_work();
        let again = match one.pass(&desired, &mut told).await {
            Ok(Pass::Again) => {
                pause = FIRST_PAUSE;
                continue;
            }
            Ok(Pass::Rest) => {
                pause = FIRST_PAUSE;
                None
            }
            Err(blocked) => {
                tracing::warn!(reason = blocked.reason, why = blocked.why, "blocked");
                // A run that could not be carried on is not over.
                one.looked_back = false;
                one.set_phase("Blocked", blocked.reason, &blocked.why, &desired);
                let again = blocked.passes.then_some(pause);
                pause = (pause * 2).min(LONGEST_PAUSE);
                again
            }
        };
        let wake = async {
            match again {
                Some(after) => tokio::time::sleep(after).await,
                None => std::future::pending().await,
            }
        };
        one.writer.update(|told| told.looked_at.cluster = true);
        one.pulse.begin_wait();
        tokio::select! {
            changed = told.changed() => if changed.is_err() { return },
            changed = agents.changed() => if changed.is_err() { return },
            changed = changes.changed() => {
                if changed.is_err() { return }
                // A rollout by anybody is many changes; they are looked at together.
                tokio::time::sleep(Duration::from_millis(500)).await;
            }
            () = wake => {}
        }
    }
}

impl ClusterReconciler {
    fn set_phase(&self, phase: &str, reason: &str, message: &str, desired: &Desired) {
        let (generation, image) = (desired.generation(), desired.image().cloned());
        self.writer.update(|told| {
            phase.clone_into(&mut told.phase);
            reason.clone_into(&mut told.reason);
            message.clone_into(&mut told.message);
            told.generation = generation;
            told.image = image;
        });
    }

    /// Waits until everything has been seen once, and says what keeps it from being seen.
    async fn wait_until_seen(&self, desired: &Desired) {
        let what = format!("what belongs to cluster {}/{}", self.namespace, self.name);
        let _unseen = self.shared.health.require(what);
        let mut changes = self.watched.changes();
        self.pulse.begin_wait();
        loop {
            if let Some(why) = self.watched.missing_rights() {
                self.set_phase("Blocked", MISSING_RIGHTS, &why, desired);
            }
            tokio::select! {
                () = self.watched.wait_until_synced() => return,
                changed = changes.changed() => if changed.is_err() { return },
            }
        }
    }

    /// What goes on beside the runs: a drain waits for nobody, nor does growth.
    fn beside(&self, told: &watch::Receiver<Arc<Desired>>) -> JoinSet<()> {
        let drains = DrainReconciler::new(
            self.shared.clone(),
            &self.namespace,
            &self.name,
            Arc::clone(&self.watched),
            Arc::clone(&self.writer),
            Arc::clone(&self.metrics),
        );
        let provision = Provision::new(
            self.shared.clone(),
            &self.namespace,
            Arc::clone(&self.watched),
            Arc::clone(&self.writer),
        );
        let removal = Removal::new(
            self.shared.clone(),
            &self.namespace,
            &self.name,
            Arc::clone(&self.watched),
            Arc::clone(&self.writer),
            Arc::clone(&self.metrics),
        );
        let mut beside = JoinSet::new();
        beside.spawn(monitors::run(
            self.shared.clone(),
            self.namespace.clone(),
            Arc::clone(&self.watched),
            Arc::clone(&self.writer),
        ));
        beside.spawn(drains.run(told.clone()));
        beside.spawn(provision.run(told.clone()));
        beside.spawn(removal.run(told.clone()));
        beside
    }

    /// Waits while a newer operator has seen to this cluster: nothing of it is touched then.
    async fn wait_while_outranked(&self, told: &mut watch::Receiver<Arc<Desired>>) -> Result<(), Gone> {
        let mut pause = FIRST_PAUSE;
        loop {
            let desired = told.borrow_and_update().clone();
            let (reason, why) = match self.store().outranked().await {
                Ok(None) => return Ok(()),
                Ok(Some(why)) => ("OperatorTooOld", why),
                Err(error) => ("CannotBeAsked", error.to_string()),
            };
            tracing::warn!(reason, why, "blocked");
            self.set_phase("Blocked", reason, &why, &desired);
            tokio::select! {
                changed = told.changed() => if changed.is_err() { return Err(Gone) },
                () = tokio::time::sleep(pause) => pause = (pause * 2).min(LONGEST_PAUSE),
            }
        }
    }

    /// Waits until the CephMaintenance cannot go before what is held for it is given back: nothing is held before.
    async fn wait_for_finalizer(&self, told: &mut watch::Receiver<Arc<Desired>>) -> Result<(), Gone> {
        loop {
            let desired = told.borrow_and_update().clone();
            if desired.is_deleting() {
                return Ok(());
            }
            let Err(error) = finalizer::ensure(&self.shared.client, &desired.maintenance).await else {
                return Ok(());
            };
            tracing::warn!(%error, "not started yet");
            let blocked = Blocked::from(error);
            self.set_phase("Blocked", blocked.reason, &blocked.why, &desired);
            tokio::select! {
                changed = told.changed() => if changed.is_err() { return Err(Gone) },
                () = tokio::time::sleep(FIRST_PAUSE) => {}
            }
        }
    }

    /// Tells people what they should know of the spec's fields, once for each generation.
    fn remark(&mut self, desired: &Desired) {
        let generation = desired.generation();
        if self.remarked != generation {
            self.remarked = generation;
            self.writer
                .publish_events(events::of_settings(&PolicySettings::read(desired, true)));
        }
    }

    async fn pass(
        &mut self,
        desired: &Arc<Desired>,
        told: &mut watch::Receiver<Arc<Desired>>,
    ) -> Result<Pass, Blocked> {
        if !desired.is_deleting() {
            finalizer::ensure(&self.shared.client, &desired.maintenance).await?;
        }
        self.remark(desired);
        if let Some(why) = self.watched.missing_rights() {
            return Err(Blocked::until_changed(MISSING_RIGHTS, why));
        }
        if !self.looked_back {
            let unfinished = self.find_run().await?;
            self.looked_back = true;
            if let Some(run) = unfinished {
                // Also where updates are not managed any more: then it comes to its end.
                self.resume(&run, told).await?;
                return Ok(Pass::Again);
            }
        }
        self.release_held(desired).await?;
        if desired.is_deleting() {
            return self.wait_until_released(desired).await;
        }
        self.hear(desired);
        // Whether it is another release is not known yet, and nothing up to a run asks.
        let wish = Goal::of(desired, true);
        if !desired.manages(Manage::Updates) {
            self.writer.update(|told| told.gave_up = None);
            let (reason, message) = self.observed_status(desired, wish.as_ref());
            self.set_phase("Ready", reason, &message, desired);
            return Ok(Pass::Rest);
        }
        let Some(wish) = wish else {
            return Err(Blocked::until_changed(
                "NoImage",
                "no image is named: set spec.image to one with Ceph",
            ));
        };
        let given_up = self.failed_target(desired);
        self.writer.update(|told| told.gave_up.clone_from(&given_up));
        let mut differing = self.differing(&wish);
        if self.may_all_be_absent(&differing) {
            self.absent = self.ask_absent(&wish).await?;
            differing = self.differing(&wish);
        }
        let (_, unclear) = self.watched.daemons();
        if let (true, Some(why)) = (differing.is_empty(), unclear.into_iter().next()) {
            return Err(Blocked::until_changed("DeploymentUnclear", why));
        }
        if differing.is_empty() {
            let message = self.up_to_date(&wish);
            self.set_phase("Ready", "UpToDate", &message, desired);
            return Ok(Pass::Rest);
        }
        if let Some((last, what)) = self.last.as_ref().zip(given_up) {
            return Err(last.blocked(&what, &self.namespace, &desired.name()));
        }
        if desired
            .cluster
            .spec
            .data_dir_host_path
            .as_ref()
            .is_none_or(String::is_empty)
        {
            return Err(Blocked::until_changed(
                "NoDataDirHostPath",
                "spec.dataDirHostPath of the CephCluster is not set: the monitors' data would not survive their restart",
            ));
        }
        let beside = self.beside_rook(desired, &wish, &differing).await?;
        if desired.manages(Manage::Provisioning) {
            let stand = self.shared.agents.borrow().clone();
            if stand == AgentRollout::Unseen {
                // They are in a moment, and there is nothing to tell yet.
                return Ok(Pass::Rest);
            }
            if let Some(blocked) = agents::hold(&stand, &self.shared.options.version) {
                return Err(blocked);
            }
        }
        self.begin(desired, &wish, &differing, beside, told).await
    }

    /// What is said of a cluster whose updates are not managed, with the reason.
    fn observed_status(&self, desired: &Desired, wish: Option<&Goal>) -> (&'static str, String) {
        let what = if desired.maintenance.spec.manage.is_empty() {
            "it is only observed"
        } else {
            "updates are not managed"
        };
        let Some(wish) = wish else {
            return (OBSERVING, what.to_owned());
        };
        let image = &wish.image;
        match self.differing(wish).len() {
            0 => ("UpToDate", format!("{what}; {}", self.up_to_date(wish))),
            1 => (
                OBSERVING,
                format!("{what}; one daemon has another image than {image}"),
            ),
            many => (
                OBSERVING,
                format!("{what}; {many} daemons have another image than {image}"),
            ),
        }
    }

    /// A command while no run is under way: one to try again what was taken back is obeyed, and none is kept
    /// for the next run.
    fn hear(&self, desired: &Desired) {
        let said = desired
            .maintenance
            .annotations()
            .get(crate::api::names::COMMAND)
            .cloned();
        self.writer.update(|told| {
            if told.heard != said {
                let again = |said: &str| said.starts_with("retry") || said.starts_with("resume");
                if said.as_deref().is_some_and(again) {
                    told.retry_after = self.last.as_ref().map(|last| last.run.to_string());
                }
                told.heard = said;
            }
        });
    }

    /// What is asked for, if it was tried and is not tried again by itself.
    fn failed_target(&self, desired: &Desired) -> Option<String> {
        let last = self.last.as_ref()?;
        let retried = self.writer.current_status().retry_after.as_deref() == Some(last.run.as_str());
        last.failed_target(desired).filter(|_| !retried)
    }

    /// The daemons whose Deployments are not as they should be. One that is scaled to nothing has nothing to run, and one that
    /// is absent comes back with whatever it has.
    fn differing(&self, wish: &Goal) -> Vec<UnitId> {
        let (daemons, _) = self.watched.daemons();
        up_to_date::differing(&daemons, wish, &self.absent)
    }

    /// What is said where nothing is left to do.
    fn up_to_date(&self, wish: &Goal) -> String {
        let (daemons, _) = self.watched.daemons();
        let mut absent = up_to_date::differing(&daemons, wish, &BTreeSet::new());
        absent.retain(|unit| self.absent.contains(unit));
        let behind = up_to_date::outdated_deployments(&self.watched.deployments(), &wish.image);
        up_to_date::up_to_date(&wish.name(), &absent, &behind)
    }

    /// Whether nothing but OSDs is left that do not serve: they may be dead for good.
    fn may_all_be_absent(&self, differing: &[UnitId]) -> bool {
        let rests = |unit: &UnitId| {
            let found = self.watched.daemon(unit);
            osd_of(unit).is_some() && found.is_some_and(|deployment| !serves(&deployment))
        };
        !differing.is_empty() && differing.iter().all(rests)
    }

    async fn ask_absent(&self, wish: &Goal) -> Result<BTreeSet<UnitId>, Blocked> {
        let facts = self.ceph(wish).await?.facts().await?;
        let absent = translate::absent(&facts, None)
            .map_err(|error| Blocked::until_changed("Internal", error.to_string()))?;
        Ok(absent.into_iter().map(|absent| absent.unit).collect())
    }

    fn store(&self) -> KubeStore {
        KubeStore::new(
            &self.shared.client,
            &self.namespace,
            self.cluster.clone(),
            self.asked.clone(),
        )
        .of_operator(self.shared.options.version.clone())
    }

    /// The run that is not over, if there is one; of the others the newest is kept in mind.
    async fn find_run(&mut self) -> Result<Option<RunId>, Blocked> {
        let store = self.store();
        let mut newest = None;
        for listed in store.runs().await.map_err(SuperviseError::from)? {
            if listed.ended_by.is_none() {
                let run = supervisor::replay(&store, &listed.run).await?;
                if run.ended().is_none() {
                    return Ok(Some(listed.run));
                }
                continue;
            }
            // Of one that is over and cannot be read any more, nothing is kept in mind.
            if newest.is_none()
                && let Ok(journal) = store.journal(&listed.run).await
                && let Ok(run) = supervisor::replay(&store, &listed.run).await
            {
                newest = Last::of(&run, &journal);
            }
        }
        self.last = newest;
        Ok(None)
    }

    async fn ceph(&self, wish: &Goal) -> Result<CephBackend, Blocked> {
        let access = self.shared.access(&self.namespace, &self.name).await?;
        let cluster = CephConfig {
            name: self.cluster.clone(),
            ceph: access.ceph.clone(),
            python: access.python.clone().unwrap_or_default(),
            conf: access.conf.clone(),
            user: access.name.clone(),
            keyring: access.keyring.clone(),
            timeout: access.timeout.as_secs(),
            lock_expires: u64::from(self.shared.options.lock_expires),
            noout_expires: NOOUT,
            pause: Disturbance::defaults(),
            poll: self.shared.options.poll,
            durations: BTreeMap::new(),
        };
        let settings = CephSettings {
            cluster,
            hosts: Hosts::default(),
            software: SoftwareByKind::default(),
            health: wish.health(),
            // Kubernetes drains its own nodes.
            reboot: stagger_ceph::config::Reboot::default(),
        };
        let api = self
            .shared
            .ceph_by(&access, &self.namespace, &self.name, &self.metrics);
        let backend = CephBackend::new(api, settings, None);
        Ok(backend.with_permitted(permitted_interruptions(Some(wish))))
    }
}
