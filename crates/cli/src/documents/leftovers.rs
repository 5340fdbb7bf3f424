//! The document of `ganeti recover`.

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;
use stagger_ganeti::recovery::Recovered;
use stagger_ganeti::recovery::leftovers::{self, InstanceChange, batch_text};

use super::HeldGuard;

/// `ganeti recover`: what runs have left in the cluster, and what came of giving it back.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Leftovers {
    /// What visits have left on nodes, in the order in which it is restored.
    pub(crate) visits: Vec<LeftVisit>,
    /// The drain of the job queue, and the pause of the watcher.
    pub(crate) guards: Vec<HeldGuard>,
    /// The newest fencing token, which a filter keeps; absent: there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) fence: Option<u64>,
    /// Tags of ours that this release does not know, with their nodes.
    pub(crate) unknown_tags: Vec<String>,
    /// What was restored; none: nothing was tried.
    pub(crate) done: Vec<String>,
    /// What could not be restored, and why.
    pub(crate) failed: Vec<String>,
    /// What stays, and until when.
    pub(crate) kept: Vec<String>,
}

/// What one run's visit has left on one node.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct LeftVisit {
    /// The node.
    pub(crate) node: String,
    /// Which run's visit it was; absent: that is not noted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) run: Option<String>,
    /// When it started; absent: that is not noted.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub(crate) since: Option<Timestamp>,
    /// Whether the node is drained.
    pub(crate) drained: bool,
    /// What was done with instances.
    pub(crate) instances: Vec<LeftInstance>,
    /// How it is restored, in this order.
    pub(crate) plan: Vec<String>,
    /// Why not all of it is restored; absent: it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) refused: Option<String>,
}

/// An instance that a visit did something with.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct LeftInstance {
    /// Its name; its id, if it is gone.
    pub(crate) name: String,
    /// What was done with it.
    pub(crate) done: LeftDeed,
    /// Where it runs now; absent: it is gone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) on: Option<String>,
    /// Its status, in Ganeti's word.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) status: Option<String>,
}

/// What a visit did with an instance.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum LeftDeed {
    /// It runs elsewhere.
    Away,
    /// Its second copy is elsewhere.
    Copied,
    /// It was shut down.
    Stopped,
}

impl From<InstanceChange> for LeftDeed {
    fn from(done: InstanceChange) -> Self {
        match done {
            InstanceChange::Away => Self::Away,
            InstanceChange::Copied => Self::Copied,
            InstanceChange::Stopped => Self::Stopped,
        }
    }
}

impl Leftovers {
    /// What there is, and what came of giving it back.
    pub(crate) fn of(left: leftovers::GanetiLeftovers, recovered: Recovered) -> Self {
        let visits = left.visits.into_iter().map(|visit| LeftVisit {
            drained: visit.role == stagger_ganeti::facts::NodeRole::Drained,
            run: visit.notes.run.as_ref().map(ToString::to_string),
            since: visit.notes.since,
            plan: visit.plan.iter().map(batch_text).collect(),
            refused: visit.refused,
            instances: visit.instances.into_iter().map(instance).collect(),
            node: visit.node,
        });
        let unknown = left.unknown.into_iter();
        Self {
            visits: visits.collect(),
            guards: left.guards.into_iter().map(HeldGuard::from).collect(),
            fence: left.records.fence,
            unknown_tags: unknown.map(|(node, tag)| format!("{node} {tag}")).collect(),
            done: recovered.done,
            failed: recovered.failed.iter().map(ToString::to_string).collect(),
            kept: recovered.kept,
        }
    }
}

fn instance(left: leftovers::InstanceLeftover) -> LeftInstance {
    let (on, status) = left.now.unzip();
    LeftInstance {
        name: left.name,
        done: left.done.into(),
        on,
        status,
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use serde_json::Value;

    use super::*;
    use crate::documents::LEFTOVERS;

    /// Other documents are printed by the program in `tests/documents.rs`; this one takes a Ganeti that answers.
    #[test]
    fn what_is_printed_is_valid() {
        let instances = [(LeftDeed::Away, Some("node2")), (LeftDeed::Stopped, None)];
        let visit = LeftVisit {
            node: "node1".to_owned(),
            run: Some("run-1".to_owned()),
            since: Some(Timestamp::UNIX_EPOCH),
            drained: true,
            instances: instances
                .map(|(done, on)| LeftInstance {
                    name: "web".to_owned(),
                    done,
                    on: on.map(str::to_owned),
                    status: on.map(|_| "running".to_owned()),
                })
                .into(),
            plan: vec!["migrate web to node1".to_owned()],
            refused: None,
        };
        let left = Leftovers {
            visits: vec![visit],
            guards: Vec::new(),
            fence: Some(7),
            unknown_tags: Vec::new(),
            done: Vec::new(),
            failed: Vec::new(),
            kept: Vec::new(),
        };
        let document = serde_json::to_value(LEFTOVERS.of(&left)).unwrap();
        let schema =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/schemas/ganeti-leftovers.json");
        let schema: Value = serde_json::from_str(&std::fs::read_to_string(schema).unwrap()).unwrap();
        let validator = jsonschema::draft202012::new(&schema).unwrap();
        assert!(validator.is_valid(&document), "{document:#}");
        let mut later = document;
        later["a field of a later release"] = Value::Null;
        assert!(validator.is_valid(&later));
    }
}
