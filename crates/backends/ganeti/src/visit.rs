//! The next step of a node's visit: pure functions of the observation.
//!
//! Each returns the next batch of actions, or that nothing is left. A batch is carried out, the cluster is
//! observed again, and the same function is called again; so an interrupted visit continues from the
//! cluster's actual state.

mod hold;
pub mod limits;
mod maintain;
mod master;
mod moves;
mod pacer;
pub(crate) mod perform;
pub mod visitor;

use std::collections::{BTreeMap, BTreeSet};

use stagger_core::model::{MoveKind, RunId, Storage};
use stagger_core::plan;

use crate::config::Visits;
use crate::downtime::not_permitted;
use crate::facts::notes::{Notes, PriorRole};
use crate::facts::{GanetiFacts, InstanceFacts, NodeFacts, NodeRole, RunState};
use crate::model::Status;

/// What the plan has chosen for one node's instances. Nothing is chosen here, and what the plan does not know
/// is not moved: nobody has seen that there is room for it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PlannedMoves {
    /// Whatever runs there is shut down for the visit and started again, and nothing is moved.
    pub as_if_down: bool,
    /// What is moved.
    pub moves: Vec<plan::Move>,
    /// The run whose visit it is.
    pub run: Option<RunId>,
    /// Each node's boot id before the run: whoever has another one had its turn.
    pub boots: BTreeMap<String, String>,
}

impl PlannedMoves {
    /// Where an instance goes, in one of these ways.
    fn destination(&self, instance: &InstanceFacts, ways: &[MoveKind]) -> Option<&str> {
        self.moves
            .iter()
            .find(|a_move| a_move.guest == instance.name && ways.contains(&a_move.how))
            .map(|a_move| a_move.to.as_str())
    }
}

/// How an instance comes to run elsewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MoveMethod {
    /// Its disks are mirrored: it can go to its secondary node only, and Ganeti takes no name for that.
    ToSecondary,
    /// Its disks are shared: it goes to the node that is named.
    ToNode,
    /// Its disks are on its node only: it is stopped, they are copied, it is started there.
    WithDowntime,
}

impl MoveMethod {
    /// The only one that these disks have.
    fn of(storage: Storage) -> Self {
        match storage {
            Storage::Copied => Self::ToSecondary,
            Storage::Shared => Self::ToNode,
            Storage::Local => Self::WithDowntime,
        }
    }
}

/// An instance is to run there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstanceMove {
    /// Which.
    pub instance: String,
    /// Where it runs now.
    pub from: String,
    /// Where it is to run.
    pub to: String,
    /// How it comes there.
    pub way: MoveMethod,
}

/// The second copy of an instance's disks is to be there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Copy {
    /// Which instance.
    pub instance: String,
    /// Where it is now.
    pub from: String,
    /// Where it is to be.
    pub to: String,
}

/// Things that are done together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JobBatch {
    /// Another node becomes master.
    Failover {
        /// Which.
        to: String,
    },
    /// It is written down what will be taken away from the node.
    Note(Notes),
    /// Nothing new is put on the node.
    Drain {
        /// Another becomes a candidate in its stead, else Ganeti would refuse.
        promotes: bool,
    },
    /// Instances run elsewhere.
    Move(Vec<InstanceMove>),
    /// Second copies are made elsewhere.
    Replace(Vec<Copy>),
    /// Instances are shut down.
    Stop(Vec<String>),
    /// The node gets its role back.
    Return(PriorRole),
    /// Mirrored disks are active on both nodes, and in sync.
    Sync(Vec<String>),
    /// Instances are started.
    Start(Vec<String>),
    /// The notes are not needed any more.
    Forget(Vec<String>),
    /// Nothing is done; the cluster is looked at again, for nobody can tell now. Why.
    Look(String),
}

/// Why a visit cannot go on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct VisitRefusal(pub String);

