//! A run for one cluster: started or continued, and carried out.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use kube::ResourceExt as _;
use stagger_ceph::backend::CephBackend;
use stagger_ceph::facts::CephFacts;
use stagger_ceph::facts::osd::StretchMode;
use stagger_ceph::facts::release::{self, Version};
use stagger_ceph::target::{TargetPolicy, target};
use stagger_ceph::translate::{Baseline, HealthPolicy};
use stagger_core::model::{
    IdError, Part, Phase, Policy, Reason, Revision, RunId, Snapshot, Target, Topology, UnitId,
};
use stagger_core::plan::{PlanningInput, plan};
use stagger_engine::artifacts::Artifacts;
use stagger_engine::clock::SystemClock;
use stagger_engine::cluster::Backend;
use stagger_engine::drive::{Signal, Signals, Stopped, drive};
use stagger_engine::driver::{Driver, DriverParts};
use stagger_engine::lease::Lease;
use stagger_engine::supervisor::{self, Identity};
use stagger_gates::{MeasuredBackend, Measures};
use tokio::sync::watch;

use super::{ClusterReconciler, NOOUT, Pass, known_risks};
use crate::api::daemons::{kind_of, osd_of};
use crate::api::maintenance::Desired;
use crate::api::pod;
use crate::api::pod_revision::{PodRevision, RevisionCatalog};
use crate::executor::backend::{self, RookBackend};
use crate::executor::beside::{self, ClusterImage, CoexistenceState, RookProgress};
use crate::executor::goal::Goal;
use crate::executor::managed_fields::template_image;
use crate::executor::memory::RookMemory;
use crate::executor::snapshot::{drop_moved_gateways, permitted_interruptions, snapshot, units_of};
use crate::executor::{image_release, migrations, skip_checks};
use crate::journal::CommandQueue;
use crate::observability::blocked::Blocked;
use crate::observability::events;
use crate::observability::health::Pulse;
use crate::observability::last_run;
use crate::observability::writer::StatusWriter;
use crate::reconcile::Shared;
use crate::reconcile::commands::OperatorCommands;

/// So many journals are kept.
const JOURNALS: usize = 10;

/// Why nothing that restarts OSDs is begun where their budgets are somebody else's, and the API server does not ask about evictions.
const NOT_GUARDED: &str = "an OSD might be evicted beside those that an update restarts: the budgets over OSDs are not managed here, and the API \
     server does not ask this operator about evictions. Let it manage drains (spec.manage; managePodBudgets of the CephCluster is false then), or \
     start it with --webhook; if it is, its log says why the webhook is not registered";
/// An operator that has just begun knows by then who guards evictions.
const GUARDED: Duration = Duration::from_secs(10);

/// A run that may begin.
struct PlannedRun {
    ceph: CephBackend,
    target: Target,
    policy: Policy,
    memory: RookMemory,
    topology: Topology,
}

impl ClusterReconciler {
    /// Starts a run to what is wished for, and carries it out.
    pub(super) async fn begin(
        &mut self,
        desired: &Arc<Desired>,
        wish: &Goal,
        differing: &[UnitId],
        beside: Option<CoexistenceState>,
        told: &mut watch::Receiver<Arc<Desired>>,
    ) -> Result<Pass, Blocked> {
        let release = self.release(desired, &wish.image).await?;
        if let Some(why) = too_new(&release, &self.shared.options.version) {
            return Err(Blocked::until_changed(
                "CephTooNew",
                format!("{} {why}", wish.image),
            ));
        }
        if desired.maintenance.spec.update_policy.pause.unwrap_or(false) {
            return Err(Blocked::until_changed("Paused", "spec.updatePolicy.pause is set"));
        }
        let restarts_osds = differing.iter().any(|unit| osd_of(unit).is_some());
        if restarts_osds && !self.writer.wave_exposure().wait_until_guarded(GUARDED).await {
            return Err(Blocked::temporary("EvictionsNotGuarded", NOT_GUARDED));
        }
        let Some(planned) = self.planned(desired, wish, &release, differing, beside).await? else {
            return Ok(Pass::Again);
        };
        let PlannedRun {
            ceph,
            target,
            policy,
            memory,
            topology,
        } = planned;
        let baseline = serde_json::to_value(&memory)
            .map_err(|error| Blocked::until_changed("Internal", format!("the memory of a run: {error}")))?;
        let wish = memory.wish.clone();
        let backend = self.backend(ceph, memory, told.clone())?;
        let run = supervisor::new_run_id(Timestamp::now());
        let (driver, lease) = supervisor::start(
            self.parts(&backend),
            &Identity::current_process(),
            run,
            target,
            policy,
            baseline,
            topology,
        )
        .await?;
        self.carry_out(wish, &backend, driver, lease, told).await?;
        Ok(Pass::Again)
    }

