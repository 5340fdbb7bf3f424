//! An opened cluster: its source and its planner. Every kind of system uses it, and [`ClusterSystem`] holds
//! what differs.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use serde::de::DeserializeOwned;
use stagger_core::model::{ClusterId, Policy, Reason, RunId, Snapshot, Target};
use stagger_core::plan::Plan;
use stagger_engine::cluster::{Backend, Planned, Planner, PlannerError, Source};
use stagger_engine::inventory::Inventory;
use stagger_engine::preflight::Check;
use stagger_gates::{MeasuredBackend, Measures};
use stagger_risks::{Risk, RiskFinding};
use stagger_sim::ClusterCopy;

use super::guards::GuardHolder;
use super::{Cluster, ManagedCluster, POLL, RehearsalInput, RiskReport, RunInput, VersionReport};
use crate::args::{GoalAction, GoalArgs, PolicyFlags};
use crate::config::{self, Config};
use crate::error::CliError;
use crate::exit::Exit;
use crate::planning::PlanRequest;
use crate::print;

/// What a system's planner plans by.
pub(crate) type FactsOf<S> = <<S as ClusterSystem>::Planner as Planner>::Facts;
/// What can be wanted of such a system.
pub(crate) type GoalOf<S> = <<S as ClusterSystem>::Planner as Planner>::Goal;
/// What a run on such a system remembers.
pub(crate) type MemoryOf<S> = <<S as ClusterSystem>::Planner as Planner>::Memory;

/// What a kind of system does its own way at the command line.
#[async_trait]
pub(crate) trait ClusterSystem: Send + Sync + Sized {
    /// What plans for it.
    type Planner: Planner;

    /// What it is called: `a Ceph`.
    const KIND: &'static str;

    /// What the flags want of it. Nothing is asked: what is wrong with flags is said before.
    fn goal(&self, goal: &GoalArgs) -> Result<GoalOf<Self>, CliError>;

    /// The goal as the cluster itself or earlier runs of it make it, where flags alone do not say it: the nodes of a Ganeti, or
    /// the hosts of a Ceph, that need a reboot are found by asking each.
    async fn goal_by_asking(
        &self,
        wanted: GoalOf<Self>,
        _goal: &GoalArgs,
        _planner: &Self::Planner,
        _facts: &FactsOf<Self>,
    ) -> Result<GoalOf<Self>, CliError> {
        Ok(wanted)
    }

    /// What is to be known of such a cluster beside a plan to that goal, a line each: `warning: …`, `note: …`.
    fn remarks(&self, _planner: &Self::Planner, _facts: &FactsOf<Self>, _goal: &GoalOf<Self>) -> Vec<String> {
        Vec::new()
    }

    /// Why the way to that goal is not begun.
    fn refusal_error(&self, goal: &GoalOf<Self>, facts: &FactsOf<Self>, reasons: &[Reason]) -> CliError;

    /// The release that an upgrade leads to, as known risks name it. `v18.2.7`, `18` or `reef` may have been asked for.
    fn release<'a>(&self, _target: &'a Target, asked: &'a str) -> &'a str {
        asked
    }

    /// What is found of each risk on the way to that release, or to any. `None`: it is not upgraded.
    async fn findings(
        &self,
        _facts: &FactsOf<Self>,
        _snapshot: &Snapshot,
        _known: &[Risk],
        _to: Option<&str>,
        _accepted: &BTreeSet<String>,
    ) -> Option<Vec<RiskFinding>> {
        None
    }

    /// A copy on which a plan is rehearsed.
    fn copy(
        &self,
        _planner: &Self::Planner,
        _facts: &FactsOf<Self>,
        planning: &PlanRequest,
    ) -> Result<ClusterCopy, CliError> {
        Ok(ClusterCopy::drained(planning.snapshot.clone(), POLL, Vec::new()))
    }

