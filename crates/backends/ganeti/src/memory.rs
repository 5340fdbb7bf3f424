//! The state of a Ganeti cluster before a run, kept in the run's journal.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use stagger_core::model::Revision;

use crate::facts::{GanetiFacts, RunState};
use crate::goal::EvacuationGoal;

/// What a run keeps of how things were before it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GanetiMemory {
    /// What was asked for.
    #[serde(rename = "wished")]
    pub goal: EvacuationGoal,
    /// What a node runs that has had its turn.
    pub rebooted: Revision,
    /// Each node's boot id.
    pub boots: BTreeMap<String, String>,
    /// What was noted on each node of maintenance other than a reboot: whoever has another note had its turn.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub done: BTreeMap<String, BTreeSet<String>>,
    /// The ids of the instances that ran.
    pub up: BTreeSet<String>,
    /// The master.
    #[serde(default)]
    pub master: Option<String>,
    /// On which node each of the instances ran, by its id. Releases before this one did not keep it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub homes: BTreeMap<String, String>,
}

impl GanetiMemory {
    /// Of what is so now.
    pub fn of(facts: &GanetiFacts, rebooted: Revision, goal: EvacuationGoal) -> Self {
        let boots = facts.nodes.values();
        let up = facts.instances.values();
        Self {
            goal,
            rebooted,
            boots: boots
                .filter_map(|node| Some((node.name.clone(), node.boot.clone()?)))
                .collect(),
            done: facts
                .nodes
                .values()
                .filter(|node| !node.notes.done.is_empty())
                .map(|node| (node.name.clone(), node.notes.done.clone()))
                .collect(),
            up: up
                .filter(|instance| instance.doing == RunState::Up)
                .map(|instance| instance.uuid.clone())
                .collect(),
            master: Some(facts.master.clone()),
            homes: facts
                .instances
                .values()
                .filter(|instance| instance.doing == RunState::Up)
                .map(|instance| (instance.uuid.clone(), instance.primary.clone()))
                .collect(),
        }
    }

    /// Of a cluster in a file, which tells nothing of boots: nothing could be run on it.
    pub fn unknown(rebooted: Revision, goal: EvacuationGoal) -> Self {
        Self {
            goal,
            rebooted,
            boots: BTreeMap::new(),
            done: BTreeMap::new(),
            up: BTreeSet::new(),
            master: None,
            homes: BTreeMap::new(),
        }
    }

    /// The instances that ran before and are not on their original primary now, each in words. One that is gone has none.
    pub fn displaced_instances(&self, facts: &GanetiFacts) -> Vec<String> {
        let moved = facts.instances.values().filter_map(|instance| {
            let home = self.homes.get(&instance.uuid)?;
            let now = &instance.primary;
            (now != home).then(|| format!("{} is on {now}, and was on {home}", instance.name))
        });
        moved.collect()
    }
}
