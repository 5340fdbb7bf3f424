//! An Ironic: the one of the configuration, or an inventory of it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use stagger_core::model::{ClusterId, ConditionName, Policy, Revision, Snapshot};
use stagger_engine::cluster::{Backend, BackendError, Lock as _};
use stagger_engine::inventory::Inventory;
use stagger_engine::preflight::Check;
use stagger_engine::redact::redact;
use stagger_ironic::backend::IronicBackend;
use stagger_ironic::conditions::{NO_OLD_SERVICE, UNPINNED};
use stagger_ironic::config::{IronicConfig, Role, Settings};
use stagger_ironic::facts::Facts;
use stagger_ironic::goal::UpgradeGoal;
use stagger_ironic::preflight;
use stagger_ironic::releases::Releases;
use stagger_ironic::target::part::{APIS, CONDUCTORS, UNPIN_APIS, UNPIN_CONDUCTORS};
use stagger_ironic::target::upgrade;
use stagger_ironic::translate::translate;
use stagger_ironic::versions::versions;
use stagger_risks::{Finding, Known, Risk, System, Way, judge};
use stagger_sim::ClusterCopy;

use super::names::names_are_known;
use super::{
    Cluster, ManagedCluster, POLL, RehearsalInput, RiskReport, RunInput, VersionReport, reachable, unusable,
};
use crate::args::{Cli, Goal};
use crate::config::{self, Config};
use crate::error::CliError;
use crate::exit::Exit;
use crate::planning::PlanRequest;
use crate::risks::{accepted, known};

/// What an inventory of one says that it is.
pub(crate) const SYSTEM: &str = "ironic";

/// What an inventory keeps of an Ironic.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct IronicAnswers {
    facts: Facts,
    /// Its services and how they are reached, as the configuration had it, without secrets.
    cluster: IronicConfig,
}

/// What was seen of an Ironic.
struct ObservedIronic<'a> {
    facts: &'a Facts,
    config: &'a IronicConfig,
    table: Releases,
}

impl<'a> ObservedIronic<'a> {
    fn new(facts: &'a Facts, config: &'a IronicConfig) -> Self {
        Self {
            facts,
            config,
            table: Releases::known(),
        }
    }

    fn snapshot(&self, upgrade_goal: Option<&UpgradeGoal>) -> Result<Snapshot, CliError> {
        translate(self.facts, self.config, &self.table, upgrade_goal).map_err(|error| {
            let why = match std::error::Error::source(&error) {
                Some(source) => format!("{error}: {source}"),
                None => error.to_string(),
            };
            BackendError::permanent("make sense of Ironic's facts", why).into()
        })
    }

    /// The same, unless nothing of it answers.
    fn snapshot_if_it_answers(&self) -> Result<Snapshot, CliError> {
        if let Some(why) = self.facts.silent() {
            return Err(CliError::new(
                Exit::Unreachable,
                format!("nothing of the Ironic answers: {why}"),
            ));
        }
        self.snapshot(None)
    }

    /// What a plan to that goal is made of, and what a run keeps of it.
    fn planned(
        &self,
        goal: &Goal,
        policy: Policy,
        files: &[PathBuf],
    ) -> Result<(PlanRequest, UpgradeGoal), CliError> {
        let asked = goal.upgrade("an Ironic")?;
        let release = asked.to.as_str();
        let known = known(files.iter().chain(&asked.risks.risks))?;
        let accepted = accepted(&asked.risks, &known)?;
        let upgrade = upgrade(self.facts, self.config, &self.table, release, &policy).map_err(|refusal| {
            let mut error = CliError::refused(&format!("the upgrade to {release}"), &refusal.0);
            if self.facts.silent().is_some() {
                error.exit = Exit::Unreachable;
            }
            error
        })?;
        let snapshot = self.snapshot(Some(&upgrade.goal))?;
        let kinds = BTreeSet::from([Role::Conductor.as_str(), Role::Api.as_str()]);
        names_are_known(&snapshot, &policy, BTreeSet::from(["host", "group"]), &kinds)?;
        let input = PlanRequest {
            risks: risks(&known, &snapshot, Some(release), &accepted),
            snapshot,
            target: upgrade.target,
            policy,
        };
        Ok((input, upgrade.goal))
    }

    fn versions(&self) -> Result<VersionReport, CliError> {
        Ok(VersionReport {
            // What is written down is shown all the same.
            answers: self.facts.silent().is_none(),
            snapshot: self.snapshot(None)?,
            services: versions(self.facts, self.config, &self.table),
        })
    }

    fn inventory(&self) -> Result<Inventory, CliError> {
        let internal =
            |error: serde_json::Error| CliError::new(Exit::Internal, format!("write the inventory: {error}"));
        let mut cluster = serde_json::to_value(self.config).map_err(internal)?;
        without_secrets(&mut cluster);
        let kept = IronicAnswers {
            facts: self.facts.clone(),
            cluster: serde_json::from_value(cluster).map_err(internal)?,
        };
        Inventory::new(SYSTEM, self.config.name.clone(), self.facts.at, &kept).map_err(internal)
    }
}

