//! A Ceph cluster: that of the configuration, a Rook-managed one, or recorded answers.

mod copy;
mod reboot;
mod source;

use std::collections::BTreeSet;
use std::sync::Arc;

use async_trait::async_trait;
use jiff::Timestamp;
use stagger_ceph::api::CephApi;
use stagger_ceph::backend::CephBackend;
use stagger_ceph::config::CephSettings;
use stagger_ceph::facts::CephFacts;
use stagger_ceph::memory::{BootsBefore, CephMemory};
use stagger_ceph::offered;
use stagger_ceph::planner::{CephGoal, CephPlanner};
use stagger_ceph::preflight;
use stagger_ceph::reboot::{CephRebootGoal, HostTask};
use stagger_ceph::risks;
use stagger_ceph::software_remarks;
use stagger_ceph::translate::hosts::HOST;
use stagger_core::model::{ClusterId, Part, Policy, Reason, Revision, Snapshot, Target};
use stagger_core::plan::Plan;
use stagger_engine::cluster::{Backend, Planner as _};
use stagger_engine::database::StoreLocation;
use stagger_engine::preflight::Check;
use stagger_risks::{Risk, RiskFinding};
use stagger_sim::ClusterCopy;
use tempfile::TempDir;

use self::reboot::HostAccess;
use super::cluster_handle::{ClusterHandle, ClusterSystem, ManagedSystem, PlanContext};
use super::guards::GuardHolder;
use super::reachable;
use crate::args::{self, GoalAction, GoalArgs, PolicyFlags};
use crate::error::CliError;
use crate::planning::{PlanRequest, make_plan, refusal};

/// What a Ceph does its own way.
pub(crate) struct CephSystem {
    api: Arc<dyn CephApi>,
    settings: CephSettings,
    /// Commands were given for it.
    is_configured: bool,
    /// It was not recorded: its hosts can be asked.
    answers: bool,
    /// Where journals of earlier runs are, if there is a place for any.
    journals: Option<StoreLocation>,
    /// An operator changes it, by no command.
    of_rook: bool,
    /// Configuration and key of the connection, while it is there.
    folder: Option<TempDir>,
}

#[async_trait]
impl ClusterSystem for CephSystem {
    type Planner = CephPlanner;

    const KIND: &'static str = "a Ceph cluster";

    fn goal(&self, goal: &GoalArgs) -> Result<CephGoal, CliError> {
        match &goal.action {
            GoalAction::Reboot(_) if self.of_rook => Err(CliError::usage(
                "`reboot` and `patch` are for Ceph on hosts; this cluster is managed by Rook",
            )
            .hint("Kubernetes drains a node for its reboot, as Rook permits: docs/guides/kubernetes.md")),
            GoalAction::Reboot(reboot) => {
                GoalArgs::reboot_of_hosts(reboot)?;
                let task = if reboot.patches {
                    HostTask::Patch
                } else {
                    HostTask::Reboot
                };
                Ok(CephGoal::Reboot(CephRebootGoal {
                    task,
                    ..CephRebootGoal::default()
                }))
            }
            GoalAction::Restart(_) if self.of_rook => Err(CliError::usage(
                "`restart` is for Ceph on hosts; this cluster is managed by Rook",
            )
            .hint("`kubectl rollout restart` restarts the pods of a Deployment, which Rook lays out")),
            GoalAction::Restart(restart) => Ok(CephGoal::Reboot(CephRebootGoal {
                task: HostTask::Restart {
                    kinds: restart.daemons.clone(),
                    token: token(),
                },
                ..CephRebootGoal::default()
            })),
            GoalAction::Exec(exec) => Ok(CephGoal::Reboot(CephRebootGoal {
                task: HostTask::Command {
                    command: GoalArgs::command_on_hosts(exec, &self.settings.hosts)?,
                    token: token(),
                },
                ..CephRebootGoal::default()
            })),
            GoalAction::Upgrade(upgrade) => Ok(CephGoal::Upgrade(upgrade.to.clone())),
        }
    }

