//! One cluster: is there anything to do, and may it be done; then a run, or the rest of one.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kube::{Resource as _, ResourceExt as _};
use stagger_ceph::api::CephApi;
use stagger_ceph::api::session::Session;
use stagger_ceph::backend::CephBackend;
use stagger_ceph::config::{CephConfig, CephSettings, SoftwareByKind};
use stagger_ceph::facts::Facts;
use stagger_ceph::facts::release::Version;
use stagger_ceph::target::{PgGate, TargetPolicy, target};
use stagger_ceph::translate::{Baseline, HealthPolicy};
use stagger_core::model::{ClusterName, Part, Policy, Reason, Target, UnitId};
use stagger_core::run::Ending;
use stagger_engine::artifacts::Artifacts;
use stagger_engine::backend::Backend;
use stagger_engine::clock::SystemClock;
use stagger_engine::driver::{Driver, Parts, Step};
use stagger_engine::hosts::Hosts;
use stagger_engine::lease::Lease;
use stagger_engine::store::Store as _;
use stagger_engine::supervisor::{self, Identity, SuperviseError};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::blocked::Blocked;
use super::counted::Questions;
use super::drains::Drains;
use super::events::{self, Events};
use super::health::Pulse;
use super::metrics::ClusterMetrics;
use super::provision::Provision;
use super::removal::Removal;
use super::status::{self, Watchers, Writer};
use super::wishes::Wishes;
use super::{Shared, release};
use crate::backend::{self, Memory, RookBackend, units_of};
use crate::cluster::CephCluster;
use crate::daemons::kind_of;
use crate::journal::{Asked, KubeStore};
use crate::made::{Book, Made, image_of};
use crate::policy::Settings;
use crate::watched::Watched;

/// After a pass that failed, another is tried after so long, and longer each time.
const FIRST_PAUSE: Duration = Duration::from_secs(5);
const LONGEST_PAUSE: Duration = Duration::from_mins(5);

/// Why nothing is changed while watches are forbidden.
const MISSING_RIGHTS: &str = "MissingRights";