    /// The release of Ceph in an image, which is asked once.
    async fn release(&mut self, desired: &Desired, image: &str) -> Result<Version, Blocked> {
        if let Some(known) = self.releases.get(image) {
            return Ok(known.clone());
        }
        self.set_phase(
            "Progressing",
            "AsksTheImage",
            &format!("asking {image} which Ceph it holds"),
            desired,
        );
        let (daemons, _) = self.watched.daemons();
        let monitor = daemons.iter().find(|(unit, _)| kind_of(unit) == "mon");
        let monitor = monitor.map(|(_, deployment)| deployment.name_any());
        let Shared { client, .. } = &self.shared;
        let release = image_release::of(client, &self.namespace, image, monitor.as_deref()).await?;
        self.releases.insert(image.to_owned(), release.clone());
        Ok(release)
    }

    /// What a run would do, by what is seen now, or why there is to be none; `None`: nothing is wished for any more.
    /// What was seen is let go of with this: a run goes on for long.
    async fn planned(
        &self,
        desired: &Desired,
        wish: &Goal,
        version: &Version,
        differing: &[UnitId],
        beside: Option<CoexistenceState>,
    ) -> Result<Option<PlannedRun>, Blocked> {
        let ceph = self.ceph(wish).await?;
        let mut facts = ceph.facts().await?;
        drop_moved_gateways(&mut facts);
        if beside.is_some()
            && let Some(newest) = self.newest(&facts)?
            && let Some(why) = too_old(version, &newest)
        {
            return Err(Blocked::until_changed(
                "OlderThanRuns",
                format!("{} {why}", wish.image),
            ));
        }
        let release = version.to_string();
        let release_changes = self.is_another_release(&facts, &release)?;
        let Some(wish) = Goal::of(desired, release_changes) else {
            return Ok(None);
        };
        let (mut target, policy) = self.target(&facts, &release, &wish)?;
        let internal = |error: IdError| Blocked::until_changed("Internal", error.to_string());
        migrations::insert_steps(&mut target, &self.watched.deployments()).map_err(internal)?;
        if let Some(beside) = &beside {
            beside::insert_steps(&mut target, beside.mds_by_rook, release_changes).map_err(internal)?;
        }
        let memory = RookMemory {
            beside,
            ..self.memory(&facts, &release, wish)?
        };
        let permitted = permitted_interruptions(Some(&memory.wish)).collect();
        // As if Rook ran: a step too many passes at once.
        let rook = RookProgress {
            image: ClusterImage::of(&desired.cluster, true),
            servers: beside::servers_not_done(memory.changes(), &self.watched.daemons().0, &facts.fs),
        };
        let seen = snapshot(
            &self.cluster,
            &facts,
            Some(&memory),
            &permitted,
            &self.watched,
            Some(&rook),
        )?;
        if release_changes && !memory.wish.skip_checks {
            self.no_known_risk(&ceph, &facts, &seen, &release, desired)
                .await?;
        }
        drop(facts);
        let planned = plan(&PlanningInput {
            snapshot: &seen,
            target: &target,
            policy: &policy,
            aside: &BTreeMap::new(),
            earned: &BTreeMap::new(),
            parent: None,
        });
        if let Some(blocked) = last_run::blocked_reason(&planned, differing)
            .or_else(|| last_run::unreachable_target(&planned, &policy, seen.terms()))
        {
            return Err(blocked);
        }
        Ok(Some(PlannedRun {
            ceph,
            target,
            policy,
            memory,
            topology: Topology::of(&seen),
        }))
    }

