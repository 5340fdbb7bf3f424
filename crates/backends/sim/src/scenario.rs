//! A cluster and a story as a file.

use serde::{Deserialize, Serialize};
use stagger_core::model::Policy;
use stagger_core::run::Command;

use crate::conductors::Conductor;
use crate::fault::Fault;
use crate::journal::JournalIll;
use crate::person::Person;
use crate::spec::SimSpec;
use crate::target::TargetSpec;

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
    pub faults: Vec<Fault>,
    /// What a person asks for.
    #[serde(default, rename = "ask", skip_serializing_if = "Vec::is_empty")]
    pub asks: Vec<Ask>,
    /// Who looks after it when it is held; nobody, if nothing is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub person: Option<Person>,
    /// What befalls the journal.
    #[serde(default, rename = "journal", skip_serializing_if = "Vec::is_empty")]
    pub journal: Vec<JournalIll>,
    /// Who carries it out, if it is not one process that nothing befalls.
    #[serde(default, rename = "conductor", skip_serializing_if = "Vec::is_empty")]
    pub conductors: Vec<Conductor>,
    /// What is expected.
    #[serde(default)]
    pub expect: Expect,
}

/// What a person asks for, and when.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ask {
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