fn refuse<T>(why: impl Into<String>) -> Result<T, VisitRefusal> {
    Err(VisitRefusal(why.into()))
}

fn node<'a>(facts: &'a GanetiFacts, name: &str) -> Result<&'a NodeFacts, VisitRefusal> {
    facts
        .nodes
        .get(name)
        .ok_or_else(|| VisitRefusal(format!("there is no node {name}")))
}

/// What comes next to take a node out of service; `None`: it is out.
///
/// # Errors
/// What cannot be moved, or nobody knows where to.
pub fn enter(
    facts: &GanetiFacts,
    name: &str,
    visits: &Visits,
    planned: &PlannedMoves,
) -> Result<Option<JobBatch>, VisitRefusal> {
    let this = node(facts, name)?;
    let noted = this.notes.of(planned.run.as_ref());
    match this.role {
        NodeRole::Offline => return refuse(format!("{name} is offline, and not by stagger")),
        NodeRole::Drained if noted.is_empty() => {
            return refuse(match this.notes.visits().next() {
                Some(other) => format!(
                    "{name} is still drained by {}: `stagger ganeti recover {name}` restores it",
                    other.owner_text()
                ),
                None => format!("{name} is drained, and not by stagger"),
            });
        }
        NodeRole::Master => {
            let to = successor(facts, name, visits, &planned.boots)?;
            return Ok(Some(JobBatch::Failover { to }));
        }
        NodeRole::Candidate | NodeRole::Regular | NodeRole::Drained => {}
    }
    if this.boot.is_none() {
        return refuse(format!("{name} does not answer: repair it first"));
    }
    if let Some(instance) = facts
        .instances
        .values()
        .find(|instance| may_run_on(instance, name))
    {
        let InstanceFacts {
            name: who, status, ..
        } = instance;
        return refuse(format!(
            "{who} is {status}, so it may run on {name}: see `gnt-cluster verify`"
        ));
    }
    let here: Vec<&InstanceFacts> = facts
        .instances
        .values()
        .filter(|instance| instance.primary == name)
        .collect();
    let mut moves = Vec::new();
    let mut stops = Vec::new();
    let mut notes = notes_of_node(facts, this, planned);
    for instance in here {
        match instance.doing {
            // What does not run is not moved: its downtime is no longer for it. Of what is unclear: not here.
            RunState::Down | RunState::Failed | RunState::Unclear => {}
            RunState::Up if planned.as_if_down => {
                notes.stopped.insert(instance.uuid.clone());
                stops.push(instance.name.clone());
            }
            RunState::Up => {
                let to = destination(facts, instance, visits, planned)?;
                notes.away.insert(instance.uuid.clone());
                moves.push(InstanceMove {
                    instance: instance.name.clone(),
                    from: name.to_owned(),
                    to,
                    way: MoveMethod::of(instance.storage),
                });
            }
        }
    }
    let mut copies = Vec::new();
    for instance in facts.instances.values() {
        let Some(to) = planned.destination(instance, &[MoveKind::ReplaceStandby]) else {
            continue;
        };
        if instance.doing != RunState::Up || instance.storage != Storage::Copied || !instance.uses_node(name)
        {
            continue;
        }
        if !accepts_instances(node(facts, to)?) {
            return refuse(format!(
                "the second copy of {} would go to {to}, which is not in service",
                instance.name
            ));
        }
        notes.copies.insert(instance.uuid.clone());
        if instance.secondary.as_deref() == Some(name) {
            copies.push(Copy {
                instance: instance.name.clone(),
                from: name.to_owned(),
                to: to.to_owned(),
            });
        }
    }
    let missing = notes.difference(&noted);
    Ok(if !missing.is_empty() {
        Some(JobBatch::Note(missing))
    } else if this.role != NodeRole::Drained {
        let promotes = this.role == NodeRole::Candidate && too_few_candidates(facts, name);
        Some(JobBatch::Drain { promotes })
    } else if !moves.is_empty() {
        Some(JobBatch::Move(moves))
    } else if !copies.is_empty() {
        Some(JobBatch::Replace(copies))
    } else if !stops.is_empty() {
        Some(JobBatch::Stop(stops))
    } else {
        None
    })
}