/// What a pass came to.
enum Pass {
    /// Nothing is to be done, or nothing may be done, until something changes.
    Rest,
    /// Look again at once.
    Again,
}

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
    /// Whether it was looked for a run that is not over.
    looked_back: bool,
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
    };
    one.wait_until_seen(&found).await;
    let drains = Drains::new(
        one.shared.clone(),
        &one.namespace,
        &one.name,
        Arc::clone(&one.watched),
        Arc::clone(&one.writer),
        Arc::clone(&one.metrics),
    );
    let provision = Provision::new(
        one.shared.clone(),
        &one.namespace,
        Arc::clone(&one.watched),
        Arc::clone(&one.writer),
    );
    let removal = Removal::new(
        one.shared.clone(),
        &one.namespace,
        &one.name,
        Arc::clone(&one.watched),
        Arc::clone(&one.writer),
    );
    // Beside the runs: a drain waits for nobody, nor does growth. They end with this task.
    let mut beside = JoinSet::new();
    beside.spawn(drains.see_to(told.clone()));
    beside.spawn(provision.see_to(told.clone()));
    beside.spawn(removal.see_to(told.clone()));
    let mut pause = FIRST_PAUSE;
    loop {
        let found = told.borrow_and_update().clone();
        let mut changes = one.watched.changes();
        changes.borrow_and_update();
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
        let image = found
            .spec
            .ceph_version
            .image
            .clone()
            .filter(|image| !image.is_empty());
        let Some(image) = image else {
            return Err(Blocked::until_changed(
                "NoImage",
                "spec.cephVersion.image is not set; set it to an image with Ceph",
            ));
        };
        if !self.looked_back {
            let unfinished = self.unfinished()?;
            self.looked_back = true;
            if let Some(run) = unfinished {
                self.no_other_operator().await?;
                self.resume(&run, told).await?;
                return Ok(Pass::Again);
            }
        }
        self.hear(found);
        let differing = self.differing(&image);
        if differing.is_empty() {
            self.tell(
                "Ready",
                "UpToDate",
                &format!("every daemon has the image {image}"),
                found,
            );
            return Ok(Pass::Rest);
        }
        if self.writer.told().gave_up.as_ref() == Some(&image) {
            return Err(Blocked::until_changed(
                "WentBack",
                format!(
                    "an upgrade to {image} was taken back; set another image, or try again with \
                     `kubectl annotate cephcluster {} {}=retry#1`",
                    self.name,
                    super::COMMAND
                ),
            ));
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
        self.begin(found, &image, told).await
    }

    /// A command while no run is under way: one to try again what was taken back is obeyed, and none is kept
    /// for the next run.
    fn hear(&self, found: &CephCluster) {
        let said = found.annotations().get(super::COMMAND).cloned();
        self.writer.tell(|told| {
            if told.heard != said {
                if said.as_deref().is_some_and(|said| said.starts_with("retry")) {
                    told.gave_up = None;
                }
                told.heard = said;
            }
        });
    }

    /// The daemons whose Deployments have another image, and the helpers beside them are not asked.
    fn differing(&self, image: &str) -> Vec<UnitId> {
        let (daemons, _) = self.watched.daemons();
        daemons
            .into_iter()
            .filter(|(unit, deployment)| {
                let spec = deployment.spec.template.spec.as_ref();
                spec.and_then(|spec| image_of(spec, kind_of(unit))) != Some(image)
            })
            .map(|(unit, _)| unit)
            .collect()
    }

    /// Two operators would undo each other's work.
    async fn no_other_operator(&self) -> Result<(), Blocked> {
        match self.shared.replicas_of_rook(&self.namespace).await? {
            0 => Ok(()),
            replicas => Err(Blocked::for_now(
                "RookOperatorRuns",
                format!(
                    "Deployment {}/rook-ceph-operator has {replicas} replicas; scale it to 0, and this one \
                     goes on",
                    self.namespace
                ),
            )),
        }
    }

    fn store(&self) -> KubeStore {
        KubeStore::new(
            &self.shared.client,
            &self.namespace,
            self.cluster.clone(),
            self.asked.clone(),
        )
    }

    fn unfinished(&self) -> Result<Option<stagger_core::model::RunId>, Blocked> {
        let store = self.store();
        let runs = store.runs().map_err(SuperviseError::from)?;
        for listed in runs {
            if supervisor::replay(&store, &listed.run)?.ended().is_none() {
                return Ok(Some(listed.run));
            }
        }
        Ok(None)
    }

    async fn ceph(&self, health: HealthPolicy) -> Result<CephBackend, Blocked> {
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
            poll: self.shared.options.poll,
            durations: BTreeMap::new(),
        };
        let settings = CephSettings {
            cluster,
            hosts: Hosts::default(),
            software: SoftwareByKind::default(),
            health,
        };
        let session = || -> Arc<dyn CephApi> {
            Arc::new(Questions {
                api: Arc::new(Session::new(access.clone())),
                metrics: Arc::clone(&self.metrics),
            })
        };
        Ok(CephBackend::new(session(), settings, None).lock_over(session()))
    }

    /// Starts a run to that image, and carries it out.
    async fn begin(
        &mut self,
        found: &Arc<CephCluster>,
        image: &str,
        told: &mut watch::Receiver<Arc<CephCluster>>,
    ) -> Result<Pass, Blocked> {
        self.tell(
            "Progressing",
            "AsksTheImage",
            &format!("asking {image} which Ceph it holds"),
            found,
        );
        let release = if let Some(known) = self.releases.get(image) {
            known.clone()
        } else {
            let release = release::of(&self.shared.client, &self.namespace, image).await?;
            self.releases.insert(image.to_owned(), release.clone());
            release
        };
        let settings = Settings::read(&found.spec, true);
        if settings.paused {
            return Err(Blocked::until_changed("Paused", "spec.updatePolicy.pause is set"));
        }
        let health = HealthPolicy {
            accept: settings.accepted.iter().cloned().collect(),
            block: std::collections::BTreeSet::new(),
        };
        let ceph = self.ceph(health.clone()).await?;
        let mut facts = ceph.facts().await?;
        backend::one_gateway_each(&mut facts);
        let made = Made {
            image: image.to_owned(),
            release: release.to_string(),
        };
        let settings = Settings::read(&found.spec, self.is_another_release(&facts, &made)?);
        let target = target_of(&facts, &made, &settings.policy, health.clone())?;
        let memory = self.memory(&facts, made)?;
        let baseline = serde_json::to_value(&memory)
            .map_err(|error| Blocked::until_changed("Internal", format!("the memory of a run: {error}")))?;
        let backend = self.backend(ceph, health, memory);
        let run = supervisor::new_run_id(Timestamp::now());
        let (driver, lease) = supervisor::start(
            self.parts(&backend),
            &Identity::of_this_process(),
            run,
            target,
            settings.policy,
            baseline,
        )
        .await?;
        self.carry_out(image, &backend, driver, lease, told).await?;
        Ok(Pass::Again)
    }

    /// Whether a daemon runs another release than that: else it is only a new revision of the same.
    fn is_another_release(&self, facts: &Facts, wanted: &Made) -> Result<bool, Blocked> {
        let units = units_of(facts, None, &self.watched)?;
        let of_wanted = format!("{}-", wanted.release);
        Ok(units
            .iter()
            .filter_map(|unit| unit.revision.as_ref())
            .any(|revision| !revision.as_str().starts_with(&of_wanted)))
    }

    /// How things are before a run: also what every revision stands for, so that it can be brought back.
    fn memory(&self, facts: &Facts, wanted: Made) -> Result<Memory, Blocked> {
        let units = units_of(facts, None, &self.watched)?;
        let mut book = Book::new();
        let (daemons, wrong) = self.watched.daemons();
        if let Some(why) = wrong.first() {
            return Err(Blocked::for_now("DeploymentUnclear", why.clone()));
        }
        for unit in &units {
            let (Some(revision), Some(deployment)) = (&unit.revision, daemons.get(&unit.id)) else {
                continue;
            };
            let spec = deployment.spec.template.spec.as_ref();
            let Some(image) = spec.and_then(|spec| image_of(spec, kind_of(&unit.id))) else {
                continue;
            };
            let release = revision
                .as_str()
                .rsplit_once('-')
                .map_or("", |(release, _)| release);
            let made = Made {
                image: image.to_owned(),
                release: release.to_owned(),
            };
            book.insert(revision.clone(), made);
        }
        let revision = wanted
            .revision()
            .map_err(|error| Blocked::until_changed("Refused", error.to_string()))?;
        book.insert(revision, wanted);
        Ok(Memory {
            baseline: Baseline::of(facts, &units),
            book,
        })
    }

    fn backend(&self, ceph: CephBackend, health: HealthPolicy, memory: Memory) -> Arc<dyn Backend> {
        Arc::new(RookBackend::new(backend::Parts {
            ceph,
            client: self.shared.client.clone(),
            namespace: self.namespace.clone(),
            cluster: self.cluster.clone(),
            health,
            watched: Arc::clone(&self.watched),
            memory,
        }))
    }

    fn parts(&self, backend: &Arc<dyn Backend>) -> Parts {
        Parts {
            backend: Arc::clone(backend),
            store: Box::new(self.store()),
            clock: Arc::new(SystemClock),
            artifacts: Artifacts::in_folder(self.shared.options.folder.join("artifacts")),
            listener: self.writer.listener(),
        }
    }

    /// Goes on with a run that an operator before this one has begun.
    async fn resume(
        &mut self,
        run: &stagger_core::model::RunId,
        told: &mut watch::Receiver<Arc<CephCluster>>,
    ) -> Result<(), Blocked> {
        let store = self.store();
        let replayed = supervisor::replay(&store, run)?;
        let memory: Memory = serde_json::from_value(replayed.start().baseline.clone()).map_err(|error| {
            Blocked::until_changed(
                "JournalUnreadable",
                format!("run {run} keeps no memory of Rook: {error}"),
            )
        })?;
        let stage = replayed.start().target.parts.iter().find_map(|part| match part {
            Part::Stage(stage) => memory.book.get(&stage.revision),
            Part::Step(_) => None,
        });
        let image = stage.map(|made| made.image.clone()).unwrap_or_default();
        let found = told.borrow().clone();
        let settings = Settings::read(&found.spec, true);
        let health = HealthPolicy {
            accept: settings.accepted.iter().cloned().collect(),
            block: std::collections::BTreeSet::new(),
        };
        let ceph = self.ceph(health.clone()).await?;
        for guard in ceph.drop_expired_guards().await? {
            tracing::info!(guard = guard.guard, "past its expiry, given back");
        }
        let backend = self.backend(ceph, health, memory);
        let (driver, lease) =
            supervisor::resume(self.parts(&backend), &Identity::of_this_process(), run).await?;
        self.carry_out(&image, &backend, driver, lease, told).await
    }

    /// Steps until the run is over. A run that is held goes on when somebody says so.
    async fn carry_out(
        &mut self,
        image: &str,
        backend: &Arc<dyn Backend>,
        mut driver: Driver,
        lease: Lease,
        told: &mut watch::Receiver<Arc<CephCluster>>,
    ) -> Result<(), Blocked> {
        let mut wishes = Wishes::new(image, self.writer.told().heard);
        let ending = loop {
            wishes.heed(&told.borrow_and_update(), &self.asked);
            self.writer.tell(|told| told.heard.clone_from(&wishes.command));
            self.pulse.works();
            let step = driver.step().await?;
            self.pulse.rests();
            match step {
                Step::Again => {}
                Step::Wait { until, .. } => {
                    let pause = until.duration_since(Timestamp::now());
                    let pause = Duration::try_from(pause).unwrap_or_default();
                    // Whatever a person changes is heard at once.
                    tokio::select! {
                        () = tokio::time::sleep(pause) => {}
                        changed = told.changed() => if changed.is_err() { return Ok(()) },
                    }
                }
                Step::Held(_) => {
                    let poll = tokio::time::sleep(Duration::from_secs(self.shared.options.poll.max(1)));
                    tokio::select! {
                        () = poll => {}
                        changed = told.changed() => if changed.is_err() { return Ok(()) },
                    }
                }
                Step::Over(ending) => break ending,
            }
        };
        self.pulse.works();
        drop(driver);
        if let Err(error) = lease.give_back(backend).await {
            tracing::warn!(%error, "the lock goes by itself");
        }
        let gave_up = match ending {
            Ending::Done => None,
            Ending::Aborted => self.writer.told().gave_up,
            Ending::RolledBack { .. } | Ending::Incomplete { .. } => Some(image.to_owned()),
        };
        self.writer.tell(|told| told.gave_up = gave_up);
        Ok(())
    }
}

/// The stages and steps; their revisions are those of pods.
fn target_of(facts: &Facts, made: &Made, policy: &Policy, health: HealthPolicy) -> Result<Target, Blocked> {
    let wanted = TargetPolicy {
        pgs: PgGate::Clean,
        hold: policy.gate_hold,
        timeout: policy.gate_timeout,
        noout: NOOUT,
        before_rollback: false,
        health,
    };
    let mut target = target(facts, &made.release, &wanted).map_err(|refusal| {
        let all: Vec<String> = refusal.0.iter().map(Reason::to_string).collect();
        Blocked::for_now("Refused", all.join("; "))
    })?;
    let revision = made
        .revision()
        .map_err(|error| Blocked::until_changed("Refused", error.to_string()))?;
    for part in &mut target.parts {
        if let Part::Stage(stage) = part {
            stage.revision = revision.clone();
        }
    }
    Ok(target)
}

/// `noout` stays on a wave's OSDs at most for so many seconds.
const NOOUT: u32 = 1200;
