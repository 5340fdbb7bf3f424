//! Planning: from the facts of an Ironic to the input of a plan.

use std::borrow::Cow;
use std::collections::BTreeSet;

use stagger_core::model::{Fact, Policy, Snapshot};
use stagger_engine::cluster::names::check_policy_names;
use stagger_engine::cluster::{BackendError, Planned, Planner, PlannerError, in_full};

use crate::config::{IronicConfig, ServiceRole};
use crate::facts::IronicFacts;
use crate::goal::{UpgradeGoal, WantedRelease};
use crate::releases::{Releases, UnusableCode};
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
            table: Releases::built_in(),
        }
    }

    /// The services and how they are reached.
    pub fn config(&self) -> &IronicConfig {
        &self.config
    }

    /// The releases that are known by this program, and by the code that was asked.
    pub fn table(&self, facts: &IronicFacts) -> Cow<'_, Releases> {
        self.table.of_facts(facts)
    }

    /// What there is, also where nothing answers: then it is what was written down.
    ///
    /// # Errors
    /// Facts that make no snapshot.
    pub fn snapshot_of(&self, facts: &IronicFacts) -> Result<Snapshot, BackendError> {
        let table = self.table.of_facts(facts);
        snapshot(facts, &self.config, &table, None, &BTreeSet::new())
    }
}

/// A code is asked before it is planned by, and one without sense is not taken.
fn unusable(error: &UnusableCode) -> BackendError {
    BackendError::permanent("plan by what the new code lists", error.to_string())
}

/// The snapshot of these facts, on the way to that goal, with these interruptions permitted.
pub(crate) fn snapshot(
    facts: &IronicFacts,
    config: &IronicConfig,
    table: &Releases,
    goal: Option<&UpgradeGoal>,
    permitted: &BTreeSet<String>,
) -> Result<Snapshot, BackendError> {
    translate(facts, config, table, goal, permitted)
        .map_err(|error| BackendError::permanent("make sense of Ironic's facts", in_full(&error)))
}

impl Planner for IronicPlanner {
    type Facts = IronicFacts;
    type Goal = WantedRelease;
    type Memory = UpgradeGoal;

    fn snapshot(&self, facts: &IronicFacts) -> Result<Snapshot, BackendError> {
        if let Some(why) = facts.unreachable_reason() {
            return Err(BackendError::transient(
                "reach the Ironic",
                format!("nothing of it answers: {why}"),
            ));
        }
        self.snapshot_of(facts)
    }

    fn plan(
        &self,
        facts: &IronicFacts,
        wanted: &WantedRelease,
        policy: &Policy,
    ) -> Result<Planned<UpgradeGoal>, PlannerError> {
        let table = self.table.of_facts(facts);
        // That of the wanted release knows all that came before it.
        let table = match &wanted.code {
            Some(Fact::Yes(code)) => Cow::Owned(self.table.with(code).map_err(|error| unusable(&error))?),
            Some(Fact::No(_)) | None => table,
        };
        let upgrade = upgrade(facts, &self.config, &table, wanted, policy)?;
        let UpgradeGoal { interruptions, .. } = &upgrade.goal;
        let snapshot = snapshot(facts, &self.config, &table, Some(&upgrade.goal), interruptions)?;
        let kinds = BTreeSet::from([ServiceRole::Conductor.as_str(), ServiceRole::Api.as_str()]);
        check_policy_names(&snapshot, policy, BTreeSet::from(["host", "group"]), &kinds)?;
        Ok(Planned {
            snapshot,
            target: upgrade.target,
            memory: upgrade.goal,
        })
    }
}