    /// Why an upgrade is not begun, by risks that are known and that nobody has accepted. Those that only warn are an Event.
    async fn no_known_risk(
        &self,
        ceph: &CephBackend,
        facts: &CephFacts,
        seen: &Snapshot,
        release: &str,
        desired: &Desired,
    ) -> Result<(), Blocked> {
        let known = stagger_risks::shipped()
            .map_err(|error| Blocked::until_changed("Internal", error.to_string()))?;
        let policy = &desired.maintenance.spec.update_policy;
        let accepted: BTreeSet<String> = policy.accepted_risks.iter().cloned().collect();
        let found = ceph
            .findings(facts, seen, release, &known, &accepted, release_of)
            .await;
        self.writer.publish_events(known_risks::risk_events(&found)?);
        Ok(())
    }

    /// The newest release that a daemon runs.
    fn newest(&self, facts: &CephFacts) -> Result<Option<Version>, Blocked> {
        let units = units_of(facts, None, &self.watched, &BTreeMap::new())?;
        let revisions = units.iter().filter_map(|unit| unit.revision.as_ref());
        Ok(revisions
            .filter_map(|revision| Version::parse(revision.as_str().rsplit_once('-')?.0))
            .max())
    }

    /// Whether a daemon runs another release than that: else it is only a new revision of the same.
    fn is_another_release(&self, facts: &CephFacts, release: &str) -> Result<bool, Blocked> {
        let units = units_of(facts, None, &self.watched, &BTreeMap::new())?;
        let of_wanted = format!("{release}-");
        Ok(units
            .iter()
            .filter_map(|unit| unit.revision.as_ref())
            .any(|revision| !revision.as_str().starts_with(&of_wanted)))
    }

    /// The stages and steps, with the revisions of pods, and how bold to be.
    fn target(&self, facts: &CephFacts, release: &str, wish: &Goal) -> Result<(Target, Policy), Blocked> {
        if !wish.skip_checks {
            let mut target = target_of(facts, release, wish, wish.health())?;
            if let Some(measures) = self.measures()? {
                measures
                    .guard(&mut target, &wish.policy)
                    .map_err(|why| Blocked::temporary("GatesUnusable", why))?;
            }
            return Ok((target, wish.policy.clone()));
        }
        let mut health = wish.health();
        let complaints: Vec<String> = facts.health.checks.keys().cloned().collect();
        health.accept.extend(complaints.iter().cloned());
        let target = target_of(facts, release, wish, health)?;
        let osds_down = facts.osds.osds.values().filter(|osd| !osd.up).count();
        let policy = skip_checks::policy(&wish.policy, u32::try_from(osds_down).unwrap_or(u32::MAX - 1));
        self.writer.publish_events(vec![events::skipped_checks(format!(
            "started in spite of health checks ({}): skipUpgradeChecks",
            if complaints.is_empty() {
                "nothing".to_owned()
            } else {
                complaints.join(", ")
            }
        ))]);
        Ok((target, policy))
    }

    /// How things are before a run: also what every revision stands for, so that it can be brought back.
    fn memory(&self, facts: &CephFacts, release: &str, wish: Goal) -> Result<RookMemory, Blocked> {
        let units = units_of(facts, None, &self.watched, &wish.pods)?;
        let mut book = RevisionCatalog::new();
        // A daemon whose Deployment is unclear has none, and is left alone for that.
        let (daemons, _) = self.watched.daemons();
        for unit in &units {
            let (Some(revision), Some(deployment)) = (&unit.revision, daemons.get(&unit.id)) else {
                continue;
            };
            let kind = kind_of(&unit.id);
            let Some(image) = template_image(deployment, kind) else {
                continue;
            };
            let now = revision
                .as_str()
                .rsplit_once('-')
                .map_or("", |(release, _)| release);
            let made = PodRevision {
                image: image.to_owned(),
                release: now.to_owned(),
                fields: pod::template_fields(&deployment.spec.template, kind, wish.pods.get(kind)),
            };
            book.insert(revision.clone(), made);
        }
        for kind in units.iter().map(|unit| unit.kind.as_str()) {
            let made = wish.pod_revision(kind, release);
            book.insert(revision(&made)?, made);
        }
        Ok(RookMemory {
            baseline: Baseline::of(facts, &units),
            book,
            wish,
            beside: None,
        })
    }