/// What is noted of the node itself before it is drained.
fn notes_of_node(facts: &GanetiFacts, this: &NodeFacts, planned: &PlannedMoves) -> Notes {
    // Of a node that is drained already it was noted before.
    let is_new = this.role != NodeRole::Drained;
    Notes {
        run: planned.run.clone(),
        since: planned.run.as_ref().filter(|_| is_new).and(Some(facts.at)),
        boot: this.boot.clone().filter(|_| is_new),
        was: match this.role {
            NodeRole::Candidate => Some(PriorRole::Candidate),
            NodeRole::Regular => Some(PriorRole::Regular),
            NodeRole::Master | NodeRole::Drained | NodeRole::Offline => None,
        },
        ..Notes::default()
    }
}

/// Whether too few master candidates would be left without that node, which Ganeti refuses: fewer than there
/// should be, or could be. Those with notes may be about to be drained too.
fn too_few_candidates(facts: &GanetiFacts, name: &str) -> bool {
    let others = || facts.nodes.values().filter(|node| node.name != name);
    let possible = others().filter(|node| node.role != NodeRole::Drained && node.role != NodeRole::Offline);
    let stay = others()
        .filter(|node| matches!(node.role, NodeRole::Master | NodeRole::Candidate) && node.notes.is_empty());
    let should = facts.candidates.unwrap_or(usize::MAX).min(possible.count());
    stay.count() < should
}

/// Whether an instance whose node is unknown may be on that node.
fn may_run_on(instance: &InstanceFacts, name: &str) -> bool {
    let anywhere = instance.status == Status::ErrorWrongNode.word() && instance.storage != Storage::Copied;
    instance.doing == RunState::Unclear && (anywhere || instance.uses_node(name))
}

/// Where an instance goes that runs.
fn destination(
    facts: &GanetiFacts,
    instance: &InstanceFacts,
    visits: &Visits,
    planned: &PlannedMoves,
) -> Result<String, VisitRefusal> {
    if let Some(why) = not_permitted(instance, visits) {
        return refuse(why);
    }
    let InstanceFacts {
        name,
        primary,
        template,
        ..
    } = instance;
    let Some(to) = planned.destination(instance, &[MoveKind::Migrate, MoveKind::Relocate]) else {
        return refuse(match instance.storage {
            Storage::Local => format!("{name} runs, and its {template} disks are on this node only"),
            Storage::Copied | Storage::Shared => {
                format!("the plan has no place for {name} while {primary} is away")
            }
        });
    };
    if instance.storage == Storage::Copied && instance.secondary.as_deref() != Some(to) {
        return refuse(format!(
            "{name} would go to {to}, and its second copy is not there any more"
        ));
    }
    let there = node(facts, to)?;
    if !accepts_instances(there) || !there.vm_capable {
        return refuse(format!("{name} would go to {to}, which is not in service"));
    }
    Ok(to.to_owned())
}

/// Whether a node can take something.
fn accepts_instances(node: &NodeFacts) -> bool {
    let in_service = match node.role {
        NodeRole::Master | NodeRole::Candidate | NodeRole::Regular => true,
        NodeRole::Drained | NodeRole::Offline => false,
    };
    in_service && node.boot.is_some()
}

