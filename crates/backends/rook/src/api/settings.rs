//! The settings of an update: `spec.updatePolicy` of the CephMaintenance, and the corresponding fields of the
//! CephCluster for Rook.
//!
//! **Where both are set, the CephMaintenance wins, and a remark says so.** Removal has two spellings, both in
//! the CephCluster; there, the one that says no wins.

use std::collections::BTreeMap;

use regex::Regex;
use stagger_ceph::target::PgGate;
use stagger_core::model::{Doors, Growth, Kind, Limit, OnFailure, Order, Policy};

use crate::api::cluster::CephClusterSpec;
use crate::api::maintenance::{Desired, Manage};
use crate::api::pod::{self, Fields};
use crate::api::policy::{FailureAction, FieldWarning, NumberOrPercent, UpdatePolicy};

/// What the fields of both come to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicySettings {
    /// How bold to be.
    pub policy: Policy,
    /// Neither prerequisites nor gates, and one OSD at a time.
    pub skip_checks: bool,
    /// No new wave.
    pub paused: bool,
    /// How long a daemon may take to start, in seconds, if that is said.
    pub start_timeout: Option<u32>,
    /// Codes of health that are taken for healthy.
    pub accepted: Vec<String>,
    /// When placement groups are well enough to go on.
    pub groups: PgGate,
    /// Whether an OSD that is out and safe to destroy is removed.
    pub remove_osds: bool,
    /// What the CephCluster names of pods beside the image, by kind of daemon; nothing, where Rook sees to that.
    pub pods: BTreeMap<String, Fields>,
    /// What a person should know: an old field, one that another overrides, a window that is none.
    pub remarks: Vec<FieldWarning>,
}

impl PolicySettings {
    /// Reads the fields. `release_changes`: whether the wish is another release of Ceph, rather than a new
    /// revision of the one that runs.
    ///
    /// What the resource definition would refuse and an older one has let in is not guessed at: the field
    /// is as if it were not set, and a remark says so.
    pub fn read(desired: &Desired, release_changes: bool) -> Self {
        let (spec, new) = (&desired.cluster.spec, &desired.maintenance.spec.update_policy);
        let mut remarks = Vec::new();
        let skip_checks = prefer(
            &mut remarks,
            ("spec.skipUpgradeChecks", spec.skip_upgrade_checks),
            ("spec.updatePolicy.skipUpgradeChecks", new.skip_upgrade_checks),
        );
        let go_on_unhealthy = prefer(
            &mut remarks,
            (
                "spec.continueUpgradeAfterChecksEvenIfNotHealthy",
                spec.continue_upgrade_after_checks_even_if_not_healthy,
            ),
            (
                "spec.updatePolicy.continueUpgradeAfterChecksEvenIfNotHealthy",
                new.continue_upgrade_after_checks_even_if_not_healthy,
            ),
        );
        let removal = match (
            spec.remove_osds_if_out_and_safe_to_remove,
            spec.remove_osds_if_out_and_safe_to_destroy,
        ) {
            (Some(one), Some(other)) => Some(one && other),
            (one, other) => one.or(other),
        };
        let spelled = if spec.remove_osds_if_out_and_safe_to_remove.is_some() {
            "spec.removeOSDsIfOutAndSafeToRemove"
        } else {
            "spec.removeOSDsIfOutAndSafeToDestroy"
        };
        let remove_osds = prefer(
            &mut remarks,
            (spelled, removal),
            (
                "spec.updatePolicy.osds.removeIfOutAndSafeToDestroy",
                new.osds.remove_if_out_and_safe_to_destroy,
            ),
        );
        let go_on_unhealthy = go_on_unhealthy.unwrap_or(false);
        let by_change = match (go_on_unhealthy, release_changes) {
            (false, true) => FailureAction::Rollback,
            (true, _) | (false, false) => FailureAction::Continue,
        };
        let policy = policy(desired, by_change, &mut remarks);
        let groups = groups(spec, &mut remarks);
        let start_timeout = start_timeout(new, &mut remarks);
        if spec.upgrade_osd_requires_healthy_pgs == Some(false) {
            remarks.push(FieldWarning {
                field: "spec.upgradeOSDRequiresHealthyPGs".to_owned(),
                what: "an update waits for healthy placement groups all the same; \
                       spec.disruptionManagement.pgHealthyRegex says which are"
                    .to_owned(),
            });
        }
        let pods = if desired.manages(Manage::Provisioning) {
            pod::requested_fields(spec, &mut remarks)
        } else {
            BTreeMap::new()
        };
        Self {
            policy,
            pods,
            skip_checks: skip_checks.unwrap_or(false),
            paused: new.pause.unwrap_or(false),
            start_timeout,
            accepted: new.health_errors_to_ignore.clone(),
            groups,
            remove_osds: remove_osds.unwrap_or(false),
            remarks,
        }
    }
}

/// The field of the CephMaintenance, else that of the CephCluster; a remark where they differ.
fn prefer<T: PartialEq + std::fmt::Debug>(
    remarks: &mut Vec<FieldWarning>,
    (theirs, was): (&str, Option<T>),
    (ours, is): (&str, Option<T>),
) -> Option<T> {
    if let (Some(was), Some(is)) = (&was, &is)
        && was != is
    {
        remarks.push(FieldWarning {
            field: theirs.to_owned(),
            what: format!(
                "the CephCluster says {was:?}; {ours} of the CephMaintenance says {is:?}, and that counts"
            ),
        });
    }
    is.or(was)
}