    fn backend(
        &self,
        ceph: CephBackend,
        memory: RookMemory,
        desired: watch::Receiver<Arc<Desired>>,
    ) -> Result<Arc<dyn Backend>, Blocked> {
        let writer = Arc::clone(&self.writer);
        let backend = Arc::new(RookBackend::new(backend::RookBackendParts {
            ceph,
            client: self.shared.client.clone(),
            namespace: self.namespace.clone(),
            cluster: self.cluster.clone(),
            watched: Arc::clone(&self.watched),
            desired,
            memory,
            exposed: Arc::clone(self.writer.wave_exposure()),
            unchecked: Box::new(move |note| writer.publish_events(vec![events::skipped_checks(note)])),
        }));
        Ok(match self.measures()? {
            Some(measures) => Arc::new(MeasuredBackend::new(backend, Arc::new(measures))),
            None => backend,
        })
    }

    /// What others measure of the cluster, where the operator is told of anything.
    fn measures(&self) -> Result<Option<Measures>, Blocked> {
        let settings = self.shared.options.gates.clone();
        if settings.is_empty() {
            return Ok(None);
        }
        // A secret may be put right without a word to the operator.
        let measures = Measures::new(&settings.of_namespace(&self.namespace));
        measures
            .map(Some)
            .map_err(|why| Blocked::temporary("GatesUnusable", why))
    }

    fn parts(&self, backend: &Arc<dyn Backend>) -> DriverParts {
        DriverParts {
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
        told: &mut watch::Receiver<Arc<Desired>>,
    ) -> Result<(), Blocked> {
        let store = self.store();
        let replayed = supervisor::replay(&store, run).await?;
        let memory: RookMemory =
            serde_json::from_value(replayed.start().baseline.clone()).map_err(|error| {
                Blocked::until_changed(
                    "JournalUnreadable",
                    format!("run {run} keeps no memory of Rook: {error}"),
                )
            })?;
        if memory.beside.is_none() {
            self.no_other_operator().await?;
        }
        let wish = memory.wish.clone();
        let ceph = self.ceph(&wish).await?;
        let backend = self.backend(ceph, memory, told.clone())?;
        let (driver, lease) =
            supervisor::resume(self.parts(&backend), &Identity::current_process(), run).await?;
        self.carry_out(wish, &backend, driver, lease, told).await
    }

    /// Steps until the run is over. A run that is held goes on when somebody says so.
    async fn carry_out(
        &mut self,
        wish: Goal,
        backend: &Arc<dyn Backend>,
        mut driver: Driver,
        lease: Lease,
        told: &mut watch::Receiver<Arc<Desired>>,
    ) -> Result<(), Blocked> {
        let mut signals = OperatorSignals {
            wishes: OperatorCommands::new(wish, self.writer.current_status().heard),
            asked: &self.asked,
            writer: &self.writer,
            pulse: &mut self.pulse,
            poll: Duration::from_secs(self.shared.options.poll.max(1)),
            told,
        };
        match drive(&mut driver, &mut signals).await? {
            Stopped::Over(_) => {}
            // Nobody wants anything of this cluster any more.
            Stopped::AtOnce | Stopped::BetweenWaves | Stopped::Held(_) => return Ok(()),
        }
        // How it ended is read from its journal, as after a restart.
        self.looked_back = false;
        self.pulse.begin_work();
        drop(driver);
        if let Err(error) = self.store().prune(lease.fence(), JOURNALS).await {
            tracing::warn!(%error, "old journals stay until the next run");
        }
        if let Err(error) = lease.release(backend).await {
            tracing::warn!(%error, "the lock goes by itself");
        }
        Ok(())
    }
}

/// What changes in the CephMaintenance while a run is carried out.
struct OperatorSignals<'a> {
    wishes: OperatorCommands,
    asked: &'a CommandQueue,
    writer: &'a StatusWriter,
    pulse: &'a mut Pulse,
    poll: Duration,
    told: &'a mut watch::Receiver<Arc<Desired>>,
}

#[async_trait]
impl Signals for OperatorSignals<'_> {
    async fn next(&mut self) -> Signal {
        match self.told.changed().await {
            Ok(()) => Signal::Wake,
            Err(_) => Signal::Leave,
        }
    }

    fn before_step(&mut self) {
        self.wishes
            .apply_desired(&self.told.borrow_and_update(), self.asked);
        self.writer
            .update(|told| told.heard.clone_from(&self.wishes.command));
        self.pulse.begin_work();
    }

    fn after_step(&mut self) {
        self.pulse.begin_wait();
    }

    /// A run that is held goes on when somebody says so.
    fn held_for(&self) -> Option<Duration> {
        Some(self.poll)
    }
}

