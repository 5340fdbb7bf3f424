//! The facts of a cluster, as far as visits need them.
//!
//! The answers are not simultaneous, so they may contradict each other while other users work; contradictory
//! facts are refused, and read again. Names, roles and states are RAPI's own.

mod collect;
pub mod notes;

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use stagger_core::model::Storage;

use self::notes::NodeNotes;
use crate::loaders::rapi::{Bodies, RapiError, without_parameters};
use crate::model::{GanetiCluster, Status, Template};
use crate::rapi::job_history::recorded_jobs;

/// A node's role.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub enum NodeRole {
    /// The master.
    #[serde(rename = "M")]
    Master,
    /// It has a copy of the configuration and may become master.
    #[serde(rename = "C")]
    Candidate,
    /// It is neither.
    #[serde(rename = "R")]
    Regular,
    /// Nothing new is put on it.
    #[serde(rename = "D")]
    Drained,
    /// Ganeti does not talk to it.
    #[serde(rename = "O")]
    Offline,
}

/// A node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeFacts {
    /// Its name.
    pub name: String,
    /// Its role.
    pub role: NodeRole,
    /// The id of its group.
    pub group: String,
    /// Whether it may carry instances.
    pub vm_capable: bool,
    /// What visits have noted on it.
    pub notes: NodeNotes,
    /// Renewed at each boot; `None`: it did not answer.
    pub boot: Option<String>,
}

/// What an instance does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunState {
    /// It runs.
    Up,
    /// It does not, and is not to.
    Down,
    /// It should, and does not.
    Failed,
    /// It runs where it should not, or nobody could tell.
    Unclear,
}

/// An instance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstanceFacts {
    /// Its name.
    pub name: String,
    /// Its id, which it keeps when it is renamed.
    pub uuid: String,
    /// Where it runs.
    pub primary: String,
    /// Where the other copy of its disks is.
    pub secondary: Option<String>,
    /// What its disks are made of.
    pub storage: Storage,
    /// Ganeti's word for that: `drbd`.
    pub template: String,
    /// Ganeti never migrates it: it shuts it down and starts it elsewhere, whatever it is asked for.
    pub always_failover: bool,
    /// What it does.
    pub doing: RunState,
    /// Ganeti's word for that: `running`.
    pub status: String,
}

impl InstanceFacts {
    /// Whether a node carries it or a copy of its disks.
    pub fn uses_node(&self, node: &str) -> bool {
        self.primary == node || self.secondary.as_deref() == Some(node)
    }
}

/// All facts of one time.
#[derive(Debug, Clone, PartialEq)]
pub struct GanetiFacts {
    /// When they began to be read.
    pub at: Timestamp,
    /// The cluster's own name.
    pub cluster: String,
    /// The master's name.
    pub master: String,
    /// Ganeti's release.
    pub release: String,
    /// The nodes by name.
    pub nodes: BTreeMap<String, NodeFacts>,
    /// The instances by name.
    pub instances: BTreeMap<String, InstanceFacts>,
    /// The groups' names by their ids.
    pub groups: BTreeMap<String, String>,
    /// How many master candidates there should be.
    pub candidates: Option<usize>,
}

/// Facts that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FactsError {
    /// An answer of another shape.
    #[error("the answer to {question} cannot be read: {why}")]
    Unreadable {
        /// What was asked.
        question: &'static str,
        /// What is wrong with it.
        why: String,
    },
    /// Two answers do not fit together.
    #[error("the answers contradict each other: {0}")]
    Contradict(String),
}

#[derive(Deserialize)]
struct InfoDocument {
    name: String,
    master: String,
    #[serde(default)]
    software_version: String,
    #[serde(default)]
    candidate_pool_size: Option<usize>,
}

#[derive(Deserialize)]
struct GroupDocument {
    name: String,
    uuid: String,
}

#[derive(Deserialize)]
struct NodeDocument {
    name: String,
    role: NodeRole,
    #[serde(rename = "group.uuid")]
    group: String,
    vm_capable: bool,
    #[serde(default)]
    tags: Vec<String>,
}