fn policy(desired: &Desired, by_change: FailureAction, remarks: &mut Vec<FieldWarning>) -> Policy {
    let (spec, new) = (&desired.cluster.spec, &desired.maintenance.spec.update_policy);
    let mut policy = Policy::default();
    if let Some(limit) = limit(desired, remarks)
        && let Ok(osd) = Kind::new("osd")
    {
        policy.max_in_parallel_of.insert(osd, limit);
    }
    if new.osds.grow == Some(false) {
        policy.growth = Growth::None;
    }
    if let Some(level) = &new.osds.one_failure_domain_at_a_time {
        policy.order = Order::ByDomain(level.clone());
    }
    let seconds = |value: i64, field: &str, remarks: &mut Vec<FieldWarning>| {
        let seconds = u32::try_from(value).ok();
        if seconds.is_none() {
            remarks.push(unusable(field, &format!("{value} is not a time")));
        }
        seconds
    };
    if let Some(soak) = new.osds.soak_seconds
        && let Some(soak) = seconds(soak, "spec.updatePolicy.osds.soakSeconds", remarks)
    {
        policy.soak = soak;
        policy.canary_soak = soak;
    }
    if let Some(minutes) = new.doors_open_after_minutes
        && let Some(after) = seconds(
            minutes.saturating_mul(60),
            "spec.updatePolicy.doorsOpenAfterMinutes",
            remarks,
        )
    {
        policy.doors = Doors::AutoAfter(after);
    }
    if let Some(minutes) = spec.wait_timeout_for_healthy_osd_in_minutes
        && let Some(timeout) = seconds(
            minutes.saturating_mul(60),
            "spec.waitTimeoutForHealthyOSDInMinutes",
            remarks,
        )
    {
        policy.gate_timeout = timeout;
    }
    for (nth, window) in new.windows.iter().enumerate() {
        match window.read() {
            Ok(window) => policy.windows.push(window),
            Err(why) => {
                let field = format!("spec.updatePolicy.windows[{nth}]");
                remarks.push(unusable(&field, &why));
            }
        }
    }
    policy.interruptions.extend(new.interruptions.iter().cloned());
    policy.partial = new.partial.unwrap_or(false);
    policy.on_failure = match new.on_failure.unwrap_or(by_change) {
        FailureAction::Rollback => OnFailure::Rollback,
        FailureAction::Stop => OnFailure::Stop,
        FailureAction::Continue => OnFailure::Continue,
    };
    policy
}

fn start_timeout(policy: &UpdatePolicy, remarks: &mut Vec<FieldWarning>) -> Option<u32> {
    let minutes = policy.start_timeout_minutes?;
    let seconds = u32::try_from(minutes.saturating_mul(60)).ok();
    let seconds = seconds.filter(|seconds| *seconds > 0);
    if seconds.is_none() {
        let field = "spec.updatePolicy.startTimeoutMinutes";
        remarks.push(unusable(field, &format!("{minutes} is not a time")));
    }
    seconds
}

/// When groups are well enough, by `pgHealthyRegex`: where it has groups that move for healthy, they are waited for no longer. Copies
/// that are missing are waited for whatever it says.
fn groups(spec: &CephClusterSpec, remarks: &mut Vec<FieldWarning>) -> PgGate {
    const FIELD: &str = "spec.disruptionManagement.pgHealthyRegex";
    let text = spec.disruption_management.pg_healthy_regex.as_ref();
    let Some(text) = text.filter(|text| !text.is_empty()) else {
        return PgGate::Clean;
    };
    let healthy = match Regex::new(text) {
        Ok(healthy) => healthy,
        Err(error) => {
            remarks.push(unusable(FIELD, &error.to_string()));
            return PgGate::Clean;
        }
    };
    if MISSING.iter().any(|state| healthy.is_match(state)) {
        let what = "it has groups for healthy that lack copies; an update waits for these all the same";
        remarks.push(FieldWarning {
            field: FIELD.to_owned(),
            what: what.to_owned(),
        });
    }
    if MOVING.iter().any(|state| healthy.is_match(state)) {
        PgGate::NotDegraded
    } else {
        PgGate::Clean
    }
}

/// States of groups that have all their copies, some of them not yet where they belong.
const MOVING: [&str; 3] = [
    "active+remapped",
    "active+remapped+backfill_wait",
    "active+remapped+backfilling",
];
/// States of groups that have not.
const MISSING: [&str; 3] = [
    "active+undersized",
    "active+undersized+degraded",
    "active+recovery_wait+degraded",
];

/// How many OSDs may be down at once; `None`: as ever.
fn limit(desired: &Desired, remarks: &mut Vec<FieldWarning>) -> Option<Limit> {
    const NEW: &str = "spec.updatePolicy.osds.maxInParallelPerCluster";
    const OLD: &str = "spec.storage.osdMaxUpdatesInParallel";
    let mut read = |text: String, field: &str| match text.parse() {
        Ok(limit) => Some(limit),
        Err(error) => {
            let error: stagger_core::model::LimitError = error;
            remarks.push(unusable(field, &error.to_string()));
            None
        }
    };
    let is = desired
        .maintenance
        .spec
        .update_policy
        .osds
        .max_in_parallel_per_cluster
        .as_ref()
        .and_then(|value| match value {
            NumberOrPercent::Number(number) => read(number.to_string(), NEW),
            NumberOrPercent::Percent(text) => read(text.clone(), NEW),
        });
    let was = desired
        .cluster
        .spec
        .storage
        .osd_max_updates_in_parallel
        .and_then(|number| read(number.to_string(), OLD));
    prefer(remarks, (OLD, was), (NEW, is))
}

fn unusable(field: &str, why: &str) -> FieldWarning {
    FieldWarning {
        field: field.to_owned(),
        what: format!("{why}; it is taken as not set"),
    }
}