/// Who becomes master: whom the configuration names, or the first candidate in service; one that had its turn, by its
/// boot id, is preferred to one whose turn may be now.
///
/// # Errors
/// Nobody can.
pub fn successor(
    facts: &GanetiFacts,
    master: &str,
    visits: &Visits,
    boots: &BTreeMap<String, String>,
) -> Result<String, VisitRefusal> {
    if visits.failover.is_none() {
        return refuse(format!(
            "{master} is the master, and the configuration has no command for a failover"
        ));
    }
    let fits = |node: &&NodeFacts| {
        node.name != master
            && node.role == NodeRole::Candidate
            && accepts_instances(node)
            && node.notes.is_empty()
    };
    if let Some(named) = &visits.successor
        && named != master
    {
        return match facts.nodes.get(named).filter(fits) {
            Some(node) => Ok(node.name.clone()),
            None => refuse(format!(
                "{named} is to become master, and is not a master candidate in service"
            )),
        };
    }
    let had_its_turn = |node: &&NodeFacts| boots.get(&node.name) != node.boot.as_ref();
    let candidates = || facts.nodes.values().filter(fits);
    match candidates().find(had_its_turn).or_else(|| candidates().next()) {
        Some(node) => Ok(node.name.clone()),
        None => refuse(format!(
            "{master} is the master, and no other master candidate is in service"
        )),
    }
}

/// Whether a node is ready to be rebooted.
///
/// # Errors
/// What speaks against it.
pub fn may_reboot(
    facts: &GanetiFacts,
    name: &str,
    visits: &Visits,
    planned: &PlannedMoves,
) -> Result<(), VisitRefusal> {
    match enter(facts, name, visits, planned)? {
        None => Ok(()),
        Some(batch) => refuse(format!(
            "{name} is not out of service any more: {}",
            in_words(&batch)
        )),
    }
}

fn in_words(batch: &JobBatch) -> String {
    match batch {
        JobBatch::Failover { .. } => "it is the master".to_owned(),
        JobBatch::Move(moves) => {
            let names: Vec<_> = moves.iter().map(|each| each.instance.as_str()).collect();
            format!("{} run there", names.join(" "))
        }
        JobBatch::Stop(names) => format!("{} run there", names.join(" ")),
        JobBatch::Replace(copies) => format!("{} second copies are there", copies.len()),
        JobBatch::Note(notes) if !notes.away.is_empty() || !notes.stopped.is_empty() => {
            "instances have come to it".to_owned()
        }
        JobBatch::Drain { .. }
        | JobBatch::Note(_)
        | JobBatch::Return(_)
        | JobBatch::Sync(_)
        | JobBatch::Start(_)
        | JobBatch::Forget(_) => "it is not drained".to_owned(),
        JobBatch::Look(why) => why.clone(),
    }
}

/// How far a leave has come within one process.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LeaveProgress {
    /// Disks were looked at, and are in sync.
    pub synced: BTreeSet<String>,
}

