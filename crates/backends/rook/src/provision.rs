//! New OSDs: where devices are prepared, which OSDs get a Deployment, and the reports about them.
//!
//! Pure: from the observed state to the actions. Nothing here waits for an upgrade, and no upgrade waits for
//! it: growth takes precedence over updates (Rook's design "Updating OSDs in parallel"). A report is compared
//! with the existing Deployments, so that a report that is read twice makes no second OSD.

mod claims;
mod crush_location;
mod deployment;
mod job;
pub mod prepare;
pub mod removal;
mod report;
mod requested_devices;

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use serde::Serialize;
use serde_json::Value;

pub use claims::{Claimed, Owner, PVC, claimed, path as claim_path};
pub use crush_location::location;
pub use deployment::{DEVICE, NewOsd, deployment};
pub(crate) use deployment::{common_fields, devices_of, image, osd_location};
pub use job::{On, Prepare, at as job_at, job, name as job_name};
pub use report::{NodeReport, OsdInfo, Stage, name as report_name, read, status_map};
pub use requested_devices::{RequestedDevices, requested_devices};

/// A Job that ended without a word is believed to have none after so long: objects are seen one by one.
const SILENT: SignedDuration = SignedDuration::from_secs(10);
/// After a failure a node is tried again after so long, and twice as long each time.
const FIRST_PAUSE: SignedDuration = SignedDuration::from_mins(1);
const LONGEST_PAUSE: SignedDuration = SignedDuration::from_mins(32);

/// Where devices are prepared, by one Job.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum JobTarget {
    /// On a node, which has devices of its own.
    Node(String),
    /// On whatever node the volume of a PersistentVolumeClaim can be had.
    Claim(String),
}

impl JobTarget {
    /// The name of the node or claim.
    pub fn name(&self) -> &str {
        match self {
            Self::Node(name) | Self::Claim(name) => name,
        }
    }
}

impl std::fmt::Display for JobTarget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Node(name) => write!(f, "node {name}"),
            Self::Claim(name) => write!(f, "claim {name}"),
        }
    }
}

/// An OSD that has a Deployment.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DeployedOsd {
    /// The claim whose volume it has, or else the node that it is bound to.
    pub at: Option<JobTarget>,
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
pub struct PrepareJob {
    /// How it stands.
    pub state: JobState,
    /// When something was last seen to happen.
    pub progressed: Timestamp,
}

/// That devices could not be prepared.
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
pub struct ProvisioningState<'a> {
    /// Now.
    pub now: Timestamp,
    /// A Job that shows no progress for so long is named.
    pub patience: SignedDuration,
    /// The devices that are to become OSDs.
    pub wished: &'a BTreeMap<JobTarget, BTreeSet<String>>,
    /// The nodes that are there and take pods.
    pub nodes: &'a BTreeSet<String>,
    /// All OSDs that have a Deployment: the existence list.
    pub known: &'a BTreeMap<u32, DeployedOsd>,
    /// The prepare Jobs.
    pub jobs: &'a BTreeMap<JobTarget, PrepareJob>,
    /// What is reported, or why it cannot be read.
    pub told: &'a BTreeMap<JobTarget, Result<NodeReport, String>>,
    /// Where devices could not be prepared.
    pub failed: &'a BTreeMap<JobTarget, Failed>,
}

/// Something to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Act {
    /// Make the Deployment of a new OSD.
    Create {
        /// Where it was prepared.
        at: JobTarget,
        /// What was reported.
        osd: OsdInfo,
    },
    /// Write down at an OSD by which other path its device is known.
    Note {
        /// Where that was reported.
        at: JobTarget,
        /// The OSD.
        id: u32,
        /// The path.
        device: String,
    },
    /// All that was reported is there: the Job and its report go.
    Settle {
        /// Whose.
        at: JobTarget,
        /// What went wrong, if something did.
        why: Option<String>,
    },
    /// Start the Job that prepares devices.
    Start {
        /// Where.
        at: JobTarget,
        /// Which.
        devices: BTreeSet<String>,
    },
    /// Make a claim.
    Claim {
        /// As which it will be prepared.
        at: JobTarget,
        /// The claim.
        object: Value,
    },
}

impl Act {
    /// Where it is done.
    pub fn at(&self) -> &JobTarget {
        match self {
            Self::Create { at, .. }
            | Self::Note { at, .. }
            | Self::Settle { at, .. }
            | Self::Start { at, .. }
            | Self::Claim { at, .. } => at,
        }
    }
}

/// Something that a person should know.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ProvisioningWarning {
    /// About which node or claim.
    #[serde(flatten)]
    pub at: JobTarget,
    /// In a stable word.
    pub reason: &'static str,
    /// In a sentence, with what to do.
    pub message: String,
}