    /// Which release each unit runs.
    fn versions(&self, planner: &Self::Planner, facts: &FactsOf<Self>) -> Result<VersionReport, CliError> {
        Ok(VersionReport {
            answers: true,
            snapshot: planner.snapshot(facts)?,
            services: Vec::new(),
        })
    }

    /// The commands that a run of this plan needs and the configuration does not give.
    fn missing_commands(&self, _plan: &Plan) -> Vec<Reason> {
        Vec::new()
    }

    /// How a plan is carried out where no `stagger run` does it.
    fn external_runner(&self) -> Option<&'static str> {
        None
    }
}

/// A system on which runs are carried out.
#[async_trait]
pub(crate) trait ManagedSystem: ClusterSystem {
    /// The backend, for a run that began with that memory, or to look.
    fn backend(
        &self,
        memory: Option<MemoryOf<Self>>,
        identity: Option<&ClusterId>,
    ) -> Result<Arc<dyn Backend>, CliError>;

    /// The backend by which others are answered who ask to take hosts down, by how the cluster is now.
    fn gate_backend(
        &self,
        _planner: &Self::Planner,
        _facts: &FactsOf<Self>,
        _policy: &Policy,
    ) -> Result<Arc<dyn Backend>, CliError> {
        self.backend(None, None)
    }

    /// Refuses before anything begins what would fail in the middle of a run, where no plan shows it.
    async fn may_begin(&self, _goal: &GoalArgs, _facts: &FactsOf<Self>) -> Result<(), CliError> {
        Ok(())
    }

    /// What a run would miss. `to`: and whether that release can be reached.
    async fn preflight(opened: &ClusterHandle<Self>, to: Option<&str>) -> Result<Vec<Check>, CliError>;

    /// What is to be said when a run is over: what it has left in the cluster, and where guests are by now. `memory`: what it
    /// remembers, if that can be read.
    async fn final_findings(
        _opened: &ClusterHandle<Self>,
        _run: &RunId,
        _memory: Option<MemoryOf<Self>>,
    ) -> Result<Vec<String>, CliError> {
        Ok(Vec::new())
    }

    /// Who keeps its guards; `None`: there are none that outlive a visit.
    fn guards(&self) -> Result<Option<GuardHolder>, CliError> {
        Ok(None)
    }

    /// Whether a unit on its machines carries runs on whose process died.
    fn resumes_automatically(&self) -> bool {
        false
    }
}

/// A cluster: one that answers, or one that was recorded.
pub(crate) struct ClusterHandle<S: ClusterSystem> {
    pub(super) system: S,
    pub(crate) source: Box<dyn Source<Facts = FactsOf<S>>>,
    pub(super) planner: S::Planner,
    /// The configuration, if one was read.
    pub(super) config: Option<Config>,
    /// Whoever measures what the cluster itself does not. Of what was recorded nobody measures anything now.
    pub(super) measures: Option<Arc<Measures>>,
}

/// What a plan to a goal is made of, by one look.
pub(crate) struct PlanContext<S: ClusterSystem> {
    pub(super) facts: FactsOf<S>,
    pub(super) planning: PlanRequest,
    pub(super) memory: MemoryOf<S>,
}

impl<S: ClusterSystem> ClusterHandle<S> {
    /// The policy: the configuration's with the flags over it.
    pub(super) fn policy(&self, flags: &PolicyFlags) -> Result<Policy, CliError> {
        match &self.config {
            Some(config) => config.policy(flags),
            None => config::with_flags(Policy::default(), flags),
        }
    }

    /// The risks that are heeded: those of the program, of the configuration, and of these files.
    fn known_risks(&self, files: &[PathBuf]) -> Result<Vec<Risk>, CliError> {
        let configured = self.config.iter().flat_map(|config| &config.risks);
        crate::risks::load_risks(configured.chain(files))
    }

    /// What the flags want, and by which policy. Both are read once for a plan.
    fn request(&self, goal: &GoalArgs) -> Result<(GoalOf<S>, Policy), CliError> {
        Ok((self.system.goal(goal)?, self.policy(&goal.policy)?))
    }

