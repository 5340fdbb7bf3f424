//! New OSDs: which nodes prepare devices, which OSDs get a Deployment, and what is to be told of them.
//!
//! Pure: from what is seen to what is to be done. Nothing here waits for an upgrade, and no upgrade waits for
//! it: growth takes precedence over updates (Rook's design "Updating OSDs in parallel"). What a node reports
//! is compared with the Deployments that there are, so that a report that is read twice makes no second OSD.

mod deployment;
mod job;
mod place;
mod told;
mod wished;

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use serde::Serialize;

pub use deployment::{DEVICE, NewOsd, deployment};
pub(crate) use deployment::{devices_of, image, like, node_of};
pub use job::{APP as PREPARE_APP, NODE, Prepare, job, name as job_name};
pub use place::location;
pub use told::{NodeStatus, OsdInfo, SELECTOR as REPORTS, Stage, name as report_name, read, status_map};
pub use wished::{Wished, wished};

/// A Job that ended without a word is believed to have none after so long: objects are seen one by one.
const SILENT: SignedDuration = SignedDuration::from_secs(10);
/// After a failure a node is tried again after so long, and twice as long each time.
const FIRST_PAUSE: SignedDuration = SignedDuration::from_mins(1);
const LONGEST_PAUSE: SignedDuration = SignedDuration::from_mins(32);

/// An OSD that has a Deployment.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Known {
    /// The node that it is bound to.
    pub node: Option<String>,
    /// The paths by which its device is known.
    pub devices: BTreeSet<String>,
}

/// How a prepare Job stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JobState {
    /// It is not over.
    Runs,
    /// It has ended well.
    Done,
    /// It has ended, and not well: why.
    Failed(String),
}

/// A prepare Job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Job {
    /// How it stands.
    pub state: JobState,
    /// When something was last seen to happen.
    pub progressed: Timestamp,
}

/// That a node could not be prepared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failed {
    /// How often, one after another.
    pub times: u32,
    /// When last.
    pub last: Timestamp,
    /// Why.
    pub why: String,
    /// Which devices were wanted: of others nothing is known yet.
    pub devices: BTreeSet<String>,
}

impl Failed {
    /// When it is tried again.
    fn next(&self) -> Timestamp {
        let doubled = FIRST_PAUSE * 2_i32.saturating_pow(self.times.saturating_sub(1).min(5));
        self.last + doubled.min(LONGEST_PAUSE)
    }
}

/// What is seen.
#[derive(Debug, Clone, Copy)]
pub struct Seen<'a> {
    /// Now.
    pub now: Timestamp,
    /// A Job that shows no progress for so long is named.
    pub patience: SignedDuration,
    /// The devices that are to become OSDs, by node.
    pub wished: &'a BTreeMap<String, BTreeSet<String>>,
    /// The nodes that are there and take pods.
    pub nodes: &'a BTreeSet<String>,
    /// All OSDs that have a Deployment: the existence list.
    pub known: &'a BTreeMap<u32, Known>,
    /// The prepare Jobs, by node.
    pub jobs: &'a BTreeMap<String, Job>,
    /// What nodes report, or why it cannot be read.
    pub told: &'a BTreeMap<String, Result<NodeStatus, String>>,
    /// The nodes that could not be prepared.
    pub failed: &'a BTreeMap<String, Failed>,
}

/// Something to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Act {
    /// Make the Deployment of a new OSD.
    Create {
        /// Where it is.
        node: String,
        /// What the node reported.
        osd: OsdInfo,
    },
    /// Write down at an OSD by which other path its device is known.
    Note {
        /// The OSD.
        id: u32,
        /// The path.
        device: String,
    },
    /// All that a node reported is there: its Job and its report go.
    Settle {
        /// Which node.
        node: String,
        /// What went wrong on it, if something did.
        why: Option<String>,
    },
    /// Start the Job that prepares devices.
    Start {
        /// On which node.
        node: String,
        /// Which.
        devices: BTreeSet<String>,
    },
}

/// Something that a person should know.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Remark {
    /// About which node.
    pub node: String,
    /// In a stable word.
    pub reason: &'static str,
    /// In a sentence, with what to do.
    pub message: String,
}

/// What is to be done and told.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Decided {
    /// In this order: OSDs before all else.
    pub acts: Vec<Act>,
    /// What is to be told.
    pub remarks: Vec<Remark>,
    /// When to look again though nothing has changed.
    pub again: Option<Timestamp>,
}

