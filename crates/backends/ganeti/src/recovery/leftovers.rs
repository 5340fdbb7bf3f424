//! Leftovers of runs in a cluster, and how they are cleared: pure functions of the cluster's own answers.
//!
//! No journal is needed. Notes on nodes say what was taken, by which run and since when; filters say which
//! guards are held, and what the lock remembers. The steps are those of a visit ([`visit::leave`]), simulated
//! on a copy of the facts until nothing is left to do, so that the shown steps are those that are carried
//! out.

use std::collections::BTreeSet;

use stagger_core::model::{RunId, Storage};

use crate::facts::notes::{NodeNotes, Notes, PriorRole};
use crate::facts::{GanetiFacts, NodeRole, RunState};
use crate::guards::{self, GanetiHeldGuard};
use crate::lock::{self, Handover, LockCandidate};
use crate::rapi::fence::{self, Fence};
use crate::rapi::filters::ListedFilter;
use crate::visit::{self, JobBatch, LeaveProgress, VisitRefusal};

/// More batches than any visit takes to be left.
const BATCHES: usize = 20;

/// All that is left.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct GanetiLeftovers {
    /// The nodes with notes, in the order in which they are given back: the newest visit first, since it may have moved what
    /// an older one had put there.
    pub visits: Vec<VisitLeftover>,
    /// Tags of ours that this release does not know, with their nodes.
    pub unknown: Vec<(String, String)>,
    /// The drain and the watcher's pause.
    pub guards: Vec<GanetiHeldGuard>,
    /// What the lock remembers, and the fence.
    pub records: FilterRecords,
}

/// What stays in filters that match no job, or only those that must not run.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FilterRecords {
    /// Who says that they hold the lock.
    pub claims: Vec<LockCandidate>,
    /// Runs that went on on another node.
    pub handovers: Vec<Handover>,
    /// The newest token that was given out: jobs with an older one are refused.
    pub fence: Option<u64>,
    /// Requests whose answer was lost, and which are refused should they still come.
    pub refused: Vec<RefusedRequest>,
    /// The run whose journal is compared with what was noted here.
    pub anchor: Option<RunId>,
}

/// A request whose answer was lost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusedRequest {
    /// The id of its filter.
    pub filter: String,
    /// The reason that its job would have.
    pub reason: String,
    /// Until when it may come, by the clock of who wrote that, in seconds since 1970.
    pub until: i64,
}

/// What one run's visit has left on one node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VisitLeftover {
    /// The node.
    pub node: String,
    /// What is noted.
    pub notes: Notes,
    /// The node's role now.
    pub role: NodeRole,
    /// Whether a reboot or a command may still be on its way to it: it answers as before one was sent.
    pub may_go_down: bool,
    /// What became of the instances that are noted.
    pub instances: Vec<InstanceLeftover>,
    /// How it is restored, in this order.
    pub plan: Vec<JobBatch>,
    /// Why the plan ends before all of it is given back.
    pub refused: Option<String>,
}

/// An instance that a visit did something with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstanceLeftover {
    /// Its name; its id, if there is none of that id any more.
    pub name: String,
    /// What was done with it.
    pub done: InstanceChange,
    /// Where it is now, and what it does in Ganeti's word; `None`: it is gone.
    pub now: Option<(String, String)>,
}

/// What a visit did with an instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum InstanceChange {
    /// It runs elsewhere.
    Away,
    /// Its second copy is elsewhere.
    Copied,
    /// It was shut down.
    Stopped,
}

impl InstanceChange {
    /// In words, after the instance's name.
    pub fn text(self) -> &'static str {
        match self {
            Self::Away => "was moved away",
            Self::Copied => "has its second copy elsewhere",
            Self::Stopped => "was shut down",
        }
    }
}