    async fn goal_by_asking(
        &self,
        wanted: CephGoal,
        goal: &GoalArgs,
        planner: &CephPlanner,
        facts: &CephFacts,
    ) -> Result<CephGoal, CliError> {
        let task = match wanted {
            CephGoal::Reboot(CephRebootGoal { task, .. }) => task,
            CephGoal::Upgrade(release) => {
                return Ok(CephGoal::Upgrade(self.version_of(release, facts).await));
            }
        };
        let daemons = planner.snapshot(facts)?;
        let mut hosts = reboot::candidate_hosts(facts, &daemons, &goal.select)?;
        let mut only = None;
        if let HostTask::Restart { kinds, .. } = &task {
            hosts = reboot::with_daemons(facts, &daemons, hosts, kinds)?;
            only = Some(hosts.clone());
        }
        let mut settings = self.settings.clone();
        settings.reboot = task.commands(&settings.reboot, &settings.hosts);
        let reached = self.answers.then_some(HostAccess {
            settings: &settings,
            journals: self.journals.as_ref(),
        });
        let found = match &goal.action {
            GoalAction::Reboot(asked) => reboot::ask(reached, asked, hosts).await?,
            GoalAction::Upgrade(_) | GoalAction::Restart(_) | GoalAction::Exec(_) => {
                reboot::ask(reached, &args::RebootArgs::default(), hosts).await?
            }
        };
        let only = found.only.clone().or(only);
        Ok(CephGoal::Reboot(CephRebootGoal { task, only, ..found }))
    }

    fn remarks(&self, _planner: &CephPlanner, facts: &CephFacts, goal: &CephGoal) -> Vec<String> {
        match goal {
            CephGoal::Reboot(goal) if goal.task == HostTask::Patch && self.settings.reboot.patch.is_none() => vec![
                "note: `patch` installs all that is pending on a host, Ceph's packages too where newer ones are to be had: hold them \
                 (`apt-mark hold`) where only the rest is meant"
                    .to_owned(),
            ],
            CephGoal::Reboot(_) => Vec::new(),
            CephGoal::Upgrade(_) if self.of_rook => Vec::new(),
            CephGoal::Upgrade(release) => software_remarks::remarks(&self.settings.software, facts, release),
        }
    }

    fn refusal_error(&self, goal: &CephGoal, _facts: &CephFacts, reasons: &[Reason]) -> CliError {
        match goal {
            CephGoal::Upgrade(release) => CliError::refused(&format!("the upgrade to {release}"), reasons),
            CephGoal::Reboot(_) => CliError::refused("the maintenance of its hosts", reasons),
        }
    }

    fn release<'a>(&self, target: &'a Target, asked: &'a str) -> &'a str {
        let stage = target.parts.iter().find_map(|part| match part {
            Part::Stage(stage) => Some(stage.revision.as_str()),
            Part::Step(_) => None,
        });
        stage.unwrap_or(asked)
    }

    async fn findings(
        &self,
        facts: &CephFacts,
        snapshot: &Snapshot,
        known: &[Risk],
        to: Option<&str>,
        accepted: &BTreeSet<String>,
    ) -> Option<Vec<RiskFinding>> {
        let release = |revision: &Revision| revision.as_str().to_owned();
        Some(risks::findings(&*self.api, facts, snapshot, known, to, accepted, release).await)
    }

    fn copy(
        &self,
        planner: &CephPlanner,
        facts: &CephFacts,
        planning: &PlanRequest,
    ) -> Result<ClusterCopy, CliError> {
        let reboots = planning.target.stages().any(|stage| stage.kind.as_str() == HOST);
        let poll = u32::try_from(self.settings.cluster.poll).unwrap_or(u32::MAX);
        if reboots {
            return Ok(copy::of_hosts(facts, planning.snapshot.clone(), poll));
        }
        // Judged as a run would that begins now.
        let memory = planner.memory(facts, &planning.policy)?;
        let backend = CephBackend::new(Arc::clone(&self.api), self.settings.clone(), Some(memory));
        Ok(copy::of(facts, backend.snapshot(facts)?, poll))
    }

    fn missing_commands(&self, plan: &Plan) -> Vec<Reason> {
        if self.of_rook || !self.is_configured {
            return Vec::new();
        }
        let changed = plan.stages().filter(|stage| !stage.waves.is_empty());
        preflight::missing_commands(&self.settings.software, changed.map(|stage| stage.kind.as_str()))
    }

    fn external_runner(&self) -> Option<&'static str> {
        self.of_rook
            .then_some("the image in the CephMaintenance: docs/guides/kubernetes.md")
    }
}

