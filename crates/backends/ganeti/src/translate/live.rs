//! The snapshot of a live cluster, compared with the start of the run.
//!
//! What a node "runs" is its boot: a node with another boot id than at the run's start has been rebooted. For
//! other maintenance it is what a visit has noted there ([`notes`](crate::facts::notes)).

use std::collections::{BTreeMap, BTreeSet};

use sha2::{Digest as _, Sha256};
use stagger_core::model::{
    Budgets, ClusterName, Condition, ConditionName, Drained, IdError, Ix, Kind, Reason, Revision, Snapshot,
    Unit, UnitId, UnitState, Verdict,
};

use super::capacity::capacity;
use super::{BEFORE, GanetiTranslateError, KIND, not_vm_capable, pairs, terms};
use crate::config::Visits;
use crate::downtime::not_permitted;
use crate::facts::notes::PriorRole;
use crate::facts::{GanetiFacts, NodeFacts, NodeRole, RunState};
use crate::goal::EvacuationGoal;
use crate::memory::GanetiMemory;
use crate::model::GanetiCluster;

/// Nodes that answered before the run do so now.
pub const NODES_ANSWER: &str = "nodes-answer";
/// Instances that ran before the run do so now, unless their owners stopped them.
pub const INSTANCES_UP: &str = "instances-up";

/// The snapshot of these facts.
///
/// # Errors
/// Names that are none, or facts that contradict each other.
pub fn live_snapshot(
    name: &ClusterName,
    facts: &GanetiFacts,
    cluster: &GanetiCluster,
    memory: Option<&GanetiMemory>,
    goal: &EvacuationGoal,
    visits: &Visits,
) -> Result<Snapshot, GanetiTranslateError> {
    let kind = Kind::new(KIND)?;
    let mut nodes = Vec::with_capacity(cluster.nodes.len());
    for node in &cluster.nodes {
        let known = facts.nodes.get(&node.name);
        nodes.push(known.ok_or_else(|| GanetiTranslateError::Node(node.name.clone()))?);
    }
    let units = nodes
        .iter()
        .map(|node| unit(&kind, facts, node, memory, goal, visits))
        .collect::<Result<Vec<_>, IdError>>()?;
    let snapshot = Snapshot::new(
        name.clone(),
        facts.at,
        generation(facts),
        units,
        budgets(cluster, &nodes),
        vec![nodes_answer(facts, memory)?, instances_up(facts, memory)?],
        goal.durations.clone(),
    )?;
    let snapshot = snapshot.with_drained(drained(&nodes)?).with_terms(terms());
    Ok(snapshot.with_capacity(capacity(cluster, goal.ignore_ipolicy)?)?)
}

/// The nodes that answer and that a visit has drained.
fn drained(nodes: &[&NodeFacts]) -> Result<Vec<Drained>, IdError> {
    let by_us = nodes
        .iter()
        .filter(|node| node.role == NodeRole::Drained && node.boot.is_some() && !node.notes.is_empty());
    by_us
        .map(|node| {
            Ok(Drained {
                unit: UnitId::new(node.name.clone())?,
                // They are named by when they began.
                by: node.notes.visits().filter_map(|notes| notes.run.clone()).max(),
            })
        })
        .collect()
}

fn unit(
    kind: &Kind,
    facts: &GanetiFacts,
    node: &NodeFacts,
    memory: Option<&GanetiMemory>,
    goal: &EvacuationGoal,
    visits: &Visits,
) -> Result<Unit, IdError> {
    let state = match (node.role, &node.boot) {
        (NodeRole::Drained | NodeRole::Offline, _) => UnitState::Down,
        (NodeRole::Master | NodeRole::Candidate | NodeRole::Regular, Some(_)) => UnitState::Serving,
        // Of a node without instances Ganeti says nothing that it would have to ask it for.
        (NodeRole::Master | NodeRole::Candidate | NodeRole::Regular, None) if !node.vm_capable => {
            UnitState::Serving
        }
        (NodeRole::Master | NodeRole::Candidate | NodeRole::Regular, None) => UnitState::Unknown,
    };
    let group = facts.groups.get(&node.group).unwrap_or(&node.group);
    Ok(Unit {
        id: UnitId::new(node.name.clone())?,
        kind: kind.clone(),
        state,
        revision: revision(node, memory)?,
        domains: BTreeMap::from([("group".to_owned(), group.clone())]),
        precedence: 0,
        untouchable: untouchable(node, memory, visits)
            .or_else(|| always_fails_over(facts, node, goal, visits)),
    })
}

fn revision(node: &NodeFacts, memory: Option<&GanetiMemory>) -> Result<Option<Revision>, IdError> {
    let Some(boot) = &node.boot else { return Ok(None) };
    if let Some(memory) = memory.filter(|memory| !memory.goal.task.is_reboot()) {
        if !memory.boots.contains_key(&node.name) {
            return Ok(None);
        }
        // Whoever writes a note takes the one before away, which says nothing of this run.
        let before = memory.done.get(&node.name);
        let is_new = |call: &String| before.is_none_or(|before| !before.contains(call));
        return if node.notes.done.iter().any(is_new) {
            Ok(Some(memory.rebooted.clone()))
        } else {
            Revision::new(BEFORE).map(Some)
        };
    }
    if let Some(memory) = memory {
        match memory.boots.get(&node.name) {
            Some(before) if before == boot => {}
            Some(_) => return Ok(Some(memory.rebooted.clone())),
            None => return Ok(None),
        }
    }
    Revision::new(format!("boot-{boot}")).map(Some)
}

