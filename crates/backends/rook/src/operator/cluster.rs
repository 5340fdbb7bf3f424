//! One cluster: is there anything to do, and may it be done; then a run, or the rest of one.

mod run;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use kube::{Resource as _, ResourceExt as _};
use stagger_ceph::api::CephApi;
use stagger_ceph::api::session::Session;
use stagger_ceph::backend::CephBackend;
use stagger_ceph::config::{CephConfig, CephSettings, SoftwareByKind};
use stagger_ceph::facts::release::Version;
use stagger_ceph::target::Disturbance;
use stagger_core::model::{ClusterName, RunId, UnitId};
use stagger_engine::hosts::Hosts;
use stagger_engine::store::Store as _;
use stagger_engine::supervisor::{self, SuperviseError};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::Shared;
use super::agents;
use super::blocked::Blocked;
use super::counted::Questions;
use super::drains::Drains;
use super::events::{self, Events};
use super::health::Pulse;
use super::left::Last;
use super::metrics::ClusterMetrics;
use super::provision::Provision;
use super::removal::Removal;
use super::status::{self, Watchers, Writer};
use crate::agents::Stand;
use crate::backend::permitted;
use crate::cluster::CephCluster;
use crate::daemons::{is_wanted, kind_of};
use crate::journal::{Asked, KubeStore};
use crate::ours::is_made_of;
use crate::policy::Settings;
use crate::rook_operator;
use crate::watched::Watched;
use crate::wish::Wish;

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

/// The CephCluster is not there any more.
struct Gone;

/// One cluster's task.
struct One {
    shared: Shared,
    namespace: String,
    name: String,
    cluster: ClusterName,
    watched: Arc<Watched>,
    writer: Arc<Writer>,
    asked: Asked,
    /// What images hold, as they were asked.
    releases: BTreeMap<String, Version>,
    /// Whether it was looked for runs of before.
    looked_back: bool,
    /// The newest of those that are over.
    last: Option<Last>,
    metrics: Arc<ClusterMetrics>,
    pulse: Pulse,
    /// The generation of the spec of which people were told what to know of its fields.
    remarked: i64,
}

