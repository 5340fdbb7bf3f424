//! From what an Ironic says to what a plan is made of.

use std::collections::BTreeSet;

use stagger_core::model::{Policy, Snapshot};
use stagger_engine::cluster::names::names_are_known;
use stagger_engine::cluster::{BackendError, Planned, Planner, PlannerError, in_full};

use crate::config::{IronicConfig, Role};
use crate::facts::Facts;
use crate::goal::UpgradeGoal;
use crate::releases::Releases;
use crate::target::upgrade;
use crate::translate::translate;

/// Plans for an Ironic that is made up so.
#[derive(Debug, Clone)]
pub struct IronicPlanner {
    config: IronicConfig,
    table: Releases,
}

impl IronicPlanner {
    /// By this configuration and the releases that this program knows.
    pub fn new(config: IronicConfig) -> Self {
        Self {
            config,
            table: Releases::known(),
        }
    }

    /// The services and how they are reached.
    pub fn config(&self) -> &IronicConfig {
        &self.config
    }

    /// The table of releases.
    pub fn table(&self) -> &Releases {
        &self.table
    }

    /// What there is, also where nothing answers: then it is what was written down.
    ///
    /// # Errors
    /// Facts that make no snapshot.
    pub fn recorded(&self, facts: &Facts) -> Result<Snapshot, BackendError> {
        snapshot(facts, &self.config, &self.table, None, &BTreeSet::new())
    }
}

/// The snapshot of these facts, on the way to that goal, with these interruptions permitted.
pub(crate) fn snapshot(
    facts: &Facts,
    config: &IronicConfig,
    table: &Releases,
    goal: Option<&UpgradeGoal>,
    permitted: &BTreeSet<String>,
) -> Result<Snapshot, BackendError> {
    translate(facts, config, table, goal, permitted)
        .map_err(|error| BackendError::permanent("make sense of Ironic's facts", in_full(&error)))
}

impl Planner for IronicPlanner {
    type Facts = Facts;
    /// The release: `29.0.6`.
    type Goal = String;
    type Memory = UpgradeGoal;

    fn snapshot(&self, facts: &Facts) -> Result<Snapshot, BackendError> {
        if let Some(why) = facts.silent() {
            return Err(BackendError::transient(
                "reach the Ironic",
                format!("nothing of it answers: {why}"),
            ));
        }
        self.recorded(facts)
    }

    fn plan(
        &self,
        facts: &Facts,
        release: &String,
        policy: &Policy,
    ) -> Result<Planned<UpgradeGoal>, PlannerError> {
        let upgrade = upgrade(facts, &self.config, &self.table, release, policy)?;
        let UpgradeGoal { interruptions, .. } = &upgrade.goal;
        let snapshot = snapshot(
            facts,
            &self.config,
            &self.table,
            Some(&upgrade.goal),
            interruptions,
        )?;
        let kinds = BTreeSet::from([Role::Conductor.as_str(), Role::Api.as_str()]);
        names_are_known(&snapshot, policy, BTreeSet::from(["host", "group"]), &kinds)?;
        Ok(Planned {
            snapshot,
            target: upgrade.target,
            memory: upgrade.goal,
        })
    }
}