    async fn observe(&self, goal: &GoalArgs) -> Result<PlanContext<S>, CliError> {
        // What is wrong with the flags is said before the cluster is asked.
        let (wanted, policy) = self.request(goal)?;
        let facts = self.source.facts().await?;
        let asked = self.system.goal_by_asking(wanted, goal, &self.planner, &facts);
        let wanted = asked.await?;
        for remark in self.system.remarks(&self.planner, &facts, &wanted) {
            print::status_line(&remark);
        }
        self.plan_for(facts, goal, &wanted, policy).await
    }

    /// What a plan to that goal is made of, by these facts.
    pub(super) async fn plan(&self, facts: FactsOf<S>, goal: &GoalArgs) -> Result<PlanContext<S>, CliError> {
        let (wanted, policy) = self.request(goal)?;
        let asked = self.system.goal_by_asking(wanted, goal, &self.planner, &facts);
        let wanted = asked.await?;
        self.plan_for(facts, goal, &wanted, policy).await
    }

    async fn plan_for(
        &self,
        facts: FactsOf<S>,
        goal: &GoalArgs,
        wanted: &GoalOf<S>,
        policy: Policy,
    ) -> Result<PlanContext<S>, CliError> {
        let Planned {
            snapshot,
            mut target,
            memory,
        } = self
            .planner
            .plan(&facts, wanted, &policy)
            .map_err(|error| match error {
                PlannerError::Refused(refusal) => self.system.refusal_error(wanted, &facts, &refusal.0),
                other => other.into(),
            })?;
        let risks = self.findings(goal, &facts, &snapshot, &target).await?;
        if let Some(measures) = &self.measures {
            measures.guard(&mut target, &policy).map_err(CliError::usage)?;
        }
        let snapshot = self.with_measures(snapshot).await;
        if let Some(measures) = &self.measures {
            for shut in measures.closed(&snapshot) {
                print::status_line(&format!(
                    "warning: {} is {}: {}; a run waits until it opens",
                    shut.name, shut.verdict, shut.why
                ));
            }
        }
        Ok(PlanContext {
            facts,
            planning: PlanRequest {
                snapshot,
                target,
                policy,
                risks,
            },
            memory,
        })
    }

    /// A backend that observes what others measure too.
    fn measuring(&self, backend: Arc<dyn Backend>) -> Arc<dyn Backend> {
        match &self.measures {
            Some(measures) => Arc::new(MeasuredBackend::new(backend, Arc::clone(measures))),
            None => backend,
        }
    }

    /// With what others measure of it.
    async fn with_measures(&self, snapshot: Snapshot) -> Snapshot {
        match &self.measures {
            Some(measures) => snapshot.with_conditions(measures.conditions().await),
            None => snapshot,
        }
    }

    /// What is found of known risks on the way to an upgrade's release.
    async fn findings(
        &self,
        goal: &GoalArgs,
        facts: &FactsOf<S>,
        snapshot: &Snapshot,
        target: &Target,
    ) -> Result<Vec<RiskFinding>, CliError> {
        let GoalAction::Upgrade(upgrade) = &goal.action else {
            return Ok(Vec::new());
        };
        let known = self.known_risks(&upgrade.risks.risks)?;
        let accepted = crate::risks::accepted_risks(&upgrade.risks, &known)?;
        let to = Some(self.system.release(target, &upgrade.to));
        let found = self.system.findings(facts, snapshot, &known, to, &accepted).await;
        Ok(found.unwrap_or_default())
    }
}

#[async_trait]
impl<S: ClusterSystem> Cluster for ClusterHandle<S> {
    async fn snapshot(&self) -> Result<Snapshot, CliError> {
        let snapshot = self.planner.snapshot(&self.source.facts().await?)?;
        Ok(self.with_measures(snapshot).await)
    }

