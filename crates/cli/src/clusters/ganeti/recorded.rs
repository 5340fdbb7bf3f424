//! A Ganeti as its RAPI once answered: planned as it would have been then.

use std::path::Path;

use async_trait::async_trait;
use stagger_core::model::{ClusterName, Policy, Snapshot};
use stagger_engine::inventory::Inventory;
use stagger_ganeti::config::Visits;
use stagger_ganeti::facts::{Answers, facts};
use stagger_ganeti::maintenance::snapshot::live::EvacuationGoal;

use super::live::{ObservedGaneti, planned};
use super::{GanetiAnswers, SYSTEM, goal};
use crate::args::{Cli, Goal};
use crate::clusters::Cluster;
use crate::config::{self, Config};
use crate::error::CliError;
use crate::exit::Exit;
use crate::planning::PlanRequest;

/// Answers that were saved.
pub(super) struct GanetiInventory<'a> {
    path: &'a Path,
    name: ClusterName,
    answers: Answers,
    looked: ObservedGaneti,
    /// By which it is judged, where one is named.
    config: Option<Config>,
    visits: Visits,
}

impl<'a> GanetiInventory<'a> {
    pub(super) fn new(
        cli: &Cli,
        path: &'a Path,
        inventory: &Inventory,
        answers: Answers,
    ) -> Result<Self, CliError> {
        let wrong = |error| CliError::caused(Exit::Usage, &error);
        let looked = ObservedGaneti {
            cluster: answers.cluster().map_err(wrong)?,
            facts: facts(inventory.taken, answers.clone()).map_err(wrong)?,
        };
        let config = cli.config.is_some().then(|| config::read(cli)).transpose()?;
        let settings = config.as_ref().map(|config| {
            config.ganeti().ok_or_else(|| {
                CliError::usage(format!(
                    "{} is of a Ganeti, and the configuration is not",
                    path.display()
                ))
                .hint("leave out --config; flags say what is wished")
            })
        });
        let settings = settings.transpose()?;
        Ok(Self {
            path,
            name: inventory.cluster.clone(),
            answers,
            looked,
            config,
            visits: settings
                .map(|settings| settings.cluster.visits)
                .unwrap_or_default(),
        })
    }
}

#[async_trait]
impl Cluster for GanetiInventory<'_> {
    async fn snapshot(&self) -> Result<Snapshot, CliError> {
        self.looked
            .snapshot(&self.name, &EvacuationGoal::default(), &self.visits)
    }

    async fn inventory(&self) -> Result<(Inventory, Snapshot), CliError> {
        let (name, kept) = (self.name.clone(), GanetiAnswers::Rapi(self.answers.clone()));
        let inventory = Inventory::new(SYSTEM, name, self.looked.facts.at, &kept)
            .map_err(|error| CliError::new(Exit::Internal, error.to_string()))?;
        Ok((inventory, self.snapshot().await?))
    }

    async fn planning_input(&self, goal: &Goal) -> Result<PlanRequest, CliError> {
        let reboot = goal.reboot(&self.path.display().to_string())?;
        goal::can_be_told_from_a_file(reboot)?;
        let policy = match &self.config {
            Some(config) => config.policy(&goal.policy)?,
            None => config::over(Policy::default(), &goal.policy)?,
        };
        let wished = goal::wished(reboot)?;
        let snapshot = self.looked.snapshot(&self.name, &wished, &self.visits)?;
        planned(&self.looked, snapshot, &self.visits, policy, reboot)
    }
}