/// Sees to a cluster until the task is ended.
pub(super) async fn see_to(shared: Shared, mut told: watch::Receiver<Arc<CephCluster>>) {
    let found = told.borrow_and_update().clone();
    let (namespace, name) = (found.namespace().unwrap_or_default(), found.name_any());
    let Ok(cluster) = ClusterName::new(&name) else {
        tracing::error!(namespace, name, "the name of this CephCluster cannot be used");
        return;
    };
    let pulse = shared.health.begins(format!("cluster {namespace}/{name}"));
    let metrics = Arc::new(shared.metrics.cluster(&namespace, &name));
    let watched = Arc::new(Watched::begin(&shared.client, &namespace));
    let before = status::read(&found);
    let remarked = before.generation;
    let watchers = Watchers {
        events: Events::new(&shared.client, &shared.options.identity, found.object_ref(&())),
        metrics: Arc::clone(&metrics),
    };
    let writer = Arc::new(Writer::new(&shared.client, &namespace, &name, before, watchers));
    let mut one = One {
        pulse,
        metrics,
        remarked,
        writer,
        shared,
        namespace,
        name,
        cluster,
        watched,
        asked: Asked::default(),
        releases: BTreeMap::new(),
        looked_back: false,
        last: None,
    };
    one.wait_until_seen(&found).await;
    if one.wait_while_outranked(&mut told).await.is_err() {
        return;
    }
    // It ends with this task.
    let _beside = one.beside(&told);
    let mut agents = one.shared.agents.subscribe();
    let mut pause = FIRST_PAUSE;
    loop {
        let found = told.borrow_and_update().clone();
        let mut changes = one.watched.changes();
        changes.borrow_and_update();
        agents.borrow_and_update();
        one.pulse.works();
        let again = match one.pass(&found, &mut told).await {
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
                one.tell("Blocked", blocked.reason, &blocked.why, &found);
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
        one.pulse.rests();
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

impl One {
    fn tell(&self, phase: &str, reason: &str, message: &str, found: &CephCluster) {
        let generation = found.metadata.generation.unwrap_or(0);
        self.writer.tell(|told| {
            phase.clone_into(&mut told.phase);
            reason.clone_into(&mut told.reason);
            message.clone_into(&mut told.message);
            told.generation = generation;
        });
    }

    /// Waits until everything has been seen once, and says what keeps it from being seen.
    async fn wait_until_seen(&self, found: &CephCluster) {
        let what = format!("what belongs to cluster {}/{}", self.namespace, self.name);
        let _unseen = self.shared.health.not_ready_without(what);
        let mut changes = self.watched.changes();
        self.pulse.rests();
        loop {
            if let Some(why) = self.watched.missing_rights() {
                self.tell("Blocked", MISSING_RIGHTS, &why, found);
            }
            tokio::select! {
                () = self.watched.seen() => return,
                changed = changes.changed() => if changed.is_err() { return },
            }
        }
    }

    /// What goes on beside the runs: a drain waits for nobody, nor does growth.
    fn beside(&self, told: &watch::Receiver<Arc<CephCluster>>) -> JoinSet<()> {
        let drains = Drains::new(
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
        beside.spawn(drains.see_to(told.clone()));
        beside.spawn(provision.see_to(told.clone()));
        beside.spawn(removal.see_to(told.clone()));
        beside
    }

    /// Waits while a newer operator has seen to this cluster: nothing of it is touched then.
    async fn wait_while_outranked(&self, told: &mut watch::Receiver<Arc<CephCluster>>) -> Result<(), Gone> {
        let mut pause = FIRST_PAUSE;
        loop {
            let found = told.borrow_and_update().clone();
            let (reason, why) = match self.store().outranked() {
                Ok(None) => return Ok(()),
                Ok(Some(why)) => ("OperatorTooOld", why),
                Err(error) => ("CannotBeAsked", error.to_string()),
            };
            tracing::warn!(reason, why, "blocked");
            self.tell("Blocked", reason, &why, &found);
            tokio::select! {
                changed = told.changed() => if changed.is_err() { return Err(Gone) },
                () = tokio::time::sleep(pause) => pause = (pause * 2).min(LONGEST_PAUSE),
            }
        }
    }

    /// Tells people what they should know of the spec's fields, once for each generation.
    fn remark(&mut self, found: &CephCluster) {
        let generation = found.metadata.generation.unwrap_or(0);
        if self.remarked != generation {
            self.remarked = generation;
            self.writer
                .news(events::of_settings(&Settings::read(&found.spec, true)));
        }
    }

    async fn pass(
        &mut self,
        found: &Arc<CephCluster>,
        told: &mut watch::Receiver<Arc<CephCluster>>,
    ) -> Result<Pass, Blocked> {
        if found.metadata.deletion_timestamp.is_some() {
            return Ok(Pass::Rest);
        }
        self.remark(found);
        if let Some(why) = self.watched.missing_rights() {
            return Err(Blocked::until_changed(MISSING_RIGHTS, why));
        }
        // Whether it is another release is not known yet, and nothing up to a run asks.
        let Some(wish) = Wish::of(&found.spec, true) else {
            return Err(Blocked::until_changed(
                "NoImage",
                "spec.cephVersion.image is not set; set it to an image with Ceph",
            ));
        };
        if !self.looked_back {
            let unfinished = self.look_back()?;
            self.looked_back = true;
            if let Some(run) = unfinished {
                self.no_other_operator().await?;
                self.resume(&run, told).await?;
                return Ok(Pass::Again);
            }
        }
        self.hear(found);
        let given_up = self.given_up(found);
        self.writer.tell(|told| told.gave_up.clone_from(&given_up));
        let differing = self.differing(&wish);
        let (_, unclear) = self.watched.daemons();
        if let (true, Some(why)) = (differing.is_empty(), unclear.into_iter().next()) {
            return Err(Blocked::until_changed("DeploymentUnclear", why));
        }
        if differing.is_empty() {
            let message = format!("every daemon has the image {}", wish.name());
            self.tell("Ready", "UpToDate", &message, found);
            return Ok(Pass::Rest);
        }
        if let Some((last, what)) = self.last.as_ref().zip(given_up) {
            return Err(last.blocked(&what, &self.namespace, &self.name));
        }
        if found
            .spec
            .data_dir_host_path
            .as_ref()
            .is_none_or(String::is_empty)
        {
            return Err(Blocked::until_changed(
                "NoDataDirHostPath",
                "spec.dataDirHostPath is not set: the monitors' data would not survive their restart; set it",
            ));
        }
        self.no_other_operator().await?;
        let stand = self.shared.agents.borrow().clone();
        if stand == Stand::Unseen {
            // They are in a moment, and there is nothing to tell yet.
            return Ok(Pass::Rest);
        }
        if let Some(blocked) = agents::hold(&stand, &self.shared.options.version) {
            return Err(blocked);
        }
        self.begin(found, &wish, &differing, told).await
    }

    /// A command while no run is under way: one to try again what was taken back is obeyed, and none is kept
    /// for the next run.
    fn hear(&self, found: &CephCluster) {
        let said = found.annotations().get(super::COMMAND).cloned();
        self.writer.tell(|told| {
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
    fn given_up(&self, found: &CephCluster) -> Option<String> {
        let last = self.last.as_ref()?;
        let retried = self.writer.told().retry_after.as_deref() == Some(last.run.as_str());
        last.given_up(&found.spec).filter(|_| !retried)
    }

    /// The daemons whose Deployments are not as they should be. One that is scaled to nothing has nothing to run.
    fn differing(&self, wish: &Wish) -> Vec<UnitId> {
        let (daemons, _) = self.watched.daemons();
        daemons
            .into_iter()
            .filter(|(unit, deployment)| {
                let kind = kind_of(unit);
                is_wanted(deployment) && !is_made_of(deployment, kind, &wish.made(kind, ""))
            })
            .map(|(unit, _)| unit)
            .collect()
    }

    /// Two operators would undo each other's work.
    async fn no_other_operator(&self) -> Result<(), Blocked> {
        match rook_operator::running(&self.shared.client, &self.namespace, &self.watched).await? {
            None => Ok(()),
            Some(why) => Err(Blocked::for_now("RookOperatorRuns", why)),
        }
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
    fn look_back(&mut self) -> Result<Option<RunId>, Blocked> {
        let store = self.store();
        let mut newest = None;
        for listed in store.runs().map_err(SuperviseError::from)? {
            if listed.ended_by.is_none() {
                if supervisor::replay(&store, &listed.run)?.ended().is_none() {
                    return Ok(Some(listed.run));
                }
                continue;
            }
            // Of one that is over and cannot be read any more, nothing is kept in mind.
            if newest.is_none()
                && let Ok(journal) = store.journal(&listed.run)
                && let Ok(run) = supervisor::replay(&store, &listed.run)
            {
                newest = Last::of(&run, &journal);
            }
        }
        self.last = newest;
        Ok(None)
    }

    async fn ceph(&self, wish: &Wish) -> Result<CephBackend, Blocked> {
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
            pause: Disturbance::usual(),
            poll: self.shared.options.poll,
            durations: BTreeMap::new(),
        };
        let settings = CephSettings {
            cluster,
            hosts: Hosts::default(),
            software: SoftwareByKind::default(),
            health: wish.health(),
        };
        let session = || -> Arc<dyn CephApi> {
            Arc::new(Questions {
                api: Arc::new(Session::new(access.clone())),
                metrics: Arc::clone(&self.metrics),
            })
        };
        let backend = CephBackend::new(session(), settings, None).lock_over(session());
        Ok(backend.permitting(permitted(Some(wish))))
    }
}
