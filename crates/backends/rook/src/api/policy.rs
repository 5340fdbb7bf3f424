//! `spec.updatePolicy` of a CephMaintenance: the policy of updates.

#![allow(
    unreachable_pub,
    reason = "the derive of a schema with rules repeats the struct inside a function"
)]

use kube::KubeSchema;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use stagger_core::model::Window;

use crate::api::cluster::is_default;

/// `spec.updatePolicy`.
#[derive(JsonSchema, Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UpdatePolicy {
    /// Whether to skip preconditions and gates: then one OSD goes at a time, unchecked. Each use creates an Event.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub skip_upgrade_checks: Option<bool>,
    /// Continue past a unit that is not healthy when its time is over, where constraints permit: `continue`, if
    /// `onFailure` is not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub continue_upgrade_after_checks_even_if_not_healthy: Option<bool>,
    /// Health checks of Ceph to ignore, by their codes: `POOL_NO_REDUNDANCY`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub health_errors_to_ignore: Vec<String>,
    /// Whether to start no new wave. The target stays as it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pause: Option<bool>,
    /// What to do with a run when its target is changed; not set: it is interrupted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_spec_change: Option<SpecChange>,
    /// What to do with a wave that stays unhealthy. Not set: a new release is rolled back, a new revision of the same release
    /// continues without the unit that failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_failure: Option<FailureAction>,
    /// Minutes to wait before a point of no return is passed; not set: you approve each.
    #[schemars(range(min = 0, max = 525_600))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub doors_open_after_minutes: Option<i64>,
    /// When waves may run; always, if there are none.
    #[schemars(length(max = 32))]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub windows: Vec<UpdateWindow>,
    /// Interruptions that are permitted although there is no stand-in, by name or kind: `pool.rbd`, `mon`.
    /// A single manager, metadata server or gateway needs no entry.
    #[schemars(length(max = 64))]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub interruptions: Vec<String>,
    /// Ids of known risks that are accepted: an update does not start while another applies that refuses it.
    #[schemars(length(max = 64))]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub accepted_risks: Vec<String>,
    /// How long a daemon may take to serve after an update, in minutes: after that its update has failed. Not set: 10, and 30
    /// for another major release, or as long as gates may be shut. It takes effect at once, also in a run.
    #[schemars(range(min = 1, max = 1440))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_timeout_minutes: Option<i64>,
    /// Whether to update what can be updated if the target is out of reach: else such an upgrade does not start.
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
    /// The level of failure domains of which one is finished before the next starts: `zone`.
    #[schemars(length(min = 1, max = 63))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub one_failure_domain_at_a_time: Option<String>,
    /// How long the gates must have held before the next wave, in seconds, also after the first of a kind.
    /// Not set: 30 s after the first of a kind, no longer than the gates themselves after others.
    #[schemars(range(min = 0, max = 31_536_000))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub soak_seconds: Option<i64>,
}

/// What to do with a wave that stays unhealthy.
#[derive(JsonSchema, Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FailureAction {
    /// It is rolled back as far as that is supported.
    Rollback,
    /// Nothing more is changed.
    Stop,
    /// The rest goes on without it.
    Continue,
}

/// What to do with a run when its target is changed.
#[derive(JsonSchema, Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SpecChange {
    /// The open wave is finished, and from there on the new target counts.
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

/// Something about a field that a person should know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldWarning {
    /// The path of the field: `spec.skipUpgradeChecks`.
    pub field: String,
    /// What about it, and what to do.
    pub what: String,
}

impl UpdateWindow {
    pub(super) fn read(&self) -> Result<Window, String> {
        let value = serde_json::json!({
            "days": self.days, "from": self.from, "until": self.until, "zone": self.zone,
        });
        serde_json::from_value(value).map_err(|error| error.to_string())
    }
}
