//! `spec.updatePolicy` of a CephMaintenance: how bold to be, with the fields of the CephCluster that say the same to Rook.
//!
//! **Where both are set, the CephMaintenance counts, and that is said.** Of the two spellings of removal, which both are the
//! CephCluster's, the one that says no counts.

#![allow(
    unreachable_pub,
    reason = "the derive of a schema with rules repeats the struct inside a function"
)]

use std::collections::BTreeMap;

use kube::KubeSchema;
use regex::Regex;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use stagger_ceph::target::PgGate;
use stagger_core::model::{Doors, Growth, Kind, Limit, OnFailure, Order, Policy, Window};

use crate::api::cluster::{CephClusterSpec, is_default};
use crate::api::maintenance::{Desired, Manage};
use crate::api::pod::{self, Fields};

/// `spec.updatePolicy`.
#[derive(JsonSchema, Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UpdatePolicy {
    /// Neither prerequisites nor gates; then one OSD goes at a time, unchecked. Each use is an Event.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub skip_upgrade_checks: Option<bool>,
    /// Go on past a unit that is not healthy when its time is over, where constraints permit: `continue`, if
    /// `onFailure` is not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub continue_upgrade_after_checks_even_if_not_healthy: Option<bool>,
    /// Codes of `ceph health` that are taken for healthy: `POOL_NO_REDUNDANCY`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub health_errors_to_ignore: Vec<String>,
    /// No new wave while this is so. Never a change of the wish.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pause: Option<bool>,
    /// What becomes of a run when what it is to do is changed; not set: it is interrupted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_spec_change: Option<SpecChange>,
    /// What becomes of a wave that stays unhealthy. Not set: a new release is rolled back, a new revision
    /// of the same release goes on without the unit that failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_failure: Option<Failure>,
    /// How long to wait before what cannot be undone, in minutes; not set: a person approves.
    #[schemars(range(min = 0, max = 525_600))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub doors_open_after_minutes: Option<i64>,
    /// When waves may run; always, if there are none.
    #[schemars(length(max = 32))]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub windows: Vec<UpdateWindow>,
    /// What may be gone for a moment though nothing stands in for it, by its name or by that of its sort:
    /// `pool.rbd`, `mon`. A manager, a metadata server or a gateway that is alone needs no word.
    #[schemars(length(max = 64))]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub interruptions: Vec<String>,
    /// Whether what can be done is done where not all can be: else an upgrade that would end half-way is not begun.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub partial: Option<bool>,
    /// OSDs.
    #[serde(default, skip_serializing_if = "is_default")]
    pub osds: OsdPolicy,
}

/// `spec.updatePolicy.osds`.
#[derive(KubeSchema, Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OsdPolicy {
    /// Whether an OSD that is out and safe to destroy is removed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remove_if_out_and_safe_to_destroy: Option<bool>,
    /// How many OSDs may be down at once: a number, or a percentage of all OSDs; 15 %, if not set.
    #[x_kube(validation = Rule::new("type(self) == int ? self >= 1 : self.matches('^([1-9][0-9]?|100)%$')")
        .message("a number of 1 or more, or a percentage from 1% to 100%"))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_in_parallel_per_cluster: Option<NumberOrPercent>,
    /// Whether waves grow, 1, 2, 4 …; they do, if not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grow: Option<bool>,
    /// The level of failure domains of which one is finished before the next begins: `zone`.
    #[schemars(length(min = 1, max = 63))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub one_failure_domain_at_a_time: Option<String>,
    /// How long the gates must have held before the next wave, in seconds, also after the first of a kind.
    /// Not set: 30 s after the first of a kind, no longer than the gates themselves after others.
    #[schemars(range(min = 0, max = 31_536_000))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub soak_seconds: Option<i64>,
}

/// What becomes of a wave that stays unhealthy.
#[derive(JsonSchema, Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Failure {
    /// It goes back as far as that is possible.
    Rollback,
    /// Nothing more is touched.
    Stop,
    /// The rest goes on without it.
    Continue,
}

/// What becomes of a run when what it is to do is changed.
#[derive(JsonSchema, Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SpecChange {
    /// The open wave is finished, and from there on the new wish counts.
    Interrupt,
    /// The API server refuses the change while a run is under way.
    Lock,
}