/// The release of what a pod runs, as risks name it.
fn release_of(revision: &Revision) -> String {
    let name = revision.as_str();
    name.rsplit_once('-')
        .map_or(name, |(release, _)| release)
        .to_owned()
}

/// The name of what pods are made of.
fn revision(made: &PodRevision) -> Result<Revision, Blocked> {
    made.revision()
        .map_err(|error| Blocked::until_changed("Refused", error.to_string()))
}

/// Why no upgrade leads to a release: it came after this operator, which does not know the steps to it.
fn too_new(wanted: &Version, ours: &semver::Version) -> Option<String> {
    let newest = release::known_majors().max()?;
    (wanted.major > newest).then(|| {
        format!(
            "has Ceph {wanted}, and the newest release that this operator, {ours}, supports is {newest} ({}): upgrade the \
             operator first. cephVersion.allowUnsupported does not help: what is safe is not known here",
            release::name(newest).unwrap_or_default()
        )
    })
}

/// Why a release is not gone to beside a Rook that runs: Rook lets no CephCluster name one that is older than what runs.
fn too_old(wanted: &Version, runs: &Version) -> Option<String> {
    (wanted < runs).then(|| {
        format!(
            "has Ceph {wanted}, and a daemon runs {runs}: was it updated by Rook? Set spec.image to what is to run; Rook \
             never returns to an older release"
        )
    })
}

/// Why a cluster that spans sites is left alone here: clusters of hosts have been upgraded so, and none of Rook.
fn spans_sites(mode: Option<StretchMode>) -> Option<String> {
    mode.map(|_| {
        "stretch-cluster: it is in stretch mode, and no cluster of Rook in that mode has been upgraded with this operator. \
         Leave it to Rook's own operator, site by site"
            .to_owned()
    })
}

/// The stages and steps; their revisions are those of pods.
fn target_of(facts: &CephFacts, release: &str, wish: &Goal, health: HealthPolicy) -> Result<Target, Blocked> {
    if let Some(why) = spans_sites(facts.osds.stretch_mode) {
        return Err(Blocked::temporary("Refused", why));
    }
    let wanted = TargetPolicy {
        pgs: wish.groups,
        hold: wish.policy.gate_hold,
        timeout: wish.policy.gate_timeout,
        noout: NOOUT,
        before_rollback: false,
        health,
        ..TargetPolicy::default()
    };
    let mut target = target(facts, release, &wanted).map_err(|refusal| {
        let all: Vec<String> = refusal.0.iter().map(Reason::to_string).collect();
        // The field has another name here.
        let why = all
            .join("; ")
            .replace("health.accept", "spec.updatePolicy.healthErrorsToIgnore");
        Blocked::temporary("Refused", why)
    })?;
    for part in &mut target.parts {
        if let Part::Stage(stage) = part {
            stage.revision = revision(&wish.pod_revision(stage.kind.as_str(), release))?;
            // The node pulls the image when the pod is made: nothing is laid out before.
            stage.phases.retain(|phase| *phase != Phase::Prepare);
        }
    }
    Ok(target)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_over_two_sites_is_left_alone() {
        let mode = StretchMode {
            sites: 2,
            level: 8,
            degraded: false,
            recovering: false,
        };
        assert!(spans_sites(Some(mode)).is_some_and(|why| why.starts_with("stretch-cluster: ")));
        assert_eq!(spans_sites(None), None);
    }

    #[test]
    fn beside_rook_nothing_goes_back_to_an_older_release() {
        let told = |wanted: &str, runs: &str| {
            too_old(&Version::parse(wanted).unwrap(), &Version::parse(runs).unwrap())
        };
        assert!(told("20.2.4", "20.2.5").is_some_and(|why| why.contains("runs 20.2.5")));
        assert_eq!(told("20.2.5", "20.2.5"), None);
        assert_eq!(told("20.2.10", "20.2.9"), None);
    }

    #[test]
    fn a_release_that_came_after_the_operator_is_too_new_for_it() {
        let told = |text: &str| too_new(&Version::parse(text).unwrap(), &semver::Version::new(0, 1, 0));
        assert_eq!(told("16.2.15"), None);
        assert_eq!(told("20.9.9"), None);
        let why = told("21.2.0").unwrap();
        assert!(
            why.contains("21.2.0") && why.contains("0.1.0") && why.contains("20 (tentacle)"),
            "{why}"
        );
    }
}
