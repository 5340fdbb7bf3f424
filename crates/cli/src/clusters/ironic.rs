//! An Ironic: that of the configuration, or an inventory of it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use stagger_core::model::{ClusterId, ConditionName, Reason, Revision, Snapshot};
use stagger_engine::cluster::Backend;
use stagger_engine::hosts::Hosts;
use stagger_engine::inventory::Inventory;
use stagger_engine::preflight::Check;
use stagger_ironic::backend::IronicBackend;
use stagger_ironic::conditions::{NO_OLD_SERVICE, UNPINNED};
use stagger_ironic::config::IronicSettings;
use stagger_ironic::facts::IronicFacts;
use stagger_ironic::goal::{UpgradeGoal, WantedRelease};
use stagger_ironic::offered;
use stagger_ironic::planner::IronicPlanner;
use stagger_ironic::preflight;
use stagger_ironic::source::{LiveIronic, RecordedIronic, wanted_release};
use stagger_ironic::target::part::{APIS, CONDUCTORS, UNPIN_APIS, UNPIN_CONDUCTORS};
use stagger_ironic::versions::versions;
use stagger_risks::{ClusterAnswer, Risk, RiskFinding, UpgradePath, judge};
use stagger_sim::ClusterCopy;

use super::cluster_handle::{ClusterHandle, ClusterSystem, ManagedSystem};
use super::{POLL, VersionReport, reachable, unusable};
use crate::args::{Cli, GoalArgs};
use crate::config::{self, Config};
use crate::error::CliError;
use crate::exit::Exit;
use crate::planning::PlanRequest;

/// What an Ironic does its own way.
pub(crate) struct IronicSystem {
    settings: IronicSettings,
    /// Whether it can be asked; of an inventory nothing is.
    answers: bool,
}

impl ClusterHandle<IronicSystem> {
    /// That of this configuration.
    pub(super) fn of_config(config: Config, settings: IronicSettings) -> Result<Self, CliError> {
        Ok(Self {
            source: Box::new(LiveIronic::new(&settings)?),
            planner: IronicPlanner::new(settings.cluster.clone()),
            system: IronicSystem {
                settings,
                answers: true,
            },
            measures: config.measures()?,
            config: Some(config),
        })
    }

    /// An inventory that was read from that file. It is judged by the configuration, where one is named.
    pub(super) fn from_inventory(cli: &Cli, path: &Path, inventory: &Inventory) -> Result<Self, CliError> {
        let mut kept = RecordedIronic::read(inventory).map_err(|error| unusable(path, &error))?;
        let config = cli.config.is_some().then(|| config::read(cli)).transpose()?;
        let settings = config.as_ref().map(|config| {
            config.ironic().ok_or_else(|| {
                CliError::usage(format!(
                    "{} is of an Ironic cluster; the configuration is for another kind of cluster",
                    path.display()
                ))
                .hint("leave out --config: the inventory contains the configuration")
            })
        });
        let settings = settings
            .transpose()?
            .unwrap_or_else(|| IronicSettings::new(kept.cluster.clone(), Hosts::default()));
        kept.cluster.clone_from(&settings.cluster);
        Ok(Self {
            source: Box::new(kept),
            planner: IronicPlanner::new(settings.cluster.clone()),
            system: IronicSystem {
                settings,
                answers: false,
            },
            measures: None,
            config,
        })
    }
}

#[async_trait]
impl ClusterSystem for IronicSystem {
    type Planner = IronicPlanner;

    const KIND: &'static str = "an Ironic cluster";

    fn goal(&self, goal: &GoalArgs) -> Result<WantedRelease, CliError> {
        Ok(WantedRelease::new(&goal.upgrade(Self::KIND)?.to))
    }

    /// The new release's own code says what it is.
    async fn goal_by_asking(
        &self,
        wanted: WantedRelease,
        _goal: &GoalArgs,
        _planner: &IronicPlanner,
        _facts: &IronicFacts,
    ) -> Result<WantedRelease, CliError> {
        if self.answers {
            Ok(wanted_release(&self.settings, &wanted.release).await?)
        } else {
            Ok(wanted)
        }
    }

    fn refusal_error(&self, wanted: &WantedRelease, facts: &IronicFacts, reasons: &[Reason]) -> CliError {
        let mut error = CliError::refused(&format!("the upgrade to {}", wanted.release), reasons);
        if facts.unreachable_reason().is_some() {
            error.exit = Exit::Unreachable;
        }
        error
    }

    async fn findings(
        &self,
        _facts: &IronicFacts,
        snapshot: &Snapshot,
        known: &[Risk],
        to: Option<&str>,
        accepted: &BTreeSet<String>,
    ) -> Option<Vec<RiskFinding>> {
        Some(findings(snapshot, known, to, accepted))
    }

    /// The conditions that nothing but the upgrade makes true come with it.
    fn copy(
        &self,
        _planner: &IronicPlanner,
        _facts: &IronicFacts,
        planning: &PlanRequest,
    ) -> Result<ClusterCopy, CliError> {
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
        Ok(ClusterCopy::drained(planning.snapshot.clone(), POLL, comes_with))
    }

    fn versions(&self, planner: &IronicPlanner, facts: &IronicFacts) -> Result<VersionReport, CliError> {
        Ok(VersionReport {
            // What is written down is shown all the same.
            answers: facts.unreachable_reason().is_none(),
            snapshot: planner.snapshot_of(facts)?,
            services: versions(facts, planner.config(), &planner.table(facts)),
        })
    }
}

#[async_trait]
impl ManagedSystem for IronicSystem {
    fn backend(
        &self,
        goal: Option<UpgradeGoal>,
        identity: Option<&ClusterId>,
    ) -> Result<Arc<dyn Backend>, CliError> {
        let mut settings = self.settings.clone();
        if let Some(identity) = identity {
            settings.hosts = settings.hosts.of_identity(identity);
        }
        Ok(Arc::new(IronicBackend::new(settings, goal)?))
    }

    async fn preflight(opened: &ClusterHandle<Self>, to: Option<&str>) -> Result<Vec<Check>, CliError> {
        let mut checks = preflight::check_hosts(&opened.system.settings).await;
        let facts = match opened.source.facts().await {
            Ok(facts) => facts,
            Err(error) => {
                checks.extend(reachable("cluster", Some(error.into())));
                return Ok(checks);
            }
        };
        checks.extend(preflight::of_facts(&facts));
        checks.extend(preflight::may_write(&opened.system.settings, &facts).await);
        if let Some(to) = to {
            checks.extend(offered::check(&opened.system.settings, to).await);
            let planned = opened.plan(facts, &GoalArgs::upgrade_to(to)).await;
            checks.extend(reachable("target", planned.err()));
        }
        Ok(checks)
    }
}

/// What is found of each risk on the way to that release, or to any. Of an Ironic conditions know its services.
fn findings(
    snapshot: &Snapshot,
    known: &[Risk],
    to: Option<&str>,
    accepted: &BTreeSet<String>,
) -> Vec<RiskFinding> {
    let units = || snapshot.units().iter();
    let way = UpgradePath {
        system: stagger_risks::System::Ironic,
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
    let mut cluster = stagger_risks::RiskFacts::unknown("not supported for Ironic");
    cluster.daemons = ClusterAnswer::Yes(daemons);
    judge(known, &way, &cluster, accepted)
}