impl GanetiLeftovers {
    /// What there is.
    pub fn of(facts: &GanetiFacts, filters: &[ListedFilter]) -> Self {
        let mut noted: Vec<(&str, &Notes)> = facts
            .nodes
            .values()
            .flat_map(|node| node.notes.visits().map(|notes| (node.name.as_str(), notes)))
            .collect();
        // The newest first; of one node first those that say which role it had.
        noted.sort_by(|(one, of_one), (other, of_other)| {
            let begun = |notes: &Notes| (notes.since, notes.run.clone());
            begun(of_other)
                .cmp(&begun(of_one))
                .then_with(|| of_one.was.is_none().cmp(&of_other.was.is_none()))
                .then_with(|| one.cmp(other))
        });
        let mut after = facts.clone();
        let visits = noted
            .into_iter()
            .map(|(node, notes)| {
                let (plan, refused) = simulate_leave(&mut after, node, notes);
                let this = &facts.nodes[node];
                VisitLeftover {
                    node: node.to_owned(),
                    notes: notes.clone(),
                    role: this.role,
                    may_go_down: notes.sent.is_some() && notes.sent == this.boot,
                    instances: instances(facts, notes),
                    plan,
                    refused,
                }
            })
            .collect();
        let unknown = facts.nodes.values().flat_map(|node| {
            let tags = node.notes.unknown.iter();
            tags.map(|tag| (node.name.clone(), tag.clone()))
        });
        Self {
            visits,
            unknown: unknown.collect(),
            guards: guards::held(filters),
            records: FilterRecords::of(filters),
        }
    }

    /// Those of one run: its visits, and its guards.
    #[must_use]
    pub fn of_run(mut self, run: &RunId) -> Self {
        self.visits.retain(|visit| visit.notes.run.as_ref() == Some(run));
        self.guards.retain(|guard| guard.run == run.as_str());
        self.unknown.clear();
        self.records = FilterRecords::default();
        self
    }

    /// Those of one node.
    #[must_use]
    pub fn of_node(mut self, node: &str) -> Self {
        self.visits.retain(|visit| visit.node == node);
        self.unknown.retain(|(of, _)| of == node);
        self.guards.clear();
        self.records = FilterRecords::default();
        self
    }

    /// Whether nothing of a cluster is out of its place: neither a node nor a guard. Records take nothing from anybody.
    pub fn is_restored(&self) -> bool {
        self.visits.is_empty() && self.guards.is_empty()
    }

    /// Whether there is nothing at all.
    pub fn is_empty(&self) -> bool {
        self.is_restored() && self.unknown.is_empty() && self.records == FilterRecords::default()
    }

    /// The runs that have left something, in their order.
    pub fn runs(&self) -> BTreeSet<String> {
        let of_visits = self.visits.iter().filter_map(|visit| visit.notes.run.as_ref());
        let of_guards = self.guards.iter().map(|guard| guard.run.clone());
        of_visits.map(ToString::to_string).chain(of_guards).collect()
    }
}

impl FilterRecords {
    fn of(filters: &[ListedFilter]) -> Self {
        let refused = fence::refusing_filters(filters)
            .into_iter()
            .filter_map(|found| match found.record {
                Fence::One { reason, until } => Some(RefusedRequest {
                    filter: found.id,
                    reason,
                    until,
                }),
                Fence::Older { .. } => None,
            });
        Self {
            claims: lock::all_claims(filters),
            handovers: lock::handovers(filters),
            fence: Some(fence::newest(filters)).filter(|token| *token > 0),
            refused: refused.collect(),
            anchor: lock::anchor_of(filters).map(|anchor| anchor.run),
        }
    }
}

fn instances(facts: &GanetiFacts, notes: &Notes) -> Vec<InstanceLeftover> {
    let noted = [
        (InstanceChange::Away, &notes.away),
        (InstanceChange::Copied, &notes.copies),
        (InstanceChange::Stopped, &notes.stopped),
    ];
    let of = |uuid: &String| facts.instances.values().find(|instance| instance.uuid == *uuid);
    let mut found: Vec<InstanceLeftover> = noted
        .into_iter()
        .flat_map(|(done, ids)| ids.iter().map(move |uuid| (done, uuid)))
        .map(|(done, uuid)| match of(uuid) {
            Some(instance) => InstanceLeftover {
                name: instance.name.clone(),
                done,
                now: Some((instance.primary.clone(), instance.status.clone())),
            },
            None => InstanceLeftover {
                name: uuid.clone(),
                done,
                now: None,
            },
        })
        .collect();
    found.sort_by(|one, other| (one.done, &one.name).cmp(&(other.done, &other.name)));
    found
}

/// What speaks against giving a node back now, beside what a visit itself refuses.
///
/// # Errors
/// In words.
pub fn may_restore(facts: &GanetiFacts, node: &str, notes: &Notes) -> Result<(), VisitRefusal> {
    let role = facts.nodes.get(node).map(|node| node.role);
    let took = !notes.away.is_empty() || !notes.copies.is_empty() || !notes.stopped.is_empty();
    if role == Some(NodeRole::Drained) && notes.was.is_none() && took {
        return Err(VisitRefusal(format!(
            "{node} is drained, and no note says which role it had: `gnt-node modify --drained=no {node}` first"
        )));
    }
    Ok(())
}