#[async_trait]
impl ManagedSystem for CephSystem {
    fn backend(
        &self,
        memory: Option<CephMemory>,
        identity: Option<&ClusterId>,
    ) -> Result<Arc<dyn Backend>, CliError> {
        let mut settings = self.settings.clone();
        if let Some(identity) = identity {
            settings.hosts = settings.hosts.of_identity(identity);
        }
        Ok(Arc::new(CephBackend::new(
            Arc::clone(&self.api),
            settings,
            memory,
        )))
    }

    fn gate_backend(
        &self,
        planner: &CephPlanner,
        facts: &CephFacts,
        policy: &Policy,
    ) -> Result<Arc<dyn Backend>, CliError> {
        // No host is asked for its boot: whether one is back is told by its daemons.
        let memory = CephMemory {
            reboot: Some(BootsBefore::default()),
            ..planner.memory(facts, policy)?
        };
        self.backend(Some(memory), None)
    }

    async fn preflight(opened: &ClusterHandle<Self>, to: Option<&str>) -> Result<Vec<Check>, CliError> {
        let ClusterHandle { system, planner, .. } = opened;
        let settings = &system.settings;
        let mut found = preflight::codes(&settings.health);
        let looked = opened.source.facts().await;
        let looked = looked.and_then(|facts| Ok((planner.snapshot(&facts)?, facts)));
        let (snapshot, facts) = match looked {
            Ok(looked) => looked,
            Err(error) => {
                found.extend(reachable("cluster", Some(error.into())));
                return Ok(found);
            }
        };
        let units = snapshot.units();
        found.push(Check::passed(
            "cluster",
            format!("{} daemons, fsid {}", units.len(), facts.fsid),
        ));
        found.push(preflight::may_write(&*system.api).await);
        if let Some(why) = system.api.fallback_reason() {
            let slow = Check::warning("[cluster] python", format!("each question starts `ceph`: {why}"));
            found.push(
                slow.hint("a Python with the rados module keeps one connection open: package python3-rados"),
            );
        }
        // A policy that names what there is not is refused here as everywhere.
        let policy = opened.policy(&PolicyFlags::default());
        let policy = policy.and_then(|policy| Ok(planner.verify(&snapshot, &policy)?));
        if let Err(error) = policy {
            found.extend(reachable("[policy]", Some(error)));
            return Ok(found);
        }
        let kinds = units.iter().map(|unit| unit.kind.as_str());
        for reason in preflight::missing_commands(&settings.software, kinds) {
            found.push(Check::failed("[software]", reason.to_string()));
        }
        found.extend(preflight::check_hosts(settings, &facts, to).await);
        if let Some(release) = to {
            match opened.plan(facts, &GoalArgs::upgrade_to(release)).await {
                Err(refused) => found.extend(reachable("target", Some(refused))),
                Ok(PlanContext { planning, .. }) => found.extend(check_run(planning)),
            }
        }
        Ok(found)
    }

    fn guards(&self) -> Result<Option<GuardHolder>, CliError> {
        let backend = CephBackend::new(Arc::clone(&self.api), self.settings.clone(), None);
        Ok(Some(GuardHolder::Ceph(Box::new(backend))))
    }
}

impl CephSystem {
    /// The version that a release means, by what its hosts can install; the release as it was given where they do not say.
    async fn version_of(&self, release: String, facts: &CephFacts) -> String {
        if !self.answers || offered::is_a_version(&release) {
            return release;
        }
        let offered = offered::offered_versions(&self.settings, facts).await;
        offered::newest(&offered, &release).map_or(release, |version| version.to_string())
    }
}

/// Tells a task from all others: of a later one no host is done yet.
fn token() -> String {
    format!("{:x}", Timestamp::now().as_microsecond())
}

/// Whether a run can begin, and the known risks that keep nobody from it.
fn check_run(mut planning: PlanRequest) -> Vec<Check> {
    let made = make_plan(&PolicyFlags::default(), &mut planning);
    let refused = made.and_then(|plan| refusal(&planning, &plan).map_or(Ok(()), Err));
    let told: Vec<RiskFinding> = planning
        .risks
        .iter()
        .filter(|risk| !risk.blocks_run())
        .cloned()
        .collect();
    let lines = crate::risks::lines(&told).into_iter();
    let mut checks = reachable("target", refused.err());
    checks.extend(lines.map(|line| Check::warning("known risk", line)));
    checks
}