fn untouchable(node: &NodeFacts, memory: Option<&GanetiMemory>, visits: &Visits) -> Option<Reason> {
    let name = &node.name;
    let by_us = !node.notes.is_empty();
    if let NodeRole::Drained | NodeRole::Offline = node.role
        && !by_us
    {
        let word = if node.role == NodeRole::Drained {
            "drained"
        } else {
            "offline"
        };
        return Some(Reason::of_backend(
            "node-out-of-service",
            format!("{name} is {word}, and not by stagger"),
        ));
    }
    // Before a run every note is of another one.
    if let (NodeRole::Drained, None, Some(notes)) = (node.role, memory, node.notes.visits().next()) {
        return Some(Reason::of_backend(
            "node-left-by-run",
            format!(
                "{name} is still drained by {}: `stagger ganeti recover {name}` restores it",
                notes.owner_text()
            ),
        ));
    }
    if !node.vm_capable {
        return Some(not_vm_capable());
    }
    if memory.is_some_and(|memory| !memory.boots.contains_key(name)) {
        return Some(Reason::of_backend(
            "node-not-known-before",
            format!("{name} was missing or did not answer when the run started"),
        ));
    }
    if node.role == NodeRole::Master && visits.failover.is_none() {
        return Some(Reason::of_backend(
            "master-cannot-move",
            format!("{name} is the master, and there is no command for a failover"),
        ));
    }
    None
}

/// What is on it would be stopped, and nobody has permitted that. A node whose visit has begun is not left alone for what has come to
/// it since.
fn always_fails_over(
    facts: &GanetiFacts,
    node: &NodeFacts,
    goal: &EvacuationGoal,
    visits: &Visits,
) -> Option<Reason> {
    if goal.moving.as_if_down || !node.notes.is_empty() {
        return None;
    }
    let mut here = facts
        .instances
        .values()
        .filter(|instance| instance.primary == node.name);
    let why = here.find_map(|instance| not_permitted(instance, visits))?;
    Some(Reason::of_backend("instance-always-fails-over", why))
}

/// No two nodes that share an instance's copies go together, and one copy of the configuration stays.
fn budgets(cluster: &GanetiCluster, nodes: &[&NodeFacts]) -> Budgets {
    let mut budgets = pairs(cluster);
    let candidates: Vec<(Ix, u32)> = (0_u32..)
        .zip(nodes)
        .filter(|(_, node)| {
            matches!(node.role, NodeRole::Master | NodeRole::Candidate)
                || node
                    .notes
                    .visits()
                    .any(|notes| notes.was == Some(PriorRole::Candidate))
        })
        .map(|(at, _)| (Ix(at), 1))
        .collect();
    if let Some(limit) = (candidates.len() as u32)
        .checked_sub(1)
        .filter(|limit| *limit > 0)
    {
        budgets.add(
            "copies of the configuration",
            "master candidates",
            limit,
            &candidates,
        );
    }
    budgets.build()
}

/// A name for what matters in these facts: another one when something has moved.
fn generation(facts: &GanetiFacts) -> String {
    use std::fmt::Write as _;
    let mut text = facts.master.clone();
    for node in facts.nodes.values() {
        let _ = write!(text, "\n{} {:?} {:?}", node.name, node.role, node.boot);
    }
    for instance in facts.instances.values() {
        let _ = write!(
            text,
            "\n{} {} {:?} {}",
            instance.uuid, instance.primary, instance.secondary, instance.status
        );
    }
    let digest = Sha256::digest(text);
    let short: Vec<_> = digest.iter().take(6).map(|byte| format!("{byte:02x}")).collect();
    format!("state {}", short.concat())
}

fn condition(name: &str, wrong: &[String], fine: String) -> Result<Condition, IdError> {
    let (verdict, why) = match wrong {
        [] => (Verdict::Yes, fine),
        [first] => (Verdict::No, first.clone()),
        [first, rest @ ..] => (Verdict::No, format!("{first} and {} more like it", rest.len())),
    };
    Ok(Condition::new(ConditionName::new(name)?, verdict, why))
}

fn nodes_answer(facts: &GanetiFacts, memory: Option<&GanetiMemory>) -> Result<Condition, IdError> {
    let silent: Vec<String> = facts
        .nodes
        .values()
        // Whom a visit has drained is on its way, and its own gate waits for it.
        .filter(|node| node.boot.is_none() && node.role != NodeRole::Offline && node.notes.is_empty())
        .filter(|node| node.vm_capable)
        .filter(|node| memory.is_none_or(|memory| memory.boots.contains_key(&node.name)))
        .map(|node| format!("{} does not answer", node.name))
        .collect();
    condition(NODES_ANSWER, &silent, format!("{} nodes", facts.nodes.len()))
}

fn instances_up(facts: &GanetiFacts, memory: Option<&GanetiMemory>) -> Result<Condition, IdError> {
    let stopped_by_us: BTreeSet<&str> = facts
        .nodes
        .values()
        .flat_map(|node| node.notes.visits())
        .flat_map(|notes| notes.stopped.iter().map(String::as_str))
        .collect();
    let wrong: Vec<String> = facts
        .instances
        .values()
        .filter(|instance| memory.is_none_or(|memory| memory.up.contains(&instance.uuid)))
        .filter(|instance| match instance.doing {
            RunState::Up => false,
            RunState::Down => stopped_by_us.contains(instance.uuid.as_str()),
            RunState::Failed | RunState::Unclear => true,
        })
        .map(|instance| format!("{} on {} is {}", instance.name, instance.primary, instance.status))
        .collect();
    let up = facts
        .instances
        .values()
        .filter(|instance| instance.doing == RunState::Up);
    condition(INSTANCES_UP, &wrong, format!("{} instances run", up.count()))
}