/// Plays a visit's end on these facts: what is done, and why it ends before all is.
fn simulate_leave(facts: &mut GanetiFacts, node: &str, notes: &Notes) -> (Vec<JobBatch>, Option<String>) {
    let mut plan = Vec::new();
    if let Err(refusal) = may_restore(facts, node, notes) {
        return (plan, Some(refusal.0));
    }
    let mut leaving = LeaveProgress::default();
    for _ in 0..BATCHES {
        match visit::leave(facts, node, notes.run.as_ref(), &leaving) {
            Ok(None) => return (plan, None),
            Ok(Some(JobBatch::Look(why))) => return (plan, Some(why)),
            Ok(Some(batch)) => {
                if plan.contains(&batch) {
                    return (plan, Some(format!("{node} would not be as it was after that")));
                }
                play(facts, node, notes, &batch, &mut leaving);
                plan.push(batch);
            }
            Err(refusal) => return (plan, Some(refusal.0)),
        }
    }
    (plan, Some(format!("giving {node} back does not come to an end")))
}

/// The facts after one batch of a visit's end, if all of it works.
fn play(facts: &mut GanetiFacts, node: &str, notes: &Notes, batch: &JobBatch, leaving: &mut LeaveProgress) {
    match batch {
        JobBatch::Return(was) => {
            if let Some(this) = facts.nodes.get_mut(node) {
                this.role = match was {
                    PriorRole::Candidate => NodeRole::Candidate,
                    PriorRole::Regular => NodeRole::Regular,
                };
            }
        }
        JobBatch::Replace(copies) => {
            for copy in copies {
                if let Some(instance) = facts.instances.get_mut(&copy.instance) {
                    instance.secondary = Some(copy.to.clone());
                }
            }
        }
        JobBatch::Sync(names) => leaving.synced.extend(names.iter().cloned()),
        JobBatch::Move(moves) => {
            for each in moves {
                if let Some(instance) = facts.instances.get_mut(&each.instance) {
                    if instance.storage == Storage::Copied {
                        instance.secondary = Some(each.from.clone());
                    }
                    instance.primary.clone_from(&each.to);
                }
            }
        }
        JobBatch::Start(names) => {
            for name in names {
                if let Some(instance) = facts.instances.get_mut(name) {
                    instance.doing = RunState::Up;
                }
            }
        }
        JobBatch::Forget(_) => {
            if let Some(this) = facts.nodes.get_mut(node) {
                let of_others = this.notes.of_other_runs(notes.run.as_ref());
                let tags: Vec<String> = of_others.flat_map(Notes::tags).collect();
                this.notes = NodeNotes::read(&tags);
            }
        }
        JobBatch::Failover { .. }
        | JobBatch::Note(_)
        | JobBatch::Drain { .. }
        | JobBatch::Stop(_)
        | JobBatch::Look(_) => {}
    }
}

/// A batch of a visit's end in words, as an order: `move web back from node4`.
pub fn batch_text(batch: &JobBatch) -> String {
    match batch {
        JobBatch::Return(was) => format!("make it {} again", was.as_role()),
        JobBatch::Replace(copies) => {
            let each: Vec<String> = copies
                .iter()
                .map(|copy| format!("{} from {}", copy.instance, copy.from))
                .collect();
            format!("make second copies here again: {}", each.join(", "))
        }
        JobBatch::Sync(names) => format!("bring the disks in sync of {}", names.join(", ")),
        JobBatch::Move(moves) => {
            let each: Vec<String> = moves
                .iter()
                .map(|each| format!("{} from {}", each.instance, each.from))
                .collect();
            format!("move back {}", each.join(", "))
        }
        JobBatch::Start(names) => format!("start {}", names.join(", ")),
        JobBatch::Forget(tags) => format!("remove {} tags", tags.len()),
        JobBatch::Failover { to } => format!("make {to} the master"),
        JobBatch::Note(notes) => format!("write {} tags", notes.tags().len()),
        JobBatch::Drain { .. } => "drain it".to_owned(),
        JobBatch::Stop(names) => format!("shut down {}", names.join(", ")),
        JobBatch::Look(why) => format!("look again: {why}"),
    }
}