/// What is to be done and told.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ProvisioningDecision {
    /// In this order: OSDs before all else.
    pub acts: Vec<Act>,
    /// What is to be told.
    pub remarks: Vec<ProvisioningWarning>,
    /// When to look again though nothing has changed.
    pub again: Option<Timestamp>,
}

impl ProvisioningDecision {
    fn remark(&mut self, at: &JobTarget, reason: &'static str, message: String) {
        let at = at.clone();
        self.remarks.push(ProvisioningWarning { at, reason, message });
    }

    fn retry_at(&mut self, at: Timestamp) {
        self.again = Some(self.again.map_or(at, |before| before.min(at)));
    }
}

/// What to do about new OSDs.
pub fn decide(seen: ProvisioningState<'_>) -> ProvisioningDecision {
    let mut decided = ProvisioningDecision::default();
    let mut made = BTreeSet::new();
    for (at, told) in seen.told {
        match told {
            Err(why) => decided.remark(
                at,
                "StatusUnreadable",
                format!(
                    "ConfigMap {}: {why}; delete it, and {at} is prepared again",
                    report::name(at)
                ),
            ),
            Ok(told) if told.stage().is_over() => {
                let before = decided.acts.len();
                for osd in &told.osds {
                    match seen.known.get(&osd.id) {
                        None if made.insert(osd.id) => decided.acts.push(Act::Create {
                            at: at.clone(),
                            osd: osd.clone(),
                        }),
                        Some(known) if !known.devices.contains(&osd.device) => {
                            decided.acts.push(Act::Note {
                                at: at.clone(),
                                id: osd.id,
                                device: osd.device.clone(),
                            });
                        }
                        None | Some(_) => {}
                    }
                }
                if decided.acts.len() == before {
                    let why = (told.stage() == Stage::Failed).then(|| told.message.clone());
                    let at = at.clone();
                    decided.acts.push(Act::Settle { at, why });
                }
            }
            Ok(_) => {}
        }
    }
    for (at, job) in seen.jobs {
        if seen.told.get(at).is_some_and(is_over) {
            continue;
        }
        pending_job(&seen, &mut decided, at, job);
    }
    for (at, devices) in seen.wished {
        desired_osd(&seen, &mut decided, at, devices);
    }
    decided
}

fn is_over(told: &Result<NodeReport, String>) -> bool {
    told.as_ref().is_ok_and(|told| told.stage().is_over())
}

/// A Job that has not reported yet.
fn pending_job(
    seen: &ProvisioningState<'_>,
    decided: &mut ProvisioningDecision,
    at: &JobTarget,
    job: &PrepareJob,
) {
    let since = seen.now.duration_since(job.progressed);
    let mut settle = |why: String| {
        let (at, why) = (at.clone(), Some(why));
        decided.acts.push(Act::Settle { at, why });
    };
    match &job.state {
        JobState::Failed(why) => settle(why.clone()),
        JobState::Done if since >= SILENT => settle("its Job has ended and reported nothing".to_owned()),
        JobState::Done => decided.retry_at(job.progressed + SILENT),
        JobState::Runs if since >= seen.patience => decided.remark(
            at,
            "PrepareStuck",
            format!(
                "Job {} has shown no progress for {} s; nothing waits for it. Look at its pod, and delete the Job to \
                 have it started again",
                job::name(at),
                since.as_secs()
            ),
        ),
        JobState::Runs => decided.retry_at(job.progressed + seen.patience),
    }
}

/// What should be an OSD, and whether it is its turn.
fn desired_osd(
    seen: &ProvisioningState<'_>,
    decided: &mut ProvisioningDecision,
    at: &JobTarget,
    devices: &BTreeSet<String>,
) {
    let has = |device: &String| {
        let here = |osd: &&DeployedOsd| osd.at.as_ref() == Some(at);
        let mut here = seen.known.values().filter(here);
        here.any(|osd| osd.devices.contains(device))
    };
    if devices.iter().all(has) || seen.jobs.contains_key(at) || seen.told.contains_key(at) {
        return;
    }
    if let JobTarget::Node(node) = at
        && !seen.nodes.contains(node)
    {
        return decided.remark(
            at,
            "NodeNotThere",
            format!("node {node} of spec.storage is not there, or takes no pods; its devices wait for it"),
        );
    }
    if let Some(failed) = seen.failed.get(at)
        && failed.devices == *devices
        && seen.now < failed.next()
    {
        decided.retry_at(failed.next());
        return decided.remark(
            at,
            "PrepareFailed",
            format!(
                "devices of {at} could not be prepared: {}; tried again at {}",
                failed.why,
                failed.next().strftime("%H:%M:%SZ")
            ),
        );
    }
    decided.acts.push(Act::Start {
        at: at.clone(),
        devices: devices.clone(),
    });
}

#[cfg(test)]
mod tests;