#[derive(Deserialize)]
pub(crate) struct InstanceDocument {
    name: String,
    uuid: String,
    pnode: String,
    snodes: Vec<String>,
    disk_template: String,
    status: String,
    #[serde(default)]
    beparams: Beparams,
}

#[derive(Default, Deserialize)]
struct Beparams {
    #[serde(default)]
    always_failover: bool,
}

/// Values of a query stand beside a word on whether they are known; 0: they are.
#[derive(Deserialize)]
struct QueryDocument {
    data: Vec<Vec<(u8, Value)>>,
}

/// The answers as they came.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RapiAnswers {
    /// `/2/info`
    pub info: Value,
    /// `/2/groups?bulk=1`
    pub groups: Value,
    /// `/2/nodes?bulk=1`
    pub nodes: Value,
    /// `/2/query/node` for `name` and `bootid`.
    pub boots: Value,
    /// `/2/instances?bulk=1`
    pub instances: Value,
    /// `/2/jobs?bulk=1`, as far as it tells how long things take; null: it was not asked for.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub jobs: Value,
}

impl RapiAnswers {
    /// The same without what may hold secrets, to be saved.
    pub(crate) fn without_secrets(&self) -> Self {
        let [info, groups, nodes, instances] = [&self.info, &self.groups, &self.nodes, &self.instances]
            .map(|body| without_parameters(body.clone()));
        Self {
            info,
            groups,
            nodes,
            boots: self.boots.clone(),
            instances,
            jobs: recorded_jobs(&self.jobs),
        }
    }

    /// What planning needs of them: sizes, policies, tags.
    ///
    /// # Errors
    /// As of [`facts`].
    pub fn cluster(&self) -> Result<GanetiCluster, FactsError> {
        let bodies = Bodies {
            groups: self.groups.to_string(),
            nodes: self.nodes.to_string(),
            instances: self.instances.to_string(),
            info: self.info.to_string(),
        };
        bodies.cluster().map_err(|error| match error {
            RapiError::Body { what, source } => FactsError::Unreadable {
                question: what,
                why: source.to_string(),
            },
            RapiError::File { .. } | RapiError::Contradiction { .. } => contradict(error.to_string()),
        })
    }
}

pub(crate) fn read<T: serde::de::DeserializeOwned>(
    question: &'static str,
    answer: Value,
) -> Result<T, FactsError> {
    serde_json::from_value(answer).map_err(|error| FactsError::Unreadable {
        question,
        why: error.to_string(),
    })
}

/// The facts that answers tell.
///
/// # Errors
/// Answers of another shape, or that do not fit together.
pub fn facts(at: Timestamp, answers: RapiAnswers) -> Result<GanetiFacts, FactsError> {
    let info: InfoDocument = read("/2/info", answers.info)?;
    let groups: Vec<GroupDocument> = read("/2/groups", answers.groups)?;
    let nodes: Vec<NodeDocument> = read("/2/nodes", answers.nodes)?;
    let boots = boots(answers.boots)?;
    let instances: Vec<InstanceDocument> = read("/2/instances", answers.instances)?;
    let mut known = BTreeMap::new();
    for node in nodes {
        let boot = boots.get(&node.name).cloned().flatten();
        let node = NodeFacts {
            boot,
            notes: NodeNotes::read(&node.tags),
            name: node.name,
            role: node.role,
            group: node.group,
            vm_capable: node.vm_capable,
        };
        if let Some(twice) = known.insert(node.name.clone(), node) {
            return Err(contradict(format!("there are two nodes {}", twice.name)));
        }
    }
    let masters: Vec<_> = known
        .values()
        .filter(|node| node.role == NodeRole::Master)
        .map(|node| node.name.as_str())
        .collect();
    if masters != [info.master.as_str()] {
        return Err(contradict(format!(
            "the master is {}, and the node with the role of master is {}",
            info.master,
            if masters.is_empty() {
                "none".to_owned()
            } else {
                masters.join(" ")
            }
        )));
    }
    let mut carried = BTreeMap::new();
    for document in instances {
        let instance = instance(document)?;
        for node in [Some(&instance.primary), instance.secondary.as_ref()]
            .into_iter()
            .flatten()
        {
            if !known.contains_key(node) {
                return Err(contradict(format!(
                    "{} is on {node}, and there is no such node",
                    instance.name
                )));
            }
        }
        carried.insert(instance.name.clone(), instance);
    }
    Ok(GanetiFacts {
        at,
        cluster: info.name,
        master: info.master,
        release: info.software_version,
        nodes: known,
        instances: carried,
        groups: groups.into_iter().map(|group| (group.uuid, group.name)).collect(),
        candidates: info.candidate_pool_size,
    })
}

