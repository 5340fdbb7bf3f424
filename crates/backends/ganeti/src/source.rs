//! The source of a cluster's facts: its RAPI, an inventory, or files of Ganeti's own tools.

use std::collections::BTreeMap;

use async_trait::async_trait;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use stagger_core::model::ClusterName;
use stagger_engine::cluster::{BackendError, Source};
use stagger_engine::inventory::{Inventory, InventoryError};

use crate::backend::GanetiBackend;
use crate::config::GanetiSettings;
use crate::facts::{FactsError, GanetiFacts, RapiAnswers, facts};
use crate::loaders::rapi::{Bodies, FILES, KVM_NODE_MEMORY, RapiError};
use crate::loaders::text::{self, TextError};
use crate::model::GanetiCluster;
use crate::rapi::job_history::JobHistory;

/// What an inventory of a Ganeti says that it is of.
pub const SYSTEM: &str = "ganeti";

/// All that one look at a Ganeti tells.
#[derive(Debug, Clone, PartialEq)]
pub struct ClusterFacts {
    /// When it was looked at. The files of Ganeti's tools do not say: then it is the beginning of time, and the same file makes
    /// the same plan.
    pub at: Timestamp,
    /// Sizes, policies and tags, as planning needs them.
    pub cluster: GanetiCluster,
    /// What only RAPI tells, as boot ids; `None`: a file of Ganeti's tools was read.
    pub live: Option<GanetiFacts>,
    /// How long moves took before.
    pub jobs: JobHistory,
}

/// A Ganeti that answers.
#[derive(Debug)]
pub struct LiveGaneti {
    backend: GanetiBackend,
    name: ClusterName,
}

impl LiveGaneti {
    /// That of the configuration.
    ///
    /// # Errors
    /// What in the configuration cannot be used. Nothing is asked yet.
    pub fn new(settings: &GanetiSettings) -> Result<Self, BackendError> {
        Ok(Self {
            name: settings.cluster.name.clone(),
            backend: GanetiBackend::new(settings.clone(), None)?,
        })
    }
}

#[async_trait]
impl Source for LiveGaneti {
    type Facts = ClusterFacts;

    async fn facts(&self) -> Result<ClusterFacts, BackendError> {
        let (looked, jobs) = tokio::join!(self.backend.observe_cluster(), self.backend.rapi().job_history());
        let (facts, cluster) = looked?;
        Ok(ClusterFacts {
            at: facts.at,
            cluster,
            live: Some(facts),
            jobs,
        })
    }

    async fn inventory(&self) -> Result<(Inventory, ClusterFacts), BackendError> {
        let (at, answers) = self.backend.rapi().answers_to_keep().await?;
        // What is told is told of what is kept, and not of more.
        let facts = of_answers(at, &answers)
            .map_err(|error| BackendError::transient("observe the cluster", error.to_string()))?;
        let kept = RecordedAnswers::Rapi(Box::new(answers));
        Ok((inventory(&self.name, at, &kept)?, facts))
    }
}

/// What an inventory keeps of a Ganeti.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum RecordedAnswers {
    /// What its RAPI answered.
    Rapi(Box<RapiAnswers>),
    /// Its text format, as `hroller -S` writes it.
    Text(String),
    /// Bodies of RAPI, by the names of their files.
    Bodies(BTreeMap<String, Box<RawValue>>),
}

/// Why what was recorded makes no Ganeti.
#[derive(Debug, thiserror::Error)]
pub enum RecordedError {
    /// The inventory's answers are of another shape.
    #[error(transparent)]
    Inventory(#[from] InventoryError),
    /// It is no text in Ganeti's format.
    #[error(transparent)]
    Text(#[from] TextError),
    /// The bodies make no cluster.
    #[error(transparent)]
    Bodies(#[from] RapiError),
    /// The answers make no facts.
    #[error(transparent)]
    Facts(#[from] FactsError),
}

/// A Ganeti that was looked at before.
#[derive(Debug, Clone)]
pub struct RecordedGaneti {
    name: ClusterName,
    answers: RecordedAnswers,
    facts: ClusterFacts,
}

impl RecordedGaneti {
    /// What an inventory keeps.
    ///
    /// # Errors
    /// Its answers have another shape, or make no cluster.
    pub fn read(inventory: &Inventory) -> Result<Self, RecordedError> {
        Self::of(inventory.cluster.clone(), inventory.taken, inventory.answers()?)
    }

    /// A cluster in the text format of Ganeti's tools.
    ///
    /// # Errors
    /// It is none.
    pub fn text(name: ClusterName, text: String) -> Result<Self, RecordedError> {
        Self::of(name, Timestamp::UNIX_EPOCH, RecordedAnswers::Text(text))
    }

    /// A cluster in bodies of its RAPI, by the names of their files ([`FILES`]).
    ///
    /// # Errors
    /// They make no cluster.
    pub fn bodies(name: ClusterName, bodies: BTreeMap<String, Box<RawValue>>) -> Result<Self, RecordedError> {
        Self::of(name, Timestamp::UNIX_EPOCH, RecordedAnswers::Bodies(bodies))
    }

    /// What the cluster is called.
    pub fn name(&self) -> &ClusterName {
        &self.name
    }

    fn of(name: ClusterName, at: Timestamp, answers: RecordedAnswers) -> Result<Self, RecordedError> {
        let described = |cluster: GanetiCluster| ClusterFacts {
            at,
            cluster,
            live: None,
            jobs: JobHistory::default(),
        };
        let facts = match &answers {
            RecordedAnswers::Rapi(answers) => of_answers(at, answers)?,
            RecordedAnswers::Text(text) => described(text::read(text)?),
            RecordedAnswers::Bodies(bodies) => described(cluster_of_bodies(bodies)?),
        };
        Ok(Self { name, answers, facts })
    }
}

#[async_trait]
impl Source for RecordedGaneti {
    type Facts = ClusterFacts;

    async fn facts(&self) -> Result<ClusterFacts, BackendError> {
        Ok(self.facts.clone())
    }

    async fn inventory(&self) -> Result<(Inventory, ClusterFacts), BackendError> {
        Ok((
            inventory(&self.name, self.facts.at, &self.answers)?,
            self.facts.clone(),
        ))
    }
}

fn of_answers(at: Timestamp, answers: &RapiAnswers) -> Result<ClusterFacts, FactsError> {
    Ok(ClusterFacts {
        at,
        cluster: answers.cluster()?,
        jobs: JobHistory::of(&answers.jobs),
        live: Some(facts(at, answers.clone())?),
    })
}

fn cluster_of_bodies(bodies: &BTreeMap<String, Box<RawValue>>) -> Result<GanetiCluster, RapiError> {
    let body = |file: &str| bodies.get(file).map_or("null", |body| body.get()).to_owned();
    let [groups, nodes, instances, info] = FILES.map(body);
    let bodies = Bodies {
        groups,
        nodes,
        instances,
        info,
    };
    bodies.cluster_with(KVM_NODE_MEMORY)
}

fn inventory(
    name: &ClusterName,
    at: Timestamp,
    answers: &RecordedAnswers,
) -> Result<Inventory, BackendError> {
    Inventory::new(SYSTEM, name.clone(), at, answers)
        .map_err(|error| BackendError::permanent("write the inventory", error.to_string()))
}
