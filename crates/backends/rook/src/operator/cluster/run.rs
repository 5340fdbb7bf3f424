//! A run for one cluster: begun, or gone on with, and carried out.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use stagger_ceph::backend::CephBackend;
use stagger_ceph::facts::Facts;
use stagger_ceph::target::{PgGate, TargetPolicy, target};
use stagger_ceph::translate::{Baseline, HealthPolicy};
use stagger_core::model::{Part, Policy, Reason, RunId, Target, UnitId};
use stagger_core::plan::{Ask, plan};
use stagger_core::run::Ending;
use stagger_engine::artifacts::Artifacts;
use stagger_engine::backend::Backend;
use stagger_engine::clock::SystemClock;
use stagger_engine::driver::{Driver, Parts, Step};
use stagger_engine::lease::Lease;
use stagger_engine::supervisor::{self, Identity};
use tokio::sync::watch;

use super::{NOOUT, One, Pass};
use crate::backend::{self, Memory, RookBackend, snapshot, units_of};
use crate::cluster::CephCluster;
use crate::daemons::kind_of;
use crate::made::{Book, Made, image_of};
use crate::operator::blocked::Blocked;
use crate::operator::left;
use crate::operator::release;
use crate::operator::wishes::Wishes;
use crate::policy::Settings;

impl One {
    /// Starts a run to that image, and carries it out.
    pub(super) async fn begin(
        &mut self,
        found: &Arc<CephCluster>,
        image: &str,
        differing: &[UnitId],
        told: &mut watch::Receiver<Arc<CephCluster>>,
    ) -> Result<Pass, Blocked> {
        let release = if let Some(known) = self.releases.get(image) {
            known.clone()
        } else {
            self.tell(
                "Progressing",
                "AsksTheImage",
                &format!("asking {image} which Ceph it holds"),
                found,
            );
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
            block: BTreeSet::new(),
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
        let seen = snapshot(
            &self.cluster,
            &facts,
            &health,
            Some(&memory.baseline),
            &self.watched,
        )?;
        let planned = plan(&Ask {
            snapshot: &seen,
            target: &target,
            policy: &settings.policy,
            aside: &BTreeMap::new(),
            earned: &BTreeMap::new(),
            parent: None,
        });
        if let Some(blocked) = left::not_begun(&planned, differing) {
            return Err(blocked);
        }
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
        // A daemon whose Deployment is unclear has none, and is left alone for that.
        let (daemons, _) = self.watched.daemons();
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
    pub(super) async fn resume(
        &mut self,
        run: &RunId,
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
            block: BTreeSet::new(),
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
            Ending::Aborted => self.writer.told().gave_up,
            ending => left::is_given_up(&ending).then(|| image.to_owned()),
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
        // The field has another name here.
        let why = all
            .join("; ")
            .replace("health.accept", "spec.updatePolicy.healthErrorsToIgnore");
        Blocked::for_now("Refused", why)
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
