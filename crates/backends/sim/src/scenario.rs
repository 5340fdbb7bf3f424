//! A cluster, and what happens to it, as a file.

mod balanced;
mod cluster;
mod fault;
mod guests;
mod journal;
mod operator;
mod process;
mod target;

use serde::{Deserialize, Serialize};
use stagger_core::model::Policy;
use stagger_core::run::Command;

pub use balanced::BalancedSpec;
pub(crate) use balanced::SERVICE_KINDS;
pub use cluster::{Level, PoolSpec, Seconds, SimSpec};
pub use fault::{FailsOn, FaultWindow, InjectedFault, OracleFault};
pub use guests::{GuestSpec, GuestsSpec};
pub(crate) use guests::{NODE, guest_name, node_name};
pub use journal::JournalFault;
pub use operator::Operator;
pub use process::{ProcessFault, ProcessSpec};
pub use target::{RollbackSupport, TargetSpec};

/// A cluster, where it should go, what goes wrong on the way, and what is expected to come of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// What it shows.
    #[serde(default)]
    pub about: String,
    /// The cluster.
    pub cluster: SimSpec,
    /// Where it should go.
    pub target: TargetSpec,
    /// How bold to be.
    #[serde(default)]
    pub policy: Policy,
    /// All faults end so many seconds after the start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heal: Option<u32>,
    /// What goes wrong.
    #[serde(default, rename = "fault", skip_serializing_if = "Vec::is_empty")]
    pub faults: Vec<InjectedFault>,
    /// What a person asks for.
    #[serde(default, rename = "ask", skip_serializing_if = "Vec::is_empty")]
    pub asks: Vec<ScheduledCommand>,
    /// Who looks after it when it is held; nobody, if nothing is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub person: Option<Operator>,
    /// What befalls the journal.
    #[serde(default, rename = "journal", skip_serializing_if = "Vec::is_empty")]
    pub journal: Vec<JournalFault>,
    /// Who carries it out, if it is not one process that nothing befalls.
    #[serde(default, rename = "conductor", skip_serializing_if = "Vec::is_empty")]
    pub conductors: Vec<ProcessSpec>,
    /// What is expected.
    #[serde(default)]
    pub expect: Expect,
}

/// What a person asks for, and when.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScheduledCommand {
    /// Seconds after the start.
    pub at: u32,
    /// What.
    #[serde(flatten)]
    pub command: Command,
}

/// What a scenario is expected to come to.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Expect {
    /// `done`, `incomplete`, `rolled-back`, `aborted` or `held`.
    pub ending: Option<String>,
    /// The stable word of the reason why it is held or went back.
    pub reason: Option<String>,
    /// Units and steps that are named as left, all of them.
    pub left: Option<Vec<String>>,
    /// Waves passed at most.
    pub waves_at_most: Option<u32>,
    /// Units changed at least.
    pub units_at_least: Option<usize>,
    /// Lies that nobody could detect.
    pub undetectable: u32,
}

/// A file that is no scenario.
#[derive(Debug, thiserror::Error)]
#[error("this is not a scenario")]
pub struct ScenarioError(#[source] toml::de::Error);

impl Scenario {
    /// One process carries it out, and neither that nor its journal is befallen by anything.
    pub(crate) fn is_calm(&self) -> bool {
        self.conductors.is_empty() && self.journal.is_empty()
    }

    /// From a file's text.
    ///
    /// # Errors
    /// It is not TOML, or has a key that is not known, or lacks one.
    pub fn parse(text: &str) -> Result<Self, ScenarioError> {
        toml::from_str(text).map_err(ScenarioError)
    }

    /// As a file's text.
    pub fn text(&self) -> String {
        toml::to_string(self).unwrap_or_else(|error| format!("# cannot be written: {error}\n"))
    }
}