fn contradict(why: String) -> FactsError {
    FactsError::Contradict(why)
}

pub(crate) fn boots(answer: Value) -> Result<BTreeMap<String, Option<String>>, FactsError> {
    const QUESTION: &str = "/2/query/node";
    let QueryDocument { data } = read(QUESTION, answer)?;
    data.into_iter()
        .map(|row| match row.as_slice() {
            [(0, Value::String(name)), (status, boot)] => {
                let boot = boot
                    .as_str()
                    .filter(|text| *status == 0 && !text.is_empty())
                    .map(str::to_owned);
                Ok((name.clone(), boot))
            }
            _ => Err(FactsError::Unreadable {
                question: QUESTION,
                why: "a row does not have a name and a boot id".to_owned(),
            }),
        })
        .collect()
}

pub(crate) fn instance(document: InstanceDocument) -> Result<InstanceFacts, FactsError> {
    let InstanceDocument {
        name,
        uuid,
        pnode,
        snodes,
        disk_template,
        status,
        beparams,
    } = document;
    let secondary = snodes.into_iter().next();
    let template = Template::of_word(&disk_template);
    // What is not known is treated as what cannot move.
    let storage = template.map_or(Storage::Local, |template| template.storage(secondary.is_some()));
    let doing = match Status::of_word(&status) {
        Some(Status::Running | Status::ErrorUp) => RunState::Up,
        Some(Status::AdminDown | Status::AdminOffline | Status::UserDown) => RunState::Down,
        Some(Status::ErrorDown | Status::ErrorNodeOffline) => RunState::Failed,
        // Ganeti says of an instance that its node is down whenever the question about it fails.
        Some(Status::ErrorNodeDown | Status::ErrorWrongNode) | None => RunState::Unclear,
    };
    if secondary.as_ref() == Some(&pnode) {
        return Err(contradict(format!(
            "{name} has {pnode} as primary and as secondary"
        )));
    }
    Ok(InstanceFacts {
        name,
        uuid,
        primary: pnode,
        secondary,
        storage,
        template: disk_template,
        always_failover: beparams.always_failover,
        doing,
        status,
    })
}

/// Whether all disks that `info` tells of have both copies, in sync. `info` is the result of Ganeti's
/// `OP_INSTANCE_QUERY_DATA` for one instance.
///
/// # Errors
/// What is not so, in words.
pub fn in_sync(info: &Value) -> Result<(), String> {
    /// Ganeti's word for a disk that is fine (`LDS_OKAY`).
    const FINE: u64 = 1;
    let name = info["name"].as_str().unwrap_or("an instance");
    let Some(disks) = info["disks"].as_array() else {
        return Err(format!("nothing is known of the disks of {name}"));
    };
    for disk in disks.iter().filter(|disk| disk["dev_type"] == "drbd") {
        let shown = disk["iv_name"].as_str().unwrap_or("a disk");
        for (side, which) in [("pstatus", "primary"), ("sstatus", "secondary")] {
            // Path, major, minor, percent that is in sync, seconds left, degraded, state.
            let status = &disk[side];
            if !status.is_array() {
                return Err(format!("{shown} of {name} is not active on its {which} node"));
            }
            if let Some(percent) = status[3].as_f64() {
                return Err(format!("{shown} of {name} is in sync to {percent:.1} %"));
            }
            if status[5] != Value::Bool(false) || status[6].as_u64() != Some(FINE) {
                return Err(format!(
                    "{shown} of {name} is degraded, seen from its {which} node"
                ));
            }
        }
    }
    Ok(())
}