impl Decided {
    fn remark(&mut self, node: &str, reason: &'static str, message: String) {
        let node = node.to_owned();
        self.remarks.push(Remark {
            node,
            reason,
            message,
        });
    }

    fn look_again(&mut self, at: Timestamp) {
        self.again = Some(self.again.map_or(at, |before| before.min(at)));
    }
}

/// What to do about new OSDs.
pub fn decide(seen: Seen<'_>) -> Decided {
    let mut decided = Decided::default();
    let mut made = BTreeSet::new();
    for (node, told) in seen.told {
        match told {
            Err(why) => decided.remark(
                node,
                "StatusUnreadable",
                format!(
                    "ConfigMap {}: {why}; delete it, and the node is prepared again",
                    told::name(node)
                ),
            ),
            Ok(told) if told.stage().is_over() => {
                let before = decided.acts.len();
                for osd in &told.osds {
                    match seen.known.get(&osd.id) {
                        None if made.insert(osd.id) => decided.acts.push(Act::Create {
                            node: node.clone(),
                            osd: osd.clone(),
                        }),
                        Some(known) if !known.devices.contains(&osd.device) => {
                            decided.acts.push(Act::Note {
                                id: osd.id,
                                device: osd.device.clone(),
                            });
                        }
                        None | Some(_) => {}
                    }
                }
                if decided.acts.len() == before {
                    let why = (told.stage() == Stage::Failed).then(|| told.message.clone());
                    decided.acts.push(Act::Settle {
                        node: node.clone(),
                        why,
                    });
                }
            }
            Ok(_) => {}
        }
    }
    for (node, job) in seen.jobs {
        if seen.told.get(node).is_some_and(is_over) {
            continue;
        }
        jobs_turn(&seen, &mut decided, node, job);
    }
    for (node, devices) in seen.wished {
        wish(&seen, &mut decided, node, devices);
    }
    decided
}

fn is_over(told: &Result<NodeStatus, String>) -> bool {
    told.as_ref().is_ok_and(|told| told.stage().is_over())
}

/// A Job whose node has not reported yet.
fn jobs_turn(seen: &Seen<'_>, decided: &mut Decided, node: &str, job: &Job) {
    let since = seen.now.duration_since(job.progressed);
    match &job.state {
        JobState::Failed(why) => decided.acts.push(Act::Settle {
            node: node.to_owned(),
            why: Some(why.clone()),
        }),
        JobState::Done if since >= SILENT => decided.acts.push(Act::Settle {
            node: node.to_owned(),
            why: Some("its Job has ended and reported nothing".to_owned()),
        }),
        JobState::Done => decided.look_again(job.progressed + SILENT),
        JobState::Runs if since >= seen.patience => decided.remark(
            node,
            "PrepareStuck",
            format!(
                "Job {} has shown no progress for {} s; nothing waits for it. Look at its pod, and delete the Job to \
                 have it started again",
                job::name(node),
                since.as_secs()
            ),
        ),
        JobState::Runs => decided.look_again(job.progressed + seen.patience),
    }
}

/// What a node should have, and whether it is its turn.
fn wish(seen: &Seen<'_>, decided: &mut Decided, node: &str, devices: &BTreeSet<String>) {
    let has = |device: &String| {
        seen.known
            .values()
            .any(|osd| osd.node.as_deref() == Some(node) && osd.devices.contains(device))
    };
    if devices.iter().all(has) || seen.jobs.contains_key(node) || seen.told.contains_key(node) {
        return;
    }
    if !seen.nodes.contains(node) {
        return decided.remark(
            node,
            "NodeNotThere",
            format!("node {node} of spec.storage is not there, or takes no pods; its devices wait for it"),
        );
    }
    if let Some(failed) = seen.failed.get(node)
        && failed.devices == *devices
        && seen.now < failed.next()
    {
        decided.look_again(failed.next());
        return decided.remark(
            node,
            "PrepareFailed",
            format!(
                "devices of node {node} could not be prepared: {}; tried again at {}",
                failed.why,
                failed.next().strftime("%H:%M:%SZ")
            ),
        );
    }
    decided.acts.push(Act::Start {
        node: node.to_owned(),
        devices: devices.clone(),
    });
}

#[cfg(test)]
mod tests;