/// What a rehearsal begins with: the conditions that nothing but the upgrade makes true come with it.
fn rehearsal_of(planning: PlanRequest) -> Result<RehearsalInput, CliError> {
    let revisions = |stages: &[&str]| -> Vec<Revision> {
        let all = planning.target.stages();
        let named = all.filter(|stage| stages.contains(&stage.name.as_str()));
        named.map(|stage| stage.revision.clone()).collect()
    };
    let upgraded = revisions(&[CONDUCTORS, APIS, UNPIN_CONDUCTORS, UNPIN_APIS]);
    let unpinned = revisions(&[UNPIN_CONDUCTORS, UNPIN_APIS]);
    let comes_with = [(NO_OLD_SERVICE, upgraded), (UNPINNED, unpinned)].map(|(name, revisions)| {
        let name = ConditionName::new(name)
            .map_err(|error| CliError::new(Exit::Internal, format!("name a condition: {error}")))?;
        Ok::<_, CliError>((name, revisions))
    });
    let comes_with = comes_with.into_iter().collect::<Result<Vec<_>, _>>()?;
    Ok(RehearsalInput {
        copy: ClusterCopy::drained(planning.snapshot.clone(), POLL, comes_with),
        planning,
    })
}

/// Commands are written by people, and what they write may be a secret.
fn without_secrets(value: &mut Value) {
    match value {
        Value::String(text) => *text = redact(text),
        Value::Array(values) => values.iter_mut().for_each(without_secrets),
        Value::Object(fields) => fields.values_mut().for_each(without_secrets),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// An Ironic that answers.
pub(crate) struct LiveIronic {
    config: Config,
    settings: Settings,
}

impl LiveIronic {
    /// That of this configuration.
    pub(crate) fn new(config: Config, settings: Settings) -> Self {
        Self { config, settings }
    }

    fn backend(&self) -> Result<IronicBackend, CliError> {
        Ok(IronicBackend::new(self.settings.clone(), None)?)
    }

    /// One for a run of that Ironic.
    fn backend_of(
        &self,
        identity: Option<&ClusterId>,
        upgrade_goal: UpgradeGoal,
    ) -> Result<IronicBackend, CliError> {
        let mut settings = self.settings.clone();
        if let Some(identity) = identity {
            settings.hosts = settings.hosts.of_identity(identity);
        }
        Ok(IronicBackend::new(settings, Some(upgrade_goal))?)
    }

    async fn look(&self) -> Result<Facts, CliError> {
        Ok(self.backend()?.look().await)
    }

    fn looked<'a>(&'a self, facts: &'a Facts) -> ObservedIronic<'a> {
        ObservedIronic::new(facts, &self.settings.cluster)
    }

    async fn planned(&self, goal: &Goal) -> Result<(PlanRequest, UpgradeGoal), CliError> {
        let policy = self.config.policy(&goal.policy)?;
        let facts = self.look().await?;
        self.looked(&facts).planned(goal, policy, &self.config.risks)
    }
}

#[async_trait]
impl Cluster for LiveIronic {
    async fn snapshot(&self) -> Result<Snapshot, CliError> {
        self.looked(&self.look().await?).snapshot_if_it_answers()
    }

    async fn inventory(&self) -> Result<(Inventory, Snapshot), CliError> {
        let facts = self.look().await?;
        let looked = self.looked(&facts);
        Ok((looked.inventory()?, looked.snapshot_if_it_answers()?))
    }

    async fn planning_input(&self, goal: &Goal) -> Result<PlanRequest, CliError> {
        Ok(self.planned(goal).await?.0)
    }

    async fn rehearsal_input(&self, goal: &Goal) -> Result<RehearsalInput, CliError> {
        rehearsal_of(self.planning_input(goal).await?)
    }

    async fn risks(&self, files: &[PathBuf], to: Option<&str>) -> Result<Option<RiskReport>, CliError> {
        let known = known(self.config.risks.iter().chain(files))?;
        Ok(Some(risk_report(&self.snapshot().await?, known, to)))
    }

    async fn versions(&self) -> Result<VersionReport, CliError> {
        self.looked(&self.look().await?).versions()
    }
}

#[async_trait]
impl ManagedCluster for LiveIronic {
    async fn run_input(&self, goal: &Goal) -> Result<RunInput, CliError> {
        let (planning, upgrade_goal) = self.planned(goal).await?;
        let identity = self.backend()?.identity().await?;
        let baseline = serde_json::to_value(&upgrade_goal)
            .map_err(|error| CliError::new(Exit::Internal, format!("the memory of the run: {error}")))?;
        Ok(RunInput {
            planning,
            baseline,
            backend: Arc::new(self.backend_of(Some(&identity), upgrade_goal)?),
        })
    }

    fn backend_of_run(
        &self,
        baseline: &Value,
        identity: Option<&ClusterId>,
    ) -> Result<Arc<dyn Backend>, CliError> {
        let upgrade_goal: UpgradeGoal = serde_json::from_value(baseline.clone()).map_err(|error| {
            CliError::usage(format!("the run keeps no memory of an Ironic: {error}"))
                .hint("is it a run of another cluster? --config names the configuration")
        })?;
        Ok(Arc::new(self.backend_of(identity, upgrade_goal)?))
    }

    async fn preflight(&self, to: Option<&str>) -> Result<Vec<Check>, CliError> {
        let facts = self.look().await?;
        let mut checks = preflight::of_facts(&facts);
        checks.extend(preflight::look(&self.settings).await);
        if let Some(to) = to {
            let goal = Goal::upgrade_to(to);
            checks.extend(reachable("target", self.planning_input(&goal).await.err()));
        }
        Ok(checks)
    }
}

/// An Ironic that was looked at before.
pub(crate) struct IronicInventory {
    kept: IronicAnswers,
    /// By which it is judged, where one is named.
    config: Option<Config>,
}

impl IronicInventory {
    /// An inventory that was read from that file.
    pub(crate) fn read(cli: &Cli, path: &Path, inventory: &Inventory) -> Result<Self, CliError> {
        let mut kept: IronicAnswers = inventory.answers().map_err(|error| unusable(path, &error))?;
        let config = cli.config.is_some().then(|| config::read(cli)).transpose()?;
        if let Some(config) = &config {
            let settings = config.ironic().ok_or_else(|| {
                CliError::usage(format!(
                    "{} is of an Ironic, and the configuration is not",
                    path.display()
                ))
                .hint("leave out --config: the inventory says how the Ironic is made up")
            })?;
            kept.cluster = settings.cluster;
        }
        Ok(Self { kept, config })
    }

    fn looked(&self) -> ObservedIronic<'_> {
        ObservedIronic::new(&self.kept.facts, &self.kept.cluster)
    }

    fn risk_files(&self) -> &[PathBuf] {
        self.config.as_ref().map_or(&[], |config| &config.risks)
    }
}

/// What is found of each risk on the way to that release, or to any. Of an Ironic conditions know its services.
fn risks(known: &[Risk], snapshot: &Snapshot, to: Option<&str>, accepted: &BTreeSet<String>) -> Vec<Finding> {
    let units = || snapshot.units().iter();
    let way = Way {
        system: System::Ironic,
        running: units()
            .map(|unit| {
                unit.revision
                    .as_ref()
                    .map(|revision| revision.as_str().to_owned())
            })
            .collect(),
        to: to.map(str::to_owned),
    };
    let mut daemons: BTreeMap<String, usize> = BTreeMap::new();
    for unit in units() {
        *daemons.entry(unit.kind.to_string()).or_default() += 1;
    }
    let mut cluster = stagger_risks::Cluster::unknown("that is not asked of an Ironic");
    cluster.daemons = Known::Yes(daemons);
    judge(known, &way, &cluster, accepted)
}

/// The same of an Ironic, as `stagger risks` tells it.
fn risk_report(snapshot: &Snapshot, known: Vec<Risk>, to: Option<&str>) -> RiskReport {
    RiskReport {
        cluster: snapshot.cluster().to_string(),
        found: risks(&known, snapshot, to, &BTreeSet::new()),
        known,
    }
}

#[async_trait]
impl Cluster for IronicInventory {
    async fn snapshot(&self) -> Result<Snapshot, CliError> {
        self.looked().snapshot_if_it_answers()
    }

    async fn inventory(&self) -> Result<(Inventory, Snapshot), CliError> {
        Ok((
            self.looked().inventory()?,
            self.looked().snapshot_if_it_answers()?,
        ))
    }

    async fn planning_input(&self, goal: &Goal) -> Result<PlanRequest, CliError> {
        let policy = match &self.config {
            Some(config) => config.policy(&goal.policy)?,
            None => config::over(Policy::default(), &goal.policy)?,
        };
        Ok(self.looked().planned(goal, policy, self.risk_files())?.0)
    }

    async fn rehearsal_input(&self, goal: &Goal) -> Result<RehearsalInput, CliError> {
        rehearsal_of(self.planning_input(goal).await?)
    }

    async fn risks(&self, files: &[PathBuf], to: Option<&str>) -> Result<Option<RiskReport>, CliError> {
        let known = known(self.risk_files().iter().chain(files))?;
        Ok(Some(risk_report(&self.snapshot().await?, known, to)))
    }

    async fn versions(&self) -> Result<VersionReport, CliError> {
        self.looked().versions()
    }
}