    async fn inventory(&self) -> Result<(Inventory, Snapshot), CliError> {
        let (inventory, facts) = self.source.inventory().await?;
        Ok((inventory, self.planner.snapshot(&facts)?))
    }

    async fn planning_input(&self, goal: &GoalArgs) -> Result<PlanRequest, CliError> {
        Ok(self.observe(goal).await?.planning)
    }

    async fn rehearsal_input(&self, goal: &GoalArgs) -> Result<RehearsalInput, CliError> {
        let PlanContext { facts, planning, .. } = self.observe(goal).await?;
        Ok(RehearsalInput {
            copy: self.system.copy(&self.planner, &facts, &planning)?,
            planning,
        })
    }

    async fn versions(&self) -> Result<VersionReport, CliError> {
        self.system.versions(&self.planner, &self.source.facts().await?)
    }

    async fn risks(&self, files: &[PathBuf], to: Option<&str>) -> Result<Option<RiskReport>, CliError> {
        let known = self.known_risks(files)?;
        let facts = self.source.facts().await?;
        let snapshot = self.planner.snapshot(&facts)?;
        let none = BTreeSet::new();
        let found = self.system.findings(&facts, &snapshot, &known, to, &none).await;
        Ok(found.map(|found| RiskReport {
            cluster: snapshot.cluster().to_string(),
            known,
            found,
        }))
    }

    fn missing_commands(&self, plan: &Plan) -> Vec<Reason> {
        self.system.missing_commands(plan)
    }

    fn external_runner(&self) -> Option<&'static str> {
        self.system.external_runner()
    }
}

#[async_trait]
impl<S: ManagedSystem> ManagedCluster for ClusterHandle<S>
where
    MemoryOf<S>: DeserializeOwned,
{
    async fn run_input(&self, goal: &GoalArgs) -> Result<RunInput, CliError> {
        let PlanContext {
            facts,
            planning,
            memory,
        } = self.observe(goal).await?;
        self.system.may_begin(goal, &facts).await?;
        let baseline = serde_json::to_value(&memory)
            .map_err(|error| CliError::new(Exit::Internal, format!("the memory of the run: {error}")))?;
        let identity = self.system.backend(None, None)?.identity().await?;
        let backend = self.system.backend(Some(memory), Some(&identity))?;
        Ok(RunInput {
            planning,
            baseline,
            backend: self.measuring(backend),
        })
    }

    fn backend_of_run(
        &self,
        baseline: &serde_json::Value,
        identity: Option<&ClusterId>,
    ) -> Result<Arc<dyn Backend>, CliError> {
        let memory = serde_json::from_value(baseline.clone()).map_err(|error| {
            CliError::usage(format!("the run keeps no memory of {}: {error}", S::KIND)).hint(
                "is it a run of another cluster? --config names the configuration. A run of `stagger simulate` ended with \
                 its simulation, and cannot be resumed",
            )
        })?;
        let backend = self.system.backend(Some(memory), identity)?;
        Ok(self.measuring(backend))
    }

    async fn gate_backend(&self) -> Result<Arc<dyn Backend>, CliError> {
        let policy = self.policy(&PolicyFlags::default())?;
        let facts = self.source.facts().await?;
        let backend = self.system.gate_backend(&self.planner, &facts, &policy)?;
        Ok(self.measuring(backend))
    }

    async fn preflight(&self, to: Option<&str>) -> Result<Vec<Check>, CliError> {
        let mut found = S::preflight(self, to).await?;
        if let Some(measures) = &self.measures {
            found.extend(measures.preflight().await);
        }
        Ok(found)
    }

    async fn final_findings(
        &self,
        run: &RunId,
        baseline: &serde_json::Value,
    ) -> Result<Vec<String>, CliError> {
        S::final_findings(self, run, serde_json::from_value(baseline.clone()).ok()).await
    }

    fn guards(&self) -> Result<Option<GuardHolder>, CliError> {
        self.system.guards()
    }

    fn resumes_automatically(&self) -> bool {
        self.system.resumes_automatically()
    }
}