/// When waves may run.
#[derive(JsonSchema, Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UpdateWindow {
    /// `mon` to `sun`; every day, if there are none.
    #[schemars(length(max = 7))]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub days: Vec<String>,
    /// `22:00`
    #[schemars(regex(pattern = r"^([01][0-9]|2[0-3]):[0-5][0-9]$"))]
    pub from: String,
    /// `05:00`; at or before `from`: of the next day.
    #[schemars(regex(pattern = r"^([01][0-9]|2[0-3]):[0-5][0-9]$"))]
    pub until: String,
    /// The IANA name of the time zone.
    #[schemars(length(min = 1, max = 64))]
    pub zone: String,
}

/// A number, or a percentage as text, as Kubernetes' own `IntOrString`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum NumberOrPercent {
    /// `4`
    Number(i64),
    /// `"15%"`
    Percent(String),
}

impl JsonSchema for NumberOrPercent {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "NumberOrPercent".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "x-kubernetes-int-or-string": true })
    }
}

/// What the fields of both come to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// How bold to be.
    pub policy: Policy,
    /// Neither prerequisites nor gates, and one OSD at a time.
    pub skip_checks: bool,
    /// No new wave.
    pub paused: bool,
    /// Codes of health that are taken for healthy.
    pub accepted: Vec<String>,
    /// When placement groups are well enough to go on.
    pub groups: PgGate,
    /// Whether an OSD that is out and safe to destroy is removed.
    pub remove_osds: bool,
    /// What the CephCluster names of pods beside the image, by kind of daemon; nothing, where Rook sees to that.
    pub pods: BTreeMap<String, Fields>,
    /// What a person should know: an old field, one that another overrides, a window that is none.
    pub remarks: Vec<Remark>,
}

/// Something about a field that a person should know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remark {
    /// The path of the field: `spec.skipUpgradeChecks`.
    pub field: String,
    /// What about it, and what to do.
    pub what: String,
}

impl Settings {
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
            (false, true) => Failure::Rollback,
            (true, _) | (false, false) => Failure::Continue,
        };
        let policy = policy(desired, by_change, &mut remarks);
        let groups = groups(spec, &mut remarks);
        let pods = if desired.manages(Manage::Provisioning) {
            pod::wished(spec, &mut remarks)
        } else {
            BTreeMap::new()
        };
        Self {
            policy,
            pods,
            skip_checks: skip_checks.unwrap_or(false),
            paused: new.pause.unwrap_or(false),
            accepted: new.health_errors_to_ignore.clone(),
            groups,
            remove_osds: remove_osds.unwrap_or(false),
            remarks,
        }
    }
}

/// The field of the CephMaintenance, else that of the CephCluster; a remark where they differ.
fn prefer<T: PartialEq + std::fmt::Debug>(
    remarks: &mut Vec<Remark>,
    (theirs, was): (&str, Option<T>),
    (ours, is): (&str, Option<T>),
) -> Option<T> {
    if let (Some(was), Some(is)) = (&was, &is)
        && was != is
    {
        remarks.push(Remark {
            field: theirs.to_owned(),
            what: format!(
                "the CephCluster says {was:?}; {ours} of the CephMaintenance says {is:?}, and that counts"
            ),
        });
    }
    is.or(was)
}

fn policy(desired: &Desired, by_change: Failure, remarks: &mut Vec<Remark>) -> Policy {
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
    let seconds = |value: i64, field: &str, remarks: &mut Vec<Remark>| {
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
        Failure::Rollback => OnFailure::Rollback,
        Failure::Stop => OnFailure::Stop,
        Failure::Continue => OnFailure::Continue,
    };
    policy
}

/// When groups are well enough, by `pgHealthyRegex`: where it has groups that move for healthy, they are waited for no longer. Copies
/// that are missing are waited for whatever it says.
fn groups(spec: &CephClusterSpec, remarks: &mut Vec<Remark>) -> PgGate {
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
        remarks.push(Remark {
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
fn limit(desired: &Desired, remarks: &mut Vec<Remark>) -> Option<Limit> {
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

impl UpdateWindow {
    fn read(&self) -> Result<Window, String> {
        let value = serde_json::json!({
            "days": self.days, "from": self.from, "until": self.until, "zone": self.zone,
        });
        serde_json::from_value(value).map_err(|error| error.to_string())
    }
}

fn unusable(field: &str, why: &str) -> Remark {
    Remark {
        field: field.to_owned(),
        what: format!("{why}; it is taken as not set"),
    }
}