/// What comes next to give back what a run's visit took from a node; `None`: it is back. What is noted of another run is
/// never touched.
///
/// # Errors
/// It does not answer, or was taken out of service by others.
pub fn leave(
    facts: &GanetiFacts,
    name: &str,
    run: Option<&RunId>,
    leaving: &LeaveProgress,
) -> Result<Option<JobBatch>, VisitRefusal> {
    let this = node(facts, name)?;
    let notes = this.notes.of(run);
    if this.role == NodeRole::Offline {
        return refuse(format!(
            "{name} is offline, and not by stagger; if it is gone for good, `gnt-node remove-tags {name} {}` forgets what \
             was taken from it",
            notes.tags().join(" ")
        ));
    }
    if this.boot.is_none() {
        return refuse(format!(
            "{name} does not answer: it stays out of service, and its instances where they are"
        ));
    }
    match (this.role, notes.was) {
        (NodeRole::Drained, Some(was)) => return Ok(Some(JobBatch::Return(was))),
        // Drained by others: it was never entered.
        (NodeRole::Drained, None) => return Ok(forget(this, &notes)),
        (NodeRole::Master | NodeRole::Candidate | NodeRole::Regular | NodeRole::Offline, _) => {}
    }
    let copies: Vec<Copy> = facts
        .instances
        .values()
        .filter(|instance| notes.copies.contains(&instance.uuid) && instance.doing == RunState::Up)
        .filter(|instance| !instance.uses_node(name))
        .filter_map(|instance| {
            Some(Copy {
                instance: instance.name.clone(),
                from: instance.secondary.clone()?,
                to: name.to_owned(),
            })
        })
        .collect();
    if !copies.is_empty() {
        return Ok(Some(JobBatch::Replace(copies)));
    }
    // Also those that stand on it with their secondary only: its reboot has cut their copies off.
    let unsynced: Vec<String> = facts
        .instances
        .values()
        .filter(|instance| instance.storage == Storage::Copied && instance.uses_node(name))
        .filter(|instance| instance.doing == RunState::Up || notes.stopped.contains(&instance.uuid))
        .filter(|instance| !leaving.synced.contains(&instance.name))
        .map(|instance| instance.name.clone())
        .collect();
    if !unsynced.is_empty() && !notes.is_empty() {
        return Ok(Some(JobBatch::Sync(unsynced)));
    }
    let back: Vec<InstanceMove> = facts
        .instances
        .values()
        .filter(|instance| notes.away.contains(&instance.uuid) && instance.primary != name)
        .filter(|instance| instance.doing == RunState::Up)
        .filter(|instance| instance.storage != Storage::Copied || instance.uses_node(name))
        .map(|instance| InstanceMove {
            instance: instance.name.clone(),
            from: instance.primary.clone(),
            to: name.to_owned(),
            way: MoveMethod::of(instance.storage),
        })
        .collect();
    if !back.is_empty() {
        return Ok(Some(JobBatch::Move(back)));
    }
    // Those that we stopped, and those that failed on their way: started where it is, it comes back next.
    let fell = |instance: &InstanceFacts| {
        instance.doing == RunState::Failed
            && notes.away.contains(&instance.uuid)
            && facts
                .nodes
                .get(&instance.primary)
                .is_some_and(|node| node.boot.is_some())
    };
    let start: Vec<String> = facts
        .instances
        .values()
        .filter(|instance| {
            let stopped = notes.stopped.contains(&instance.uuid);
            (stopped && matches!(instance.doing, RunState::Down | RunState::Failed)) || fell(instance)
        })
        .map(|instance| instance.name.clone())
        .collect();
    if !start.is_empty() {
        return Ok(Some(JobBatch::Start(start)));
    }
    Ok(undetermined_instance(facts, name, &notes).or_else(|| forget(this, &notes)))
}

/// Why what was noted is not forgotten yet, though nothing is left to do: an instance is where nobody can tell of it.
fn undetermined_instance(facts: &GanetiFacts, name: &str, notes: &Notes) -> Option<JobBatch> {
    // It failed where nobody answers: what was noted is not forgotten for it, or the instance would stay there for ever.
    let out_of_reach = facts
        .instances
        .values()
        .find(|instance| instance.doing == RunState::Failed && notes.away.contains(&instance.uuid));
    if let Some(InstanceFacts {
        name: who,
        status,
        primary,
        ..
    }) = out_of_reach
    {
        return Some(JobBatch::Look(format!(
            "{who} is {status} on {primary}, which does not answer: it comes back to {name} once {primary} is in service"
        )));
    }
    // One question that a hypervisor did not answer is enough for that: what was noted is not forgotten for it.
    let unclear = facts
        .instances
        .values()
        .find(|instance| instance.doing == RunState::Unclear && notes.names(&instance.uuid));
    if let Some(InstanceFacts { name, status, .. }) = unclear {
        let why = format!("where {name} runs is unknown: it is {status}");
        return Some(JobBatch::Look(why));
    }
    None
}

/// What of the visit stands on the node, and boot ids that tell nothing more.
fn forget(this: &NodeFacts, notes: &Notes) -> Option<JobBatch> {
    let tags = notes.tags();
    let boot = this.boot.as_deref().unwrap_or_default();
    (!tags.is_empty()).then(|| JobBatch::Forget([tags, this.notes.outdated_boots(boot)].concat()))
}
